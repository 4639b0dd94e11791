"""Compressive Transformer: Transformer-XL with a compressed memory.

    zⱼ = compressed memory, memory and segment;  the rest of a layer is Transformer-XL's
    shortₖ = Σ_{t < c} Wₜ memory(c k + t) + b
    lossₗ = Σᵢ |attention(i, memory) - attention(i, short)|², without places, by the same heads

The rows of `short` go behind the compressed memory when memory is forgotten. The loss is for the
weights of the compression alone: take no other gradient of it.

Paper: https://arxiv.org/abs/1911.05507. Parity: `torch`, by the equations, in
tests/zoo/test_memory.py.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.compressive.Config(
...     vocabulary=50, size=16, heads=2, hidden=32, layers=2, memory=4, compressed=2, rate=2
... )
>>> model = zoo.compressive.program(config).compile(R.logits, seed=0)
>>> model(
...     token=numbers(torch.arange(9)),
...     memory=torch.zeros(2, 4, 16),
...     compressed=torch.zeros(2, 2, 16),
... ).shape
torch.Size([9, 50])
"""

import math
from dataclasses import dataclass

from edgewise.errors import caller
from edgewise.graphs.checks import integer
from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom
from edgewise.zoo import transformer_xl as xl
from edgewise.zoo.block import BadConfig, Edges
from edgewise.zoo.parts import Statements, head_size


@dataclass(frozen=True)
class Config(xl.Config):
    """`rate` is c, how many rows become one; `compressed` is how many such rows are attended to.

    `loss`: layers derive the loss of their compression too.
    """

    vocabulary: int = 256
    size: int = 1024
    heads: int = 8
    hidden: int = 3072
    layers: int = 24
    memory: int = 768
    compressed: int = 1152
    rate: int = 3
    loss: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.compressed, "compressed")
        integer(self.rate, "rate", 1)
        if self.loss and self.aggregation != "softmax":
            raise BadConfig(
                f"`aggregation={self.aggregation!r}` has no scores for the loss of compression",
                caller(),
                "write `loss=False`",
            )

    @property
    def past(self) -> tuple[tuple[str, int], ...]:
        return (("compressed", self.compressed), ("memory", self.memory))


def short(depth: Atom, config: Config) -> Statements:
    """A row for every `rate` rows of the memory; what is left over at its end has none."""
    size, c, here = config.size, config.rate, R.hidden[depth.relation](V.L)
    tap = R.special.div(V.J, c, V.K), R.special.mod(V.J, c, V.T)
    last = R.special.mul(V.K, c, V.A), R.special.add(V.A, c - 1, V.B), R._memory(V.L, V.B)
    return [
        R.taken(V.K) <= (R.memory(V.L, V.J)[W.taps(V.T)[size, size]], here, *tap, *last),
        R.short(V.K) <= R.taken(V.K) + W["short.bias"][size,],
    ]


def loss(config: Config) -> Statements:
    """How far attention to `short` is from attention to the memory itself."""
    size, h, first = config.size, V.H, config.compressed
    d = head_size(size, config.heads)
    lost = R.old(h, V.I) + R.new(h, V.I)[-1.0].fixed()
    old = R.special.add(V.K, first, V.J), R.special.lt(V.K, config.memory)
    return [
        R.old_k(h, V.K) <= (R.k(h, V.J), *old),
        R.old_value(h, V.K) <= (R.value(h, V.J), *old),
        R.new_k(h, V.K) <= R.short(V.K)[W["k.weight"](h)[d, size]],
        R.new_value(h, V.K) <= R.short(V.K)[W["value.weight"](h)[d, size]],
        *recalled("old", d),
        *recalled("new", d),
        R.lost(h, V.I) <= lost,
        R.loss <= R.lost(h, V.I).T @ R.lost(h, V.I),
    ]


def recalled(name: str, d: int) -> Statements:
    """Attention to all of `name`, without positions."""
    weights, key = R[f"{name}_weights"](V.H, V.I, V.K), R[f"{name}_k"](V.H, V.K)
    query = R.q(V.H, V.I)[1 / math.sqrt(d)].fixed()
    return [
        (weights <= (key.T, query)) | [F.product, F.softmax_agg(agg_terms=[V.K])],
        (R[name](V.H, V.I) <= (weights, R[f"{name}_value"](V.H, V.K))) | [F.product],
    ]


def layer(x: Atom, depth: Atom, states: Atom, config: Config, edges: Edges) -> xl.Carried:
    rules, outputs = xl.layer(x, depth, states, config, edges)
    return [*short(depth, config), *(loss(config) if config.loss else []), *rules], outputs


def program(config: Config) -> Program:
    """Reads `token(i)`, `memory(l, j)` and `compressed(l, j)`: all their rows or, at first, none.

    Derives `logits(i)` and `states(l, i)` as Transformer-XL does, and in every layer l what becomes
    of its memory, `layer.l.short(k)`, and `layer.l.loss`.
    """
    rules = xl.stacked(
        config,
        lambda edges: lambda x, depth, states: layer(x, depth, states, config, edges),
    )
    return Program(rules, domains={V.H: config.heads, V.T: config.rate})
