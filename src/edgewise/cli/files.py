"""What verbs that write a file share: its format and folder are checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from edgewise.errors import EdgewiseError, Span


class CannotWrite(EdgewiseError):
    """A figure is written to a PNG, SVG or PDF file in a folder that exists."""

    code = "cannot-write"
    example = """\
from pathlib import Path
from edgewise.cli.graph import graph
graph("window(3)", png=Path("no/such/folder/out.png"))"""
    instead = """\
from pathlib import Path
from edgewise.cli.graph import graph
graph("window(3)", png=Path("out.png"))"""


def check_out(path: Path, formats: Sequence[str], option: str = "<out>") -> None:
    """Refuse a name that ends in no known format, and a folder that is not there."""
    place = Span.of(option, path)
    if path.suffix.lower() not in formats:
        *others, last = formats
        raise CannotWrite(
            "unknown file format", place, f"end the name in {', '.join(others)} or {last}"
        )
    if not path.absolute().parent.is_dir():
        raise CannotWrite("no such folder", place, f"make it: mkdir -p {path.parent}")


def written(path: Path, write: Callable[[Path], object], option: str = "<out>") -> None:
    """Call `write(path)`; what the system refuses is an error of the command."""
    try:
        write(path)
    except OSError as problem:
        what = f"cannot write the file: {problem.strerror or problem}"
        raise CannotWrite(what, Span.of(option, path), "choose another") from None


def put_file(path: Path, data: bytes) -> None:
    from edgewise.save.archive import write

    written(path, lambda at: write(at, data))
