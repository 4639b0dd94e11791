"""DeBERTa v2 and v3: distances in logarithmic buckets, places through the projections of tokens.

    scoreᵢⱼ = (qᵢ · kⱼ  +  qᵢ · K δ(i, j)  +  kⱼ · Q δ(i, j)) / √(3d)
    δ(i, j) = norm(place(bucket(i - j)))

Papers: https://arxiv.org/abs/2006.03654, https://arxiv.org/abs/2111.09543.
Parity: `transformers.DebertaV2Model`.
"""

from dataclasses import dataclass

import torch

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression, Fact, Statement
from edgewise.zoo import block, deberta, layers
from edgewise.zoo.block import Edges
from edgewise.zoo.parts import Statements, dropped, head_size, heads, layer_norm, present


@dataclass(frozen=True)
class Config(deberta.Config):
    """Distances below `buckets` / 2 have a bucket each, those up to `reach` share the others.

    - buckets: 0 for a bucket for every distance below `reach`.
    - shared: places are projected as tokens are. place_norm: their vectors are normed.
    """

    vocabulary: int = 128_100
    buckets: int = 256
    shared: bool = True
    place_norm: bool = True

    @property
    def span(self) -> int:
        """How many places there are on each side."""
        return self.buckets or self.reach


def bucket(distance: int, buckets: int, reach: int) -> int:
    """The bucket of a distance i - j ≥ 0, computed in float32 as its authors do.

    >>> [bucket(n, 8, 32) for n in (0, 3, 4, 5, 9, 31)]
    [0, 3, 4, 5, 6, 7]
    """
    mid = buckets // 2
    if distance <= mid:
        return distance
    far, last = torch.tensor(distance) / mid, torch.tensor((reach - 1) / mid)
    return int(torch.ceil(torch.log(far) / torch.log(last) * (mid - 1)) + mid)


def places(config: Config) -> dict[int, int]:
    """Distance i - j → its place, for all distances up to those of the last places."""
    span, found = config.span, {0: config.span}
    for n in range(1, 2 * config.reach + 2):
        at = bucket(n, config.buckets, config.reach) if config.buckets else n
        found |= {n: min(span + at, 2 * span - 1), -n: max(span - at, 0)}
        if at >= span:
            break
    return found


def distances(x: Atom, config: Config) -> list[Statement]:
    """`near(i, j, place)` for all rows i and j of x."""
    i, j = R.hidden[x.relation](V.I), R.hidden[x.relation](V.J)
    known = places(config)
    far = max(known)
    return [
        *(Fact(R.bucket(n + far, at)) for n, at in known.items()),
        R.near(V.I, V.J, V.D)
        <= (i, j, R.special.add(V.I, far, V.S), R.special.add(V.J, V.A, V.S), R._bucket(V.A, V.D)),
        R.near(V.I, V.J, 2 * config.span - 1)
        <= (i, j, R.special.add(V.J, far, V.S), R.special.lt(V.S, V.I)),
        R.near(V.I, V.J, 0) <= (i, j, R.special.add(V.I, far, V.S), R.special.lt(V.S, V.J)),
    ]


def attention(x: Atom, y: Atom, config: Config, edges: Edges) -> Statements:
    """Three score terms: content to content, content to place, place to content."""
    d, size, h = head_size(config.size, config.heads), config.size, V.H
    near, place = R._near(V.I, V.J, V.D), R.place(V.D)
    k, q = ("k", "q") if config.shared else ("place_k", "place_q")
    factor = layers.factor(config, 3 * d)
    scores: tuple[Expression, ...] = (
        R.k(h, V.J).T @ layers.scaled(R.q(h, V.I), factor),
        layers.scaled(R.to_place(h, V.I, V.J), factor),
        layers.scaled(R.from_place(h, V.I, V.J), factor),
        *layers.REAL,
    )
    return [
        *heads(x, R.q, size, d),
        *heads(x, R.k, size, d),
        *heads(x, R.v, size, d),
        R.place_k(h, V.D) <= (place[W[f"{k}.weight"](h)[d, size]], W[f"{k}.bias"](h)[d,]),
        R.place_q(h, V.D) <= (place[W[f"{q}.weight"](h)[d, size]], W[f"{q}.bias"](h)[d,]),
        (R.to_place(h, V.I, V.J) <= (R.place_k(h, V.D).T, R.q(h, V.I), near)) | [F.product],
        (R.from_place(h, V.I, V.J) <= (R.place_q(h, V.D).T, R.k(h, V.J), near)) | [F.product],
        *layers.attend(x, y, R.v(h, V.J), scores, config, edges),
    ]


def layer(x: Atom, config: Config, edges: Edges) -> Statements:
    return layers.layer(x, lambda read: attention(read, R.heads, config, edges), config)


def program(config: Config) -> Program:
    """Reads and derives what `zoo.deberta` does."""
    d = config.size
    edges = block.edges(config, config.layers)
    stack, (last,) = block.stacked(lambda pairs: lambda x: layer(x, config, pairs), edges, R.x)
    place = R.learned if config.place_norm else R.place
    rules = [
        *distances(R.token, config),
        R.word(V.I) <= F.lookup(W.word[config.vocabulary, d], R.token(V.I)),
        *layer_norm(R.word, R.embedded, d, eps=config.eps),
        R.x(V.I) <= dropped(R.embedded(V.I) * R.mask(V.I), config.dropout),
        *present(R.mask, R.present),
        place(V.D) <= W.place(V.D)[d,],
        *(normed_places(config) if config.place_norm else []),
        *stack,
        *layers.ended(last, R.out, config),
        *deberta.readouts(config),
    ]
    return Program(rules, domains={V.H: config.heads, V.D: 2 * config.span})


def normed_places(config: Config) -> Statements:
    gain, bias = (W[f"place.{name}"][config.size,] for name in ("gain", "bias"))
    norm = F.norm(eps=config.eps)(R.learned(V.D))
    return [R.place(V.D) <= norm * gain.filled(1.0) + bias.filled(0.0)]
