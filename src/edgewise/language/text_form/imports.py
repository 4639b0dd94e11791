"""`import ./other.rules`: the statements of another file, in place of the line."""

from __future__ import annotations

import re
from pathlib import Path

from edgewise.language.text_form.tokens import Cursor, SourceText, unquoted

LINE = re.compile(
    r"import[ \t]+(\"[^\"\n]*\"|'[^'\n]*'|[^\s:(\"'%][^\s%]*)[ \t]*(?:%[^\n]*)?\r?(?=\n|$)"
)
TEXT = "<text>"  # the file of a program that is not in one
MOST_FILES = 50


def is_import(cursor: Cursor) -> bool:
    token = cursor.token
    return (
        token.text == "import"
        and cursor.starts_line() | (cursor.position == 0)
        and bool(LINE.match(cursor.source.text, token.start))
    )


def imported(cursor: Cursor) -> Cursor:
    """A cursor at the start of the file that the line names, relative to the file it stands in."""
    first = cursor.token
    match = LINE.match(cursor.source.text, first.start)
    assert match is not None
    place = cursor.source.span(*match.span(1))
    while cursor.token.start < match.end() and cursor.kind != "end":
        cursor.next()
    written = unquoted(match[1]) if match[1][0] in "\"'" else match[1]
    if cursor.source.file == TEXT:
        raise cursor.mistake(
            "a text that is not in a file cannot import one", place, "write `Program.load(path)`"
        )
    here = Path(cursor.source.file)
    try:
        path = (here.parent / written).resolve()
        source = path.read_text(encoding="utf-8")
    except (OSError, ValueError, RuntimeError) as problem:  # a loop of links is a RuntimeError
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise cursor.mistake(
            f"cannot read `{written}`: {why}", place, f"paths are relative to `{here.name}`"
        ) from None
    files = cursor.files or (here.resolve(),)
    if path in files or len(files) >= MOST_FILES:
        raise cursor.mistake(
            f"`{written}` imports itself" if path in files else "too many imports in one another",
            place,
            "leave out one of the `import` lines",
        )
    inner = Cursor(SourceText(source, str(here.parent / written)))
    inner.published, inner.files = cursor.published, (*files, path)
    return inner
