"""Transformer-XL: attention to the previous segment, relative positions.

    zⱼ = memory and segment, concatenated;  i attends to j ≤ m + i, where m is the memory's length
    scoreᵢⱼ = ((qᵢ + u) · kⱼ + (qᵢ + v) · P r(m + i - j)) / √d,   r = sines and cosines
    aᵢ = norm(xᵢ + O attention(z)ᵢ),   yᵢ = norm(aᵢ + W₂ relu(W₁ aᵢ))

The inputs of a layer for one segment are its memory for the next; memory is data, so no gradient
flows through it.

Paper: https://arxiv.org/abs/1901.02860. Parity: `torch`, by the equations, in
tests/zoo/test_memory.py.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.transformer_xl.Config(
...     vocabulary=50, size=16, heads=2, hidden=32, layers=2, memory=4
... )
>>> model = zoo.transformer_xl.program(config).compile(R.logits, seed=0)
>>> model(token=numbers(torch.arange(9)), memory=torch.zeros(2, 4, 16)).shape
torch.Size([9, 50])
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

from edgewise.graphs import causal
from edgewise.graphs.checks import integer
from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression, Fact, Function, Statement, Variable
from edgewise.zoo import block, layers
from edgewise.zoo.block import Edges
from edgewise.zoo.parts import Statements, dropped, head_size, heads, speeds

Carried = tuple[list[Statement], tuple[Atom, ...]]


@dataclass(frozen=True)
class Config(block.Block):
    """`memory` is m, the number of rows that every layer remembers.

    A `graph` is one of all tokens, those remembered before those of the segment.
    """

    vocabulary: int = 267_735
    size: int = 410
    heads: int = 10
    hidden: int = 2100
    layers: int = 16
    memory: int = 150
    eps: float = 1e-5
    dropout: float = 0.1
    activation: Function = F.relu

    OWN: ClassVar = {"norm": "post", "positions": "relative"}
    FITS: ClassVar = {"positions": ("relative", "none")}

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.memory, "memory")

    @property
    def past(self) -> tuple[tuple[str, int], ...]:
        """The relations that hold what is remembered, in order, with the length of each."""
        return (("memory", self.memory),)

    @property
    def shift(self) -> int:
        """How many rows are remembered."""
        return sum(length for _, length in self.past)


def places(x: Atom, config: Config) -> Statements:
    """`place(D)`, the vector r(D), for every distance from a row of x to a row it attends to."""
    row, speed = R.hidden[x.relation], W.speed[list(speeds(config.size))].fixed()
    far = R.special.add(V.I, config.shift, V.S), R.special.add(V.J, V.D, V.S)
    return [
        R.far(V.D) <= row(V.D),
        *(
            R.far(V.D) <= (row(V.I), R.hidden[name](V.L, V.K), _moved(V.K, first), *far)
            for name, first in _firsts(config)
        ),
        (R.angle(V.D) <= (R.special.add_eval(V.D, 0), speed, R._far(V.D))) | [F.product],
        R.place(V.D) <= F.concat(F.sin(R.angle(V.D)), F.cos(R.angle(V.D))),
        R.u(V.H) <= W.u(V.H)[head_size(config.size, config.heads),],
        R.v(V.H) <= W.v(V.H)[head_size(config.size, config.heads),],
    ]


def _firsts(config: Config) -> list[tuple[str, int]]:
    """Where what is remembered begins among all rows."""
    firsts = accumulate((length for _, length in config.past), initial=0)
    return [(name, first) for (name, _), first in zip(config.past, firsts, strict=False)]


def _moved(k: Variable, first: int) -> Expression:
    """Row k of a relation is row j of all."""
    return R.special.add(k, first, V.J)


def remembered(x: Atom, depth: Atom, y: Atom, config: Config) -> Statements:
    """What is remembered at this depth and, behind it, the rows of the segment."""
    at = R.hidden[depth.relation](V.L)
    return [
        *(y(V.J) <= (R[name](V.L, V.K), at, _moved(V.K, n)) for name, n in _firsts(config)),
        y(V.J) <= (x(V.I), R.special.add(V.I, config.shift, V.J)),
    ]


def attention(x: Atom, z: Atom, y: Atom, config: Config, edges: Edges) -> Statements:
    """Attention of the rows of x to those of z, where they stand `config.shift` further on."""
    size, h, placed = config.size, V.H, config.positions == "relative"
    d = head_size(size, config.heads)
    values, value = heads(z, R.value, size, d, bias=False), R.value(h, V.J)
    if config.aggregation != "softmax":
        return [*values, *layers.attend(x, y, value, (), config, edges)]
    scale = layers.factor(config, d)
    query = R.q(h, V.I) + R.u(h) if placed else R.q(h, V.I)
    terms: tuple[Expression, ...] = (R.k(h, V.J).T @ R.content(h, V.I),)
    terms += (R.to_place(h, V.I, V.J),) if placed else ()
    return [
        *heads(x, R.q, size, d, bias=False),
        *heads(z, R.k, size, d, bias=False),
        *values,
        R.content(h, V.I) <= F.identity(query)[scale].fixed(),
        *(to_places(z, config, scale) if placed else []),
        *layers.attend(x, y, value, terms, config, edges),
    ]


def to_places(z: Atom, config: Config, scale: float) -> Statements:
    """The score of the distance from row i to a row of z."""
    size, h = config.size, V.H
    d = head_size(size, config.heads)
    far = R.special.add(V.I, config.shift, V.S), R.special.add(V.J, V.D, V.S)
    pair = R.away(h, V.D).T, R.placed(h, V.I), R.hidden[z.relation](V.J), *far
    return [
        R.away(h, V.D) <= R.place(V.D)[W["away.weight"](h)[d, size]],
        R.placed(h, V.I) <= (R.q(h, V.I) + R.v(h))[scale].fixed(),
        (R.to_place(h, V.I, V.J) <= pair) | [F.product],
    ]


def edges_of(config: Config) -> tuple[Edges, ...]:
    """Rows before and at the own one; relative positions imply as much."""
    past = (causal().shift(-config.shift, 0)(V.I, V.J),)
    own = () if config.positions == "relative" else past
    return block.edges(config, config.layers, own=own, past=past, shift=config.shift)


def layer(x: Atom, depth: Atom, states: Atom, config: Config, edges: Edges) -> Carried:
    """Carries the rows, their depth, and the inputs of all layers so far."""

    def attends(read: Atom) -> Statements:
        return [
            *remembered(read, depth, R.z, config),
            *attention(read, R.z, R.heads, config, edges),
        ]

    made = layers.layer(x, attends, config, p=config.dropout)
    rules = [*made, *states_of(depth, states, block.last(made))]
    return rules, (block.last(made), R.deeper, R.states)


def states_of(depth: Atom, states: Atom, y: Atom) -> Statements:
    """The states so far, and the rows of y as the input of the next layer."""
    return [
        R.deeper(V.M) <= (R.hidden[depth.relation](V.L), R.special.next(V.L, V.M)),
        R.states(V.L, V.I) <= states(V.L, V.I),
        R.states(V.L, V.I) <= (y(V.I), R._deeper(V.L)),
    ]


def program(config: Config) -> Program:
    """Reads `token(i)` and `memory(l, j)`, what layer l remembers: m rows or, at first, none.

    Derives `logits(i)` and `states(l, i)`, the inputs of layer l: the last m are the next memory.
    One model has both: `compile([R.logits, R.states])`.
    """
    rules = stacked(
        config,
        lambda edges: lambda x, depth, states: layer(x, depth, states, config, edges),
    )
    return Program(rules, domains={V.H: config.heads})


def stacked(
    config: Config, made: Callable[[Edges], Callable[[Atom, Atom, Atom], Any]]
) -> list[Statement]:
    """Embeddings, layers that carry the states, and a score for every word."""
    size = config.size
    word = F.lookup(W.word[config.vocabulary, size], R.token(V.I))
    stack, (last, _, states) = block.stacked(made, edges_of(config), R.x, R.depth, R.first)
    pre = config.norm == "pre"
    out = R.out if pre else last
    return [
        Fact(R.depth(0)),
        R.x(V.I) <= dropped(word, config.dropout),
        R.first(0, V.I) <= R.x(V.I),
        *(places(R.x, config) if config.positions == "relative" else []),
        *stack,
        *(layers.ended(last, R.out, config) if pre else []),
        R.states(V.L, V.I) <= states(V.L, V.I),
        R.logits(V.I) <= out(V.I)["word" : config.vocabulary, size],
    ]
