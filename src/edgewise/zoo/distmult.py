"""DistMult: a triple is scored by a product of three vectors.

    score(h, r, t) = Σ_c h_c r_c t_c

Paper: https://arxiv.org/abs/1412.6575.
Parity: the equation in plain torch.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.distmult.Config(entities=10, relations=3, size=8)
>>> model = zoo.distmult.program(config).compile(R.score, seed=0)
>>> model(head=numbers([2, 5]), relation=numbers([0, 1])).shape
torch.Size([2, 10])
"""

from dataclasses import dataclass

from edgewise.language import Program, R, V
from edgewise.zoo import triples
from edgewise.zoo.parts import Statements


@dataclass(frozen=True)
class Config(triples.TripleConfig):
    """Sizes of the tables of vectors."""


def anchor(config: Config) -> Statements:
    """anchor(q) = h ⊙ r."""
    query = triples.head(config) * triples.relation(config, config.size)
    return [R.anchor(V.Q) <= query]


def program(config: Config) -> Program:
    """Reads `head(q)` and `relation(q)`; derives `score(q)`, of all entities."""
    return triples.by_product(config, anchor(config))


def sampled(config: Config) -> Program:
    """Reads `candidate(q, k)` too; derives `score(q, k)`, with the weights of `program`."""
    return triples.of_candidates(config, anchor(config), triples.dot)
