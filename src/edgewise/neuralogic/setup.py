"""The start of PyNeuraLogic's virtual machine, which there is none of here."""

from __future__ import annotations

from edgewise.errors import caller
from edgewise.neuralogic.errors import BadSetting
from edgewise.neuralogic.seeds import manual_seed


def initialize(*, seed: int | None = None, **options: object) -> None:
    """Set the seed; options of a virtual machine are refused."""
    if options:
        names = ", ".join(f"`{name}`" for name in options)
        raise _no_machine(f"{names} of `initialize` would set up a virtual machine")
    if seed is not None:
        manual_seed(seed)


def is_initialized() -> bool:
    """Always: there is nothing to start."""
    return True


def shutdown() -> None:
    """There is nothing to stop."""


def set_max_memory_size(size: int) -> None:
    """Refused: there is no virtual machine whose memory has a size."""
    raise _no_machine(f"a memory of {size!r} gigabytes is that of a virtual machine")


def _no_machine(what: str) -> BadSetting:
    return BadSetting(
        f"{what}, and there is none here: memory is that of the process",
        caller(),
        "remove it; `initialize(seed=0)` sets the seed",
    )
