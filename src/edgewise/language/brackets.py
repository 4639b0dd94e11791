"""What stands in brackets after an atom: a value, a shape, a name, a weight."""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

from edgewise.errors import EdgewiseError, Place, caller, safe_repr
from edgewise.language import nodes

MAX_INTEGER = 10**300
MAX_SIZE = 2**40


class BadWeight(EdgewiseError):
    """Brackets hold a number, a list (values), a tuple (a shape), a tensor or a named weight."""

    code = "bad-weight"
    example = "R.h(V.X) <= R.a(V.X)[1.5, 2.5]"
    instead = "R.h(V.X) <= R.a(V.X)[[1.5, 2.5]]"


class TwoWeights(EdgewiseError):
    """An atom has one weight; the product of two is one weight."""

    code = "two-weights"
    example = "R.h(V.X) <= R.a(V.X)[2.0][3.0]"
    instead = "R.h(V.X) <= R.a(V.X)[6.0]"


def weighted(item: Any, bracket: Any) -> Any:
    """`item[bracket]`."""
    place = caller()
    if item.weight is not None:
        raise TwoWeights(
            f"`{item!r}` already has a weight", place, "write one weight, or a rule in between"
        )
    if isinstance(item, nodes.PatternAtom):
        raise BadWeight(
            "a pattern is a condition and takes no weight", place, "put the weight on an atom"
        )
    if isinstance(item, nodes.Atom | nodes.SpecialAtom) and item.negated:
        raise BadWeight("a negated atom carries no value", place, "leave the weight out")
    return replace(item, weight=weight(bracket, place), place=place)


def fix(item: Any) -> Any:
    """`item[...].fixed()`."""
    if item.weight is None:
        raise BadWeight(
            f"`{item!r}` has no weight to fix",
            caller(),
            "write the value first: `R.a[2.0].fixed()`",
        )
    return replace(item, weight=item.weight.fixed(), place=caller())


def shaped(named: nodes.Weight, bracket: Any) -> nodes.Weight:
    """`W.name[bracket]`."""
    place = caller()
    if named.is_declared:
        raise TwoWeights(f"`{named!r}` already has a shape", place, "write one pair of brackets")
    found = weight(bracket, place)
    if found.name is not None:
        raise BadWeight("the weight has two names", place, "name it once, `W.name[...]`")
    return replace(named, shape=found.shape, value=found.value, place=place)


def filled(item: nodes.Weight, number: Any) -> nodes.Weight:
    """`weight.filled(number)`."""
    if item.value is not None:
        raise BadWeight(
            f"`{item!r}` already has values", caller(), "fill a shape: `W.b[64,].filled(1.0)`"
        )
    return replace(item, fill=_number(number, caller()))


def weight(bracket: Any, place: Place) -> nodes.Weight:
    """What a pair of brackets says.

    >>> weight((64, 32), None)
    W[64, 32]
    """
    match bracket:
        case nodes.Weight():
            return bracket
        case slice() | (slice(), *_):
            return _named(bracket, place)
        case str() if bracket:
            return nodes.Weight(name=bracket, place=place)
        case tuple():
            return nodes.Weight(shape=_shape(bracket, place), place=place)
    return nodes.Weight(value=value(bracket, place), place=place)


def _named(bracket: Any, place: Place) -> nodes.Weight:
    first, *rest = bracket if isinstance(bracket, tuple) else (bracket,)
    if not isinstance(first.start, str) or first.step is not None or not first.start:
        raise BadWeight(
            f"`{safe_repr(first.start)}` is not a name for a weight",
            place,
            'write `["name": 64, 32]` or `["name": value]`',
        )
    alone = not isinstance(bracket, tuple)  # ["w": 3] is a value, ["w": 3,] a shape
    inner = weight(first.stop if alone else (first.stop, *rest), place)
    if inner.name is not None:
        raise BadWeight("the weight has two names", place, "name it once")
    return replace(inner, name=first.start)


