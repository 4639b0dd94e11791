"""Adaptive span: every head learns how far back it attends, up to S tokens.

    m(x) = min(max((R + z - x) / R, 0), 1),  z = the span of the head, learned
    aᵢⱼ ∝ m(i - j) exp(sᵢⱼ),   sᵢⱼ = qᵢ · (kⱼ + p(i - j)) / √d,   i - S ≤ j < i
    oᵢ = norm(xᵢ + O Σⱼ aᵢⱼ vⱼ),   yᵢ = norm(oᵢ + W₂ relu(W₁ oᵢ))

The first token attends to nothing. The loss of the paper adds a multiple of the sum of all z.

Paper: https://arxiv.org/abs/1905.07799. Parity: `torch`, by the equations, in
tests/zoo/test_memory.py.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.adaptive_span.Config(
...     vocabulary=50, size=16, heads=2, hidden=32, layers=2, span=4, ramp=2
... )
>>> model = zoo.adaptive_span.program(config).compile(R.logits, seed=0)
>>> model(token=numbers(torch.arange(9))).shape
torch.Size([9, 50])
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from edgewise.graphs.checks import integer
from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression, Function
from edgewise.zoo import block, layers
from edgewise.zoo.block import Edges
from edgewise.zoo.parts import Statements, dropped, head_size, heads, linear

LEAST = 1e-12  # of the weights that masks leave: where they leave none, nothing is read


@dataclass(frozen=True)
class Config(block.Block):
    """`span` is S, the largest span a head can learn; `ramp` is R, the width of its soft end.

    A `graph` restricts the pairs inside the spans.
    """

    vocabulary: int = 10_000
    size: int = 512
    heads: int = 8
    hidden: int = 2048
    layers: int = 12
    span: int = 1024
    ramp: int = 32
    eps: float = 1e-5
    dropout: float = 0.1
    activation: Function = F.relu

    OWN: ClassVar = {"norm": "post", "positions": "relative"}
    FITS: ClassVar = {"positions": ("relative", "none"), "aggregation": ("softmax",)}
    PER_HEAD: ClassVar = False

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.span, "span", 1)
        integer(self.ramp, "ramp", 1)


def masks(config: Config) -> Statements:
    """`place(D)`, and `mask(H, D)`: the soft mask of head H at distance D + 1."""
    z, ramp = W.span(V.H)[1,].filled(0.0), 1 / config.ramp
    far = R.special.add_eval(V.D, 1)[-ramp].fixed()
    place = W.place(V.D)[head_size(config.size, config.heads),]
    if config.positions == "none":
        place = W.place(V.D)[1,].filled(1.0).fixed()
    return [
        R.place(V.D) <= place,
        R.z(V.H) <= F.clamp(0, config.span)(z),
        R.mask(V.H, V.D) <= (F.clamp(0, 1)(R.z(V.H)[ramp].fixed() + far + 1.0), R._place(V.D)),
    ]


def attention(x: Atom, y: Atom, config: Config, edges: Edges) -> Statements:
    """Softmax over the last S tokens, masked by distance and normalised again."""
    ((_, where),) = edges
    size, h = config.size, V.H
    d = head_size(size, config.heads)
    query, weights = layers.scaled(R.q(h, V.I), layers.factor(config, d)), R.weights(h, V.I, V.J)
    back = R.special.add(V.J, V.D, V.S), R.special.next(V.S, V.I)  # d = i - j - 1
    near: tuple[Expression, ...] = (*back, R._place(V.D))
    to_place: Statements = []
    if config.positions == "relative":
        pair = R.place(V.D).T, query, R.hidden[x.relation](V.J), *back
        to_place, near = (
            [(R.to_place(h, V.I, V.J) <= pair) | [F.product]],
            (R.to_place(h, V.I, V.J),),
        )
    return [
        *heads(x, R.q, size, d, bias=False),
        *heads(x, R.k, size, d, bias=False),
        *heads(x, R.v, size, d, bias=False),
        *to_place,
        (R.weights(h, V.I, V.J) <= (R.k(h, V.J).T @ query, *near, *where))
        | [F.sum, F.softmax_agg(agg_terms=[V.J])],
        (R.masked(h, V.I, V.J) <= (weights, R.mask(h, V.D), *back)) | [F.product],
        R.left(h, V.I) <= R.masked(h, V.I, V.J),
        (R.mean(h, V.I) <= (dropped(R.masked(h, V.I, V.J), config.dropout), R.v(h, V.J)))
        | [F.product],
        (y(V.I) <= F.inverse(F.clamp(LEAST, 1)(R.left(h, V.I))) * R.mean(h, V.I)) | [F.concat_agg],
    ]


def layer(x: Atom, config: Config, edges: Edges) -> Statements:
    rules, mid = layers.sublayer(
        x,
        R.attended,
        R.norm1,
        lambda read: attention(read, R.heads, config, edges),
        R.heads,
        config.size,
        replace(config, dropout=0.0),  # weights are dropped, not what they give
        bias=False,
        all_rows=False,
    )
    rest = layers.feed_forward(mid, R.added, R.norm2, config, p=config.dropout)
    return [*masks(config), *rules, *rest]


def program(config: Config) -> Program:
    """Reads `token(i)`, derives `logits(i)`; `layer.k.z(h)` is the span of a head."""
    word = F.lookup(W.word[config.vocabulary, config.size], R.token(V.I))
    edges = block.edges(config, config.layers)
    stack, (last,) = block.stacked(lambda pairs: lambda x: layer(x, config, pairs), edges, R.x)
    rules = [
        R.x(V.I) <= dropped(word, config.dropout),
        *stack,
        *layers.ended(last, R.out, config),
        *linear(R.out, R.logits, config.size, config.vocabulary),
    ]
    return Program(rules, domains={V.H: config.heads, V.D: config.span})
