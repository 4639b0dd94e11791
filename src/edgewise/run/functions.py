"""What transformations and combinations compute on columns of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from edgewise.aggregations.reduce import sparsemax
from edgewise.checks.evaluation import CallFailed, no_such_row
from edgewise.checks.mismatch import ShapeMismatch, check_rotation
from edgewise.language import functions, nodes
from edgewise.run.column import Column, column, meet, product, show
from edgewise.run.tape.whole import whole

ELEMENTWISE: dict[str, Callable[..., Tensor]] = {
    "relu": torch.relu,
    "leaky_relu": lambda x, slope: torch.nn.functional.leaky_relu(x, slope),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "elu": torch.nn.functional.elu,
    "softplus": torch.nn.functional.softplus,
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
}


def _arguments(function: nodes.Function) -> dict[str, object]:
    names = functions.SIGNATURES[function.name].defaults
    return {name: functions.argument(function, name) for name in names}


def transform(function: nodes.Function, x: Column, training: bool) -> Column:
    """A transformation, row by row."""
    if function.name == "identity":
        return x
    given = _arguments(function)
    if function.name in ELEMENTWISE:
        return Column(ELEMENTWISE[function.name](x.data, **given))
    if function.name == "dropout":
        return Column(torch.nn.functional.dropout(x.data, float(given["p"]), training))  # type: ignore[arg-type]
    return column(ROWWISE[function.name](x, **given))


def _over_elements(x: Column, compute: Callable[[Tensor], Tensor]) -> Tensor:
    flat = x.data.flatten(2) if x.rank else x.data.unsqueeze(-1)
    return compute(flat).reshape(x.data.shape)


def _norm(x: Column, eps: float) -> Tensor:
    if x.rank == 0:
        return x.data * 0.0
    return torch.nn.functional.layer_norm(x.data, x.shape, eps=eps)


def _rms_norm(x: Column, eps: float) -> Tensor:
    if x.rank == 0:
        return x.data / (x.data.square() + eps).sqrt()
    return torch.nn.functional.rms_norm(x.data, x.shape, eps=eps)


def _transp(x: Column) -> Tensor:
    return x.data.unsqueeze(2) if x.rank == 1 else x.data.mT if x.rank == 2 else x.data


def _slice(x: Column, rows: tuple[int, int] | None, cols: tuple[int, int] | None) -> Tensor:
    if (rows and (x.rank == 0 or rows[1] > x.shape[0])) or (
        cols and (x.rank < 2 or cols[1] > x.shape[1])
    ):
        raise ShapeMismatch(
            f"cannot take rows={rows}, cols={cols} of {show(x.shape)}", help="slices are half-open"
        )
    data = x.data[:, :, slice(*rows)] if rows else x.data
    return data[:, :, :, slice(*cols)] if cols else data


def _reshape(x: Column, shape: tuple[int, ...]) -> Tensor:
    if torch.Size(shape).numel() != torch.Size(x.shape).numel():
        raise ShapeMismatch(
            f"cannot reshape {show(x.shape)} to {shape}", help="give sizes with the same product"
        )
    return x.data.reshape(*x.data.shape[:2], *shape)


def _call(x: Column, module: nodes.Opaque) -> Tensor:
    try:
        each = torch.vmap(torch.vmap(module.thing, randomness="different"), randomness="different")
        return each(x.data)
    except Exception as problem:
        raise CallFailed(
            f"`{module!r}` raised {type(problem).__name__} on {show(x.shape)}: {problem}",
            help="a called module takes one value and gives one value",
        ) from problem


ROWWISE: dict[str, Callable[..., Tensor]] = {
    "softmax": lambda x: _over_elements(x, lambda flat: flat.softmax(-1)),
    "sparsemax": lambda x: _over_elements(x, lambda flat: sparsemax(flat, -1)),
    "norm": _norm,
    "rms_norm": _rms_norm,
    "transp": _transp,
    "slice": _slice,
    "reshape": _reshape,
    "call": _call,
}


def _stacked(columns: Sequence[Column]) -> Tensor:
    data = meet(columns)
    shape = torch.broadcast_shapes(*(d.shape for d in data))
    return torch.stack([d.expand(shape) for d in data])


def _flat(columns: Sequence[Column]) -> list[Tensor]:
    flat = [c.data.flatten(2) if c.rank else c.data.unsqueeze(-1) for c in columns]
    shape = torch.broadcast_shapes(*(f.shape[:2] for f in flat))
    return [f.expand(*shape, f.shape[-1]) for f in flat]


def _concat(columns: Sequence[Column], axis: int) -> Tensor:
    if axis == -1:
        return torch.cat(_flat(columns), -1)
    tall = [c.spread(2) if c.rank < 2 else c.data for c in columns]
    if len({t.shape[3] for t in tall}) > 1:
        raise ShapeMismatch(
            f"cannot stack {', '.join(show(c.shape) for c in columns)}", help="give equal widths"
        )
    shape = torch.broadcast_shapes(*(t.shape[:2] for t in tall))
    return torch.cat([t.expand(*shape, *t.shape[2:]) for t in tall], 2)


def _cossim(columns: Sequence[Column]) -> Tensor:
    if len(columns) != 2:
        raise ShapeMismatch(
            f"`cossim` compares two values, got {len(columns)}", help="write it over two atoms"
        )
    a, b = _flat([Column(d) for d in _stacked(columns)])
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))


def _lookup(columns: Sequence[Column]) -> Tensor:
    if len(columns) != 2 or not columns[0].rank or columns[1].rank:
        raise ShapeMismatch(
            f"`lookup` takes a table and a number, got {', '.join(show(c.shape) for c in columns)}",
            help="write `F.lookup(W.table[rows, size], R.number(V.I))`",
        )
    table, number = columns[0].data, columns[1].data
    rows = _whole(number, table.shape[2])
    if table.shape[:2] == (1, 1):
        one = table[0, 0]
        found = torch.nn.functional.embedding(rows, one if one.ndim == 2 else one.unsqueeze(-1))
        return found if one.ndim == 2 else found.squeeze(-1)
    shape = torch.broadcast_shapes(table.shape[:2], rows.shape)
    at = rows.expand(shape)[(..., *(None,) * (table.ndim - 2))]
    each = at.expand(*shape, 1, *table.shape[3:])
    return table.expand(*shape, *table.shape[2:]).gather(2, each).squeeze(2)


@whole
def _whole(number: Tensor, rows: int) -> Tensor:
    """Numbers as rows of a table; integers on a GPU are not looked at: that would wait for it."""
    found = number.long() if number.is_floating_point() else number
    traced = isinstance(found, FakeTensor) or torch.compiler.is_compiling() or found.is_meta
    cheap = found.device.type == "cpu" or number.is_floating_point()
    if not traced and cheap:
        wrong = (found < 0) | (found >= rows) | (found != number)
        if bool(wrong.any()):
            raise no_such_row(float(number[wrong][0]), rows)
    return found


def _rotate(columns: Sequence[Column]) -> Tensor:
    check_rotation([c.shape for c in columns], [show(c.shape) for c in columns])
    x, cos, sin = columns
    turn = [c.data if c.rank else c.data.unsqueeze(-1) for c in (cos, sin)]
    a, b = x.data.chunk(2, -1)
    return torch.cat([a * turn[0] - b * turn[1], b * turn[0] + a * turn[1]], -1)


def _scalars(columns: Sequence[Column], name: str) -> Tensor:
    if any(c.rank for c in columns):
        raise ShapeMismatch(
            f"`{name}` takes scalars, got {show(max(columns, key=lambda c: c.rank).shape)}",
            help="reduce the values to scalars first",
        )
    return torch.cat(_flat(columns), -1)


def _sum(columns: Sequence[Column]) -> Tensor:
    return reduce(torch.add, meet(columns))


def _crossum(columns: Sequence[Column]) -> Tensor:
    return reduce(lambda a, b: (a.unsqueeze(-1) + b.unsqueeze(-2)).flatten(2), _flat(columns))


COMBINATIONS: dict[str, Callable[..., Tensor]] = {
    "sum": _sum,
    "elproduct": lambda columns: reduce(torch.mul, meet(columns)),
    "avg": lambda columns: _sum(columns) / len(columns),
    "max": lambda columns: _stacked(columns).amax(0),
    "min": lambda columns: _stacked(columns).amin(0),
    "count": lambda columns: torch.full_like(
        columns[0].data[:1, :1].flatten()[:1], len(columns)
    ).reshape(1, 1),
    "concat": _concat,
    "crossum": _crossum,
    "cossim": _cossim,
    "lookup": _lookup,
    "rotate": _rotate,
    "softmax_comb": lambda columns: _scalars(columns, "softmax_comb").softmax(-1),
    "sparsemax_comb": lambda columns: sparsemax(_scalars(columns, "sparsemax_comb"), -1),
}


ALONE = {"sum", "elproduct", "avg", "max", "min"}  # one value is itself


def combine(function: nodes.Function, columns: Sequence[Column]) -> Column:
    if function.name == "product":
        return reduce(product, columns)
    flat = function.name == "concat" and columns[0].rank < 2
    if len(columns) == 1 and (flat or function.name in ALONE):
        return columns[0]
    return column(COMBINATIONS[function.name](columns, **_arguments(function)))
