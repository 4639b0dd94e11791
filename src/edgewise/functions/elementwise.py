"""Transformations of each number alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edgewise.functions.definition import HIGH, LOW, SLOPE, TRANSFORMATION, Definition, Law
from edgewise.functions.dimensions import Shape, Shapes

if TYPE_CHECKING:
    from torch import Tensor


def _same(shape: Shape, **options: Any) -> Shapes:
    return frozenset({shape})


def _of_torch(name: str, **fixed: Any) -> Callable[..., Tensor]:
    """A function of `torch.nn.functional`, found when it is called."""

    def call(x: Tensor, *arguments: Any, **options: Any) -> Tensor:
        import torch

        found: Tensor = getattr(torch.nn.functional, name)(x, *arguments, **options, **fixed)
        return found

    return call


def _elementwise(
    name: str,
    summary: str,
    value: Callable[..., Tensor],
    *laws: Law,
    columns: Callable[..., Tensor] | None = None,
    **more: Any,
) -> Definition:
    """The two definitions are one where they would be the same call of torch."""
    found = {Law.ELEMENTWISE, *laws}
    return Definition(TRANSFORMATION, name, summary, value, columns or value, _same, found, **more)


_MONOTONE = Law.MONOTONE

ELEMENTWISE = (
    _elementwise(
        "relu", "max(x, 0)", lambda x: x.relu(), _MONOTONE,
        score=lambda s, x: s.where(x > 0, x, 0.0), gradient="0 at 0", slope=lambda: 0.0),
    _elementwise(
        "sigmoid", "1 / (1 + e⁻ˣ)", lambda x: x.sigmoid(), _MONOTONE,
        score=lambda s, x: s.sigmoid(x)),
    _elementwise("tanh", "tanh x", lambda x: x.tanh(), _MONOTONE, score=lambda s, x: s.tanh(x)),
    _elementwise("gelu", "x · Φ(x), Φ the normal distribution function", _of_torch("gelu")),
    _elementwise(
        "gelu_tanh", "`gelu` with its approximation by tanh",
        _of_torch("gelu", approximate="tanh"), aliases=("gelu_new",)),
    _elementwise(
        "silu", "x · sigmoid(x)", _of_torch("silu"), score=lambda s, x: x * s.sigmoid(x),
        aliases=("swish",)),
    _elementwise("elu", "x above 0, eˣ − 1 below", _of_torch("elu"), _MONOTONE),
    _elementwise("softplus", "log(1 + eˣ)", _of_torch("softplus"), _MONOTONE),
    _elementwise("exp", "eˣ", lambda x: x.exp(), _MONOTONE, score=lambda s, x: s.exp(x)),
    _elementwise("log", "log x", lambda x: x.log(), _MONOTONE, score=lambda s, x: s.log(x)),
    _elementwise("sqrt", "√x", lambda x: x.sqrt(), _MONOTONE, score=lambda s, x: s.sqrt(x)),
    _elementwise("square", "x²", lambda x: x.square(), score=lambda s, x: x * x),
    _elementwise("abs", "|x|", lambda x: x.abs(), score=lambda s, x: abs(x), gradient="0 at 0"),
    _elementwise("sin", "sin x", lambda x: x.sin()),
    _elementwise("cos", "cos x", lambda x: x.cos()),
    _elementwise("inverse", "1 / x", lambda x: x.reciprocal(), score=lambda s, x: 1.0 / x),
    _elementwise("reverse", "1 − x", lambda x: 1 - x, score=lambda s, x: 1.0 - x),
    _elementwise(
        "signum", "1 above 0, else 0", lambda x: (x > 0).to(x.dtype), _MONOTONE,
        score=lambda s, x: s.where(x > 0, 1.0, 0.0), gradient="0", aliases=("step",)),
    _elementwise(
        "lukasiewicz", "sigmoid(6x + 0.5), a smooth truth value",
        lambda x: 1 / (1 + (-6 * x - 0.5).exp()), _MONOTONE,
        columns=lambda x: (6 * x + 0.5).sigmoid(), score=lambda s, x: s.sigmoid(6.0 * x + 0.5)),
    _elementwise(
        "identity", "x itself", lambda x: x, _MONOTONE, Law.LINEAR, Law.KEEPS_ONE,
        score=lambda s, x: x),
    _elementwise(
        "leaky_relu", "x above 0, slope · x below",
        lambda x, slope: _of_torch("leaky_relu")(x, slope), _MONOTONE,
        score=lambda s, x, slope: s.where(x > 0, x, slope * x), options=(SLOPE,),
        gradient="slope at 0", slope=lambda slope: float(slope)),
    _elementwise(
        "clamp", "x, at least low and at most high", lambda x, low, high: x.clamp(low, high),
        _MONOTONE, options=(LOW, HIGH)),
)  # fmt: skip
