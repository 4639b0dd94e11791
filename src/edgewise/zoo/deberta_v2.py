"""DeBERTa v2 and v3: distances in logarithmic buckets, places through the projections of tokens.

    scoreᵢⱼ = (qᵢ · kⱼ  +  qᵢ · K δ(i, j)  +  kⱼ · Q δ(i, j)) / √(3d)
    δ(i, j) = norm(place(bucket(i - j)))

After the first layer, whose input is x and whose output is y, some models have a convolution:

    yᵢ ← norm(yᵢ + tanh(Σₖ Cₖ xᵢ₊ₖ₋ₗ + b))

Papers: https://arxiv.org/abs/2006.03654, https://arxiv.org/abs/2111.09543.
Parity: `transformers.DebertaV2Model`.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.deberta_v2.Config(
...     vocabulary=50, size=16, heads=2, hidden=32, layers=2, reach=8, buckets=4
... )
>>> model = zoo.deberta_v2.program(config).compile(R.out, seed=0)
>>> model(token=numbers(torch.arange(9)), mask=torch.ones(9)).shape
torch.Size([9, 16])
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from edgewise.errors import caller
from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Fact, Function, Statement
from edgewise.zoo import block, deberta, layers
from edgewise.zoo.block import Edges
from edgewise.zoo.parts import Statements, convolution, dropped, layer_norm


@dataclass(frozen=True)
class Config(deberta.Config):
    """Distances below `buckets` / 2 have a bucket each, those up to `reach` share the others.

    - buckets: 0 for a bucket for every distance below `reach`.
    - shared: places are projected as tokens are. place_norm: their vectors are normed.
    - kernel: the taps of the convolution, an odd number, or 0 for none; `kernel_activation` its
      activation.
    """

    vocabulary: int = 128_100
    buckets: int = 256
    shared: bool = True
    place_norm: bool = True
    kernel: int = 0
    kernel_activation: Function = F.tanh

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel and self.kernel % 2 == 0:
            raise block.BadConfig(
                f"`kernel={self.kernel}` taps have no middle one",
                caller(),
                "write an odd number, or 0 for no convolution",
            )

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


def projected(d: int, size: int, shared: bool) -> Statements:
    """Places as keys and as queries."""
    h, place = V.H, R.place(V.D)
    k, q = ("k", "q") if shared else ("place_k", "place_q")
    return [
        R.place_k(h, V.D) <= (place[W[f"{k}.weight"](h)[d, size]], W[f"{k}.bias"](h)[d,]),
        R.place_q(h, V.D) <= (place[W[f"{q}.weight"](h)[d, size]], W[f"{q}.bias"](h)[d,]),
    ]


def layer(x: Atom, config: Config, edges: Edges, convolves: bool) -> Statements:
    """As of `zoo.deberta`; `convolves`: what a convolution makes of x is added."""
    places = partial(projected, shared=config.shared)
    how: Any = {"config": config, "edges": edges, "projected": places, "key_bias": True}
    rules = layers.layer(x, partial(deberta.attention, y=R.heads, **how), config)
    if not convolves:
        return rules
    taps, inner = convolution(x, "conv", config.size, config.size, config.kernel)
    post = config.norm == "post"
    added = R.convolved_sum if post else R.convolved
    return [
        *rules,
        *taps,
        added(V.I)
        <= block.last(rules)(V.I) + config.kernel_activation(dropped(inner, config.dropout)),
        *(layer_norm(added, R.convolved, config.size, eps=config.eps) if post else []),
    ]


def program(config: Config) -> Program:
    """Reads and derives what `zoo.deberta` does."""
    edges = block.edges(config, config.layers)
    kinds = [(pairs, k == 0 and config.kernel > 0) for k, pairs in enumerate(edges)]
    stack, (last,) = block.stacked(lambda kind: lambda x: layer(x, config, *kind), kinds, R.x)
    place = R.learned if config.place_norm else R.place
    places = [
        *distances(R.token, config),
        place(V.D) <= W.place(V.D)[config.size,],
        *(normed_places(config) if config.place_norm else []),
    ]
    return deberta.around(stack, last, config, places, 2 * config.span)


def normed_places(config: Config) -> Statements:
    gain, bias = (W[f"place.{name}"][config.size,] for name in ("gain", "bias"))
    norm = F.norm(eps=config.eps)(R.learned(V.D))
    return [R.place(V.D) <= norm * gain.filled(1.0) + bias.filled(0.0)]
