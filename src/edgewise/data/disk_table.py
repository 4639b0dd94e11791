"""A table on disk, as keys of a relation: a copy of its own, checked, sorted and without strings.

The copy is made by one query, so that it is the table at one moment, whatever becomes of that; it
lies in a folder that goes with it. Strings are numbers, as in memory: SQL sees integers alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING
from weakref import finalize

import numpy as np
import torch
from torch import Tensor

from edgewise.data.errors import DiskFull, MemoryLimit
from edgewise.data.sources.table_source import unreadable
from edgewise.errors import EdgewiseError, caller
from edgewise.ground.index import STRINGS, Constants
from edgewise.ground.joins.disk import TableJoin
from edgewise.ground.joins.join import in_bytes

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from edgewise.data.disk_joins import JoinedRows

CHUNK = 1 << 17  # rows that are read at a time
KEYS = "keys.parquet"
OWN = 72 << 20  # bytes: DuckDB's code and connections, which are outside of its limit
LEAST = 32 << 20  # bytes that DuckDB needs for a join
FULL = ("no space left", "file too large", "disk quota", "failed to offload")  # a disk, a quota


class TableFolder:
    """A folder that is removed with the last thing that uses it, or at exit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.remove = finalize(self, rmtree, path, ignore_errors=True)


@dataclass(frozen=True)
class Scratch:
    """Where tables are joined: how many bytes that may add to the process, and a folder."""

    memory: int
    folder: str | None

    @property
    def limit(self) -> int:
        """The bytes that DuckDB itself may hold."""
        return max(self.memory - OWN, LEAST)

    def new_folder(self) -> TableFolder:
        try:
            return TableFolder(Path(mkdtemp(prefix="edgewise-table-", dir=self.folder)))
        except OSError as problem:
            raise refused(problem, "a folder for the table", self.memory) from None

    @contextmanager
    def connection(self, doing: str) -> Iterator[tuple[DuckDBPyConnection, Path]]:
        """A database with this limit, and a folder for its files: both go at the end."""
        import duckdb

        try:
            with (
                TemporaryDirectory(prefix="edgewise-join-", dir=self.folder) as name,
                duckdb.connect() as connection,
            ):
                limit(connection, self)
                connection.execute(f"SET temp_directory = {text(f'{name}/spilled')}")
                yield connection, Path(name)
        except (duckdb.Error, OSError) as problem:
            raise refused(problem, doing, self.memory) from None


def limit(connection: DuckDBPyConnection, work: Scratch) -> None:
    connection.execute(f"SET memory_limit = '{work.limit}B'")
    connection.execute("SET threads = 1")
    connection.execute("SET enable_external_file_cache = false")


def refused(problem: Exception, doing: str, memory: int) -> EdgewiseError:
    """The error for what DuckDB or the disk refused."""
    import duckdb

    said = str(problem).strip().splitlines() or [type(problem).__name__]
    if is_full(problem):
        return DiskFull(
            f"{doing}: {said[0]}",
            caller(),
            "free some space, or give a folder on another disk: `data.on_disk(..., folder=...)`",
        )
    if isinstance(problem, duckdb.OutOfMemoryException):
        what = f"{doing} does not fit into {in_bytes(memory)}"
        return MemoryLimit(what, caller(), 'give it more, such as `memory="2GB"`')
    return unreadable(doing, problem, "check the source, and read it again")


def is_full(problem: Exception) -> bool:
    """Whether it is the disk that has no more space."""
    return any(part in str(problem).lower() for part in FULL)


def text(value: str) -> str:
    """A string in SQL, for what takes no parameter."""
    return "'" + value.replace("'", "''") + "'"


def parquet(path: Path) -> str:
    """The rows of a file, with their numbers; DuckDB reads `*`, `?` and `[` as a pattern."""
    literal = "".join(f"[{c}]" if c in "*?[" else c for c in str(path))
    return f"read_parquet({text(literal)}, file_row_number = true)"


