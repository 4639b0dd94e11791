"""DeBERTa: content and position apart, and a score of three terms, one rule each.

    scoreᵢⱼ = (qᵢ · kⱼ  +  qᵢ · Kʳ δ(i, j)  +  kⱼ · Qʳ δ(i, j)) / √(3d)
    δ(i, j) = place(clip(i - j + k, 0, 2k - 1))

Paper: https://arxiv.org/abs/2006.03654. Parity: `transformers.DebertaModel`.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.deberta.Config(vocabulary=50, size=16, heads=2, hidden=32, layers=2, reach=4)
>>> model = zoo.deberta.program(config).compile(R.out, seed=0)
>>> model(token=numbers(torch.arange(9)), mask=torch.ones(9)).shape
torch.Size([9, 16])
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Function, Statement
from edgewise.zoo import bert, block, layers
from edgewise.zoo.block import Edges
from edgewise.zoo.parts import Statements, dropped, head_size, heads, layer_norm, present

NEAR = R._near(V.I, V.J, V.D)
TO_PLACES: Statements = [  # what a query makes of the place of a key, a key of that of a query
    (R.to_place(V.H, V.I, V.J) <= (R.place_k(V.H, V.D).T, R.q(V.H, V.I), NEAR)) | [F.product],
    (R.from_place(V.H, V.I, V.J) <= (R.place_q(V.H, V.D).T, R.k(V.H, V.J), NEAR)) | [F.product],
]


@dataclass(frozen=True)
class Config(block.Block):
    """`reach` is k: places further apart than that are taken to be k apart.

    `labels` are the classes of a classifier, `pooling` is the activation of `pooled`.
    """

    vocabulary: int = 50_265
    size: int = 768
    heads: int = 12
    hidden: int = 3072
    layers: int = 12
    reach: int = 512
    activation: Function = F.gelu
    eps: float = 1e-7
    dropout: float = 0.1
    length: int = 512
    labels: int = 2
    pooling: Function = F.gelu

    OWN: ClassVar = {"norm": "post", "positions": "relative"}

    @property
    def width(self) -> int:
        """The size of embeddings."""
        return self.size


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


def attention(
    x: Atom,
    y: Atom,
    config: Config,
    edges: Edges,
    projected: Callable[[int, int], Statements],
    *,
    key_bias: bool = False,
) -> Statements:
    """Three score terms: content-to-content, content-to-position, position-to-content.

    With other positions there is the first alone. `projected` are the rules of
    `place_k(h, place)` and `place_q(h, place)`.
    """
    if config.aggregation != "softmax" or config.positions != "relative":
        how: Any = {"key_bias": key_bias, "scores": layers.REAL}
        return layers.attention(x, y, config, edges, **how)
    d, size, h = head_size(config.size, config.heads), config.size, V.H
    factor = layers.factor(config, 3 * d)
    content = R.k(h, V.J).T @ layers.scaled(R.q(h, V.I), factor)
    apart = (R.to_place(h, V.I, V.J), R.from_place(h, V.I, V.J))
    terms = (content, *(layers.scaled(term, factor) for term in apart), *layers.REAL)
    return [
        *heads(x, R.q, size, d),
        *heads(x, R.k, size, d, bias=key_bias),
        *heads(x, R.v, size, d),
        *projected(d, size),
        *TO_PLACES,
        *layers.attend(x, y, R.v(h, V.J), terms, config, edges),
    ]


def projected(d: int, size: int) -> Statements:
    """Places as keys and as queries, by projections of their own."""
    h, place = V.H, R.place(V.D)
    return [
        R.place_k(h, V.D) <= place[W["place_k.weight"](h)[d, size]],
        R.place_q(h, V.D) <= (place[W["place_q.weight"](h)[d, size]], W["place_q.bias"](h)[d,]),
    ]


def layer(x: Atom, config: Config, edges: Edges) -> Statements:
    attends = partial(attention, y=R.heads, config=config, edges=edges, projected=projected)
    return layers.layer(x, attends, config)


def program(config: Config) -> Program:
    """Reads `token(i)` and `mask(i)` (0 where padded), derives `out(i)`, and from it what
    `zoo.bert` does: `pooled`, `logits(i)`, `embedding`, `classes`, `tags(i)` and `span(i)`.
    """
    edges = block.edges(config, config.layers)
    stack, (last,) = block.stacked(lambda pairs: lambda x: layer(x, config, pairs), edges, R.x)
    places = [*distances(R.token, config.reach), R.place(V.D) <= W.place(V.D)[config.size,]]
    return around(stack, last, config, places, 2 * config.reach)


def around(
    stack: list[Statement], last: Atom, config: Config, places: Statements, count: int
) -> Program:
    """A stack of layers between embeddings and readouts; `places` number `count`."""
    d, placed = config.size, config.positions == "relative"
    norms = config.norm != "none"
    word = F.lookup(W.word[config.vocabulary, d], R.token(V.I))
    made, vector = layers.placed(word, R.token, R.word, config)
    row = R.embedded(V.I) if norms else R.word(V.I)
    rules = [
        *(places if placed else layers.positions(R.token, config)),
        *made,
        R.word(V.I) <= vector,
        *(layer_norm(R.word, R.embedded, d, eps=config.eps) if norms else []),
        R.x(V.I) <= dropped(row * R.mask(V.I), config.dropout),
        *present(R.mask, R.present),
        *stack,
        *layers.ended(last, R.out, config),
        *readouts(config),
    ]
    domains = {v: n for v, n in layers.domains(config).items() if v != V.B}
    return Program(rules, domains=domains | ({V.D: count} if placed else {}))


def readouts(config: Config) -> Statements:
    """What is made of `out(i)`."""
    return [
        bert.pooled(config),
        *bert.masked_tokens(config, config.activation),
        *bert.classifiers(config),
        *bert.unit_mean(R.out, R.mask, R.embedding),
    ]
