"""The attention program of the demo, and the atoms that change its graph."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.demo.sentences import STORY, TREE, WORDS, Sentence
from edgewise.graphs import bigbird
from edgewise.language import F, Program, R, V, W

D = 16


def attention(*condition: Any) -> Program:
    """Attention on the pairs (I, J) that satisfy a condition.

    A value is the word itself, as a column with a single 1, so what attention gives for a word is
    a share for every word of the language.
    """
    s, i, j = V.S, V.I, V.J
    return Program(
        [
            R.x(s, i) <= (W.word(V.Word)[D,], R.place(i), R._token(s, i, V.Word)),
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
class Graph:
    """A name, the condition that makes it, and facts it reads."""

    name: str
    says: str
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
    Graph("complete", "every word hears every word"),
    Graph("causal", "a word hears what was said before", (R.special.leq(V.J, V.I),)),
    Graph(
        "the last five",
        "a word hears the five before it, and itself",
        (R.special.sub(V.I, V.J, V.D), R.special.leq(V.D, 5)),
    ),
    Graph(
        "dependency tree",
        "a word hears its neighbours in the tree, and itself",
        (R._edge(V.I, V.J),),
        tree_edges(),
    ),
    Graph(
        "BigBird",
        "a word hears its neighbours, the first and the last word, and one at random",
        (bigbird(1, 1)(V.I, V.J),),
    ),
)


def tokens(sentences: Sequence[Sentence]) -> list[Any]:
    """The words of the sentences as facts `token(sentence, place, word)`."""
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


def places(count: int) -> list[Any]:
    """The positions as facts `place(i)`."""
    return [R.place(i)[row] for i, row in enumerate(position_table(count))]


def names() -> list[Any]:
    """The words themselves as facts `name(word)`: a column with a single 1."""
    return [R.name(word)[row] for word, row in zip(WORDS, torch.eye(len(WORDS)), strict=True)]
