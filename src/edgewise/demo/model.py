"""The sentences of the demo, its attention program, its graphs, its training, and a long text."""

import math
import random
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import bigbird, window
from edgewise.language import F, Program, R, V, W

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


D = 16
STEPS, BATCH, RATE = 80, 8, 0.02
TARGET = 0.9  # the weight of the word that a word belongs to; the rest is uniform


def attention(*condition: Any) -> Program:
    """Attention on the pairs (I, J) that satisfy a condition.

    A value is the one-hot vector of a word, so the output of attention for a word is a distribution
    over the vocabulary.
    """
    s, i, j = V.S, V.I, V.J
    return Program(
        [
            R.x(s, i) <= (W.word(V.Word)[D,], R.position(i), R._token(s, i, V.Word)),
            R.q(s, i) <= R.x(s, i)["q":D, D],
            R.k(s, i) <= R.x(s, i)["k":D, D],
            R.v(s, i) <= (R.name(V.Word), R._token(s, i, V.Word)),
            R.d_k[1 / math.sqrt(D)].fixed(),
            (R.weights(s, i, j) <= (R.d_k, R.k(s, j).T, R.q(s, i), *condition))
            | [F.product, F.softmax_agg(agg_terms=[j])],
            (R.attention(s, i) <= (R.weights(s, i, j), R.v(s, j))) | [F.product],
        ],
        domains={V.Word: WORDS},
    )


@dataclass(frozen=True)
class DemoGraph:
    """A graph: its name, description, condition and the facts that it reads."""

    name: str
    description: str
    condition: tuple[Any, ...] = ()
    facts: tuple[Any, ...] = ()


def tree_edges() -> tuple[Any, ...]:
    """Every word of the story with itself, its head and its children."""
    place = {word: i for i, word in enumerate(STORY.words)}
    pairs = [(i, i) for i in place.values()]
    for word, head in TREE.items():
        pairs += [(place[word], place[head]), (place[head], place[word])]
    return tuple(R.edge(i, j) for i, j in sorted(pairs))


GRAPHS = (
    DemoGraph("complete", "every word attends to every word"),
    DemoGraph("causal", "a word attends to the words before it", (R.special.leq(V.J, V.I),)),
    DemoGraph(
        "the last five",
        "a word attends to itself and the five before it",
        (R.special.sub(V.I, V.J, V.D), R.special.leq(V.D, 5)),
    ),
    DemoGraph(
        "dependency tree",
        "a word attends to itself and its neighbours in the tree",
        (R._edge(V.I, V.J),),
        tree_edges(),
    ),
    DemoGraph(
        "BigBird",
        "a word attends to its neighbours, the first and last word, and a random one",
        (bigbird(1, 1)(V.I, V.J),),
    ),
)


def tokens(sentences: Sequence[Sentence]) -> list[Any]:
    """The words of the sentences as facts `token(sentence, position, word)`."""
    return [
        R.token(s, i, word)
        for s, sentence in enumerate(sentences)
        for i, word in enumerate(sentence.words)
    ]


def position_table(count: int) -> Tensor:
    """Sinusoidal positions, one row each."""
    rate = torch.exp(torch.arange(0, D, 2) * (-math.log(100.0) / D))
    angles = torch.arange(count)[:, None] * rate
    return torch.cat([angles.sin(), angles.cos()], 1)


def positions(count: int) -> list[Any]:
    """The positions as facts `position(i)`."""
    return [R.position(i)[row] for i, row in enumerate(position_table(count))]


def names() -> list[Any]:
    """One-hot vectors of the words as facts `name(word)`."""
    return [R.name(word)[row] for word, row in zip(WORDS, torch.eye(len(WORDS)), strict=True)]


def compile_model() -> Any:
    """The attention program as a torch module."""
    return attention().compile(R.attention, seed=0, dtype=torch.float64)


def grounded(model: Any, sentences: Sequence[Sentence]) -> Any:
    """The grounding of these sentences."""
    return model.ground(facts=tokens(sentences) + positions(LONGEST) + names())


def targets(sentences: Sequence[Sentence]) -> Tensor:
    """The target distribution of every word, in key order."""
    rows = []
    for sentence in sentences:
        columns = [WORDS.index(word) for word in sentence.words]
        for j in sentence.belongs:
            row = torch.zeros(len(WORDS), dtype=torch.float64)
            row[columns] = (1 - TARGET) / len(columns)
            row[columns[j]] += TARGET
            rows.append(row)
    return torch.stack(rows)


def accuracy(model: Any, sentences: Sequence[Sentence]) -> float:
    """The share of words that attend most to the word they belong to."""
    output = model(grounded(model, sentences)).data
    return (output.argmax(1) == targets(sentences).argmax(1)).double().mean().item()


def train(model: Any) -> Iterator[float]:
    """Train the model in place; yield the loss of every step."""
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    sentences = corpus(STEPS * BATCH, seed=0)
    for start in range(0, len(sentences), BATCH):
        batch = sentences[start : start + BATCH]
        output = model(grounded(model, batch)).data
        loss = -(targets(batch) * output.clamp_min(1e-12).log()).sum(1).mean()  # cross entropy
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        yield loss.item()


LENGTH, RADIUS = 65_536, 256


@dataclass(frozen=True)
class LongTextRun:
    """Time and memory of one training step on a long text."""

    pairs: int
    kernel: str
    ground_s: float
    step_s: float
    peak_gib: float
    finite: bool


def long_text(length: int) -> list[str]:
    """`length` words of random sentences."""
    choose = random.Random(0)
    return list(
        islice(chain.from_iterable(random_sentence(choose).words for _ in repeat(None)), length)
    )


SAME_SPEAKER = (R._speaker(V.S, V.I, V.P), R._speaker(V.S, V.J, V.P))


def speakers(length: int) -> list[Any]:
    """Who of two says each word: turns of about 24 words."""
    choose, found, speaker = random.Random(0), [], 0
    for i in range(length):
        speaker = choose.randrange(2) if choose.random() < 1 / 12 else speaker
        found.append(R.speaker(0, i, speaker))
    return found


def long_step(
    trained: Any, length: int = LENGTH, condition: tuple[Any, ...] = (), more: Sequence[Any] = ()
) -> LongTextRun:
    """Time the grounding of a long text and one forward and backward pass, the faster of two;
    `more` facts are what a further condition reads."""
    model = attention(window(RADIUS)(V.I, V.J), *condition).compile(R.attention)
    model.load_state_dict(trained.state_dict())
    start = time.perf_counter()
    facts = [R.token(0, i, word) for i, word in enumerate(long_text(length))]
    data = model.ground(facts=[*facts, *more, *names()], position=position_table(length))
    grounded = time.perf_counter()
    steps = []
    for _ in range(2):
        begin = time.process_time()
        model(data).data.square().sum().backward()
        steps.append(time.process_time() - begin)
    explained = model.explain(data, stage="kernels", json=True)["kernels"]
    used = next(s for r in explained["relations"] for s in r["steps"] if "pairs" in s)
    gradients = [p.grad for p in model.parameters() if p.requires_grad]
    return LongTextRun(
        pairs=used["pairs"],
        kernel=used["kernel"],
        ground_s=grounded - start,
        step_s=min(steps),
        peak_gib=peak_gib(),
        finite=all(g is not None and bool(torch.isfinite(g).all()) for g in gradients),
    )


def peak_gib() -> float:
    """Peak memory of this process in GiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) / (2**30 if sys.platform == "darwin" else 2**20)  # bytes there, else KiB
