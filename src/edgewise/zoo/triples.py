"""What models of knowledge graphs share: a query (h, r, ?) is scored with entities as its answer.

    head(q), relation(q)    numbers of the query; (?, r, t) is the query (t, r⁻¹, ?)
    score(q)                a vector: the score of every entity (1-vs-all)
    score(q, k)             that of the entities candidate(q, k), such as negative samples

A model gives `anchor(q)`, what the query asks for, as a vector that is compared with entities.

>>> from edgewise import R, numbers, zoo
>>> config = zoo.distmult.Config(entities=10, relations=3, size=8)
>>> model = zoo.distmult.program(config).compile(R.score, seed=0)
>>> model(head=numbers([2, 5]), relation=numbers([0, 1])).shape
torch.Size([2, 10])
"""

from collections.abc import Callable
from dataclasses import dataclass

from edgewise.errors import caller
from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Expression, Weight
from edgewise.zoo.block import BadConfig, check_positive
from edgewise.zoo.parts import Statements, dropped


@dataclass(frozen=True)
class TripleConfig:
    """`relations` counts inverse ones too; `size` is that of the vector of an entity."""

    entities: int = 1000
    relations: int = 20
    size: int = 64
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_positive(self, "entities", "relations", "size")


def even(config: TripleConfig) -> int:
    """Half of the size: the number of complex features."""
    if config.size % 2:
        what = f"a vector of {config.size} numbers is not one of complex numbers"
        raise BadConfig(what, caller(), f"write `size={config.size + 1}`")
    return config.size // 2


def entity(config: TripleConfig) -> Weight:
    """The table of entities."""
    return W.entity[config.entities, config.size]


def head(config: TripleConfig) -> Expression:
    """The vector of the head of query Q."""
    return dropped(F.lookup(entity(config), R.head(V.Q)), config.dropout)


def relation(config: TripleConfig, size: int, name: str = "relation") -> Expression:
    """The vector of the relation of query Q."""
    return F.lookup(W[name][config.relations, size], R.relation(V.Q))


def by_product(config: TripleConfig, anchor: Statements) -> Program:
    """`score(q)` = E · anchor(q): one matrix product."""
    return Program([*anchor, R.score(V.Q) <= R.anchor(V.Q)[entity(config)]])


def of_candidates(
    config: TripleConfig,
    anchor: Statements,
    score: Callable[[Expression, Expression], Expression],
) -> Program:
    """`score(q, k)` of anchor(q) and the vector of candidate(q, k)."""
    tail = F.lookup(entity(config), R.candidate(V.Q, V.K))
    return Program([
        *anchor,
        R.tail(V.Q, V.K) <= tail,
        R.score(V.Q, V.K) <= score(R.anchor(V.Q), R.tail(V.Q, V.K)),
    ])  # fmt: skip


def dot(anchor: Expression, tail: Expression) -> Expression:
    """Their scalar product."""
    return anchor.T @ tail
