"""The attention program of the demo, its graphs and its training."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.demo.sentences import LONGEST, STORY, TREE, WORDS, Sentence, corpus
from edgewise.graphs import bigbird
from edgewise.language import F, Program, R, V, W

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
