"""XLNet: Transformer-XL's scores in both directions, segment encodings, and two streams.

    scoreᵢⱼ = ((qᵢ + u) · kⱼ + (qᵢ + v) · P r(i - j) + (qᵢ + w) · s(segmentᵢ = segmentⱼ)) / √d
    aᵢ = norm(xᵢ + O attention(x)ᵢ),   yᵢ = norm(aᵢ + W₂ gelu(W₁ aᵢ))

The second (query) stream predicts tokens: its rows start as one vector and attend to the rows of
the first with the same weights, never to their own token. `hides(i, j)` is 1 where i may not attend
to j: it encodes the factorisation order.

Paper: https://arxiv.org/abs/1906.08237. Parity: `transformers.XLNetModel`.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.xlnet.Config(vocabulary=50, size=16, heads=2, hidden=32, layers=2)
>>> model = zoo.xlnet.program(config).compile(R.out, seed=0)
>>> model(
...     token=numbers(torch.arange(9)), mask=torch.ones(9), segment=numbers(torch.zeros(9).long())
... ).shape
torch.Size([9, 16])
"""

from dataclasses import dataclass
from typing import ClassVar

from edgewise.errors import caller
from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression, Function, Statement
from edgewise.zoo import block, layers
from edgewise.zoo.block import BadConfig, Edges
from edgewise.zoo.parts import FAR, Statements, affine, dropped, head_size, heads, present, speeds


@dataclass(frozen=True)
class Config(block.Block):
    """`kinds` of segments are distinguished; `guesses` adds the second (query) stream.

    `labels` are the classes of a token.
    """

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
    labels: int = 2

    OWN: ClassVar = {"norm": "post", "positions": "relative"}
    FITS: ClassVar = {"positions": ("relative", "none")}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.guesses and self.aggregation != "softmax":
            raise BadConfig(
                f"`aggregation={self.aggregation!r}` has no scores in which tokens could be hidden",
                caller(),
                "write `guesses=False`",
            )


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
    values = heads(x, R.value, size, d, bias=False)
    if config.aggregation != "softmax":
        return values
    placed: Statements = [
        R.behind_k(h, V.D) <= R.behind(V.D)[weight],
        R.ahead_k(h, V.D) <= R.ahead(V.D)[weight],
    ]
    own = heads(x, R.k, size, d, bias=False)
    return [*own, *values, *(placed if config.positions == "relative" else [])]


def attention(x: Atom, y: Atom, config: Config, edges: Edges, *scores: Expression) -> Statements:
    """Attention of the rows of one stream; both streams share the weights."""
    size, h, at = config.size, V.H, y.relation
    d = head_size(size, config.heads)
    scale = layers.factor(config, d)
    q, place, kind = (R[f"{at}_{part}"] for part in ("q", "place", "kind"))
    content, same, other = (R[f"{at}_{part}"] for part in ("content", "same", "other"))

    def query(bias: str) -> Expression:
        return (q(h, V.I) + W[bias](h)[d,])[scale].fixed()

    def attend(*terms: Expression) -> Statements:
        return layers.attend(
            x, y, R.value(h, V.J), terms, config, edges,
            context=R[f"{at}_context"], weights=R[f"{at}_weights"],
        )  # fmt: skip

    if config.aggregation != "softmax":
        return attend(*scores)
    placed = config.positions == "relative"
    return [
        q(h, V.I) <= x(V.I)[W["q.weight"](h)[d, size]],
        content(h, V.I) <= query("u"),
        *(to_places(at, place, query("v")) if placed else []),
        kind(h, V.I) <= query("w"),
        same(h, V.I) <= kind(h, V.I)[W.same(h)[1, d]],
        other(h, V.I) <= kind(h, V.I)[W.other(h)[1, d]],
        *attend(
            R.k(h, V.J).T @ content(h, V.I),
            *((place(h, V.I, V.J),) if placed else ()),
            R.same(V.I, V.J) * same(h, V.I),
            R.other(V.I, V.J) * other(h, V.I),
            *scores,
        ),
    ]


def to_places(at: str, place: Atom, query: Expression) -> Statements:
    """The score of the distance from i to j, behind or ahead."""
    h, placed, pair = V.H, R[f"{at}_placed"], (V.H, V.I, V.J)
    back, on = R.special.add(V.J, V.D, V.I), R.special.add(V.I, V.D, V.J)
    return [
        placed(h, V.I) <= query,
        (place(*pair) <= (R.behind_k(h, V.D).T, placed(h, V.I), R._k(h, V.J), back)) | [F.product],
        (place(*pair) <= (R.ahead_k(h, V.D).T, placed(h, V.I), R._k(h, V.J), on)) | [F.product],
    ]


