"""CLIP: a tower of text and a tower of images, whose vectors are projected into one space.

    text    yᵢ = norm(decoder(word(tokenᵢ) + position(i))),   W y_end
    image   norm of row 0 of encoder(norm(class, patches)),   W′ y₀

Paper: https://arxiv.org/abs/2103.00020. Parity: `transformers.CLIPModel`.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.clip.Config(
...     vocabulary=50,
...     length=9,
...     end=49,
...     space=8,
...     text=zoo.clip.Tower(size=16, heads=2, hidden=32, layers=1),
... )
>>> model = zoo.clip.program(config).compile(R.text_embedding, seed=0)
>>> model(token=numbers(torch.arange(9)), end=torch.eye(9)[8]).shape
torch.Size([8])
"""

from dataclasses import dataclass
from typing import ClassVar

from edgewise.language import F, Program, R, V, W, scope
from edgewise.language.nodes import Atom, Expression, Function, Statement
from edgewise.language.statements import substitute
from edgewise.zoo import block, layers
from edgewise.zoo.block import Edges
from edgewise.zoo.parts import Statements, affine, layer_norm

SPEED = 1.702  # of the sigmoid in quick_gelu
PAST = (R.special.leq(V.J, V.I),)


@dataclass(frozen=True)
class Tower(block.Block):
    """A stack of layers; `quick`: the activation is quick_gelu, x · σ(1.702 x)."""

    size: int = 512
    heads: int = 8
    hidden: int = 2048
    layers: int = 12
    activation: Function = F.gelu
    quick: bool = True
    eps: float = 1e-5
    dropout: float = 0.0

    OWN: ClassVar = {"positions": "learned"}


@dataclass(frozen=True)
class Config:
    """Texts of up to `length` tokens that end in the token `end`; square images of `image`² points
    in patches of `patch`².
    """

    vocabulary: int = 49_408
    length: int = 77
    end: int = 49_407
    image: int = 224
    patch: int = 32
    channels: int = 3
    space: int = 512
    text: Tower = Tower()
    pixels: Tower = Tower(768, 12, 3072)

    @property
    def side(self) -> int:
        """Patches along one side."""
        return self.image // self.patch


def layer(x: Atom, tower: Tower, edges: Edges) -> Statements:
    rules, mid = layers.sublayer(
        x, R.attended, R.norm1, lambda read: layers.attention(read, R.heads, tower, edges),
        R.heads, tower.size, tower, all_rows=block.everywhere(tower.graph),
    )  # fmt: skip
    if tower.feed_forward == "none":
        return rules
    width = layers.hidden_size(tower)
    rest, _ = layers.sublayer(
        mid, R.out, R.norm2, lambda read: hidden_layer(read, tower), R.mlp, width, tower
    )
    return [*rules, *rest]


def hidden_layer(x: Atom, tower: Tower) -> Statements:
    if not tower.quick or isinstance(tower.feed_forward, str):
        return layers.hidden_layer(x, R.mlp, tower)
    row = R.inner(V.I)
    return [
        R.inner(V.I) <= affine(x(V.I), "mlp", tower.size, layers.hidden_size(tower)),
        R.mlp(V.I) <= row * F.sigmoid(row * SPEED),
    ]


def placed(row: Expression, rows: Atom, y: Atom, tower: Tower, count: int) -> Statements:
    """y(i), the rows with the vectors of their positions, and what attention needs of these."""
    made: Statements = []
    if tower.positions == "learned":
        row = row + F.lookup(W.position[count, tower.size], R.special.add_eval(V.I, 0))
    else:
        made, row = layers.placed(row, rows, y, tower)
    return [*made, y(V.I) <= row]


def stacked(tower: Tower, *past: Expression) -> tuple[list[Statement], Atom]:
    edges = block.edges(tower, tower.layers, own=past, past=past)
    stack, (last,) = block.stacked(lambda pairs: lambda u: layer(u, tower, pairs), edges, R.x)
    return [*layers.positions(R.x, tower, both=not past), *stack], last


def text_tower(config: Config) -> list[Statement]:
    """`text.out(i)` of the tokens; `end(i)` is 1 at the token that stands for all."""
    tower, d = config.text, config.text.size
    word = F.lookup(W.word[config.vocabulary, d], R.token(V.I))
    stack, last = stacked(tower, *PAST)
    return scope("text")(
        [
            *placed(word, R.token, R.x, tower, config.length),
            *stack,
            *layers.ended(last, R.out, tower),
            (R.pooled <= (R.end(V.I), R.out(V.I))) | [F.product],
            R.projected <= R.pooled["projected.weight" : config.space, d],
        ]
    )


def image_tower(config: Config) -> list[Statement]:
    """`image.out(i)` of the class (0) and the patches; `pixel(C, Y, X)` is a number."""
    tower, d, patch = config.pixels, config.pixels.size, config.patch
    width = config.channels * patch * patch
    row, column = R.special.div(V.Y, patch, V.P), R.special.div(V.X, patch, V.Q)
    places = R.special.mul(V.P, config.side, V.A), R.special.add(V.A, V.Q, V.K)
    stack, last = stacked(tower)
    normed = tower.norm != "none"
    rules = [
        (R.patch(V.P, V.Q) <= (R.pixel(V.C, V.Y, V.X), row, column)) | [F.concat_agg],
        R.known(0) <= W["class"][d,],
        R.known(V.I)
        <= (R.patch(V.P, V.Q)["patch.weight":d, width], *places, R.special.next(V.K, V.I)),
        *placed(R.known(V.I), R.known, R.placed if normed else R.x, tower, config.side**2 + 1),
        *(layer_norm(R.placed, R.x, d, eps=tower.eps) if normed else []),
        *stack,
        R.out(V.I) <= last(V.I),
        R.first(V.I) <= (R.out(V.I), R.special.eq(V.I, 0)),
        *layers.ended(R.first, R.normed, tower),
        R.pooled <= R.normed(0),
        R.projected <= R.pooled["projected.weight" : config.space, d],
    ]
    return [substitute(rule, {"H": V.G}) for rule in scope("image")(rules)]  # its own heads


def unit(x: Atom) -> Expression:
    return x * F.inverse(F.sqrt(x.T @ x))


def program(config: Config) -> Program:
    """Reads `token(i)` and `end(i)`, and `pixel(c, y, x)`; derives `text_embedding` and
    `image_embedding`, of length 1, and `logits`, how well they fit.
    """
    rules = [
        *text_tower(config),
        *image_tower(config),
        R.text_embedding <= unit(R["text.projected"]),
        R.image_embedding <= unit(R["image.projected"]),
        R.scale <= F.exp(W.scale[1,]),
        R.logits <= R.scale * (R.text_embedding.T @ R.image_embedding),
    ]
    domains = {V.H: config.text.heads, V.G: config.pixels.heads}
    if "relative" in (config.text.positions, config.pixels.positions):
        domains[V.B] = layers.BUCKETS
    return Program(rules, domains=domains)
