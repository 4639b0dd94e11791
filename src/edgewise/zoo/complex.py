"""ComplEx: DistMult with complex numbers, so that relations need not be symmetric.

    score(h, r, t) = Re Σ_c h_c r_c t̄_c

A vector has all real parts first, then all imaginary ones; h_c r_c turns and scales h_c, which is
`F.rotate` with the parts of r_c in place of a cosine and a sine.

Paper: https://arxiv.org/abs/1606.06357; inverse relations: https://arxiv.org/abs/1806.07297.
Parity: the equation in torch's complex numbers.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.complex.Config(entities=10, relations=3, size=8)
>>> model = zoo.complex.program(config).compile(R.score, seed=0)
>>> model(head=numbers([2, 5]), relation=numbers([0, 1])).shape
torch.Size([2, 10])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V
from edgewise.zoo import triples
from edgewise.zoo.parts import Statements


@dataclass(frozen=True)
class Config(triples.TripleConfig):
    """Sizes of the tables of vectors, of which half are real parts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        triples.even(self)


def anchor(config: Config) -> Statements:
    """anchor(q) = h r, in complex numbers."""
    d = triples.even(config)
    real, imaginary = (
        triples.relation(config, d, f"relation.{part}") for part in ("real", "imaginary")
    )
    return [R.anchor(V.Q) <= F.rotate(triples.head(config), real, imaginary)]


def program(config: Config) -> Program:
    """Reads `head(q)` and `relation(q)`; derives `score(q)`, of all entities."""
    return triples.by_product(config, anchor(config))


def sampled(config: Config) -> Program:
    """Reads `candidate(q, k)` too; derives `score(q, k)`, with the weights of `program`."""
    return triples.of_candidates(config, anchor(config), triples.dot)
