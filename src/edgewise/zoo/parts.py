"""The parts that models are built of, as blocks: functions from relations to rules.

A block takes the relations it reads and the relation it derives, and returns a list of rules for a
program, a `scope` or a `repeat`. Its weights are named after the relation it derives.

>>> linear(R.x, R.y, 8, 4)
[R.y(V.I) <= (R.x(V.I)["y.weight": 4, 8], W["y.bias"][4,])]
"""

from collections.abc import Sequence
from typing import Any

from edgewise.errors import caller
from edgewise.graphs.checks import integer
from edgewise.graphs.errors import BadSize
from edgewise.language import F, R, V, W
from edgewise.language.nodes import Atom, Expression, Function, Statement, Variable, Weight

Statements = list[Statement]
FAR = -1e4  # exp(FAR) is 0 in every precision, and FAR leaves digits for a score


def linear(x: Atom, y: Atom, inputs: int, outputs: int) -> Statements:
    """An affine map of every row: yᵢ = W xᵢ + b.

    >>> linear(R.x, R.y, 8, 3)
    [R.y(V.I) <= (R.x(V.I)["y.weight": 3, 8], W["y.bias"][3,])]
    """
    return [y(V.I) <= affine(x(V.I), y.relation, inputs, outputs)]


def affine(x: Expression, name: str, inputs: int, outputs: int) -> tuple[Expression, Weight]:
    """W x + b, as the two items of a body that is summed.

    >>> R.y(V.I) <= affine(R.x(V.I), "up", 8, 3)
    R.y(V.I) <= (R.x(V.I)["up.weight": 3, 8], W["up.bias"][3,])
    """
    return x[W[f"{name}.weight"][outputs, inputs]], W[f"{name}.bias"][outputs,]


def affine_of(x: Expression, name: str, inputs: int, outputs: int) -> Expression:
    """W x + b as one expression.

    >>> R.y(V.I) <= F.relu(affine_of(R.x(V.I), "up", 8, 3))
    R.y(V.I) <= F.relu(R.x(V.I)["up.weight": 3, 8] + W["up.bias"][3,])
    """
    product, bias = affine(x, name, inputs, outputs)
    return product + bias


def layer_norm(x: Atom, y: Atom, size: int, *, eps: float = 1e-5) -> Statements:
    """Layer normalisation with a learnable gain and bias: yᵢ = g ⊙ norm(xᵢ) + b.

    https://arxiv.org/abs/1607.06450

    >>> len(layer_norm(R.x, R.y, 8))
    1
    """
    return [y(V.I) <= layer_norm_of(x(V.I), y.relation, size, eps=eps)]


def layer_norm_of(x: Expression, name: str, size: int, *, eps: float = 1e-5) -> Expression:
    """Layer normalisation inside an expression.

    >>> (R.y(V.I) <= layer_norm_of(R.x(V.I), "norm", 8)).head
    R.y(V.I)
    """
    return _scaled(F.norm(eps=eps)(x), name, size)


def _scaled(x: Expression, name: str, size: int) -> Expression:
    """g ⊙ x + b."""
    gain, bias = W[f"{name}.gain"][size,], W[f"{name}.bias"][size,]
    return x * gain.filled(1.0) + bias.filled(0.0)


def batch_norm(
    x: Expression, name: str, size: int, *, eps: float = 1e-5, momentum: float = 0.1
) -> Expression:
    """Batch normalisation inside an expression: g ⊙ (x − mean) / √(variance + eps) + b.

    In training the mean and variance are those of all rows of the batch, and their running
    averages, which are weights, move towards them; otherwise they are the averages.

    https://arxiv.org/abs/1502.03167

    >>> (R.y(V.I) <= batch_norm(R.x(V.I), "norm", 8)).head
    R.y(V.I)
    """
    mean = W[f"{name}.mean"][size,].filled(0.0).fixed()
    variance = W[f"{name}.variance"][size,].filled(1.0).fixed()
    norm = F.batch_norm(eps=eps, momentum=momentum)(x, mean, variance)
    return _scaled(norm, name, size)