def chunks(
    connection: DuckDBPyConnection, path: Path, names: Sequence[str], count: int
) -> Iterator[list[Tensor]]:
    """The columns of a file of so many rows, some rows at a time, in order."""
    shown = ", ".join(names)
    for low in range(0, count, CHUNK):
        some = f"file_row_number BETWEEN {low} AND {low + CHUNK - 1}"
        found = connection.execute(f"SELECT {shown} FROM {parquet(path)} WHERE {some}").fetchnumpy()
        yield [torch.from_numpy(np.ascontiguousarray(found[name])) for name in names]


class StoredTable:
    """Distinct keys in order, in a file: columns k0, k1, ... of codes."""

    def __init__(
        self,
        folder: TableFolder,
        work: Scratch,
        ends: list[tuple[int, int]],
        strings: tuple[str, ...],
        arity: int,
        rows: int,
    ) -> None:
        self.folder = folder  # removed with the table
        self.work, self.arity, self.rows, self.strings = work, arity, rows, strings
        self.ends = ends if rows else []
        self._renumbered: tuple[tuple[str, ...], StoredTable] | None = None

    @property
    def path(self) -> Path:
        return self.folder.path / KEYS

    @property
    def names(self) -> list[str]:
        return [f"k{at}" for at in range(self.arity)]

    def read(self) -> Tensor:
        needed = 8 * self.rows * self.arity
        if needed > self.work.memory:
            raise MemoryLimit(
                f"the keys of a table on disk take {in_bytes(needed)}, more than its "
                f"{in_bytes(self.work.memory)}, where a rule needs all of them",
                caller(),
                f'give it more, `memory="{-(-needed // 1_000_000)}MB"`, or write the rule so that '
                "its conditions join the table with other keys: recursion, masks of attention and "
                "batches read all keys",
            )
        found = torch.empty(self.rows, self.arity, dtype=torch.int64)
        with self.work.connection("reading keys") as (connection, _):
            low = 0
            for columns in chunks(connection, self.path, self.names, self.rows):
                high = low + len(columns[0])
                for at, column in enumerate(columns):
                    found[low:high, at] = column
                low = high
        return found

    def remove(self) -> None:
        """Remove the file; without this it goes with the table."""
        self.folder.remove()

    def joined(self, join: TableJoin) -> AbstractContextManager[JoinedRows]:
        from edgewise.data.disk_joins import joined

        return joined(join, self.work)

    def renumbered(self, constants: Constants) -> StoredTable:
        known = tuple(constants.strings)
        if self._renumbered is None or self._renumbered[0] != known:
            self._renumbered = known, self._moved(known, constants)
        return self._renumbered[1]

    def _moved(self, known: tuple[str, ...], constants: Constants) -> StoredTable:
        old = np.arange(STRINGS, STRINGS + len(self.strings))
        new = np.array([STRINGS + constants.ranks[string] for string in self.strings])
        folder = self.work.new_folder()
        with self.work.connection("numbering strings") as (connection, _):
            connection.register("moved", {"old": old, "new": new})
            joins = "".join(
                f" LEFT JOIN moved AS m{at} ON m{at}.old = t.k{at}" for at in range(self.arity)
            )
            shown = [f"coalesce(m{at}.new, t.k{at}) AS k{at}" for at in range(self.arity)]
            write(
                connection,
                f"SELECT {', '.join(shown)} FROM {parquet(self.path)} AS t{joins} ORDER BY ALL",
                folder.path / KEYS,
            )
        moved = dict(zip(old.tolist(), new.tolist(), strict=True))
        ends = [(moved.get(low, low), moved.get(high, high)) for low, high in self.ends]
        return StoredTable(folder, self.work, ends, known, self.arity, self.rows)


def write(
    connection: DuckDBPyConnection, query: str, path: Path, values: dict[str, int] | None = None
) -> int:
    """The rows of a query to a file; how many there are."""
    copied = f"COPY ({query}) TO {text(str(path))} (FORMAT parquet)"
    ((count,),) = connection.execute(copied, values or None).fetchall()
    return int(count)
