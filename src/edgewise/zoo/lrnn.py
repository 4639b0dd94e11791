"""Lifted relational neural network on molecules: bonds and rings are rules, each with a vector.

    nearᵢ  = Σⱼ tanh(A xⱼ + B eᵢⱼ + b)                      for every bond (i, j)
    ringᵢ  = mean of tanh(Σₖ Rₖ x_{ring(k)} + r)             over its rings of 5 and of 6
    yᵢ     = W xᵢ + N nearᵢ + R⁵ ring⁵ᵢ + R⁶ ring⁶ᵢ + b

A ring is six atoms, all different, each bonded to the next; an atom that lies in none has no such
term. Positions k of a ring are counted from i, the same in both directions.

Paper: https://arxiv.org/abs/1508.05128; rings as rules: https://arxiv.org/abs/2007.06286.
Parity: the equations in plain torch.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.lrnn.Config(inputs=8, outputs=3, rings=(3,))
>>> model = zoo.lrnn.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(3, 8), edge=[(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)]).shape
torch.Size([3, 3])
"""

from dataclasses import dataclass, field

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression, Rule
from edgewise.zoo import network as networks
from edgewise.zoo.parts import Statements

RINGS = (5, 6)


@dataclass(frozen=True)
class Config:
    """Sizes of a layer; `edges` is that of the vector of a bond, 0 if it has none."""

    inputs: int = 16
    outputs: int = 16
    edges: int = 0
    rings: tuple[int, ...] = field(default=RINGS)


def ring(size: int) -> Rule:
    """ring_5(a, b, c, d, e): a cycle of this many different atoms.

    >>> ring(3)
    R.ring_3(V.A, V.B, V.C) <= (R._edge(V.A, V.B), R._edge(V.B, V.C), R._edge(V.C, V.A), R.special.alldiff(V.A, V.B, V.C))
    """  # noqa: E501
    atoms = [V[chr(ord("A") + at)] for at in range(size)]
    bonds = [R._edge(a, b) for a, b in zip(atoms, [*atoms[1:], atoms[0]], strict=True)]
    found: Rule = R[f"ring_{size}"](*atoms) <= (*bonds, R.special.alldiff(*atoms))
    return found


def in_ring(x: Atom, size: int, config: Config) -> Statements:
    """in_ring_5(a): the mean over the rings of a, in both directions."""
    atoms = [V[chr(ord("A") + at)] for at in range(size)]
    d, m = config.outputs, config.inputs
    terms = [x(atom)[W[f"ring_{size}.{min(at, size - at)}"][d, m]] for at, atom in enumerate(atoms)]
    where = R.hidden[f"ring_{size}"](*atoms)
    own = R[f"in_ring_{size}"](V.A)
    return [
        (own <= (*terms, W[f"ring_{size}.bias"][d,], where)) | [F.tanh, F.avg_agg],
        R.out(V.A) <= own[f"ring_{size}.out" : d, d],
    ]


def layer(x: Atom, config: Config) -> Statements:
    """Reads `x(i)`, `edge(i, j)` and rings, derives `out(i)`."""
    d, m = config.outputs, config.inputs
    near: tuple[Expression, ...] = (x(V.J)["near.weight":d, m], W["near.bias"][d,])
    if config.edges:
        near += (R.edge(V.I, V.J)["bond":d, config.edges],)
    else:
        near += (R._edge(V.I, V.J),)
    rules: Statements = [
        R.out(V.I) <= (x(V.I)["own":d, m], W["out.bias"][d,]),
        (R.near(V.I) <= near) | [F.tanh],
        R.out(V.I) <= R.near(V.I)["near.out":d, d],
    ]
    for size in config.rings:
        rules += in_ring(x, size, config)
    return rules


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, in both directions; derives `out(i)`."""
    return Program([*map(ring, config.rings), *layer(R.x, config)])


@dataclass(frozen=True, kw_only=True)
class Network(networks.Network):
    """Layers with rings of 5 and 6 atoms."""


def network(config: Network) -> Program:
    """Reads `x(i)` and `edge(i, j)`, in both directions."""

    def made(x: Atom, inputs: int, outputs: int, last: bool) -> Statements:
        return layer(x, Config(inputs, outputs, config.edges))

    return networks.assembled(config, made, *map(ring, RINGS))
