"""Memory: what is left, and errors with an estimate before (or instead of) running out of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from edgewise.errors import caller
from edgewise.kernels.attention.contract import Case
from edgewise.kernels.attention.errors import TooLarge


def left(device: str) -> int | None:
    """Bytes that can still be had; None where it is not known."""
    if device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    info = Path("/proc/meminfo")
    lines = info.read_text().splitlines() if info.exists() else []
    found = [line for line in lines if line.startswith("MemAvailable:")]
    return int(found[0].split()[1]) * 1024 if found else None


def check(needed: int, device: str, what: str, help: str) -> None:
    """Raise if `what` is estimated to need more than is free."""
    if needed < 1 << 28:
        return
    have = left(device)
    if have is not None and needed > have:
        raise TooLarge(f"{what} needs about {shown(needed)}, more than is free", caller(), help)


@contextmanager
def explained(case: Case, kernel: str) -> Iterator[None]:
    """Running out of memory is an error with an estimate."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:  # of torch, on either device, and of NumPy
        explain(error, case, kernel)
        raise


def explain(error: RuntimeError | MemoryError, case: Case, kernel: str) -> None:
    """Raise the error with an estimate, if it says that memory ran out."""
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    if not known and "allocate memory" not in str(error):
        return
    rows = case.b * (case.g * case.n * (case.d + case.dv) + case.m * (case.d + case.dv))
    raise TooLarge(
        f"`{kernel}` ran out of memory on {case.work:,} pairs; inputs and output alone are "
        f"{shown(rows * case.dtype.itemsize)}, the gradients as much again",
        caller(),
        "take fewer heads or samples at a time, a sparser graph, or a narrower precision",
    ) from error


def shown(size: float) -> str:
    """
    >>> shown(3 << 30)
    '3.0 GiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
