"""DeBERTa: content and position apart, and a score of three terms, one rule each.

    scoreᵢⱼ = (qᵢ · kⱼ  +  qᵢ · Kʳ δ(i, j)  +  kⱼ · Qʳ δ(i, j)) / √(3d)
    δ(i, j) = place(clip(i - j + k, 0, 2k - 1))

Paper: https://arxiv.org/abs/2006.03654. Parity: `transformers.DebertaModel`.
"""

import math
from dataclasses import dataclass
from typing import Any

from edgewise.language import F, Program, R, V, W, repeat
from edgewise.language.nodes import Atom, Function
from edgewise.zoo.parts import (
    Statements,
    attended,
    dropped,
    head_size,
    heads,
    layer_norm,
    penalty,
    post_norm,
)


@dataclass(frozen=True)
class Config:
    """`reach` is k: places further apart than that are taken to be k apart."""

    vocabulary: int = 50_265
    size: int = 768
    heads: int = 12
    hidden: int = 3072
    layers: int = 12
    reach: int = 512
    activation: Function = F.gelu
    eps: float = 1e-7
    dropout: float = 0.1


def distances(x: Atom, reach: int) -> Statements:
    """`near(i, j, clip(i - j + reach, 0, 2 reach - 1))` for all rows i and j of x."""
    i, j = R.hidden[x.relation](V.I), R.hidden[x.relation](V.J)
    shifted = R.special.add(V.I, reach, V.S)
    return [
        R.near(V.I, V.J, V.D)
        <= (
            i,
            j,
            shifted,
            R.special.add(V.J, V.D, V.S),
            R.special.leq(0, V.D),
            R.special.lt(V.D, 2 * reach),
        ),
        R.near(V.I, V.J, 0) <= (i, j, shifted, R.special.lt(V.S, V.J)),
        R.near(V.I, V.J, 2 * reach - 1)
        <= (i, j, R.special.add(V.J, reach, V.S), R.special.leq(V.S, V.I)),
    ]


def attention(x: Atom, y: Atom, config: Config) -> Statements:
    """Three score terms: content to content, content to place, place to content."""
    d, size = head_size(config.size, config.heads), config.size
    factor = 1 / math.sqrt(3 * d)
    near, h = R._near(V.I, V.J, V.D), V.H
    place = R.place(V.D)
    return [
        *heads(x, R.q, size, d),
        *heads(x, R.k, size, d, bias=False),
        *heads(x, R.v, size, d),
        R.place_k(h, V.D) <= place[W["place_k.weight"](h)[d, size]],
        R.place_q(h, V.D) <= (place[W["place_q.weight"](h)[d, size]], W["place_q.bias"](h)[d,]),
        (R.to_place(h, V.I, V.J) <= (R.place_k(h, V.D).T, R.q(h, V.I), near)) | [F.product],
        (R.from_place(h, V.I, V.J) <= (R.place_q(h, V.D).T, R.k(h, V.J), near)) | [F.product],
        (
            R.weights(h, V.I, V.J)
            <= (
                R.k(h, V.J).T @ R.q(h, V.I)[factor].fixed(),
                R.to_place(h, V.I, V.J)[factor].fixed(),
                R.from_place(h, V.I, V.J)[factor].fixed(),
                R.penalty(V.J),
            )
        )
        | [F.sum, F.softmax_agg(agg_terms=[V.J])],
        *attended(y, R.v, config.dropout),
    ]


def layer(x: Atom, config: Config) -> Statements:
    how: Any = {"activation": config.activation, "eps": config.eps, "p": config.dropout}
    return [
        *attention(x, R.heads, config),
        *post_norm(x, R.heads, R.norm2, config.size, config.hidden, **how),
    ]


def program(config: Config) -> Program:
    """Reads `token(i)` and `mask(i)` (0 where padded), derives `out(i)`."""
    d = config.size
    stack = repeat(lambda x: layer(x, config), config.layers)(R.x)
    rules = [
        R.word(V.I) <= F.lookup(W.word[config.vocabulary, d], R.token(V.I)),
        *layer_norm(R.word, R.embedded, d, eps=config.eps),
        R.x(V.I) <= dropped(R.embedded(V.I) * R.mask(V.I), config.dropout),
        *penalty(R.mask, R.penalty),
        *distances(R.token, config.reach),
        R.place(V.D) <= W.place(V.D)[d,],
        stack,
        R.out(V.I) <= stack.out(V.I),
    ]
    return Program(rules, domains={V.H: config.heads, V.D: 2 * config.reach})