def stream(
    x: Atom, read: Atom, y: Atom, config: Config, edges: Edges, *scores: Expression
) -> Statements:
    """A layer of a stream, whose attention reads the rows `read` of x; streams share weights."""
    size, p, at = config.size, config.dropout, y.relation
    heads_, attended, inner, added = (
        R[f"{at}_{part}"] for part in ("heads", "attended", "inner", "added")
    )
    back = dropped(heads_(V.I)[W["attended.weight"][size, size]], p)
    both = [attended(V.I) <= x(V.I), attended(V.I) <= back]
    mid = attended if config.norm == "none" else R[f"{at}_mid"]
    rows = mid if config.norm == "post" else attended
    rules: Statements = [
        *attention(read, heads_, config, edges, *scores),
        *([attended(V.I) <= x(V.I) + back] if block.everywhere(config.graph) else both),
    ]
    if config.norm == "post":
        rules.append(mid(V.I) <= _normed(attended(V.I), "norm1", config))
    if config.feed_forward == "none":
        return [*rules, y(V.I) <= rows(V.I)]
    if config.norm == "pre":
        rules.append(mid(V.I) <= _normed(attended(V.I), "norm2", config))
    weight, bias = affine(inner(V.I), "added", layers.hidden_size(config), size)
    last = _normed(added(V.I), "norm2", config) if config.norm == "post" else added(V.I)
    return [
        *rules,
        *layers.hidden_layer(mid, inner, config, p=p),
        added(V.I) <= rows(V.I) + dropped(weight + bias, p),
        y(V.I) <= last,
    ]


def _normed(x: Expression, name: str, config: Config) -> Expression:
    gain, bias = W[f"{name}.gain"][config.size,], W[f"{name}.bias"][config.size,]
    return F.norm(eps=config.eps)(x) * gain.filled(1.0) + bias.filled(0.0)


def _read(x: Atom, y: Atom, config: Config) -> tuple[Statements, Atom]:
    """What attention reads of the rows of a stream: with norms inside, their norms."""
    if config.norm != "pre":
        return [], x
    return [y(V.I) <= _normed(x(V.I), "norm1", config)], y


def layer(x: Atom, config: Config, edges: Edges) -> Statements:
    norm, read = _read(x, R.norm1, config)
    rules = stream(x, read, R.out, config, edges, *layers.REAL)
    return [*norm, *keys(read, config), *rules]


def two_streams(
    x: Atom, g: Atom, config: Config, edges: Edges
) -> tuple[list[Statement], tuple[Atom, Atom]]:
    norm, read = _read(x, R.norm1, config)
    norm_g, read_g = _read(g, R.guess_norm1, config)
    rules = [
        *norm,
        *norm_g,
        *keys(read, config),
        *stream(x, read, R.out, config, edges, *layers.REAL, R.masked(V.I, V.J)),
        *stream(g, read_g, R.guess, config, edges, *layers.REAL, R.unseen(V.I, V.J)),
    ]
    return rules, (R.out, R.guess)


def program(config: Config) -> Program:
    """Reads `token(i)`, `mask(i)` (0 where padded) and `segment(i)`; derives `out(i)`, and from it
    `logits(i)` (of words) and `tags(i)`.

    With `guesses` it reads `hides(i, j)` too and derives `guess(i)`, from which then the words are
    scored; no token may hide all.
    """
    size, p, edges = config.size, config.dropout, block.edges(config, config.layers)
    rules: list[Statement] = [
        R.x(V.I) <= dropped(F.lookup(W.word[config.vocabulary, size], R.token(V.I)), p),
        *present(R.mask, R.present),
        *(places(config) if config.positions == "relative" else []),
        *(segments(config) if config.aggregation == "softmax" else []),
    ]
    if not config.guesses:
        stack, (last,) = block.stacked(lambda pairs: lambda x: layer(x, config, pairs), edges, R.x)
        blank = R.blank <= W.blank[size,]  # unread, and part of a checkpoint
        rules += [blank, *stack, *layers.ended(last, R.out, config), *readouts(R.out, config)]
        return Program(rules, domains={V.H: config.heads})
    both, (last, guess) = block.stacked(
        lambda pairs: lambda x, g: two_streams(x, g, config, pairs), edges, R.x, R.g
    )
    rules += [
        R.g(V.I) <= (dropped(W.blank[size,], p), R._token(V.I)),
        R.unseen(V.I, V.J) <= R.hides(V.I, V.J)[FAR].fixed(),
        R.masked(V.I, V.J) <= (R.unseen(V.I, V.J), R.special.neq(V.I, V.J)),
        R.masked(V.I, V.I) <= R.hides(V.I, V.I)[0.0].fixed(),  # the first stream knows itself
        *both,
        *layers.ended(last, R.out, config),
        *layers.ended(guess, R.guess, config),
        *readouts(R.guess, config),
    ]
    return Program(rules, domains={V.H: config.heads})


def readouts(x: Atom, config: Config) -> Statements:
    """A score for every word, by the table that words were read from, and one for every class."""
    words, d = config.vocabulary, config.size
    return [
        R.logits(V.I) <= (x(V.I)["word":words, d], W["logits.bias"][words,]),
        R.tags(V.I) <= affine(R.out(V.I), "tags", d, config.labels),
    ]
