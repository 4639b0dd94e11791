"""Scores with names: those of papers, and functions to write others with."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from edgewise.errors import caller, checks_options, safe_repr
from edgewise.scores.score import BadScore, I, J, S, Score, apply, as_score, entry

ONE_INDEX = (
    "write `table(values, J)`: of shape (heads, length) it reads the row of its head; tables of "
    "several positions are a mask or a rule"
)


def tanh(x: Score) -> Score:
    """tanh(x).

    >>> from edgewise.scores import S
    >>> 30.0 * tanh(S / 30.0)
    30.0 * tanh(S / 30.0)
    """
    return apply("tanh", x)


def exp(x: Score) -> Score:
    """eˣ.

    >>> from edgewise.scores import I, J, S
    >>> S * exp(-0.1 * abs(I - J))
    S * exp((-0.1) * abs(I - J))
    """
    return apply("exp", x)


def log(x: Score) -> Score:
    """The natural logarithm of x.

    >>> from edgewise.scores import I, J, S
    >>> S - log(1 + abs(I - J))
    S - log(1 + abs(I - J))
    """
    return apply("log", x)


def sqrt(x: Score) -> Score:
    """√x.

    >>> from edgewise.scores import I, J, S
    >>> S - sqrt(abs(I - J))
    S - sqrt(abs(I - J))
    """
    return apply("sqrt", x)


def sigmoid(x: Score) -> Score:
    """1 / (1 + e⁻ˣ).

    >>> from edgewise.scores import S
    >>> S * sigmoid(S)
    S * sigmoid(S)
    """
    return apply("sigmoid", x)


def floor(x: Score) -> Score:
    """⌊x⌋, with gradient 0.

    >>> from edgewise.scores import I, J, S
    >>> S - floor(abs(I - J) / 8)
    S - floor(abs(I - J) / 8)
    """
    return apply("floor", x)


def maximum(a: Score | float, b: Score | float) -> Score:
    """The larger one; ties share the gradient equally.

    >>> from edgewise.scores import S
    >>> maximum(S, -10.0)
    maximum(S, -10.0)
    """
    return apply("max", a, b)


def minimum(a: Score | float, b: Score | float) -> Score:
    """The smaller one; ties share the gradient equally.

    >>> from edgewise.scores import S
    >>> minimum(S, 10.0)
    minimum(S, 10.0)
    """
    return apply("min", a, b)


def where(condition: Score, a: Score | float, b: Score | float) -> Score:
    """a where the condition is not 0, else b.

    >>> from edgewise.scores import I, J, S
    >>> where(abs(I - J) < 4, S, S - 1.0)
    where(abs(I - J) < 4, S, S - 1.0)
    """
    return apply("where", condition, a, b)


@checks_options(ONE_INDEX)
def table(values: Tensor, index: Score | float | None = None) -> Score:
    """values[index] or, with a row for each head, values[h, index]; the index is clamped.

    >>> table(torch.zeros(8, 3), minimum(abs(I - J), 2))
    table0[minimum(abs(I - J), 2)]
    """
    if not isinstance(values, Tensor) or values.ndim == 0:
        raise BadScore(
            f"a table is a tensor of real numbers with an axis, got {_described(values)}",
            caller(),
            "give shape (length,), or (heads, length) for one row per head; one learned number is "
            "`scalar(tensor)`",
        )
    if not values.is_floating_point():
        raise BadScore(
            f"a table is a tensor of real numbers, got {_described(values)}",
            caller(),
            "write `table(tensor.float(), index)`",
        )
    if index is None:
        raise BadScore(
            f"which entry of the table of shape {tuple(values.shape)}?",
            caller(),
            "write `table(values, I - J)`; one number for each head is `scalar(values)`",
        )
    if values.shape[-1] == 0:
        raise BadScore(
            f"the table has shape {tuple(values.shape)}: no entry", caller(), "give at least one"
        )
    return entry(values, as_score(index))


def scalar(values: Tensor) -> Score:
    """One number for each head: values (heads,).

    >>> S * scalar(torch.ones(8))
    S * table0[0]
    """
    if not isinstance(values, Tensor) or not values.is_floating_point():
        raise BadScore(
            f"one number per head is a tensor of real numbers, got {_described(values)}",
            caller(),
            "give shape (heads,)",
        )
    return entry(values.unsqueeze(-1), 0)


def softcap(most: float) -> Score:
    """most · tanh(s / most): scores stay between -most and most, as in Gemma 2.

    >>> softcap(50.0)
    50.0 * tanh(S / 50.0)
    """
    if isinstance(most, bool) or not isinstance(most, int | float) or not 0 < most < math.inf:
        raise BadScore(
            f"`softcap` takes a positive number, got {safe_repr(most)}",
            caller(),
            "give, for example, 50.0",
        )
    return float(most) * tanh(S / float(most))


def alibi(slopes: Tensor | Sequence[float] | int) -> Score:
    """-slope_h · |i - j|: Press et al. 2022, https://arxiv.org/abs/2108.12409.

    A number of heads stands for the slopes of the paper.

    >>> alibi(8)
    -table0[0] * abs(I - J)
    """
    if isinstance(slopes, int):
        slopes = alibi_slopes(slopes)
    if not isinstance(slopes, Tensor):
        try:
            slopes = torch.tensor(slopes, dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError):
            raise BadScore(
                f"`alibi` takes a number of heads or their slopes, got {safe_repr(slopes)}",
                caller(),
                "write `alibi(8)`, or give one slope for each head",
            ) from None
    return -scalar(slopes) * abs(I - J)


def alibi_slopes(heads: int) -> Tensor:
    """2^(-8/h), 2^(-16/h), ...; for other numbers than powers of 2 every other of twice as many.

    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    if not _is_integer(heads) or heads < 1:
        raise BadScore(f"there are {safe_repr(heads)} heads", caller(), "give an integer from 1 on")
    power = 1 << (heads.bit_length() - 1)
    first = [2 ** (-8 * (h + 1) / power) for h in range(min(heads, power))]
    rest = [2 ** (-4 * (2 * h + 1) / power) for h in range(heads - len(first))]
    return torch.tensor(first + rest)


