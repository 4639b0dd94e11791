"""Adaptive span: every head learns how far back it attends, up to S tokens.

    m(x) = min(max((R + z - x) / R, 0), 1),  z = the span of the head, learned
    aᵢⱼ ∝ m(i - j) exp(sᵢⱼ),   sᵢⱼ = qᵢ · (kⱼ + p(i - j)) / √d,   i - S ≤ j < i
    oᵢ = norm(xᵢ + O Σⱼ aᵢⱼ vⱼ),   yᵢ = norm(oᵢ + W₂ relu(W₁ oᵢ))

The first token attends to nothing. The loss of the paper adds a multiple of the sum of all z.

Paper: https://arxiv.org/abs/1905.07799. Parity: `torch`, by the equations, in
tests/zoo/test_memory.py.
"""

import math
from dataclasses import dataclass

from edgewise.graphs.checks import integer
from edgewise.language import F, Program, R, V, W, repeat
from edgewise.language.nodes import Atom
from edgewise.zoo.parts import (
    Statements,
    dropped,
    feed_forward,
    head_size,
    heads,
    layer_norm,
    linear,
    residual,
)


@dataclass(frozen=True)
class Config:
    """`span` is S, the largest span a head can learn; `ramp` is R, the width of its soft end."""

    vocabulary: int = 10_000
    size: int = 512
    heads: int = 8
    hidden: int = 2048
    layers: int = 12
    span: int = 1024
    ramp: int = 32
    eps: float = 1e-5
    dropout: float = 0.1

    def __post_init__(self) -> None:
        integer(self.span, "span", 1)
        integer(self.ramp, "ramp", 1)


def masks(config: Config) -> Statements:
    """`place(D)`, and `mask(H, D)`: the soft mask of head H at distance D + 1."""
    z, ramp = W.span(V.H)[1,].filled(0.0), 1 / config.ramp
    far = R.special.add_eval(V.D, 1)[-ramp].fixed()
    return [
        R.place(V.D) <= W.place(V.D)[head_size(config.size, config.heads),],
        R.z(V.H) <= F.clamp(0, config.span)(z),
        R.mask(V.H, V.D) <= (F.clamp(0, 1)(R.z(V.H)[ramp].fixed() + far + 1.0), R._place(V.D)),
    ]


def attention(x: Atom, y: Atom, config: Config) -> Statements:
    """Softmax over the last S tokens, masked by distance and normalised again."""
    size, h = config.size, V.H
    d = head_size(size, config.heads)
    query, weights = R.q(h, V.I)[1 / math.sqrt(d)].fixed(), R.weights(h, V.I, V.J)
    back = R.special.add(V.J, V.D, V.S), R.special.next(V.S, V.I)  # d = i - j - 1
    return [
        *heads(x, R.q, size, d, bias=False),
        *heads(x, R.k, size, d, bias=False),
        *heads(x, R.v, size, d, bias=False),
        (R.to_place(h, V.I, V.J) <= (R.place(V.D).T, query, R.hidden[x.relation](V.J), *back))
        | [F.product],
        (R.weights(h, V.I, V.J) <= (R.k(h, V.J).T @ query, R.to_place(h, V.I, V.J)))
        | [F.sum, F.softmax_agg(agg_terms=[V.J])],
        (R.masked(h, V.I, V.J) <= (weights, R.mask(h, V.D), *back)) | [F.product],
        R.left(h, V.I) <= R.masked(h, V.I, V.J),
        (R.mean(h, V.I) <= (dropped(R.masked(h, V.I, V.J), config.dropout), R.v(h, V.J)))
        | [F.product],
        (y(V.I) <= F.inverse(R.left(h, V.I)) * R.mean(h, V.I)) | [F.concat_agg],
    ]


def layer(x: Atom, config: Config) -> Statements:
    size, hidden, p, eps = config.size, config.hidden, config.dropout, config.eps
    return [
        *masks(config),
        *attention(x, R.heads, config),
        R.attended(V.I) <= x(V.I),
        R.attended(V.I) <= R.heads(V.I)[W["attended.weight"][size, size]],
        *layer_norm(R.attended, R.norm1, size, eps=eps),
        *feed_forward(R.norm1, R.mlp, size, hidden, p=p),
        *residual(R.norm1, R.mlp, R.added, hidden, size, p),
        *layer_norm(R.added, R.norm2, size, eps=eps),
    ]


def program(config: Config) -> Program:
    """Reads `token(i)`, derives `logits(i)`; `layer.k.z(h)` is the span of a head."""
    word = F.lookup(W.word[config.vocabulary, config.size], R.token(V.I))
    stack = repeat(lambda x: layer(x, config), config.layers)(R.x)
    rules = [
        R.x(V.I) <= dropped(word, config.dropout),
        stack,
        *linear(stack.out, R.logits, config.size, config.vocabulary),
    ]
    return Program(rules, domains={V.H: config.heads, V.D: config.span})
