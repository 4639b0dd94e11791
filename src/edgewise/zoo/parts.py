"""The parts that models are built of, as blocks: functions from relations to rules.

A block is given the relations it reads and the relation it derives, and is a list of rules to put
into a program, a `scope` or a `repeat`. Its weights are named after the relation it derives.

>>> linear(R.x, R.y, 8, 4)
[R.y(V.I) <= (R.x(V.I)["y.weight": 4, 8], W["y.bias"][4,])]
"""

import math

from edgewise.language import F, R, V, W
from edgewise.language.nodes import Atom, Expression, Function, Line, Rule, Weight

Statements = list[Rule | Line]


def linear(x: Atom, y: Atom, inputs: int, outputs: int) -> Statements:
    """An affine map of every row: yᵢ = W xᵢ + b."""
    return [y(V.I) <= affine(x(V.I), y.relation, inputs, outputs)]


def affine(x: Expression, name: str, inputs: int, outputs: int) -> tuple[Expression, Weight]:
    """W x + b, as the two items of a body that is summed."""
    return x[W[f"{name}.weight"][outputs, inputs]], W[f"{name}.bias"][outputs,]


def layer_norm(x: Atom, y: Atom, size: int, *, eps: float = 1e-5) -> Statements:
    """Layer normalisation with a learnable gain and bias: yᵢ = g ⊙ norm(xᵢ) + b.

    https://arxiv.org/abs/1607.06450
    """
    gain, bias = W[f"{y.relation}.gain"][size,], W[f"{y.relation}.bias"][size,]
    return [y(V.I) <= F.norm(eps=eps)(x(V.I)) * gain.filled(1.0) + bias.filled(0.0)]


def dropout(x: Atom, y: Atom, p: float) -> Statements:
    """Every element is 0 with probability p and divided by 1 − p otherwise, in training only."""
    return [y(V.I) <= dropped(x(V.I), p)]


def dropped(x: Expression, p: float) -> Expression:
    """Dropout inside an expression; with p = 0 the expression itself."""
    return F.dropout(p)(x) if p else x


def residual(x: Atom, z: Atom, y: Atom, inputs: int, outputs: int, p: float) -> Statements:
    """What a sublayer adds to the row it read: yᵢ = xᵢ + dropout(W zᵢ + b)."""
    added, bias = affine(z(V.I), y.relation, inputs, outputs)
    return [y(V.I) <= x(V.I) + dropped(added + bias, p)]


def attention(
    x: Atom, y: Atom, size: int, heads: int, *, p: float = 0.0, where: tuple[Expression, ...] = ()
) -> Statements:
    """Multi-head attention of i to every j for which the conditions `where` hold.

    yᵢ = ∥ₕ Σⱼ softmaxⱼ(qₕᵢ · kₕⱼ / √d) vₕⱼ, for heads of d = size / heads. `H` needs the domain
    of the heads: `Program(..., domains={V.H: heads})`.

    https://arxiv.org/abs/1706.03762
    """
    d = size // heads
    return [
        R.q(V.H, V.I) <= (x(V.I)[W["q.weight"](V.H)[d, size]], W["q.bias"](V.H)[d,]),
        R.k(V.H, V.I) <= (x(V.I)[W["k.weight"](V.H)[d, size]], W["k.bias"](V.H)[d,]),
        R.v(V.H, V.I) <= (x(V.I)[W["v.weight"](V.H)[d, size]], W["v.bias"](V.H)[d,]),
        (
            R.weights(V.H, V.I, V.J)
            <= (R.k(V.H, V.J).T, R.q(V.H, V.I)[1 / math.sqrt(d)].fixed(), *where)
        )
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.heard(V.H, V.I) <= (dropped(R.weights(V.H, V.I, V.J), p), R.v(V.H, V.J))) | [F.product],
        (y(V.I) <= R.heard(V.H, V.I)) | [F.concat_agg],
    ]


def feed_forward(
    x: Atom, y: Atom, size: int, hidden: int, *, activation: Function = F.relu, p: float = 0.0
) -> Statements:
    """A hidden layer for every row: yᵢ = dropout(activation(W xᵢ + b))."""
    functions = [activation, F.dropout(p)] if p else [activation]
    return [(y(V.I) <= affine(x(V.I), y.relation, size, hidden)) | functions]


def embedding(token: Atom, y: Atom, size: int) -> Statements:
    """The learnable vector of the token T that stands at I: `token(I, T)` is a fact.

    `T` needs the domain of the vocabulary: `Program(..., domains={V.T: 30_000})`.
    """
    return [y(V.I) <= token(V.I, V.T)[W[f"{y.relation}.weight"](V.T)[size,]]]


def readout(x: Atom, y: Atom, inputs: int, outputs: int) -> Statements:
    """One value for all rows: y = W meanᵢ xᵢ + b."""
    mean = R[f"{y.relation}_mean"]
    return [
        (mean <= x(V.I)) | [F.avg_agg],
        y <= affine(mean, y.relation, inputs, outputs),
    ]


def neighbourhood(x: Atom, edge: Atom, hears: Atom) -> Statements:
    """Who hears whom: i hears j along an edge, and every row of x hears itself, once."""
    return [
        hears(V.I, V.J) <= R.hidden[edge.relation](V.I, V.J),
        hears(V.I, V.I) <= R.hidden[x.relation](V.I),
        hears / 2 | [F.max],
    ]
