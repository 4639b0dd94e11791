"""Lines of a text file, also a compressed one, and errors that show the line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from edgewise.data.errors import BadLine
from edgewise.data.sources.table_source import unreadable
from edgewise.errors import Span, named


def lines_of(path: str | Path) -> Iterator[tuple[int, str]]:
    """Number, from 1, and text of each line."""
    try:
        with open(path, "rb") as file:
            content = file.read()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        text = content.decode("utf-8-sig")
    except (OSError, EOFError, TypeError, ValueError, zlib.error) as problem:
        help = "give the path of a text file in UTF-8, or of one that gzip compressed"
        raise unreadable(f"`{named(path)}`", problem, help) from None
    text = text.removesuffix("\n")  # only \n and \r\n end a line: words may hold U+2028 and others
    lines = text.split("\n") if text else []
    yield from enumerate((line.removesuffix("\r") for line in lines), start=1)


def bad_line(path: str | Path, number: int, line: str, what: str, help: str) -> BadLine:
    return BadLine(what, Span(str(path), number, 1, len(line) + 1, source=line or " "), help)
