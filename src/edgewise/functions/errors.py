"""What can be wrong when functions meet values."""

from __future__ import annotations

from edgewise.errors import EdgewiseError


class ShapeMismatch(EdgewiseError):
    """Values meet by the rules of linear algebra.

    `product` and weights multiply matrices: the columns of the left one are the rows of the right
    one. Everything elementwise takes equal shapes or a scalar.
    """

    code = "shape-mismatch"
    example = """\
Program([
    R.h(V.X) <= R.a(V.X)[64, 32],
    R.g(V.X) <= R.h(V.X)[64, 32],
]).check()"""
    instead = """\
Program([
    R.h(V.X) <= R.a(V.X)[64, 32],
    R.g(V.X) <= R.h(V.X)[32, 64],
]).check()"""


class CallFailed(EdgewiseError):
    """A module or function of yours, applied by `F.call` or `special.fn`, raised an exception."""

    code = "call-failed"
    example = "Program([(R.h <= R.a) | [F.call(lambda x: x + [])]]).solve([R.a[1.0]])"
    instead = "Program([(R.h <= R.a) | [F.call(lambda x: x + 1)]]).solve([R.a[1.0]])"


class NoSuchRow(EdgewiseError):
    """`lookup` takes a row of a table by its number; there is no row before 0 or between two."""

    code = "no-such-row"
    example = (
        "Program([R.h(V.I) <= F.lookup(W.table[3, 2], R.token(V.I))]).solve([R.token(0)[7.0]])"
    )
    instead = (
        "Program([R.h(V.I) <= F.lookup(W.table[8, 2], R.token(V.I))]).solve([R.token(0)[7.0]])"
    )


def no_such_row(number: float, rows: int) -> NoSuchRow:
    return NoSuchRow(
        f"`lookup` reads row {number:g} of a table of {rows:,} rows",
        help="give integers from 0, below the rows of the table",
    )
