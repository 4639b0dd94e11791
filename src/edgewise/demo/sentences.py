"""A small language of our own: who plays what, and what "it" is.

Every word is asked for the word it belongs to: a pronoun for what it stands for, an adjective for
its noun, a verb for who does it. One reading of the words is enough to answer, so one attention
layer can learn it.
"""

import random
from dataclasses import dataclass

SHE, HE = ["Alice", "Mia", "Nora"], ["Bumblebee", "Hugo", "Theo"]
THINGS = ["music", "honey", "soup", "poetry", "paper", "news"]
ADJECTIVES = ["catchy", "sweet", "old", "strange", "fresh"]
DETERMINERS = ["some", "more", "this"]
GIVES = ["plays", "brings", "shows", "sends"]
DOES = ["dances", "sings", "listens", "smiles"]
PREPOSITIONS = ["to", "for", "with"]
WORDS = [
    *SHE,
    *HE,
    *THINGS,
    *ADJECTIVES,
    *DETERMINERS,
    *GIVES,
    *DOES,
    *PREPOSITIONS,
    *("and", "it", "her", "him"),
]
LONGEST = 10


@dataclass(frozen=True)
class Sentence:
    """Words, and for each of them the place of the word it belongs to."""

    words: tuple[str, ...]
    belongs: tuple[int, ...]

    def __str__(self) -> str:
        return " ".join(self.words)


def sentence(subject: str, verb: str, noun: str, **parts: str) -> Sentence:
    """One sentence, with the optional parts `friend`, `adjective` and `pronoun`.

    >>> s = sentence("Bumblebee", "plays", "music", adjective="catchy")
    >>> print(s)
    Bumblebee plays some catchy music and dances to it
    >>> s.words[s.belongs[s.words.index("it")]]
    'music'
    """
    pronoun = parts.get("pronoun", "it")
    phrase = [
        ("subject", subject, "verb"),
        ("verb", verb, "subject"),
        ("friend", parts.get("friend"), "verb"),
        ("determiner", parts.get("determiner", "some"), "noun"),
        ("adjective", parts.get("adjective"), "noun"),
        ("noun", noun, "verb"),
        ("and", "and", "second"),
        ("second", parts.get("second", "dances"), "subject"),
        ("preposition", parts.get("preposition", "to"), "pronoun"),
        ("pronoun", pronoun, "noun" if pronoun == "it" else "friend"),
    ]
    said = [(role, word, owner) for role, word, owner in phrase if word is not None]
    place = {role: i for i, (role, _, _) in enumerate(said)}
    return Sentence(tuple(word for _, word, _ in said), tuple(place[owner] for _, _, owner in said))


STORY = sentence("Bumblebee", "plays", "music", adjective="catchy")
TREE = {  # a dependency tree of the story by hand: word → its head
    "Bumblebee": "plays",
    "some": "music",
    "catchy": "music",
    "music": "plays",
    "and": "dances",
    "dances": "plays",
    "to": "it",
    "it": "dances",
}


def drawn(choose: random.Random) -> Sentence:
    """A random sentence."""
    ours, others = choose.sample([SHE, HE], 2)
    parts = {
        "determiner": choose.choice(DETERMINERS),
        "second": choose.choice(DOES),
        "preposition": choose.choice(PREPOSITIONS),
    }
    if choose.random() < 0.7:
        parts["adjective"] = choose.choice(ADJECTIVES)
    if choose.random() < 0.5:
        parts["friend"] = choose.choice(others)
        parts["pronoun"] = choose.choice(["it", "her" if others is SHE else "him"])
    return sentence(choose.choice(ours), choose.choice(GIVES), choose.choice(THINGS), **parts)


def corpus(count: int, seed: int) -> list[Sentence]:
    """Different random sentences, without the story itself."""
    choose = random.Random(seed)
    found: dict[Sentence, None] = {}
    while len(found) < count:
        one = drawn(choose)
        if one != STORY:
            found[one] = None
    return list(found)