def rms_norm(x: Atom, y: Atom, size: int, *, eps: float = 1e-6) -> Statements:
    """Division by the root of the mean square, with a learnable gain: yᵢ = g ⊙ xᵢ / rms(xᵢ).

    https://arxiv.org/abs/1910.07467

    >>> rms_norm(R.x, R.y, 8)
    [R.y(V.I) <= F.rms_norm(eps=1e-06)(R.x(V.I)) * W["y.gain"][8,].filled(1.0)]
    """
    gain = W[f"{y.relation}.gain"][size,].filled(1.0)
    return [y(V.I) <= F.rms_norm(eps=eps)(x(V.I)) * gain]


def dropout(x: Atom, y: Atom, p: float) -> Statements:
    """Every element is 0 with probability p and divided by 1 − p otherwise, in training only.

    >>> dropout(R.x, R.y, 0.1)
    [R.y(V.I) <= F.dropout(0.1)(R.x(V.I))]
    """
    return [y(V.I) <= dropped(x(V.I), p)]


def dropped(x: Expression, p: float) -> Expression:
    """Dropout inside an expression; with p = 0 the expression itself.

    >>> R.y(V.I) <= dropped(R.x(V.I), 0.1)
    R.y(V.I) <= F.dropout(0.1)(R.x(V.I))
    """
    return F.dropout(p)(x) if p else x


def residual(
    x: Atom,
    z: Atom,
    y: Atom,
    inputs: int,
    outputs: int,
    p: float,
    *,
    everywhere: bool = True,
    bias: bool = True,
) -> Statements:
    """A residual connection: yᵢ = xᵢ + dropout(W zᵢ + b), or without b.

    If z is not derived for every row, two rules leave the other rows unchanged.

    >>> residual(R.x, R.z, R.y, 8, 8, 0.0)
    [R.y(V.I) <= R.x(V.I) + (R.z(V.I)["y.weight": 8, 8] + W["y.bias"][8,])]
    """
    weight, shift = affine(z(V.I), y.relation, inputs, outputs)
    added = dropped(weight + shift if bias else weight, p)
    return [y(V.I) <= x(V.I) + added] if everywhere else [y(V.I) <= x(V.I), y(V.I) <= added]


def heads(x: Atom, y: Atom, size: int, d: int, *, bias: bool = True) -> Statements:
    """A projection to d features per head: yₕᵢ = Wₕ xᵢ + bₕ.

    >>> heads(R.x, R.q, 8, 4)
    [R.q(V.H, V.I) <= (R.x(V.I)[W["q.weight"](V.H)[4, 8]], W["q.bias"](V.H)[4,])]
    """
    name = y.relation
    items: tuple[Expression, ...] = (x(V.I)[W[f"{name}.weight"](V.H)[d, size]],)
    items += (W[f"{name}.bias"](V.H)[d,],) if bias else ()
    return [y(V.H, V.I) <= items]


