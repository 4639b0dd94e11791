"""XLNet: Transformer-XL's scores in both directions, segment encodings, and two streams.

    scoreᵢⱼ = ((qᵢ + u) · kⱼ + (qᵢ + v) · P r(i - j) + (qᵢ + w) · s(segmentᵢ = segmentⱼ)) / √d
    aᵢ = norm(xᵢ + O attention(x)ᵢ),   yᵢ = norm(aᵢ + W₂ gelu(W₁ aᵢ))

The second (query) stream predicts tokens: its rows start as one vector and attend to the rows of
the first with the same weights, never to their own token. `hides(i, j)` is 1 where i may not attend
to j: it encodes the factorisation order.

Paper: https://arxiv.org/abs/1906.08237. Parity: `transformers.XLNetModel`.
"""

import math
from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W, repeat
from edgewise.language.nodes import Atom, Expression, Function, Statement
from edgewise.zoo.parts import FAR, Statements, affine, dropped, head_size, heads, penalty, speeds


@dataclass(frozen=True)
class Config:
    """`kinds` of segments are distinguished; `guesses` adds the second (query) stream."""

    vocabulary: int = 32_000
    size: int = 1024
    heads: int = 16
    hidden: int = 4096
    layers: int = 24
    kinds: int = 3
    guesses: bool = False
    activation: Function = F.gelu
    eps: float = 1e-12
    dropout: float = 0.1


def places(config: Config) -> Statements:
    """`behind(D)` and `ahead(D)`: r(D) and r(-D) for every distance D between tokens."""
    speed = W.speed[list(speeds(config.size))].fixed()
    sin, cos = F.sin(R.angle(V.D)), F.cos(R.angle(V.D))
    return [
        (R.angle(V.D) <= (R.special.add_eval(V.D, 0), speed, R._token(V.D))) | [F.product],
        R.behind(V.D) <= F.concat(sin, cos),
        R.ahead(V.D) <= (F.concat(F.identity(sin)[-1.0].fixed(), cos), R.special.gt(V.D, 0)),
    ]


def segments(config: Config) -> Statements:
    """`same(I, J)` is 1 where the segments are the same, `other(I, J)` where they are not."""
    each = [[float(a == b) for b in range(config.kinds)] for a in range(config.kinds)]
    return [
        R.kind(V.I) <= F.lookup(W.kinds[each].fixed(), R.segment(V.I)),
        R.same(V.I, V.J) <= R.kind(V.I).T @ R.kind(V.J),
        R.other(V.I, V.J) <= F.reverse(R.kind(V.I).T @ R.kind(V.J)),
    ]


def keys(x: Atom, config: Config) -> Statements:
    """What both streams attend to: keys and values of rows, keys of places."""
    size, h = config.size, V.H
    d = head_size(size, config.heads)
    weight = W["place.weight"](h)[d, size]
    return [
        *heads(x, R.k, size, d, bias=False),
        *heads(x, R.value, size, d, bias=False),
        R.behind_k(h, V.D) <= R.behind(V.D)[weight],
        R.ahead_k(h, V.D) <= R.ahead(V.D)[weight],
    ]


def attention(x: Atom, y: Atom, config: Config, *scores: Expression) -> Statements:
    """Attention of the rows of one stream; both streams share the weights."""
    size, h, at = config.size, V.H, y.relation
    d = head_size(size, config.heads)
    scale = 1 / math.sqrt(d)
    q, place, weights, context = (
        R[f"{at}_{part}"] for part in ("q", "place", "weights", "context")
    )

    def query(bias: str) -> Expression:
        return (q(h, V.I) + W[bias](h)[d,])[scale].fixed()

    content, placed, kind = (R[f"{at}_{part}"] for part in ("content", "placed", "kind"))
    same, other = R[f"{at}_same"], R[f"{at}_other"]
    pair = h, V.I, V.J
    back, on = R.special.add(V.J, V.D, V.I), R.special.add(V.I, V.D, V.J)
    return [
        q(h, V.I) <= x(V.I)[W["q.weight"](h)[d, size]],
        content(h, V.I) <= query("u"),
        placed(h, V.I) <= query("v"),
        kind(h, V.I) <= query("w"),
        (place(*pair) <= (R.behind_k(h, V.D).T, placed(h, V.I), R._k(h, V.J), back)) | [F.product],
        (place(*pair) <= (R.ahead_k(h, V.D).T, placed(h, V.I), R._k(h, V.J), on)) | [F.product],
        same(h, V.I) <= kind(h, V.I)[W.same(h)[1, d]],
        other(h, V.I) <= kind(h, V.I)[W.other(h)[1, d]],
        (
            weights(*pair)
            <= (
                R.k(h, V.J).T @ content(h, V.I),
                place(*pair),
                R.same(V.I, V.J) * same(h, V.I),
                R.other(V.I, V.J) * other(h, V.I),
                *scores,
            )
        )
        | [F.sum, F.softmax_agg(agg_terms=[V.J])],
        (context(h, V.I) <= (dropped(weights(*pair), config.dropout), R.value(h, V.J)))
        | [F.product],
        (y(V.I) <= context(h, V.I)) | [F.concat_agg],
    ]