def relative(values: Tensor) -> Score:
    """values[h, clip(i - j, -r, r) + r] of a table (2r + 1,) or (heads, 2r + 1).

    >>> relative(torch.zeros(8, 7))
    table0[I - J + 3]
    """
    odd = isinstance(values, Tensor) and values.ndim > 0 and values.shape[-1] % 2
    if not odd:
        found = (
            values.shape[-1] if isinstance(values, Tensor) and values.ndim else _described(values)
        )
        raise BadScore(
            f"a table of relative positions has 2r + 1 entries, got {found}",
            caller(),
            "give a tensor; entry r belongs to the query itself",
        )
    return table(values, I - J + values.shape[-1] // 2)


def t5_buckets(buckets: int = 32, distance: int = 128, *, both: bool = True) -> Tensor:
    """The bucket of each i - j from -distance to distance, as T5 numbers them; `both`: keys after
    the query have buckets of their own, as in its encoder.

    >>> weight = torch.zeros(32, 8)  # T5's embedding: (buckets, heads)
    >>> relative(weight.T[:, t5_buckets()])
    table0[I - J + 128]
    """
    half = (buckets // 2 if both else buckets) // 2 if _is_integer(buckets) else 0
    if half < 1 or not _is_integer(distance) or distance <= half:
        raise BadScore(
            f"{safe_repr(buckets)} buckets for a distance of {safe_repr(distance)}",
            caller(),
            f"give integers: at least {4 if both else 2} buckets, and a distance beyond those "
            f"that have a bucket each, {max(half, 1)}",
        )
    away = -torch.arange(-distance, distance + 1)  # T5 counts j - i
    count = buckets // 2 if both else buckets
    base = (away > 0).long() * count if both else torch.zeros_like(away)
    away = away.abs() if both else -away.clamp(max=0)
    exact = count // 2
    far = torch.log(away.float().clamp(min=1) / exact) / math.log(distance / exact)
    far = (exact + (far * (count - exact)).long()).clamp(max=count - 1)
    return base + torch.where(away < exact, away, far)


def _is_integer(x: object) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _described(values: object) -> str:
    if isinstance(values, Tensor):
        return f"{str(values.dtype).removeprefix('torch.')} of shape {tuple(values.shape)}"
    return type(values).__name__