def _shape(sizes: tuple[Any, ...], place: Place) -> tuple[int, ...]:
    """The shape of a weight; a weight of size zero is refused."""
    integers = all(isinstance(s, Integral) and not isinstance(s, bool) for s in sizes)
    if integers and len(sizes) <= 2 and max(sizes, default=0) > MAX_SIZE:
        raise BadWeight(
            f"a shape with a size of {safe_repr(max(sizes))} is too large",
            place,
            "a weight is (out, in): give it the lengths of the values it maps",
        )
    if not integers or min(sizes, default=0) < 1 or len(sizes) > 2:
        zero = integers and 0 in sizes
        raise BadWeight(
            f"`{safe_repr(sizes)}` is {'a shape of size zero' if zero else 'not a shape'}",
            place,
            f"a name is followed by a colon: `[{safe_repr(sizes[0])}: 64, 32]`"
            if sizes and isinstance(sizes[0], str)
            else "a tuple is a shape of one or two positive integers (out, in); values go into a "
            "list, `R.a[[1.5, 2.5]]`",
        )
    return tuple(int(s) for s in sizes)


def value(item: Any, place: Place) -> nodes.Literal | nodes.Opaque:
    """Numbers as they are, a tensor or an array held; a value of size zero is refused."""
    if isinstance(item, int) and not isinstance(item, bool) and abs(item) > MAX_INTEGER:
        raise BadWeight("the number is too large", place, "write a float such as `1e30`")
    if isinstance(item, Real) and not isinstance(item, bool):
        return _number(item, place)
    if hasattr(item, "shape") and hasattr(item, "dtype"):
        item = dense(item, place)
        if len(item.shape) > 2:
            raise BadWeight(
                f"a value is a scalar, a vector or a matrix, this has shape {tuple(item.shape)}",
                place,
                "put further dimensions into keys: `R.a(0)[...]`, `R.a(1)[...]`",
            )
        if 0 in item.shape:
            raise BadWeight(
                f"a value of shape {tuple(item.shape)} has size zero",
                place,
                "give every dimension at least one element",
            )
        return nodes.Opaque(item)
    if isinstance(item, list) and item:
        return _list(item, place)
    raise BadWeight(
        f"`{safe_repr(item)}` is not a value",
        place,
        f"terms are in parentheses: `R.name({safe_repr(item)})`; brackets hold a weight"
        if isinstance(item, nodes.Variable)
        else "write a number, a list of numbers (a column), a list of lists (a matrix) or a tensor",
    )


def dense(item: Any, place: Place) -> Any:
    """A tensor or an array that holds its numbers; an array as torch reads it."""
    if hasattr(item.dtype, "kind"):
        return _array(item, place)
    layout = "nested" if getattr(item, "is_nested", False) else str(getattr(item, "layout", ""))
    if layout not in ("", "torch.strided"):
        raise BadWeight(f"a tensor of layout {layout}", place, "write `value.to_dense()`")
    if getattr(item, "is_meta", False):
        raise BadWeight(
            "a tensor on the device meta has no numbers",
            place,
            "make it on another device, or write a shape alone: `R.a(V.X)[64, 32]`",
        )
    return item


def _array(item: Any, place: Place) -> Any:
    import numpy as np  # whoever has an array has loaded it

    if item.dtype.kind not in "fiub" or item.dtype.itemsize > 8:
        raise BadWeight(
            f"an array of {item.dtype}", place, "give floats or integers of at most 64 bits"
        )
    if np.ma.is_masked(item):
        raise BadWeight(
            "an array with masked elements", place, "give them numbers: `array.filled(0.0)`"
        )
    # torch reads neither negative strides nor the bytes of other machines
    if not getattr(item.dtype, "isnative", True):
        return item.astype(item.dtype.newbyteorder("="))
    reversed_axes = any(step < 0 for step in getattr(item, "strides", None) or ())
    return item.copy() if reversed_axes else item


def _list(items: list[Any], place: Place) -> nodes.Literal:
    rows = [row for row in items if isinstance(row, list | tuple)]
    if not rows:
        return tuple(_number(x, place) for x in items)
    lengths = sorted({len(row) for row in rows})
    if len(rows) != len(items) or len(lengths) > 1 or lengths == [0]:
        raise BadWeight(
            "the rows of a matrix differ in length" if len(lengths) > 1 else "not a matrix",
            place,
            f"give every row the same number of numbers, these have {lengths}",
        )
    return tuple(tuple(_number(x, place) for x in row) for row in rows)


def _number(item: Any, place: Place) -> float:
    if not isinstance(item, Real) or isinstance(item, bool) or math.isnan(item):
        raise BadWeight(
            f"`{safe_repr(item)}` is not a number",
            place,
            "a value is a number, or lists of numbers nested at most twice; none may be NaN",
        )
    return float(item)
