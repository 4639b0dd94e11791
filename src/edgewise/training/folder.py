"""The folder of a run: one run, and one process at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgewise.errors import Span
from edgewise.training.errors import RunExists

try:
    import fcntl
except ImportError:  # a system without it
    fcntl = None  # type: ignore[assignment]

RECIPE = "recipe.json"


def check(folder: Path, resume: bool) -> None:
    """Refuse a folder of somebody else's, and one with a run that is not to go on."""
    if not folder.is_dir() or all(p.name.startswith(".") for p in folder.iterdir()):
        return
    if not (folder / RECIPE).is_file():
        raise _exists("the folder holds something that is no run", folder, "choose another")
    if not resume:
        raise _exists("the folder is not empty", folder, "choose another, or give `--resume`")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a folder, so that no other process runs in it; one that is killed lets go."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _exists("another run is writing here", folder, "wait until it ends") from None
        yield
    finally:
        os.close(handle)


def _exists(what: str, folder: Path, help: str) -> RunExists:
    path = str(folder)
    return RunExists(what, Span("<out>", 1, 1, len(path) + 1, source=path), help)
