"""Which kernels run, for those who ask: choices are made where tensors are, deep below a rule."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Chosen:
    """The kernel of an operation, and why not each of the others."""

    operation: str
    name: str
    refusals: tuple[tuple[str, str], ...] = ()


_WATCHED: list[list[Chosen]] = []


@contextmanager
def watched() -> Iterator[list[Chosen]]:
    """What is chosen inside, in order, equal choices once."""
    seen: list[Chosen] = []
    _WATCHED.append(seen)
    try:
        yield seen
    finally:
        _WATCHED.remove(seen)


def is_watched() -> bool:
    return bool(_WATCHED)


def note(choice: Chosen) -> None:
    for seen in _WATCHED:
        if choice not in seen:
            seen.append(choice)
