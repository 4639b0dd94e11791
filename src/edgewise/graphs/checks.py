"""Checks of what patterns are given: sizes, probabilities, seeds, choices, devices, memory."""

import os
from numbers import Integral, Real
from reprlib import Repr
from typing import Any

import torch

from edgewise.errors import caller
from edgewise.graphs.errors import (
    BadChoice,
    BadProbability,
    BadSize,
    MissingSeed,
    TooManyPairs,
)

# The most tokens: the number of a pair, i·m + j, is then an int64, and a key fits an int32.
LARGEST = 2**31 - 1
SEEDS = 2**64 - 1


class Short(Repr):
    """A value in few letters; also a number that Python refuses to print."""

    def __init__(self) -> None:
        super().__init__()
        self.maxother = self.maxstring = 60

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if abs(x) < 10**40 else f"a number of {x.bit_length()} bits"


def whole(value: Any, name: str, least: int = 0, most: int = LARGEST) -> int:
    """`value` as an int, if it is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        near = f", such as `{min(max(round(value), least), most)}`" if _finite(value) else ""
        raise BadSize(
            f"`{name}` must be a whole number, got {shown(value)}",
            caller(),
            f"give a whole number{near}",
        )
    value = int(value)
    if value < least:
        raise BadSize(
            f"`{name}` must be at least {least}, got {shown(value)}",
            caller(),
            f"give {least} or more",
        )
    if value > most:
        raise BadSize(
            f"`{name}` must be at most {most:,}, got {shown(value)}",
            caller(),
            "no graph has more tokens: give less" if most == LARGEST else f"give {most:,} or less",
        )
    return value


def shown(value: Any) -> str:
    """`value` in a message: on one line, and never long."""
    if isinstance(value, torch.Tensor) and value.ndim:
        return f"a tensor of shape {tuple(value.shape)}"
    return " ".join(Short().repr(value).split())


def probability(value: Any, name: str = "p") -> float:
    """`value` as a float, if it is from 0 to 1."""
    if not _finite(value) or not 0 <= value <= 1:
        raise BadProbability(
            f"`{name}` must be from 0 to 1, got {shown(value)}",
            caller(),
            "for a mean of d keys among n give d / n",
        )
    return float(value)


def seeded(seed: Any, name: str) -> int:
    """`seed` as an int; every random pattern needs one."""
    if seed is None:
        raise MissingSeed(
            f"`{name}` is random and needs a seed", caller(), f"write `{name}(..., seed=0)`"
        )
    return whole(seed, "seed", 0, SEEDS)


def one_of(value: Any, name: str, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(f'"{choice}"' for choice in choices)
        raise BadChoice(f"`{name}` cannot be {shown(value)}", caller(), f"choose one of {listed}")
    return value


def yes_or_no(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise BadChoice(f"`{name}` cannot be {shown(value)}", caller(), "choose one of True, False")
    return value


def usable(device: Any) -> torch.device:
    """A device of torch that is there."""
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
        if found.type == "meta":  # it holds no numbers
            raise ValueError
    except (RuntimeError, TypeError, ValueError, AssertionError, NotImplementedError):
        raise BadChoice(
            f"`device` cannot be {shown(device)}",
            caller(),
            'choose one that this machine has: "cpu"'
            + (', "cuda"' if torch.cuda.is_available() else ""),
        ) from None
    return found


def room(numbers: int, what: str) -> None:
    """Refuse to list more numbers than the memory holds, before the machine runs out of it."""
    needed = 8 * numbers
    if needed > memory():
        raise TooManyPairs(
            f"{what} takes {needed / 2**30:,.0f} GiB, more than this machine has",
            caller(),
            "ask for fewer tokens; `count`, `contains` and `blocks` list no pairs",
        )


def memory() -> int:
    """The bytes of memory of the machine."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return 16 << 30


def _finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return abs(float(value)) < 2**62
    except OverflowError:  # a fraction beyond all floats
        return False
