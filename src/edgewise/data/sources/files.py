"""Files of tables: CSV, TSV, Parquet, JSON lines and Arrow; a folder has a table for each file."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgewise.data.errors import UnreadableSource
from edgewise.data.sources.duckdb import DuckDB
from edgewise.data.sources.table_source import TableSource, unreadable
from edgewise.errors import caller, counted, named
from edgewise.graphs.drawing import require_package


def _csv(connection: Any, path: str) -> Any:
    # the types of columns are those of all rows, not of the first; no row is skipped
    return connection.read_csv(path, header=True, sample_size=-1, skiprows=0)


def _json(connection: Any, path: str) -> Any:
    return connection.read_json(path, format="newline_delimited", sample_size=-1)


def _parquet(connection: Any, path: str) -> Any:
    return connection.read_parquet(path)


def _arrow(connection: Any, path: str) -> Any:
    require_package("pyarrow")
    from pyarrow import feather

    return connection.from_arrow(feather.read_table(path))


SEPARATORS = "\t,;|"  # of fields
FORMATS: dict[str, Callable[[Any, str], Any]] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
    ".jsonl": _json,
    ".ndjson": _json,
    ".arrow": _arrow,
    ".feather": _arrow,
}


def opened(thing: Any) -> Any:
    if not isinstance(thing, str | Path):
        return None
    path = Path(thing)
    try:
        return _tables(path, _files(path))
    except (OSError, ValueError) as problem:  # too long, or with a null character
        raise unreadable("the path", problem, "give the path of a file or a folder") from None


def _files(path: Path) -> list[Path]:
    """The files of tables; of a folder, those directly in it."""
    known = ", ".join(FORMATS)
    if path.is_dir():
        found = [file for file in sorted(path.iterdir()) if file.suffix.lower() in FORMATS]
        if not found:
            raise UnreadableSource(
                f"the folder `{path}` holds no table", caller(), f"tables are files {known}"
            )
        stems = [file.stem for file in found]
        twice = [file for file in found if stems.count(file.stem) > 1]
        if twice:
            raise UnreadableSource(
                f"`{path}` has {counted(len(twice), 'file')} for the table `{twice[0].stem}`",
                caller(),
                f"remove one of {', '.join(file.name for file in twice)}",
            )
        return found
    if not path.exists():
        raise UnreadableSource(
            f"there is no `{path}`", caller(), "give the path of a file or of a folder"
        )
    if path.suffix.lower() not in FORMATS:
        raise UnreadableSource(
            f"`{path}` is neither a database nor a table",
            caller(),
            f"give a DuckDB or SQLite database, or a file {known}",
        )
    return [path]


def _mixed_ends(file: Path) -> bool:
    """Whether a text has line ends of Windows and of Unix."""
    try:
        text = file.read_bytes()
    except OSError:
        return False
    return 0 < text.count(b"\r\n") < text.count(b"\n")


def _refuse_other_lengths(file: Path, columns: list[str]) -> None:
    """Lines of other numbers of fields make a table of one column: name the first of them."""
    separator = next((each for each in SEPARATORS if each in columns[0]), None)
    if len(columns) > 1 or separator is None:
        return
    with open(file, newline="", encoding="utf-8") as lines:
        reader = csv.reader(lines, delimiter=separator)
        count = len(next(reader))
        for fields in reader:
            if fields and len(fields) != count:
                raise UnreadableSource(
                    f"`{file}`, line {reader.line_num}: {counted(len(fields), 'field')}, and its "
                    f"header has {count}",
                    caller(),
                    f'give every line {count} fields; one that holds "{separator}" is quoted',
                )


def _refuse_same_names(file: Path, columns: list[str]) -> None:
    """DuckDB renames the second of two columns, without regard to capitals."""
    with open(file, newline="", encoding="utf-8-sig") as lines:
        header: list[str] = []
        for separator in SEPARATORS:
            lines.seek(0)
            header = next(csv.reader(lines, delimiter=separator), [])
            if len(header) == len(columns):
                break
    names = [name.casefold() for name in header]
    twice = next((name for at, name in enumerate(header) if names[at] in names[:at]), None)
    if twice is not None and len(header) == len(columns):
        raise UnreadableSource(
            f"`{file}` has two columns `{named(twice)}`",
            caller(),
            "give every column a name of its own; capitals do not count",
        )


@contextmanager
def _tables(path: Path, files: list[Path]) -> Iterator[TableSource]:
    require_package("duckdb")
    import duckdb

    connection = duckdb.connect()
    try:
        for file in files:
            try:
                # a literal path: DuckDB reads `*`, `?` and `[` in one as a pattern
                literal = "".join(f"[{c}]" if c in "*?[" else c for c in str(file))
                format = FORMATS[file.suffix.lower()]
                shown = str(file) if format is _arrow else literal
                found = format(connection, shown)
                if format is _csv:
                    _refuse_other_lengths(file, found.columns)
                    _refuse_same_names(file, found.columns)
                found.create_view(file.stem)
            except (duckdb.Error, OSError, ValueError) as problem:  # pyarrow raises ValueError
                help = f"the suffix says {file.suffix}: is it such a file, and complete?"
                if format is _csv and _mixed_ends(file):
                    help = "some lines end in CR LF and some in LF: write all alike"
                raise unreadable(f"`{file}`", problem, help) from None
        yield DuckDB(connection, f"`{path}`")
    except duckdb.Error as problem:
        raise unreadable(f"`{path}`", problem, "check the file, and read it again") from None
    finally:
        connection.close()