def attention(
    x: Atom,
    y: Atom,
    size: int,
    heads_: int,
    *,
    d: int | None = None,
    to: Atom | None = None,
    scale: float | None = None,
    bias: bool = True,
    rotate: bool = False,
    p: float = 0.0,
    scores: tuple[Expression, ...] = (),
    where: tuple[Expression, ...] = (),
) -> Statements:
    """Multi-head attention of i to every j for which the conditions `where` hold.

    yᵢ = ∥ₕ Σⱼ softmaxⱼ(qₕᵢ · kₕⱼ / √d + scores) vₕⱼ, for heads of d = size / heads. `H` needs the
    domain of the heads: `Program(..., domains={V.H: heads})`.

    https://arxiv.org/abs/1706.03762

    - to: the relation that is attended to, by default x itself.
    - scores: terms added to the score, expressions of `V.H`, `V.I` and `V.J`.
    - rotate: rotate queries and keys by their positions; see `rotary`.
    - p: the dropout of weights.

    >>> import torch
    >>> from edgewise import Program
    >>> rules = attention(R.x, R.y, 8, 2, where=(R.special.leq(V.J, V.I),))
    >>> model = Program(rules, domains={V.H: 2}).compile(R.y, seed=0)
    >>> model(x=torch.randn(5, 8)).shape
    torch.Size([5, 8])
    """
    from edgewise.zoo import encoder, layers  # which are made of parts

    config = encoder.Config(
        size, heads_, size, 1, dropout=p, scale=scale, positions="rotary" if rotate else "none"
    )
    how: Any = {"d": d, "to": to, "bias": bias, "scores": scores}
    return layers.attention(x, y, config, ((heads_, where),), **how)


def head_size(size: int, heads_: int) -> int:
    """The number of features of each head, size / heads.

    >>> head_size(64, 4)
    16
    """
    if size % integer(heads_, "heads", 1):
        raise BadSize(
            f"size {size} is not divisible by {heads_} heads",
            caller(),
            f"choose a divisor of {size}",
        )
    return integer(size, "size", 1) // heads_


def present(mask: Atom, y: Atom) -> Statements:
    """yᵢ = log(maskᵢ): 0 for a token, −∞ for padding. Added to scores it is a condition.

    A pair of which one row is padding has the weight 0, and is not computed.

    >>> present(R.mask, R.padding)
    [R.padding(V.I) <= F.log(R.mask(V.I))]
    """
    return [y(V.I) <= F.log(mask(V.I))]


def relative(
    x: Atom,
    y: Atom,
    buckets: int,
    far: int,
    *,
    both: bool = True,
    heads: tuple[Variable, ...] = (V.H,),
) -> Statements:
    """Relative position bias, one learnable number per head and bucket of distances.

    bₕᵢⱼ = tableₕ[bucket(j − i)], derived as y(H, I, J); `B` needs the domain of the buckets.

    https://arxiv.org/abs/1910.10683

    >>> len(relative(R.x, R.bias, buckets=8, far=16))
    1
    """
    rows = R.hidden[x.relation]
    bucket = R.special.bucket if both else R.special.bucket_before
    near = bucket(V.I, V.J, buckets, far, V.B)
    table = W[y.relation](V.B, *heads)[1,]
    return [y(*heads, V.I, V.J) <= (table, near, rows(V.I), rows(V.J))]


def rotary(x: Atom, speeds: Sequence[float] | Atom, *, amplitude: float = 1.0) -> Statements:
    """The cos and sin of the angles i · speed of every position i of x, times `amplitude`.

    https://arxiv.org/abs/2104.09864

    >>> len(rotary(R.x, [1.0, 0.1]))
    3
    """
    speed = speeds if isinstance(speeds, Atom) else W.speed[list(speeds)].fixed()
    return [
        (R.angle(V.I) <= (R.special.add_eval(V.I, 0), speed, R.hidden[x.relation](V.I)))
        | [F.product],
        R.cos(V.I) <= times(F.cos(R.angle(V.I)), amplitude),
        R.sin(V.I) <= times(F.sin(R.angle(V.I)), amplitude),
    ]


def times(x: Expression, factor: float) -> Expression:
    """A fixed multiple; of 1, the expression itself.

    >>> R.y(V.I) <= times(R.x(V.I), 0.5)
    R.y(V.I) <= R.x(V.I) * 0.5
    """
    return x if factor == 1 else x * factor


def rotated(x: Atom, y: Atom) -> Statements:
    """Rotary embedding: pairs of features rotated by the angles of their position.

    >>> rotated(R.q, R.turned)
    [R.turned(V.H, V.I) <= F.rotate(R.q(V.H, V.I), R.cos(V.I), R.sin(V.I))]
    """
    return [y(V.H, V.I) <= F.rotate(x(V.H, V.I), R.cos(V.I), R.sin(V.I))]


