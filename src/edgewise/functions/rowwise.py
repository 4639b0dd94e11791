"""Transformations of a value as one: its numbers together, its shape, code of the user."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from edgewise.errors import EdgewiseError
from edgewise.functions import columns, values
from edgewise.functions.columns import shape_of
from edgewise.functions.definition import (
    CHANCE,
    COLS,
    EPS,
    MODULE,
    ROWS,
    SHAPE,
    TRANSFORMATION,
    CallFailed,
    Definition,
    Law,
    ShapeMismatch,
)
from edgewise.functions.dimensions import ANY, Shape, Shapes, matrix, numbers, show

if TYPE_CHECKING:
    from torch import Tensor

NOTHING: Shapes = frozenset()
Range = tuple[int, int] | None


def _same(shape: Shape, **options: Any) -> Shapes:
    return frozenset({shape})


def _over_numbers(x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
    flat = x.flatten(2) if x.ndim > 2 else x.unsqueeze(-1)
    return compute(flat).reshape(x.shape)


def _norm(x: Tensor, eps: float) -> Tensor:
    centred = x - x.mean()
    return centred / (centred.square().mean() + eps).sqrt()


def _norm_columns(x: Tensor, eps: float) -> Tensor:
    import torch

    return x * 0.0 if x.ndim == 2 else torch.nn.functional.layer_norm(x, shape_of(x), eps=eps)


def _rms_norm_columns(x: Tensor, eps: float) -> Tensor:
    import torch

    if x.ndim == 2:
        return x / (x.square() + eps).sqrt()
    return torch.nn.functional.rms_norm(x, shape_of(x), eps=eps)


def _transposed(shape: Shape) -> Shapes:
    match shape:
        case (rows,):
            return frozenset({(1, rows)})
        case (rows, cols):
            return matrix(cols, rows)
    return frozenset({shape})


def _transp_columns(x: Tensor) -> Tensor:
    return x.unsqueeze(2) if x.ndim == 3 else x.mT if x.ndim == 4 else x


def _sliced(shape: Shape, rows: Range, cols: Range) -> Shapes:
    if (rows and not shape) or (cols and len(shape) < 2):
        return NOTHING
    height, width = (*shape, 1, 1)[:2]
    for wanted, size in ((rows, height), (cols, width)):
        if wanted and size is not None and wanted[1] > size:
            return NOTHING
    height = rows[1] - rows[0] if rows else height
    width = cols[1] - cols[0] if cols else width
    return matrix(height, width) if shape else frozenset({shape})


def _check_slice(shape: tuple[int, ...], rows: Range, cols: Range) -> None:
    if not _sliced(shape, rows, cols):
        raise ShapeMismatch(
            f"cannot take rows={rows}, cols={cols} of {show(shape)}", help="slices are half-open"
        )


def _slice(x: Tensor, rows: Range, cols: Range) -> Tensor:
    _check_slice(tuple(x.shape), rows, cols)
    x = x[slice(*rows)] if rows else x
    return x[:, slice(*cols)] if cols else x


def _slice_columns(x: Tensor, rows: Range, cols: Range) -> Tensor:
    _check_slice(shape_of(x), rows, cols)
    x = x[:, :, slice(*rows)] if rows else x
    return x[:, :, :, slice(*cols)] if cols else x


def _reshaped(shape: Shape, sizes: tuple[int, ...]) -> Shapes:
    held = numbers(shape)
    rows, cols = (*sizes, 1, 1)[:2]
    return matrix(rows, cols) if held is None or held == numbers(sizes) else NOTHING


def _check_reshape(shape: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    if not _reshaped(shape, sizes):
        raise ShapeMismatch(
            f"cannot reshape {show(shape)} to {sizes}",
            help=f"give sizes whose product is {numbers(shape)}",
        )


def _reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    _check_reshape(tuple(x.shape), shape)
    return x.reshape(shape)


def _reshape_columns(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    _check_reshape(shape_of(x), shape)
    return x.reshape(*x.shape[:2], *shape)


def call_failed(module: Any, problem: Exception, shape: tuple[int, ...]) -> CallFailed:
    help = "a called module takes one value and returns one value"
    if "dtype" in str(problem):
        help = "give it the precision of the data; `solve` has float64: `F.call(module.double())`"
    return CallFailed(
        f"`{module!r}` raised {type(problem).__name__} on {show(shape)}: {problem}", help=help
    )


def _call(x: Tensor, module: Any) -> Tensor:
    import torch

    try:
        result = module.thing(x)
    except EdgewiseError:
        raise
    except Exception as problem:
        raise call_failed(module, problem, tuple(x.shape)) from problem
    if not isinstance(result, torch.Tensor) or result.ndim > 2:
        raise CallFailed(
            f"`{module!r}` did not return a scalar, a vector or a matrix", help="return one tensor"
        )
    return result


def _dropout(x: Tensor, p: float) -> Tensor:
    import torch

    return torch.nn.functional.dropout(x, p)


_transformation = partial(Definition, TRANSFORMATION)

ROWWISE = (
    _transformation(
        "softmax", "eˣ over the sum of all eˣ of the value; 0 where all are −∞",
        lambda x: values.softmax(x.flatten()).reshape(x.shape),
        lambda x: _over_numbers(x, lambda flat: columns.softmax(flat, -1)), _same),
    _transformation(
        "sparsemax", "the nearest numbers ≥ 0 that sum to 1",
        lambda x: values.sparsemax(x.flatten()).reshape(x.shape),
        lambda x: _over_numbers(x, lambda flat: columns.sparsemax(flat, -1)), _same),
    _transformation(
        "transp", "the transpose; of a column a row",
        lambda x: x.unsqueeze(0) if x.ndim == 1 else x.mT if x.ndim else x, _transp_columns,
        _transposed, {Law.LINEAR}, aliases=("transpose",)),
    _transformation(
        "norm", "(x − mean) / √(variance + eps)", _norm, _norm_columns, _same, options=(EPS,),
        aliases=("layer_norm", "layernorm")),
    _transformation(
        "rms_norm", "x / √(mean of x² + eps)", lambda x, eps: x / (x.square().mean() + eps).sqrt(),
        _rms_norm_columns, _same, options=(EPS,), aliases=("rmsnorm",)),
    _transformation(
        "slice", "some rows, some columns", _slice, _slice_columns, _sliced, {Law.LINEAR},
        (ROWS, COLS)),
    _transformation(
        "reshape", "the same numbers in another shape, row by row", _reshape, _reshape_columns,
        lambda found, shape: _reshaped(found, shape), {Law.LINEAR}, (SHAPE,)),
    _transformation(
        "dropout", "in training, 0 with probability p, else x / (1 − p)", _dropout, _dropout,
        _same, {Law.RANDOM}, (CHANCE,)),
    _transformation(
        "call", "what a module or a Python function gives", _call,
        lambda x, module, engine: engine.mapped(x, module), lambda shape, module: ANY,
        {Law.OPAQUE}, (MODULE,)),
)  # fmt: skip
