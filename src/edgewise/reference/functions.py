"""What the functions of values compute, written plainly."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from edgewise.checks.evaluation import CallFailed, no_such_row
from edgewise.checks.mismatch import ShapeMismatch, check_rotation
from edgewise.errors import EdgewiseError
from edgewise.language import functions, nodes
from edgewise.reference.values import aligned, canonical, product, show


def sparsemax(x: Tensor, dim: int) -> Tensor:
    """The point of the simplex nearest to x: max(x − τ, 0) with τ such that it sums to 1.

    >>> sparsemax(torch.tensor([1.0, 1.4, 0.2]), 0)
    tensor([0.3000, 0.7000, 0.0000])

    No point is near what is infinite or not a number.

    >>> sparsemax(torch.tensor([1.0, torch.inf]), 0)
    tensor([nan, nan])
    """
    ordered = x.sort(dim=dim, descending=True).values
    sizes = torch.arange(1, x.shape[dim] + 1, dtype=x.dtype, device=x.device)
    sizes = sizes.reshape([-1 if d == dim % x.ndim else 1 for d in range(x.ndim)])
    totals = ordered.cumsum(dim) - 1
    support = (sizes * ordered > totals).sum(dim, keepdim=True)
    threshold = totals.gather(dim, support.clamp(min=1) - 1) / support
    threshold = threshold.masked_fill(support == 0, torch.nan)
    return (x - threshold).clamp(min=0)


def _norm(x: Tensor, eps: float) -> Tensor:
    centred = x - x.mean()
    return centred / (centred.square().mean() + eps).sqrt()


def _rms_norm(x: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean() + eps).sqrt()


def _slice(x: Tensor, rows: Any, cols: Any) -> Tensor:
    if (rows and (x.ndim == 0 or rows[1] > x.shape[0])) or (
        cols and (x.ndim < 2 or cols[1] > x.shape[1])
    ):
        raise ShapeMismatch(
            f"cannot take rows={rows}, cols={cols} of {show(x)}", help="slices are half-open"
        )
    x = x[slice(*rows)] if rows else x
    return x[:, slice(*cols)] if cols else x


def _reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    if torch.Size(shape).numel() != x.numel():
        raise ShapeMismatch(
            f"cannot reshape {show(x)} to {shape}", help=f"give sizes whose product is {x.numel()}"
        )
    return x.reshape(shape)


def _call(x: Tensor, module: nodes.Opaque) -> Tensor:
    try:
        result = module.thing(x)
    except EdgewiseError:
        raise
    except Exception as problem:
        raise CallFailed(
            f"`{module!r}` raised {type(problem).__name__} on {show(x)}: {problem}",
            help="a called module takes one value and gives one value",
        ) from problem
    if not isinstance(result, Tensor) or result.ndim > 2:
        raise CallFailed(f"`{module!r}` gave no scalar, vector or matrix", help="return one tensor")
    return result


def _in_mode(x: Tensor, module: nodes.Opaque, training: bool) -> Tensor:
    """A module applied in training or evaluation mode, left in the mode it had."""
    before = module.thing.training
    module.thing.train(training)
    try:
        return _call(x, module)
    finally:
        module.thing.train(before)


TRANSFORMATIONS: dict[str, Callable[..., Tensor]] = {
    "relu": torch.relu,
    "leaky_relu": lambda x, slope: torch.nn.functional.leaky_relu(x, slope),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "elu": torch.nn.functional.elu,
    "softplus": torch.nn.functional.softplus,
    "softmax": lambda x: x.flatten().softmax(0).reshape(x.shape),
    "sparsemax": lambda x: sparsemax(x.flatten(), 0).reshape(x.shape),
    "norm": _norm,
    "rms_norm": _rms_norm,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "abs": torch.abs,
    "sin": torch.sin,
    "cos": torch.cos,
    "clamp": lambda x, low, high: x.clamp(low, high),
    "inverse": torch.reciprocal,
    "reverse": lambda x: 1 - x,
    "signum": lambda x: (x > 0).to(x.dtype),
    "lukasiewicz": lambda x: torch.sigmoid(6 * x + 0.5),
    "transp": lambda x: x.unsqueeze(0) if x.ndim == 1 else x.mT if x.ndim else x,
    "identity": lambda x: x,
    "slice": _slice,
    "reshape": _reshape,
    "call": _call,
}


def transform(function: nodes.Function, x: Tensor, training: bool) -> Tensor:
    if function.name == "dropout":
        return torch.nn.functional.dropout(x, function["p"], training)
    if function.name == "call" and isinstance(function["module"].thing, torch.nn.Module):
        return canonical(_in_mode(x, function["module"], training))
    defaults = functions.SIGNATURES[function.name].defaults
    given = {name: functions.argument(function, name) for name in defaults}
    return canonical(TRANSFORMATIONS[function.name](x, **given))


def _concat(values: Sequence[Tensor], axis: int) -> Tensor:
    if axis == -1:
        return torch.cat([value.flatten() for value in values])
    rows = [
        v.reshape(1, 1) if v.ndim == 0 else v.unsqueeze(1) if v.ndim == 1 else v for v in values
    ]
    if len({row.shape[1] for row in rows}) > 1:
        raise ShapeMismatch(
            f"cannot stack {', '.join(map(show, values))}", help="give them equal widths"
        )
    return torch.cat(rows)


def _crossum(values: Sequence[Tensor]) -> Tensor:
    flat = [value.flatten() for value in values]
    return reduce(lambda a, b: (a[:, None] + b).flatten(), flat)


def _cossim(values: Sequence[Tensor]) -> Tensor:
    if len(values) != 2:
        raise ShapeMismatch(
            f"`cossim` compares two values, got {len(values)}", help="write it over two atoms"
        )
    a, b = aligned(values).reshape(2, -1)
    return a @ b / (a.norm() * b.norm())


def _lookup(values: Sequence[Tensor]) -> Tensor:
    """The row of a table that a number names."""
    if len(values) != 2 or not values[0].ndim or values[1].ndim:
        raise ShapeMismatch(
            f"`lookup` takes a table and a number, got {', '.join(map(show, values))}",
            help="write `F.lookup(W.table[rows, size], R.number(V.I))`",
        )
    table, number = values[0], float(values[1])
    if not number.is_integer() or not 0 <= number < len(table):
        raise no_such_row(number, len(table))
    return table[int(number)]


def _rotate(values: Sequence[Tensor]) -> Tensor:
    """Pair c of a vector, (x_c, x_{c + d/2}), turned by an angle of which cos and sin are given."""
    check_rotation([tuple(value.shape) for value in values], list(map(show, values)))
    x, cos, sin = values
    half = x.shape[0] // 2
    a, b = x[:half], x[half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin])


def _scalars(values: Sequence[Tensor], name: str) -> Tensor:
    vector = next((value for value in values if value.ndim), None)
    if vector is not None:
        raise ShapeMismatch(
            f"`{name}` takes scalars, got {show(vector)}", help="reduce the values to scalars first"
        )
    return torch.stack(list(values))


COMBINATIONS: dict[str, Callable[..., Tensor]] = {
    "sum": lambda values: aligned(values).sum(0),
    "product": lambda values: reduce(product, values),
    "elproduct": lambda values: aligned(values).prod(0),
    "avg": lambda values: aligned(values).mean(0),
    "max": lambda values: aligned(values).amax(0),
    "min": lambda values: aligned(values).amin(0),
    "count": lambda values: values[0].new_tensor(float(len(values))),
    "concat": _concat,
    "crossum": _crossum,
    "cossim": _cossim,
    "lookup": _lookup,
    "rotate": _rotate,
    "softmax_comb": lambda values: _scalars(values, "softmax_comb").softmax(0),
    "sparsemax_comb": lambda values: sparsemax(_scalars(values, "sparsemax_comb"), 0),
}


def combine(function: nodes.Function, values: Sequence[Tensor]) -> Tensor:
    axis = {"axis": functions.argument(function, "axis")} if function.name == "concat" else {}
    return canonical(COMBINATIONS[function.name](values, **axis))


def _std(values: Sequence[Tensor]) -> Tensor:
    variance = aligned(values).var(0, correction=0) if len(values) > 1 else values[0] * 0
    positive = variance > 0  # the root has no finite slope at 0: its gradient is taken as 0
    return torch.where(positive, torch.where(positive, variance, 1).sqrt(), 0 * variance)


AGGREGATIONS: dict[str, Callable[..., Tensor]] = {
    "sum_agg": lambda values: aligned(values).sum(0),
    "avg_agg": lambda values: aligned(values).mean(0),
    "max_agg": lambda values: aligned(values).amax(0),
    "min_agg": lambda values: aligned(values).amin(0),
    "count_agg": lambda values: values[0].new_tensor(float(len(values))),
    "concat_agg": lambda values: torch.cat([value.flatten() for value in values]),
    "std_agg": _std,
    "median_agg": lambda values: aligned(values).median(0).values,
    "lse_agg": lambda values: aligned(values).logsumexp(0),
    "topk_agg": lambda values, k: aligned(values).topk(min(k, len(values)), 0).values.sum(0),
    "softmax_agg": lambda values: _scalars(values, "softmax_agg").softmax(0),
    "sparsemax_agg": lambda values: sparsemax(_scalars(values, "sparsemax_agg"), 0),
}


def aggregate(function: nodes.Function, values: Sequence[Tensor]) -> Tensor:
    """One head's groundings, in key order, become one value."""
    k = {"k": function["k"]} if function.name == "topk_agg" else {}
    return canonical(AGGREGATIONS[function.name](values, **k))


def normalise(function: nodes.Function, values: Sequence[Tensor]) -> list[Tensor]:
    """The heads of one softmax or sparsemax group, each against the others."""
    stacked = aligned(values)
    weights = stacked.softmax(0) if function.name == "softmax_agg" else sparsemax(stacked, 0)
    return list(weights.unbind(0))