def speeds(d: int, base: float = 10_000.0) -> tuple[float, ...]:
    """The angles per position of rotary and sinusoidal positions: base^(-2c/d).

    >>> speeds(4)
    (1.0, 0.01)
    """
    return tuple(base ** (-2 * c / d) for c in range(d // 2))


def feed_forward(
    x: Atom, y: Atom, size: int, hidden: int, *, activation: Function = F.relu, p: float = 0.0
) -> Statements:
    """A hidden layer for every row: yᵢ = dropout(activation(W xᵢ + b)).

    >>> feed_forward(R.x, R.y, 8, 32, activation=F.gelu)
    [(R.y(V.I) <= (R.x(V.I)["y.weight": 32, 8], W["y.bias"][32,])) | [F.gelu]]
    """
    functions = [activation, F.dropout(p)] if p else [activation]
    return [(y(V.I) <= affine(x(V.I), y.relation, size, hidden)) | functions]


def embedding(token: Atom, y: Atom, size: int) -> Statements:
    """The learnable vector of the token T that stands at I: `token(I, T)` is a fact.

    `T` needs the domain of the vocabulary: `Program(..., domains={V.T: 30_000})`.

    >>> embedding(R.token, R.x, 8)
    [R.x(V.I) <= R.token(V.I, V.T)[W["x.weight"](V.T)[8,]]]
    """
    return [y(V.I) <= token(V.I, V.T)[W[f"{y.relation}.weight"](V.T)[size,]]]


def convolution(
    x: Atom, name: str, inputs: int, outputs: int, taps: int, step: int = 1
) -> tuple[Statements, Expression]:
    """A convolution over rows: its rules, and Σₖ Wₖ x(step · i + k − (taps − 1)/2) + b.

    Rows beyond the ends count as 0.

    >>> rules, sum_of_taps = convolution(R.x, "conv", 8, 4, 3)
    >>> len(rules)
    3
    """
    found, before = R[f"{name}_taps"], (taps - 1) // 2
    row = R.hidden[x.relation](V.C), R.special.mul(V.I, step, V.C)
    shifted = R.special.add(V.J, before, V.S)
    rules: Statements = [
        found(V.I) <= (x(V.J)[W[f"{name}.{k}"][outputs, inputs]], *row, shifted, place)
        for k, place in ((k, R.special.add(V.C, k, V.S)) for k in range(taps))
    ]
    return rules, found(V.I) + W[f"{name}.bias"][outputs,]


def readout(x: Atom, y: Atom, inputs: int, outputs: int) -> Statements:
    """One value for all rows: y = W meanᵢ xᵢ + b.

    >>> readout(R.x, R.y, 8, 3)
    [(R.y_mean <= R.x(V.I)) | [F.avg_agg], R.y <= (R.y_mean["y.weight": 3, 8], W["y.bias"][3,])]
    """
    mean = R[f"{y.relation}_mean"]
    return [(mean <= x(V.I)) | [F.avg_agg], y <= affine(mean, y.relation, inputs, outputs)]


def neighbourhood(x: Atom, edge: Atom, neighbour: Atom) -> Statements:
    """neighbour(i, j): the edges, with a self-loop for every row of x.

    >>> for rule in neighbourhood(R.x, R.edge, R.neighbour):
    ...     print(rule)
    R.neighbour(V.I, V.J) <= R._edge(V.I, V.J)
    R.neighbour(V.I, V.I) <= R._x(V.I)
    R.neighbour/2 | [F.max]
    """
    return [
        neighbour(V.I, V.J) <= R.hidden[edge.relation](V.I, V.J),
        neighbour(V.I, V.I) <= R.hidden[x.relation](V.I),
        neighbour / 2 | [F.max],
    ]
