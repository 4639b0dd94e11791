"""The seed that weights are drawn with, and the start of PyNeuraLogic, which has none here."""

from __future__ import annotations

import torch

from edgewise.errors import caller, safe_repr
from edgewise.neuralogic.errors import BadSetting

_state = {"first": torch.seed() % 2**32}
_generator = torch.Generator().manual_seed(_state["first"])


def generator() -> torch.Generator:
    return _generator


def manual_seed(seed: int) -> None:
    """Draw as after every other call with this seed.

    >>> manual_seed(0)
    >>> first = torch.rand((), generator=generator())
    >>> manual_seed(0)
    >>> bool(first == torch.rand((), generator=generator()))
    True
    """
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise BadSetting(f"a seed is an integer, got {safe_repr(seed)}", caller(), "write 0")
    _generator.manual_seed(seed % 2**63)


def initial_seed() -> int:
    """The seed at the start of the process.

    >>> initial_seed() == initial_seed()
    True
    """
    return _state["first"]


def seed() -> int:
    """A new seed.

    >>> isinstance(seed(), int)
    True
    """
    found = int(torch.randint(2**31, ()).item())
    manual_seed(found)
    return found


def initialize(*, seed: int | None = None, **options: object) -> None:
    """Set the seed; options of a virtual machine are refused.

    >>> initialize(seed=0)
    """
    if options:
        names = ", ".join(f"`{name}`" for name in options)
        raise _no_machine(f"{names} of `initialize` would set up a virtual machine")
    if seed is not None:
        manual_seed(seed)


def is_initialized() -> bool:
    """Always: there is nothing to start.

    >>> is_initialized()
    True
    """
    return True


def shutdown() -> None:
    """There is nothing to stop.

    >>> shutdown()
    """


def set_max_memory_size(size: int) -> None:
    """Refused: there is no virtual machine whose memory has a size.

    >>> from edgewise import EdgewiseError
    >>> try:
    ...     set_max_memory_size(8)
    ... except EdgewiseError as error:
    ...     print(error.code)
    bad-setting
    """
    raise _no_machine(f"a memory of {size!r} gigabytes is that of a virtual machine")


def _no_machine(what: str) -> BadSetting:
    return BadSetting(
        f"{what}, and there is none here: memory is that of the process",
        caller(),
        "remove it; `initialize(seed=0)` sets the seed",
    )
