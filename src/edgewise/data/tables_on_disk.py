"""`on_disk`: a table as an input of a model whose keys stay outside of memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from edgewise.data.disk_table import (
    KEYS,
    Scratch,
    StoredTable,
    TableFolder,
    chunks,
    limit,
    parquet,
    refused,
    write,
)
from edgewise.data.errors import (
    BadColumn,
    DuplicateRows,
    MissingValue,
    UnknownColumn,
    UnknownTable,
    UnreadableSource,
)
from edgewise.data.sources import open_source
from edgewise.data.sources.duckdb import DuckDB
from edgewise.data.sql import quoted
from edgewise.errors import caller, counted, named, nearest, safe_repr, suggest
from edgewise.graphs.drawing import require_package
from edgewise.ground.index import STRINGS, KeyOutOfRange
from edgewise.inputs.kinds import DUPLICATES
from edgewise.inputs.on_disk import rows_on_disk

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

INTEGERS = {f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "BIG", "HUGE")}
INTEGERS |= {"INTEGER", "UINTEGER"}
REALS = {"FLOAT", "DOUBLE"}
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
RAW = "raw.parquet"


def on_disk(
    source: object,
    table: str | None = None,
    *,
    keys: Sequence[str] | None = None,
    values: Sequence[str] = (),
    memory: str = "1GB",
    duplicates: Literal["refuse", "count", "sum", "once"] = "refuse",
    folder: str | Path | None = None,
) -> rows_on_disk:
    """A table as rows whose keys stay on disk: `model.ground(edge=on_disk("edges.parquet"))`.

    `source` is a file of Parquet, CSV, Arrow or JSON lines, a DuckDB database, connection or query
    (`duckdb.sql(...)`), or a mapping from names to frames; `table` names one of its tables, where
    there are more. `keys` are the columns of keys, one for each term (all but `values`, if they
    are not named), `values` those of one value; `duplicates` is what `rows` has.

    The table is read once, here, and copied into a temporary folder, in `folder` if there is one,
    which goes with what this returns. Rules are joined there as SQL; a join, and reading keys where
    a rule needs all of them, may add as much as `memory` to the process; the rest is written to
    that folder.

    >>> from edgewise import Program, R, V
    >>> edge = on_disk({"edge": {"a": [0, 1, 1], "b": [1, 2, 3]}}, memory="100MB")
    >>> edge
    <rows on disk: 3 keys of 2 terms>
    >>> two_hops = R.h(V.X, V.Z) <= (R._edge(V.X, V.Y), R._edge(V.Y, V.Z))
    >>> Program([two_hops]).compile(R.h).rows(edge=edge).index.T.tolist()
    [[0, 2], [0, 3]]
    """
    require_package("duckdb")
    work = Scratch(bytes_of(memory), None if folder is None else os.fspath(folder))
    _check_options(duplicates, values)
    held = work.new_folder()
    try:
        with _relation(source, table, work) as relation:
            kinds = _kinds(relation, keys, values)
            _written(relation, kinds, values, held.path / RAW)
        with work.connection("copying the table") as (connection, _):
            return _Copy(connection, work, held, list(kinds), list(values), duplicates).rows()
    except BaseException:
        held.remove()
        raise


def bytes_of(memory: str) -> int:
    """
    >>> bytes_of("1.5 GB"), bytes_of("2MiB")
    (1500000000, 2097152)
    """
    said = memory.replace(" ", "").upper() if isinstance(memory, str) else ""
    unit = next((unit for unit in sorted(UNITS, key=len)[::-1] if said.endswith(unit)), "")
    number = said.removesuffix(unit)
    if not unit or not number.replace(".", "", 1).isdigit():
        raise UnreadableSource(
            f"`memory` is {safe_repr(memory)}", caller(), 'give a size: `memory="500MB"`'
        )
    return int(float(number) * UNITS[unit])


def _check_options(duplicates: str, values: Sequence[str]) -> None:
    fits = duplicates in DUPLICATES and (duplicates == "sum") <= bool(values)
    if not fits or (values and duplicates in ("count", "once")):
        near = nearest(duplicates, DUPLICATES) if isinstance(duplicates, str) else None
        raise DuplicateRows(
            f"`duplicates` is {safe_repr(duplicates)}"
            + (" of a table with values" if values else ""),
            caller(),
            f"did you mean {near!r}?"
            if near and near != duplicates
            else "keys are refused, counted or hold once; those with values are refused or summed",
        )


@contextmanager
def _relation(source: object, table: str | None, work: Scratch) -> Iterator[DuckDBPyRelation]:
    """The table as a relation of DuckDB."""
    import duckdb

    if isinstance(source, duckdb.DuckDBPyRelation):
        try:
            yield source
        except duckdb.Error as problem:
            raise refused(problem, "the query", work.memory) from None
        return
    before = _stamp(source)
    try:
        with open_source(source) as found:
            if not isinstance(found, DuckDB):
                raise UnreadableSource(
                    f"DuckDB does not read {found.name}",
                    caller(),
                    "write its table to a file of Parquet, or read it into memory: `data.read`",
                )
            if before is not None:
                limit(found.connection, work)
            try:
                yield found.connection.sql(f"FROM {_name(found, table)}")
            except duckdb.OutOfMemoryException as problem:
                raise refused(problem, found.name, work.memory) from None
    except OSError as problem:
        raise refused(problem, "the table", work.memory) from None
    if before != _stamp(source):
        raise UnreadableSource(
            f"`{source}` changed while it was read",
            caller(),
            "read it again once writing has ended",
        )


def _stamp(source: object) -> tuple[int, ...] | None:
    """What changes with a file that is written."""
    if not isinstance(source, str | Path):
        return None
    try:
        found = os.stat(source)
    except (OSError, ValueError):
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _name(found: DuckDB, table: str | None) -> str:
    there = found.tables()
    names = {place: name for name, place in there.items()}  # each table once
    if table is None and len(names) == 1:
        return ".".join(map(quoted, next(iter(names))))
    if table is None or table not in there:
        known = sorted(names.values())
        what = f"no table `{named(table)}`" if table is not None else f"{len(known)} tables"
        help = suggest(table, known) if table is not None else f"name one: `{', '.join(known)}`"
        raise UnknownTable(f"{found.name} has {what}", caller(), help)
    return ".".join(map(quoted, there[table]))


def _kinds(
    relation: DuckDBPyRelation, keys: Sequence[str] | None, values: Sequence[str]
) -> dict[str, str]:
    """The types of the columns of keys; refused if they, or those of values, are others."""
    there = {name: str(kind) for name, kind in zip(relation.columns, relation.types, strict=True)}
    names = [name for name in there if name not in values] if keys is None else list(keys)
    for name in (*names, *values):
        if name not in there:
            raise UnknownColumn(
                f"the table has no column `{named(name)}`", caller(), suggest(name, list(there))
            )
        kind, is_value = there[name], name in values
        is_real = kind in REALS or kind.startswith("DECIMAL")
        if not (kind in INTEGERS or (is_real if is_value else _is_text(kind))):
            raise BadColumn(
                f"column `{named(name)}` is {kind}",
                caller(),
                "values are numbers" if is_value else "keys are integers or strings",
            )
    if not names:
        raise UnknownColumn("the table has no column of keys", caller(), "name one: `keys=[...]`")
    return {name: there[name] for name in names}


def _written(
    relation: DuckDBPyRelation, kinds: Mapping[str, str], values: Sequence[str], path: Path
) -> None:
    """Write the columns to a file, by one query: all rows of one moment."""
    shown = [f"{_key(name, kind)} AS k{at}" for at, (name, kind) in enumerate(kinds.items())]
    shown += [f"CAST({quoted(name)} AS DOUBLE) AS v{at}" for at, name in enumerate(values)]
    relation.project(", ".join(shown)).write_parquet(str(path))


def _is_text(kind: str) -> bool:
    return kind == "VARCHAR" or kind.startswith("ENUM")


def _key(name: str, kind: str) -> str:
    """A key in SQL, as Parquet holds it: of integers with 128 bits those that are keys."""
    if _is_text(kind):
        return f"CAST({quoted(name)} AS VARCHAR)"
    if kind.endswith("HUGEINT"):
        return f"CAST(greatest(-1, least({quoted(name)}, {STRINGS})) AS BIGINT)"
    return quoted(name)


@dataclass
class _Copy:
    """The raw rows of a table → distinct keys in order, as codes."""

    connection: DuckDBPyConnection
    work: Scratch
    folder: TableFolder
    names: list[str]
    values: list[str]
    duplicates: str

    def rows(self) -> rows_on_disk:
        raw = self.folder.path / RAW
        self._check(f"FROM {parquet(raw)}")
        strings = self._words(parquet(raw))
        path = self.folder.path / KEYS
        count = write(self.connection, self._query(parquet(raw)), path)
        raw.unlink()
        if self.duplicates == "refuse":
            self._refuse_twice(path, count, strings)
        values = self._read(path, count)
        ends = self._ends(parquet(path)) if count else []
        arity = len(self.names)
        table = StoredTable(self.folder, self.work, ends, strings, arity, count)
        return rows_on_disk(table, values, self.duplicates in ("count", "sum"))

    @property
    def keys(self) -> list[str]:
        return [f"k{at}" for at in range(len(self.names))]

    def _one(self, query: str) -> tuple[Any, ...]:
        (found,) = self.connection.execute(query).fetchall()
        return tuple(found)

    def _check(self, source: str) -> None:
        """Refuse nulls, and keys that are no codes."""
        columns = {**dict(zip(self.keys, self.names, strict=True))}
        columns |= {f"v{at}": name for at, name in enumerate(self.values)}
        shown = [f"count(*) - count({c}), min({c}), max({c})" for c in columns]
        found = self._one(f"SELECT {', '.join(shown)} {source}")
        for at, (column, name) in enumerate(columns.items()):
            nulls, low, high = found[3 * at : 3 * at + 3]
            if nulls:
                raise MissingValue(
                    f"column `{named(name)}` has {counted(nulls, 'null')}",
                    caller(),
                    'leave those rows out: `duckdb.sql("FROM ... WHERE ... IS NOT NULL")`',
                )
            if column in self.keys and isinstance(low, int) and not 0 <= low <= high < STRINGS:
                raise KeyOutOfRange(
                    f"column `{named(name)}` has the key {low if low < 0 else high}",
                    caller(),
                    "give keys from 0, below 2^40, or strings",
                )

    def _words(self, source: str) -> tuple[str, ...]:
        """The strings among the keys, in order; `words` has their codes."""
        described = self.connection.execute(f"DESCRIBE FROM {source}").fetchall()
        self.texts = [name for name, kind, *_ in described if kind == "VARCHAR"]
        if not self.texts:
            return ()
        every = " UNION ALL ".join(f"SELECT {name} AS word FROM {source}" for name in self.texts)
        numbered = f"row_number() OVER (ORDER BY word) - 1 + {STRINGS} AS code"
        distinct = f"SELECT DISTINCT word FROM ({every})"
        self.connection.execute(
            f"CREATE TEMP TABLE words AS SELECT word, {numbered} FROM ({distinct})"
        )
        found = self.connection.execute("SELECT word FROM words ORDER BY code").fetchall()
        return tuple(word for (word,) in found)

    def _query(self, raw: str) -> str:
        """The rows with codes for strings, each key once or as often as it is there."""
        joins, coded = "", []
        for key in self.keys:
            if key in self.texts:
                joins += f" JOIN words AS w{key} ON w{key}.word = t.{key}"
            coded.append(f"{f'w{key}.code' if key in self.texts else f't.{key}::BIGINT'} AS {key}")
        held = [f"v{at}" for at in range(len(self.values))]
        rows = f"SELECT {', '.join([*coded, *held])} FROM {raw} AS t{joins}"
        keys = ", ".join(self.keys)
        if self.duplicates in ("count", "sum"):
            merged = [f"sum({v}) AS {v}" for v in held] or ["count(*)::DOUBLE AS v0"]
            return (
                f"SELECT {keys}, {', '.join(merged)} FROM ({rows}) GROUP BY {keys} ORDER BY {keys}"
            )
        distinct = "DISTINCT " if self.duplicates == "once" else ""
        return f"SELECT {distinct}* FROM ({rows}) ORDER BY {keys}"

    def _refuse_twice(self, path: Path, count: int, strings: Sequence[str]) -> None:
        last = torch.full((1, len(self.names)), -1)
        for columns in chunks(self.connection, path, self.keys, count):
            some = torch.cat([last, torch.stack(columns, 1)])
            same = (some[1:] == some[:-1]).all(1).nonzero()
            if len(same):
                key = [
                    strings[k - STRINGS] if k >= STRINGS else k for k in some[same[0, 0]].tolist()
                ]
                raise DuplicateRows(
                    f"the table has the key {tuple(key)} twice",
                    caller(),
                    'combine them: `duplicates="once"`, `"count"`, or `"sum"` of values',
                )
            last = some[-1:]

    def _read(self, path: Path, count: int) -> Tensor | None:
        """The values (rows, size) in the order of keys."""
        names = [f"v{at}" for at in range(len(self.values))]
        names = names or (["v0"] if self.duplicates == "count" else [])
        if not names:
            return None
        parts = [torch.stack(c, 1) for c in chunks(self.connection, path, names, count)]
        found = torch.cat(parts) if parts else torch.zeros(0, len(names), dtype=torch.float64)
        return found if len(names) > 1 else found[:, 0]

    def _ends(self, source: str) -> list[tuple[int, int]]:
        shown = ", ".join(f"min({key}), max({key})" for key in self.keys)
        found = self._one(f"SELECT {shown} FROM {source}")
        return list(zip(found[::2], found[1::2], strict=True))
