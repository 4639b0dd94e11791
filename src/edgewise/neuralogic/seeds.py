"""The seed of the random numbers that weights are drawn with."""

from __future__ import annotations

import torch

from edgewise.errors import caller, safe_repr
from edgewise.neuralogic.errors import BadSetting

_state = {"first": torch.seed() % 2**32}
_generator = torch.Generator().manual_seed(_state["first"])


def generator() -> torch.Generator:
    return _generator


def manual_seed(seed: int) -> None:
    """Draw as after every other call with this seed."""
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise BadSetting(f"a seed is an integer, got {safe_repr(seed)}", caller(), "write 0")
    _generator.manual_seed(seed % 2**63)


def initial_seed() -> int:
    """The seed at the start of the process."""
    return _state["first"]


def seed() -> int:
    """A new seed."""
    found = int(torch.randint(2**31, ()).item())
    manual_seed(found)
    return found