def stream(x: Atom, y: Atom, config: Config, *scores: Expression) -> Statements:
    """A layer of a stream."""
    size, p, at = config.size, config.dropout, y.relation
    heads_, attended, mid, inner, added = (
        R[f"{at}_{part}"] for part in ("heads", "attended", "mid", "inner", "added")
    )
    hidden = affine(mid(V.I), "mlp", size, config.hidden)
    weight, bias = affine(inner(V.I), "added", config.hidden, size)
    back = heads_(V.I)[W["attended.weight"][size, size]]
    return [
        *attention(x, heads_, config, *scores),
        attended(V.I) <= x(V.I) + dropped(back, p),
        mid(V.I) <= _normed(attended(V.I), "norm1", config),
        inner(V.I) <= dropped(config.activation(hidden[0] + hidden[1]), p),
        added(V.I) <= mid(V.I) + dropped(weight + bias, p),
        y(V.I) <= _normed(added(V.I), "norm2", config),
    ]


def _normed(x: Expression, name: str, config: Config) -> Expression:
    gain, bias = W[f"{name}.gain"][config.size,], W[f"{name}.bias"][config.size,]
    return F.norm(eps=config.eps)(x) * gain.filled(1.0) + bias.filled(0.0)


def layer(x: Atom, config: Config) -> Statements:
    return [*keys(x, config), *stream(x, R.out, config, R.penalty(V.J))]


def two_streams(x: Atom, g: Atom, config: Config) -> tuple[list[Statement], tuple[Atom, Atom]]:
    rules = [
        *keys(x, config),
        *stream(x, R.out, config, R.penalty(V.J), R.masked(V.I, V.J)),
        *stream(g, R.guess, config, R.penalty(V.J), R.unseen(V.I, V.J)),
    ]
    return rules, (R.out, R.guess)


def program(config: Config) -> Program:
    """Reads `token(i)`, `mask(i)` (0 where padded) and `segment(i)`; derives `out(i)`.

    With `guesses` it reads `hides(i, j)` too and derives `guess(i)`; no token may hide all.
    """
    size, p = config.size, config.dropout
    rules: list[Statement] = [
        R.x(V.I) <= dropped(F.lookup(W.word[config.vocabulary, size], R.token(V.I)), p),
        *penalty(R.mask, R.penalty),
        *places(config),
        *segments(config),
    ]
    if config.guesses:
        both = repeat(lambda x, g: two_streams(x, g, config), config.layers)(R.x, R.g)
        rules += [
            R.g(V.I) <= (dropped(W.blank[size,], p), R._token(V.I)),
            R.unseen(V.I, V.J) <= R.hides(V.I, V.J)[FAR].fixed(),
            R.masked(V.I, V.J) <= (R.unseen(V.I, V.J), R.special.neq(V.I, V.J)),
            R.masked(V.I, V.I) <= R.hides(V.I, V.I)[0.0].fixed(),  # the first stream knows itself
            both,
            R.out(V.I) <= R["layer.out"](V.I),
            R.guess(V.I) <= R["layer.guess"](V.I),
        ]
    else:
        stack = repeat(lambda x: layer(x, config), config.layers)(R.x)
        rules += [stack, R.out(V.I) <= stack.out(V.I)]
    return Program(rules, domains={V.H: config.heads})
