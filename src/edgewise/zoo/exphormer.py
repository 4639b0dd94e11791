"""Exphormer: attention along edges, an expander graph and virtual nodes, beside message passing.

    sₕᵢⱼ = exp(clamp(Σ_c (Qₕ xᵢ ⊙ Kₕ xⱼ ⊙ Eₕ eᵢⱼ)_c / √d)), clamp to ±5
    aᵢ = ∥ₕ Σⱼ sₕᵢⱼ Vₕ xⱼ / (Σⱼ sₕᵢⱼ + ε), j over edges, an expander graph and virtual nodes
    mᵢ = norm(xᵢ + GINE(x, e)ᵢ),   tᵢ = norm(xᵢ + aᵢ),   yᵢ = norm(hᵢ + W₂ relu(W₁ hᵢ)), h = m + t

Paper: https://arxiv.org/abs/2303.06147. Each kind of edge has a vector of its own: edges their
features, the expander one for all, virtual nodes one in either direction. An edge that is also one
of the expander counts as two. A virtual node attends to all nodes of its graph.
Parity: the equations in plain torch.

>>> import torch
>>> from edgewise import R, rows, zoo
>>> config = zoo.exphormer.Config(size=8, heads=2, degree=2)
>>> model = zoo.exphormer.program(config).compile(R.out, seed=0)
>>> model(
...     x=torch.randn(6, 8),
...     edge=rows([(0, 1), (1, 2)], torch.randn(2, 8)),
...     virtual=torch.randn(1, 8),
... ).shape
torch.Size([6, 8])
"""

import math
from dataclasses import dataclass

from edgewise.graphs import expander
from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression, Statement, Variable
from edgewise.zoo import gps
from edgewise.zoo import network as networks
from edgewise.zoo.parts import Statements, head_size, heads

EPS = 1e-6
LARGEST = 5.0  # of a score


@dataclass(frozen=True)
class Config:
    """`edge(i, j)` has `size` features; `degree` is that of the expander, which is even."""

    size: int = 16
    heads: int = 4
    degree: int = 4
    virtual: int = 1
    seed: int = 0
    norm: str = "batch"
    dropout: float = 0.0


def layer(x: Atom, edge: Atom, virtual: Atom, config: Config) -> Statements:
    """Reads `x(i)`, `edge(i, j)` and `virtual(u)`; derives `out(i)` and `virtual_out(u)`."""
    size, d = config.size, head_size(config.size, config.heads)
    sizes = gps.Config(size, config.heads, 0, config.norm, config.dropout)
    return [
        *(rule for y in (R.q, R.k, R.v) for rule in _both(x, virtual, y, size, d)),
        *_kinds(x, edge, config),
        R.context(V.H, V.I) <= R.total(V.H, V.I) * F.inverse(R.mass(V.H, V.I) + EPS),
        (R.heads(V.I) <= R.context(V.H, V.I)) | [F.concat_agg],
        (R.virtual_context(V.H, V.U)
         <= R.virtual_total(V.H, V.U) * F.inverse(R.virtual_mass(V.H, V.U) + EPS)),
        (R.virtual_out(V.U) <= R.virtual_context(V.H, V.U)) | [F.concat_agg],
        *gps.beside(x, R.heads(V.I), sizes, edge),
    ]  # fmt: skip


def _both(x: Atom, virtual: Atom, y: Atom, size: int, d: int) -> Statements:
    """A projection of nodes and of virtual nodes, with the same weights."""
    weight = W[f"{y.relation}.weight"](V.H)[d, size]
    of_virtual: Statement = R[f"virtual_{y.relation}"](V.H, V.U) <= virtual(V.U)[weight]
    return [*heads(x, y, size, d, bias=False), of_virtual]


def _kinds(x: Atom, edge: Atom, config: Config) -> Statements:
    """Scores of the four kinds of edges, and sums over all that end in a row."""
    size, rows = config.size, R.hidden[x.relation]
    far = expander(config.degree, seed=config.seed)(V.I, V.J)
    q, k, v = R.q(V.H, V.I), R.k(V.H, V.J), R.v(V.H, V.J)
    virtual_q, virtual_k, virtual_v = (R[f"virtual_{n}"](V.H, V.U) for n in "qkv")
    near, along = R.near(V.H, V.I, V.J), R.along(V.H, V.I, V.J)
    inward, outward = R.inward(V.H, V.I, V.U), R.outward(V.H, V.U, V.J)
    total, virtual_total = R.total(V.H, V.I), R.virtual_total(V.H, V.U)
    mass, virtual_mass = R.mass(V.H, V.I), R.virtual_mass(V.H, V.U)
    return [
        R.expander_edge <= W.expander[size,],
        R.inward_edge(V.U) <= W.inward(V.U)[size,],
        R.outward_edge(V.U) <= W.outward(V.U)[size,],
        _score(near, q, k, edge(V.I, V.J), config),
        _score(along, q, k, R.expander_edge, config, rows(V.I), rows(V.J), far),
        _score(inward, q, virtual_k, R.inward_edge(V.U), config),
        _score(outward, virtual_q, k, R.outward_edge(V.U), config),
        *((total <= (score, row)) | [F.product]
          for score, row in ((near, v), (along, v), (inward, virtual_v))),
        *(mass <= score for score in (near, along, inward)),
        (virtual_total <= (outward, v)) | [F.product],
        virtual_mass <= outward,
    ]  # fmt: skip


def _score(y: Atom, q: Atom, k: Atom, edge: Atom, config: Config, *where: Expression) -> Statement:
    size, d = config.size, head_size(config.size, config.heads)
    ones = W.ones[[[1 / math.sqrt(d)] * d]].fixed()
    by_edge = edge[W["e.weight"](V.H)[d, size]]
    rule: Statement = (y <= ((q * k * by_edge)[ones], *where)) | [
        F.clamp(-LARGEST, LARGEST),
        F.exp,
    ]
    return rule


def program(config: Config) -> Program:
    """Reads `x(i)`, `edge(i, j)`, from j to i, and `virtual(u)`, with vectors; derives `out(i)`."""
    return Program(layer(R.x, R.edge, R.virtual, config), domains=_domains(config))


def _domains(config: "Config | Network") -> dict[Variable, int]:
    return {V.H: config.heads, V.U: config.virtual}


@dataclass(frozen=True, kw_only=True)
class Network(networks.BlockNetwork):
    """`degree` of the expander graph, a number of `virtual` nodes, and the `seed` of the former."""

    heads: int = 4
    degree: int = 4
    virtual: int = 1
    seed: int = 0
    task: str = "graph"


def network(config: Network) -> Program:
    """Reads `x(i)`, `edge(i, j)` and, with `positions`, `position(i)`."""
    sizes = Config(config.hidden, config.heads, config.degree, config.virtual, config.seed,
                   config.norm, config.dropout)  # fmt: skip
    start: Statement = R.virtual(V.U) <= W.virtual(V.U)[config.hidden,]
    before = iter([R.virtual, *(R[f"layer.{k}.virtual_out"] for k in range(config.layers))])
    return networks.assembled(
        config,
        lambda x, inputs, outputs, last: layer(x, R.bond, next(before), sizes),
        networks.bonds(config),
        start,
        domains=_domains(config),
        bare="out",
    )
