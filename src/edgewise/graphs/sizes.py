"""Numbers of tokens that a pattern is asked about, checked."""

from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import LARGEST, room, shown, usable, whole
from edgewise.graphs.errors import BadEdges, BadSize, SizeMismatch


def sizes(n: int, m: int | None = None) -> tuple[int, int]:
    """The numbers of queries and keys, checked."""
    n = whole(n, "n")
    return n, n if m is None else whole(m, "m")


def some_tokens(n: int, use: str, name: str = "n") -> int:
    """A number of tokens that is not 0."""
    if not isinstance(n, bool) and isinstance(n, Integral) and n == 0:
        raise BadSize(
            f"a graph of no tokens has nothing to {use}", caller(), f"give `{name}` = 1 or more"
        )
    return whole(n, name, 1)


def token(value: Any, name: str) -> Tensor:
    """Numbers of tokens as int64; a number beyond all tokens as -1."""
    if not isinstance(value, Tensor):
        at = whole(value, name, -(10**40), 10**40)
        return torch.tensor(at if abs(at) <= LARGEST else -1)
    kind = value.dtype
    if (
        value.layout is not torch.strided
        or kind.is_floating_point
        or kind.is_complex
        or kind is torch.bool
    ):
        raise BadEdges(
            f"`{name}` must hold whole numbers, got {shown(value)} of {str(kind)[6:]}",
            caller(),
            "give a number or a dense tensor of integers, such as `torch.arange(8)`",
        )
    return value.long()


def masked(n: int, m: int | None, block: int, device: Any) -> tuple[int, int, torch.device]:
    """The sizes of a `BlockMask`, which has a place for every block."""
    n, m = some_tokens(n, "mask"), None if m is None else some_tokens(m, "mask", "m")
    m = n if m is None else m
    block = whole(block, "block", 1)
    high, wide = -(-n // block), -(-m // block)
    room(6 * high * wide, f"a `BlockMask` of {high:,}×{wide:,} blocks")
    return n, m, usable(device)


def square(pattern: object, n: int, m: int) -> None:
    """Refuse different numbers of queries and keys where a pattern joins tokens of one sequence."""
    if n != m:
        raise SizeMismatch(
            f"`{pattern!r}` joins the tokens of one sequence, got {n} queries and {m} keys",
            caller(),
            f"ask for n = m = {n}, or take some rows with `restrict`",
        )
