"""How programs of a GPU share out heads and edges, as measured on an H200.

Heads that lie side by side in a row go together, so that a row is read in one go: the more so the
fewer features each has.
"""

from math import gcd
from typing import NamedTuple

from torch import Tensor

WIDE = 128  # features of all heads that one program takes, if each has fewer
FEWEST, MOST = 128, 16  # numbers, and edges, that it reads at a time


class Share(NamedTuple):
    """The heads of one program, and the edges that it takes at a time."""

    heads: int
    edges: int


def share(heads: int, features: int, itemsize: int, *, backward: bool) -> Share:
    """Of so many heads of so many features, which are a power of two.

    >>> share(4, 16, 4, backward=False)
    Share(heads=4, edges=4)
    """
    together = gcd(heads, max(WIDE // features, 1))
    numbers = FEWEST * (4 if together == 1 else 1 if backward and itemsize > 2 else 2)
    return Share(together, min(max(numbers // (together * features), 1), MOST))


def room(like: Tensor, rows: int, features: int) -> Tensor:
    """Room for (heads, rows, features), rows or heads first in memory as in `like`."""
    heads = len(like)
    if heads > 1 and like.stride(0) < like.stride(1):
        return like.new_empty(rows, heads, features).transpose(0, 1)
    return like.new_empty(heads, rows, features)


def units(x: Tensor) -> tuple[int, int]:
    """How many times its features the heads, and the rows, of a room are apart."""
    return x.stride(0) // x.shape[2], x.stride(1) // x.shape[2]


def merged(x: Tensor) -> tuple[int, int, int, int]:
    """The same as kernels take it that put parts together: every head is one of a batch."""
    head, row = units(x)
    return (1, head, 0, row)
