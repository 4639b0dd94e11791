"""RotatE: a relation turns the head by an angle in every complex plane, towards the tail.

    score(h, r, t) = γ − Σ_c |h_c e^{iθ_rc} − t_c|

Paper: https://arxiv.org/abs/1902.10197.
Parity: the equation in torch's complex numbers.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.rotate.Config(entities=10, relations=3, size=8)
>>> model = zoo.rotate.program(config).compile(R.score, seed=0)
>>> model(head=numbers([2, 5]), relation=numbers([0, 1]), candidate=numbers(torch.arange(10))).shape
torch.Size([2, 10])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Expression
from edgewise.zoo import triples
from edgewise.zoo.parts import Statements

LEAST = 1e-12  # under the root, whose gradient at 0 is infinite


@dataclass(frozen=True)
class Config(triples.TripleConfig):
    """`margin` is γ, the score of a tail that is met exactly."""

    margin: float = 6.0

    def __post_init__(self) -> None:
        super().__post_init__()
        triples.even(self)


def anchor(config: Config) -> Statements:
    """anchor(q) = h turned by the angles of r."""
    angle = R.angle(V.Q)
    return [
        angle <= triples.relation(config, triples.even(config), "relation.angle"),
        R.anchor(V.Q) <= F.rotate(triples.head(config), F.cos(angle), F.sin(angle)),
    ]


def near(config: Config, anchor: Expression, tail: Expression) -> Expression:
    """γ − Σ_c |anchor_c − tail_c|."""
    d = config.size // 2
    square = F.square(anchor - tail)
    real, imaginary = F.slice(rows=(0, d))(square), F.slice(rows=(d, 2 * d))(square)
    distance = F.sqrt(real + imaginary + LEAST)
    return distance[W.minus[[[-1.0] * d]].fixed()] + config.margin


def program(config: Config) -> Program:
    """Reads `head(q)`, `relation(q)` and `candidate(k)`, such as all entities.

    Derives `score(q, k)`; distances are computed pair by pair.
    """
    return Program([
        *anchor(config),
        R.tail(V.K) <= F.lookup(triples.entity(config), R.candidate(V.K)),
        R.score(V.Q, V.K) <= near(config, R.anchor(V.Q), R.tail(V.K)),
    ])  # fmt: skip


def sampled(config: Config) -> Program:
    """Reads `candidate(q, k)`; derives `score(q, k)`, with the weights of `program`."""

    def score(query: Expression, tail: Expression) -> Expression:
        return near(config, query, tail)

    return triples.of_candidates(config, anchor(config), score)
