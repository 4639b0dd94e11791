"""Which kernels the machine can run, and which ones ran, for those who watch."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import torch

FLASH4 = "4.0.0b36"  # the version that was tested, of which private functions are called
HOPPER = 9


@dataclass(frozen=True)
class Chosen:
    """The kernel of an operation, and why not each of the others."""

    operation: str
    name: str
    refusals: tuple[tuple[str, str], ...] = ()


class _Watching(threading.local):
    """The lists of this thread's watchers: what other threads choose is not theirs."""

    def __init__(self) -> None:
        self.lists: list[list[Chosen]] = []


_WATCHING = _Watching()


@contextmanager
def watched() -> Iterator[list[Chosen]]:
    """What is chosen inside, in order, equal choices once."""
    seen: list[Chosen] = []
    _WATCHING.lists.append(seen)
    try:
        yield seen
    finally:
        _WATCHING.lists.pop()


def is_watched() -> bool:
    return bool(_WATCHING.lists)


def note(choice: Chosen) -> None:
    for seen in _WATCHING.lists:
        if choice not in seen:
            seen.append(choice)


@lru_cache
def _installed(package: str) -> bool:
    """Looked up once: a search through the path takes half a millisecond."""
    return find_spec(package) is not None


def no_triton(device: str) -> str | None:
    """Why Triton cannot run on a device; its interpreter, for tests, runs on a CPU."""
    if device != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"it runs on a CUDA GPU, not on {device}"
    if not _installed("triton"):
        return 'triton is not installed: pip install "edgewise[gpu]"'
    return None


def no_flash4(device: str) -> str | None:
    """Why FlashAttention 4 cannot run on a device."""
    if device != "cuda":
        return f"it runs on a CUDA GPU, not on {device}"
    found = _version("flash-attn-4")
    if found is None:
        return 'flash-attn-4 is not installed: pip install "edgewise[flash]"'
    if found != FLASH4:
        return f'flash-attn-4 is {found}, tested is {FLASH4}: pip install "edgewise[flash]"'
    if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] != HOPPER:
        return "it was tested on Hopper GPUs, of compute capability 9, only"
    return None


@lru_cache
def _version(package: str) -> str | None:
    """Looked up once, as above."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def no_numba(device: str) -> str | None:
    """Why loops compiled by numba cannot run on a device."""
    if device != "cpu":
        return f"it runs on a CPU, not on {device}"
    if not _installed("numba"):
        return 'numba is not installed: pip install "edgewise[cpu]"'
    return None
