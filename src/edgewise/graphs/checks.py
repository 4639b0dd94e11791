"""Checks of arguments: integers, probabilities, seeds, choices, lengths, devices, memory."""

import os
from numbers import Integral, Real
from reprlib import Repr
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.errors import (
    BadChoice,
    BadEdges,
    BadProbability,
    BadSize,
    MissingSeed,
    SizeMismatch,
    TooManyPairs,
)

# The most tokens: the index of a pair, i·m + j, is then an int64, and a key fits an int32.
LARGEST = 2**31 - 1
FARTHEST = 2**62  # keys of a relation, which may be more than tokens of a sequence
SEEDS = 2**64 - 1


class ShortRepr(Repr):
    """A repr of bounded length, also of integers that Python refuses to print."""

    def __init__(self) -> None:
        super().__init__()
        self.maxother = self.maxstring = 60

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if abs(x) < 10**40 else f"a number of {x.bit_length()} bits"


def short_repr(value: Any) -> str:
    """`value` for a message: one short line."""
    if isinstance(value, Tensor) and value.ndim:
        return f"a tensor of shape {tuple(value.shape)}"
    return " ".join(ShortRepr().repr(value).split())


def integer(value: Any, name: str, least: int = 0, most: int = LARGEST) -> int:
    """`value` as an int, if it is an integer from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        near = f", such as `{min(max(round(value), least), most)}`" if _finite(value) else ""
        raise BadSize(
            f"`{name}` must be an integer, got {short_repr(value)}",
            caller(),
            f"give an integer{near}",
        )
    value = int(value)
    if value < least:
        raise BadSize(
            f"`{name}` must be at least {least}, got {short_repr(value)}",
            caller(),
            f"give {least} or more",
        )
    if value > most:
        limit = "2^64 - 1" if most == SEEDS else f"{most:,}"
        raise BadSize(
            f"`{name}` must be at most {limit}, got {short_repr(value)}",
            caller(),
            "no graph has more tokens: give less" if most == LARGEST else f"give {limit} or less",
        )
    return value


def probability(value: Any) -> float:
    """`value` as a float, if it is from 0 to 1."""
    if not _finite(value) or not 0 <= value <= 1:
        raise BadProbability(
            f"`p` must be from 0 to 1, got {short_repr(value)}",
            caller(),
            "for a mean of d keys among n give d / n",
        )
    return float(value)


def required_seed(seed: Any, name: str) -> int:
    """`seed` as an int from 0 to 2⁶⁴ - 1; every random pattern needs one."""
    if seed is None:
        raise MissingSeed(
            f"`{name}` is random and needs a seed", caller(), f"write `{name}(..., seed=0)`"
        )
    return integer(seed, "seed", 0, SEEDS)


def one_of(value: Any, name: str, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(f'"{choice}"' for choice in choices)
        raise BadChoice(
            f"`{name}` cannot be {short_repr(value)}", caller(), f"choose one of {listed}"
        )
    return value


def boolean(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        what = f"`{name}` cannot be {short_repr(value)}"
        raise BadChoice(what, caller(), "choose one of True, False")
    return value


def available_device(device: Any) -> torch.device:
    """A torch device that this machine has."""
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
        if found.type == "meta":  # it holds no data
            raise ValueError
    except (RuntimeError, TypeError, ValueError, AssertionError, NotImplementedError):
        raise BadChoice(
            f"`device` cannot be {short_repr(device)}",
            caller(),
            'choose one that this machine has: "cpu"'
            + (', "cuda"' if torch.cuda.is_available() else ""),
        ) from None
    return found


def check_memory(numbers: int, what: str) -> None:
    """Refuse to allocate more 8-byte numbers than the machine has memory for."""
    needed = 8 * numbers
    if needed > physical_memory():
        raise TooManyPairs(
            f"{what} takes {needed / 2**30:,.0f} GiB, more than this machine has",
            caller(),
            "use fewer tokens; `count`, `contains` and `blocks` list no pairs",
        )


def physical_memory() -> int:
    """The bytes of memory of the machine."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return 16 << 30


def sequence_lengths(n: int, m: int | None = None, most: int = LARGEST) -> tuple[int, int]:
    """The numbers of queries and keys, checked; m defaults to n."""
    n = integer(n, "n", 0, most)
    return n, n if m is None else integer(m, "m", 0, most)


def nonempty(n: int, use: str, name: str = "n") -> int:
    """A number of tokens that is not 0."""
    if not isinstance(n, bool) and isinstance(n, Integral) and n == 0:
        raise BadSize(
            f"a graph of no tokens has nothing to {use}", caller(), f"give `{name}` = 1 or more"
        )
    return integer(n, name, 1)


def token_indices(value: Any, name: str) -> Tensor:
    """Indices of tokens as int64; an index beyond all tokens as -1."""
    if not isinstance(value, Tensor):
        at = integer(value, name, -(10**40), 10**40)
        return torch.tensor(at if abs(at) <= FARTHEST else -1)
    kind = value.dtype
    if (
        value.layout is not torch.strided
        or kind.is_floating_point
        or kind.is_complex
        or kind is torch.bool
    ):
        raise BadEdges(
            f"`{name}` must hold integers, got {short_repr(value)} of {str(kind)[6:]}",
            caller(),
            "give an integer or a dense integer tensor, such as `torch.arange(8)`",
        )
    return value.long()


def query_key_lengths(n: int, m: int) -> str:
    """The numbers of queries and keys, for a message."""
    return f"q and k have {n}" if n == m else f"q has {n} and k has {m}"


def check_square(pattern: object, n: int, m: int) -> None:
    """Refuse n ≠ m for a pattern over the tokens of one sequence."""
    if n != m:
        raise SizeMismatch(
            f"`{pattern!r}` is over one sequence; {query_key_lengths(n, m)}",
            caller(),
            f"use n = m = {n}, or take some rows with `restrict`",
        )


def check_length(tokens: int, n: int, m: int, name: str) -> None:
    """Refuse numbers of queries or keys other than those a pattern is defined for."""
    if n != tokens or m != tokens:
        raise SizeMismatch(
            f"`{name}` covers {tokens} tokens; {query_key_lengths(n, m)}",
            caller(),
            f"use n = {tokens}",
        )


def _finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return abs(float(value)) < 2**62
    except OverflowError:  # a fraction beyond all floats
        return False
