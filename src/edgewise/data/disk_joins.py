"""Joins of tables on disk: one SQL query for a part of a body, whose rows are a file.

Keys are codes, so SQL sees integers, all of them parameters. An atom that only tests another is a
semi-join: for `out(X) :- e(X, Y), e(Y, Z)` each edge is read once, not each path. What is too much
at once is joined in ranges of the first key, one after the other, so that all rows are in order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from edgewise.data.disk_table import (
    Scratch,
    StoredTable,
    chunks,
    is_full,
    parquet,
    write,
)
from edgewise.ground.index import STRINGS, Grid, Index
from edgewise.ground.joins.disk import KeysOnDisk, TableJoin, Terms
from edgewise.ground.joins.join import Bindings
from edgewise.language import nodes
from edgewise.language.term_expressions import Tree

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SIGNS = {"leq": "<=", "lt": "<", "geq": ">=", "gt": ">", "eq": "=", "neq": "<>"}
SIGNS |= {"<=": "<=", "<": "<", ">=": ">=", ">": ">", "==": "=", "!=": "<>"}
Places = dict[str, str]  # of variables in SQL
Test = tuple[set[str], Callable[[Places], str]]  # the variables of a condition, and its text
Range = tuple[int, int]  # of the first key, the last one excluded
ROW = 16  # bytes of each column of a row, in a table of hashes
MOST_RANGES = 32  # at first: each reads the tables once


@dataclass
class _SqlAtom:
    alias: str
    source: str
    places: Places
    tests: list[str]


class JoinWriter:
    """Writes a join; `source` gives the table of explicit keys, with columns k0, k1, ..."""

    def __init__(self, join: TableJoin, source: Callable[[Index], str]) -> None:
        self.join, self.source = join, source
        self.values: dict[str, int] = {}  # of parameters
        atoms = {
            at: self._atom(f"a{at}", terms, index)
            for at, (terms, index) in join.atoms.items()
            if not isinstance(index, Grid)
        }
        tests = list(self._tests())
        left = [test for test in tests if not self._own(test, atoms)]
        while self._semi_joined(atoms, left):
            pass
        self.atoms = list(atoms.values())
        self.places = {n: place for a in self.atoms[::-1] for n, place in a.places.items()}
        self.where = [test for atom in self.atoms for test in atom.tests]
        self.where += [write(self.places) for _, write in left]
        self.where += [
            f"{place} = {self.places[name]}"
            for atom in self.atoms
            for name, place in atom.places.items()
            if place != self.places[name]
        ]

    def query(self, lead: Range | None = None) -> str:
        """All rows in order, or those with the first key in a range."""
        return f"{self.rows(lead)} {'ORDER BY ALL' if self.columns else 'LIMIT 1'}"

    def rows(self, lead: Range | None = None) -> str:
        """The same in any order."""
        where = list(self.where)
        if lead is not None:
            place = self.places[self.join.needed[0]]
            where += [f"{place} >= {lead[0]}", f"{place} < {lead[1]}"]
        shown = [f"{self.places[name]} AS v{at}" for at, name in enumerate(self.join.needed)]
        shown += [f"a{at}.file_row_number AS r{at}" for at in self.join.read]
        distinct = any(not a.places.keys() <= set(self.join.needed) for a in self.atoms)
        text = f"SELECT {'DISTINCT ' if distinct and shown else ''}{', '.join(shown) or '1 AS one'}"
        if self.atoms:  # not only conditions without variables
            text += f" FROM {', '.join(f'{atom.source} AS {atom.alias}' for atom in self.atoms)}"
        return f"{text} WHERE {' AND '.join(where)}" if where else text

    @property
    def columns(self) -> list[str]:
        return [f"v{at}" for at in range(len(self.join.needed))] + [f"r{a}" for a in self.join.read]

    def _atom(self, alias: str, terms: Terms, index: Index) -> _SqlAtom:
        found = _SqlAtom(alias, self.source(index), {}, [])
        for p, term in enumerate(terms):
            place = f"{alias}.k{p}"
            if isinstance(term, nodes.Variable) and term.name not in found.places:
                found.places[term.name] = place
            else:
                found.tests.append(f"{place} = {self._term(term, found.places)}")
        return found

    def _term(self, term: nodes.Term | int, places: Places) -> str:
        return places[term.name] if isinstance(term, nodes.Variable) else self._value(int(term))

    def _value(self, value: int) -> str:
        """A parameter of 64 bits: arithmetic of fewer could overflow."""
        name = f"c{len(self.values)}"
        self.values[name] = value
        return f"CAST(${name} AS BIGINT)"

    def _own(self, test: Test, atoms: dict[int, _SqlAtom]) -> bool:
        """Give a condition to an atom that has all of its variables, if there is one."""
        names, write = test
        for atom in atoms.values():
            if names <= atom.places.keys():
                atom.tests.append(write(atom.places))
                return True
        return False

    def _semi_joined(self, atoms: dict[int, _SqlAtom], tests: list[Test]) -> bool:
        """Make an atom a condition of another that has all of its variables that matter."""
        for at, one in atoms.items():
            others = {a: other for a, other in atoms.items() if a != at}
            matter = {*self.join.needed, *(n for names, _ in tests for n in names)}
            matter |= {name for other in others.values() for name in other.places}
            shared = sorted(matter & one.places.keys())
            into = next((o for o in others.values() if {*shared} <= o.places.keys()), None)
            if into is not None and at not in self.join.read:
                equal = [f"{one.places[name]} = {into.places[name]}" for name in shared]
                where = " AND ".join(one.tests + equal) or "TRUE"
                into.tests.append(
                    f"EXISTS (SELECT 1 FROM {one.source} AS {one.alias} WHERE {where})"
                )
                del atoms[at]
                return True
        return False

    def _tests(self) -> Iterator[Test]:
        for terms, index in self.join.atoms.values():
            if isinstance(index, Grid):
                yield _names(terms), self._in_grid(terms, index)
        for at, (terms, index) in self.join.negated.items():
            yield _names(terms), self._absent(f"n{at}", terms, index)
        for literal, terms in self.join.tests:
            yield _names(terms), self._compared(literal, terms)

    def _in_grid(self, terms: Terms, index: Grid) -> Callable[[Places], str]:
        def write(places: Places) -> str:
            return _all(
                f"{self._term(term, places)} BETWEEN 0 AND {self._value(size - 1)}"
                for term, size in zip(terms, index.sizes, strict=True)
            )

        return write

    def _absent(self, alias: str, terms: Terms, index: Index) -> Callable[[Places], str]:
        if isinstance(index, Grid):
            inside = self._in_grid(terms, index)
            return lambda places: f"NOT ({inside(places)})"
        if not terms:
            return lambda _: "FALSE" if index.rows else "TRUE"

        def write(places: Places) -> str:
            same = _all(f"{alias}.k{p} = {self._term(t, places)}" for p, t in enumerate(terms))
            return f"NOT EXISTS (SELECT 1 FROM {self.source(index)} AS {alias} WHERE {same})"

        return write

    def _compared(self, literal: nodes.SpecialAtom, terms: Terms) -> Callable[[Places], str]:
        def write(places: Places) -> str:
            found = self._comparison(literal, [self._term(term, places) for term in terms])
            return f"NOT ({found})" if literal.negated else f"({found})"

        return write

    def _comparison(self, literal: nodes.SpecialAtom, terms: list[str]) -> str:
        name, formula = literal.name, literal.formula
        if formula is not None:
            left, right = (self._tree(side, terms) for side in (formula.left, formula.right))
            return f"{left} {SIGNS[formula.sign]} {right} AND {_integers(terms)}"
        if name == "in":
            return f"{terms[0]} IN ({', '.join(terms[1:])})"
        if name == "alldiff":
            return _all(f"{one} <> {other}" for one, other in combinations(terms, 2))
        compared = f"{terms[0]} {SIGNS[name]} {terms[1]}"
        return compared if name in ("eq", "neq") else f"{compared} AND {_integers(terms)}"

    def _tree(self, tree: Tree, terms: list[str]) -> str:
        if isinstance(tree, int):
            return self._value(tree)
        name, *operands = tree
        if name == "term":
            return terms[operands[0]]  # type: ignore[index]
        sides = [self._tree(operand, terms) for operand in operands]
        return f"abs({sides[0]})" if name == "abs" else f"({sides[0]} {name} {sides[1]})"


def _names(terms: Terms) -> set[str]:
    return {term.name for term in terms if isinstance(term, nodes.Variable)}


def _all(tests: Iterator[str]) -> str:
    return " AND ".join(tests) or "TRUE"


def _integers(terms: list[str]) -> str:
    """Strings have no order and no arithmetic."""
    return _all(f"{term} < {STRINGS}" for term in terms)


@dataclass(frozen=True)
class JoinedRows:
    """The rows of a join, in files."""

    connection: DuckDBPyConnection
    files: list[tuple[Path, int]]
    join: TableJoin
    columns: list[str]

    @property
    def count(self) -> int:
        return sum(count for _, count in self.files)

    def all(self) -> Bindings:
        columns = [torch.empty(self.count, dtype=torch.int64) for _ in self.columns]
        low = 0
        for some in self._read():
            high = low + len(some[0])
            for column, part in zip(columns, some, strict=True):
                column[low:high] = part
            low = high
        return self._bindings(self.count, columns)

    def chunks(self) -> Iterator[Bindings]:
        if not self.columns or not self.count:
            yield self.all()
            return
        for some in self._read():
            yield self._bindings(len(some[0]), some)

    def _read(self) -> Iterator[list[Tensor]]:
        for path, count in self.files if self.columns else ():
            yield from chunks(self.connection, path, self.columns, count)

    def _bindings(self, count: int, columns: list[Tensor]) -> Bindings:
        named = dict(zip([*self.join.needed, *self.join.read], columns, strict=True))
        return Bindings(
            count,
            {name: named[name] for name in self.join.needed},
            {at: named[at] for at in self.join.read},
        )


@contextmanager
def joined(join: TableJoin, work: Scratch) -> Iterator[JoinedRows]:
    """The rows of a join, until the context closes."""
    with work.connection("the join") as (connection, folder):
        writer = JoinWriter(join, sources(connection))
        files = in_ranges(writer.query, join, work, connection, folder, writer.values)
        yield JoinedRows(connection, files, join, writer.columns)


def in_ranges(
    query: Callable[[Range | None], str],
    join: TableJoin,
    work: Scratch,
    connection: DuckDBPyConnection,
    folder: Path,
    values: dict[str, int],
) -> list[tuple[Path, int]]:
    """The files of a query and how many rows each has: in halves of the keys of its first variable,
    where it does not fit."""
    import duckdb

    files: list[tuple[Path, int]] = []
    needed = ROW * _expected(connection, query(None), values) * max(len(join.needed), 1)
    waiting = _parts(_lead(join), min(-(-needed // work.limit), MOST_RANGES))
    while waiting:
        lead, path = waiting.pop(), folder / f"{len(files)}.parquet"
        try:
            files.append((path, write(connection, query(lead), path, values)))
        except duckdb.OutOfMemoryException as problem:
            halves = _parts(lead or _lead(join), 2)
            if len(halves) < 2 or is_full(problem):
                raise
            waiting += halves
    return files


def _expected(connection: DuckDBPyConnection, query: str, values: dict[str, int]) -> int:
    """The most rows that a step of a query is expected to have."""
    ((_, plan),) = connection.execute(f"EXPLAIN (FORMAT json) {query}", values or None).fetchall()
    waiting, most = list(json.loads(plan)), 0
    while waiting:
        step = waiting.pop()
        most = max(most, int(step["extra_info"].get("Estimated Cardinality", 0)))
        waiting += step["children"]
    return most


def _parts(span: Range, count: int) -> list[Range | None]:
    """A range in so many parts, the last one first; one part is all keys."""
    low, high = span
    count = min(count, high - low)
    ends = [low + (high - low) * part // max(count, 1) for part in range(count + 1)]
    parts: list[Range | None] = list(pairwise(ends))
    return parts[::-1] if count > 1 else [None]


def _lead(join: TableJoin) -> Range:
    """The keys that the first variable of a join may have."""
    for terms, index in join.atoms.values():
        for p, term in enumerate(terms):
            if isinstance(term, nodes.Variable) and term.name in join.needed[:1] and index.rows:
                low, high = (0, index.sizes[p] - 1) if isinstance(index, Grid) else index.ends[p]
                return low, high + 1
    return 0, 1


def sources(connection: DuckDBPyConnection) -> Callable[[Index], str]:
    """The tables of keys in SQL, those in memory registered once."""
    known: dict[int, tuple[Index, str]] = {}

    def source(index: Index) -> str:
        if isinstance(index, KeysOnDisk):
            assert isinstance(index.table, StoredTable)
            return parquet(index.table.path)
        if id(index) not in known:
            name = f"memory{len(known)}"
            columns = {f"k{p}": index.column(p).contiguous().numpy() for p in range(index.arity)}
            connection.register(name, columns)
            known[id(index)] = index, name
        return known[id(index)][1]

    return source
