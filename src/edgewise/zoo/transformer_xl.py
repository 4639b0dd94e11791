"""Transformer-XL: attention to the previous segment, relative positions.

    zⱼ = memory and segment, concatenated;  i attends to j ≤ m + i, where m is the memory's length
    scoreᵢⱼ = ((qᵢ + u) · kⱼ + (qᵢ + v) · P r(m + i - j)) / √d,   r = sines and cosines
    aᵢ = norm(xᵢ + O attention(z)ᵢ),   yᵢ = norm(aᵢ + W₂ relu(W₁ aᵢ))

The inputs of a layer for one segment are its memory for the next; memory is data, so no gradient
flows through it.

Paper: https://arxiv.org/abs/1901.02860. Parity: `torch`, by the equations, in
tests/zoo/test_memory.py.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from edgewise.graphs.checks import integer
from edgewise.language import F, Program, R, V, W, repeat
from edgewise.language.nodes import Atom, Expression, Fact, Statement, Variable
from edgewise.zoo.parts import Statements, attended, dropped, head_size, heads, post_norm, speeds

Carried = tuple[list[Statement], tuple[Atom, ...]]


@dataclass(frozen=True)
class Config:
    """`memory` is m, the number of rows that every layer remembers."""

    vocabulary: int = 267_735
    size: int = 410
    heads: int = 10
    hidden: int = 2100
    layers: int = 16
    memory: int = 150
    eps: float = 1e-5
    dropout: float = 0.1

    def __post_init__(self) -> None:
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


def attention(x: Atom, z: Atom, y: Atom, config: Config) -> Statements:
    """Attention of the rows of x to those of z, where they stand `config.shift` further on."""
    size, h = config.size, V.H
    d = head_size(size, config.heads)
    scale = 1 / math.sqrt(d)
    shift = R.special.add(V.I, config.shift, V.S)
    far = R.hidden[z.relation](V.J), shift, R.special.add(V.J, V.D, V.S)
    return [
        *heads(x, R.q, size, d, bias=False),
        *heads(z, R.k, size, d, bias=False),
        *heads(z, R.value, size, d, bias=False),
        R.away(h, V.D) <= R.place(V.D)[W["away.weight"](h)[d, size]],
        R.content(h, V.I) <= (R.q(h, V.I) + R.u(h))[scale].fixed(),
        R.placed(h, V.I) <= (R.q(h, V.I) + R.v(h))[scale].fixed(),
        (R.to_place(h, V.I, V.J) <= (R.away(h, V.D).T, R.placed(h, V.I), *far)) | [F.product],
        (R.weights(h, V.I, V.J) <= (R.k(h, V.J).T @ R.content(h, V.I), R.to_place(h, V.I, V.J)))
        | [F.sum, F.softmax_agg(agg_terms=[V.J])],
        *attended(y, R.value, config.dropout),
    ]


def layer(x: Atom, depth: Atom, states: Atom, config: Config) -> Carried:
    """Carries the rows, their depth, and the inputs of all layers so far."""
    size, hidden, p = config.size, config.hidden, config.dropout
    rules = [
        *remembered(x, depth, R.z, config),
        *attention(x, R.z, R.heads, config),
        *post_norm(x, R.heads, R.out, size, hidden, eps=config.eps, p=p, hidden_p=p),
        *states_of(depth, states, R.out),
    ]
    return rules, (R.out, R.deeper, R.states)


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
    """
    rules = stacked(config, lambda x, depth, states: layer(x, depth, states, config))
    return Program(rules, domains={V.H: config.heads})


def stacked(config: Config, block: Callable[[Atom, Atom, Atom], Carried]) -> list[Statement]:
    """Embeddings, layers that carry the states, and a score for every word."""
    size = config.size
    word = F.lookup(W.word[config.vocabulary, size], R.token(V.I))
    stack = repeat(block, config.layers)(R.x, R.depth, R.first)
    out, _, states = (R[f"layer.{name}"] for name in stack.outputs)
    return [
        Fact(R.depth(0)),
        R.x(V.I) <= dropped(word, config.dropout),
        R.first(0, V.I) <= R.x(V.I),
        *places(R.x, config),
        stack,
        R.states(V.L, V.I) <= states(V.L, V.I),
        R.logits(V.I) <= out(V.I)["word" : config.vocabulary, size],
    ]
