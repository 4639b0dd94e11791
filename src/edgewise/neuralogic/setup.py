"""The start of PyNeuraLogic's virtual machine, which there is none of here."""

from __future__ import annotations

from edgewise.neuralogic.seeds import manual_seed


def initialize(*, seed: int | None = None, max_memory_size: int | None = None) -> None:
    """Set the seed; there is nothing else to start."""
    if seed is not None:
        manual_seed(seed)


def is_initialized() -> bool:
    """Always: there is nothing to start."""
    return True


def shutdown() -> None:
    """There is nothing to stop."""


def set_max_memory_size(size: int) -> None:
    """There is no virtual machine whose memory has a size: memory is that of the process."""
