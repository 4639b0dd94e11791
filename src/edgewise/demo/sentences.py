"""A small synthetic language for the demo.

The task: to which word does each word belong? A pronoun to its antecedent, an adjective to its
noun, a verb to its subject. One attention layer can learn it.
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
    """Words, and for each the position of the word it belongs to."""

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
    words = [(role, word, owner) for role, word, owner in phrase if word is not None]
    position = {role: i for i, (role, _, _) in enumerate(words)}
    return Sentence(
        tuple(word for _, word, _ in words), tuple(position[owner] for _, _, owner in words)
    )


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


def random_sentence(choose: random.Random) -> Sentence:
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
    """Distinct random sentences, without the story itself."""
    choose = random.Random(seed)
    found: dict[Sentence, None] = {}
    while len(found) < count:
        one = random_sentence(choose)
        if one != STORY:
            found[one] = None
    return list(found)
