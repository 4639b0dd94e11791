"""Files → columns: text, JSON lines, CSV, Parquet and folders saved by Hugging Face `datasets`."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgewise.errors import Span, suggest
from edgewise.graphs.drawing import require_package
from edgewise.training.errors import BadData

FORMATS = (".txt", ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
LINES = "line"  # the column of a text file
OTHER_DELIMITERS = (";", "\t", "|", ",")
CLIP = 80  # characters of a line that an error shows


@dataclass(frozen=True, eq=False)
class Columns:
    """Named columns of equal length; `classes` has the names of integer labels where a file does.

    A dot reaches into a column of objects: `translation.en`.
    """

    path: Path
    values: Mapping[str, list[Any]]
    classes: Mapping[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.values.values()), []))

    def __contains__(self, name: str) -> bool:
        first, _, rest = name.partition(".")
        if name in self.values:
            return True
        rows = self.values.get(first, ())
        return bool(rest) and any(isinstance(row, dict) and rest in row for row in rows)

    def column(self, name: str) -> list[Any]:
        if name not in self:
            there = ", ".join(f"`{known}`" for known in self.values)
            help = suggest(name, list(self.values), "name one of them in `[data]`")
            raise bad(f"there is no column `{name}`; there are {there}", self.path, help)
        if name in self.values:
            return self.values[name]
        first, _, rest = name.partition(".")
        rows = self.values[first]
        return [row.get(rest) if isinstance(row, dict) else None for row in rows]

    def texts(self, name: str) -> list[str]:
        """A column of strings."""
        found = self.column(name)
        for at, text in enumerate(found, start=1):
            if not isinstance(text, str):
                what = f"`{name}` in row {at:,} is {shown(text)}, not a string"
                raise bad(what, self.path, "remove the row, or name a column of texts")
            if not text.isascii() and re.search("[\ud800-\udfff]", text):
                what = f"`{name}` in row {at:,} has a lone surrogate: {shown(text)}"
                raise bad(what, self.path, "write the text as UTF-8")
        return found

    def take(self, rows: list[int]) -> Columns:
        values = {name: [column[i] for i in rows] for name, column in self.values.items()}
        return Columns(self.path, values, self.classes)


def read(path: Path) -> Columns:
    """The columns of one file, by its suffix; a text file has one, its lines."""
    kind = suffix(path)
    if kind == ".parquet":
        found = _parquet(path)
    elif kind in (".csv", ".tsv"):
        found = _csv(path, text_of(path), "\t" if kind == ".tsv" else ",")
    elif kind in (".jsonl", ".ndjson", ".json"):
        found = _json(path, text_of(path))
    else:
        text = text_of(path).replace("\r\n", "\n")
        found = Columns(path, {LINES: text.split("\n") if text.strip() else []})
    if not len(found):
        raise bad("the file has no rows", path, "give a file with data")
    return found


def concatenated(tables: list[Columns], path: Path) -> Columns:
    """The rows of several files with the same columns."""
    first = tables[0]
    if len(tables) == 1:
        return first
    for other in tables[1:]:
        if set(other.values) != set(first.values):
            what = f"it has the columns {sorted(other.values)}, `{first.path.name}` has others"
            raise bad(what, other.path, "the files of one split have the same columns")
        for name in sorted(set(first.classes) | set(other.classes)):
            if other.classes.get(name) != first.classes.get(name):
                what = f"it numbers the classes of `{name}` otherwise than `{first.path.name}`"
                raise bad(what, other.path, "write the files of one split with one table of names")
    values = {name: [v for table in tables for v in table.values[name]] for name in first.values}
    return Columns(path, values, first.classes)


def saved_dataset(path: Path) -> dict[str, Columns]:
    """The splits of a folder written by `save_to_disk` of `datasets`; a single one is `train`."""
    require_package("datasets")
    import datasets

    try:
        found = datasets.load_from_disk(str(path))
    except Exception as problem:  # the package raises several types
        what = f"`datasets` cannot load the folder: {_first_line(problem)}"
        raise bad(what, path, "save it again with `save_to_disk`") from None
    splits = found if isinstance(found, dict) else {"train": found}
    return {
        str(name): _arrow(split.with_format("arrow")[:], path / str(name))
        for name, split in splits.items()
    }


def _parquet(path: Path) -> Columns:
    require_package("pyarrow")
    import pyarrow
    from pyarrow import parquet

    try:
        return _arrow(parquet.read_table(path), path)
    except OSError as problem:
        raise _unreadable(path, problem) from None
    except pyarrow.ArrowException as problem:
        what = f"not a Parquet file: {_first_line(problem)}"
        raise bad(what, path, "write the file again") from None


def _arrow(table: Any, path: Path) -> Columns:
    """An Arrow table; `datasets` stores the names of classes in its metadata."""
    stored = (table.schema.metadata or {}).get(b"huggingface", b"{}")
    try:
        features = json.loads(stored).get("info", {}).get("features", {})
    except (ValueError, AttributeError):
        features = {}
    classes = {
        name: [str(label) for label in feature["names"]]
        for name, feature in features.items()
        if isinstance(feature, dict) and isinstance(feature.get("names"), list)
    }
    return Columns(
        path, {name: table.column(name).to_pylist() for name in table.column_names}, classes
    )


def _json(path: Path, text: str) -> Columns:
    """A list of objects, or an object on each line."""
    if text.lstrip().startswith("["):
        rows = [(at, row) for at, row in enumerate(_parsed(path, text, text, 1), start=1)]
    else:
        lines = enumerate(text.split("\n"), start=1)
        rows = [(at, _parsed(path, line, line, at)) for at, line in lines if line.strip()]
    for at, row in rows:
        if not isinstance(row, dict):
            what = f"line {at:,} is {shown(row)}, not an object"
            raise bad(what, path, 'write, for example, `{"text": "a fine film"}`')
    names = dict.fromkeys(name for _, row in rows for name in row)
    return Columns(path, {name: [row.get(name) for _, row in rows] for name in names})


def _parsed(path: Path, text: str, source: str, line: int) -> Any:
    try:
        return json.loads(text)
    except ValueError as problem:
        if not isinstance(problem, json.JSONDecodeError):
            raise bad(f"line {line:,} is not JSON: {problem}", path, "correct the line") from None
        at = line + problem.lineno - 1
        shown_line = source.split("\n")[problem.lineno - 1]
        what = f"line {at:,} is not JSON: {problem.msg[:1].lower()}{problem.msg[1:]}"
        raise _at(what, path, at, problem.colno, shown_line, "correct the line") from None
    except RecursionError:
        raise bad(f"line {line:,} is nested too deep", path, "give flat objects") from None


def _csv(path: Path, text: str, delimiter: str) -> Columns:
    """A header with the names of the columns, then rows; quotes as in RFC 4180."""
    before = csv.field_size_limit(max(len(text), 1))
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        names = next(reader, [])
        other = next((mark for mark in OTHER_DELIMITERS if mark in "".join(names)), None)
        if len(names) == 1 and other:
            what = f"the header is one column, `{names[0]}`, with {other!r} in it"
            raise bad(what, path, "separate fields by commas in .csv, by tabs in .tsv")
        if len(set(names)) != len(names):
            raise bad("two columns of the header have one name", path, "rename one of them")
        rows: list[list[str]] = []
        for row in reader:
            if row and len(row) != len(names):
                what = (
                    f"line {reader.line_num:,} has {len(row)} fields, the header has {len(names)}"
                )
                raise bad(what, path, "quote fields that contain the delimiter")
            rows += [row] if row else []
    except csv.Error as problem:
        what = f"line {reader.line_num:,} is not CSV: {problem}"
        raise bad(what, path, "quote fields as RFC 4180 says") from None
    finally:
        csv.field_size_limit(before)
    return Columns(path, {name: [row[k] for row in rows] for k, name in enumerate(names)})


def suffix(path: Path) -> str:
    """The suffix of a file that names its format, before `.gz`."""
    return path.with_suffix("").suffix.lower() if path.suffix == ".gz" else path.suffix.lower()


def text_of(path: Path) -> str:
    """The text in a file, or in the same with `.gz` at the end."""
    packed = path.with_name(path.name + ".gz")
    found = path if path.exists() or not packed.exists() else packed
    try:
        data = found.read_bytes()
        data = gzip.decompress(data) if found.suffix == ".gz" else data
        return data.decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise bad("truncated or corrupt gzip file", found, "download the file again") from None
    except OSError as problem:
        raise _unreadable(found, problem) from None
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        what = f"not UTF-8 text: byte {data[problem.start]:#04x} in line {line:,}"
        coded = "UTF-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "LATIN1"
        raise bad(what, found, f"convert it: `iconv -f {coded} -t UTF-8`") from None


def lines_of(path: Path) -> list[str]:
    text = text_of(path).removesuffix("\n")
    return [line.removesuffix("\r") for line in text.split("\n")] if text else []


def shown(value: Any) -> str:
    return "null" if value is None else f"{value!r:.40}"


def bad(what: str, path: Path, help: str) -> BadData:
    return BadData(what, Span.of("<data>", path), help)


def _at(what: str, path: Path, line: int, column: int, source: str, help: str) -> BadData:
    first = max(column - CLIP // 2, 0)  # long lines are shown around the mistake
    clipped = source[first : first + CLIP]
    column = min(column - first, len(clipped) + 1)
    return BadData(what, Span(str(path), line, column, column + 1, source=clipped or " "), help)


def _unreadable(path: Path, problem: OSError) -> BadData:
    return bad(
        f"cannot read the file: {problem.strerror or problem}",
        path,
        "check `path`, or give `--data`",
    )


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0][:120]
