"""CLIP: a tower of text and a tower of images, whose vectors are projected into one space.

    text    yᵢ = norm(decoder(word(tokenᵢ) + position(i))),   W y_end
    image   norm of row 0 of encoder(norm(class, patches)),   W′ y₀

Paper: https://arxiv.org/abs/2103.00020. Parity: `transformers.CLIPModel`.
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W, repeat, scope
from edgewise.language.nodes import Atom, Expression, Function, Statement
from edgewise.language.statements import substitute
from edgewise.zoo.parts import Statements, affine, attention, feed_forward, layer_norm, residual

SPEED = 1.702  # of the sigmoid in quick_gelu


@dataclass(frozen=True)
class Tower:
    """A stack of layers, norms inside; without an activation it is quick_gelu, x · σ(1.702 x)."""

    size: int = 512
    heads: int = 8
    hidden: int = 2048
    layers: int = 12
    activation: Function | None = None
    eps: float = 1e-5
    dropout: float = 0.0


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


def layer(x: Atom, tower: Tower, where: tuple[Expression, ...]) -> Statements:
    d, hidden = tower.size, tower.hidden
    row = R.inner(V.I)
    inner = [
        R.inner(V.I) <= affine(R.norm2(V.I), "mlp", d, hidden),
        R.mlp(V.I) <= row * F.sigmoid(row * SPEED),
    ]
    if tower.activation is not None:
        inner = [*feed_forward(R.norm2, R.mlp, d, hidden, activation=tower.activation)]
    return [
        *layer_norm(x, R.norm1, d, eps=tower.eps),
        *attention(R.norm1, R.heads, d, tower.heads, p=tower.dropout, where=where),
        *residual(x, R.heads, R.attended, d, d, 0.0),
        *layer_norm(R.attended, R.norm2, d, eps=tower.eps),
        *inner,
        *residual(R.attended, R.mlp, R.out, hidden, d, 0.0),
    ]


def text_tower(config: Config) -> list[Statement]:
    """`text.out(i)` of the tokens; `end(i)` is 1 at the token that stands for all."""
    tower, d = config.text, config.text.size
    word = F.lookup(W.word[config.vocabulary, d], R.token(V.I))
    place = F.lookup(W.position[config.length, d], R.special.add_eval(V.I, 0))
    past = (R.special.leq(V.J, V.I),)
    stack = repeat(lambda u: layer(u, tower, past), tower.layers)(R.x)
    return scope("text")(
        [
            R.x(V.I) <= word + place,
            stack,
            *layer_norm(stack.out, R.out, d, eps=tower.eps),
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
    stack = repeat(lambda u: layer(u, tower, ()), tower.layers)(R.x)
    place = F.lookup(W.position[config.side**2 + 1, d], R.special.add_eval(V.I, 0))
    rules = [
        (R.patch(V.P, V.Q) <= (R.pixel(V.C, V.Y, V.X), row, column)) | [F.concat_agg],
        R.known(0) <= W["class"][d,],
        R.known(V.I)
        <= (R.patch(V.P, V.Q)["patch.weight":d, width], *places, R.special.next(V.K, V.I)),
        R.placed(V.I) <= R.known(V.I) + place,
        *layer_norm(R.placed, R.x, d, eps=tower.eps),
        stack,
        R.out(V.I) <= stack.out(V.I),
        R.first(V.I) <= (R.out(V.I), R.special.eq(V.I, 0)),
        *layer_norm(R.first, R.normed, d, eps=tower.eps),
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
    return Program(rules, domains={V.H: config.text.heads, V.G: config.pixels.heads})
