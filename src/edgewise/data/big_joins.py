"""Joins larger than memory: the body of a rule as one SQL query, which DuckDB runs on disk.

Tables are Parquet or CSV files whose columns are the keys of a relation, in order. DuckDB holds no
more than a limit in memory and writes the rest to a folder; the result is a file again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from edgewise.data.errors import BadJoin, UnreadableSource
from edgewise.data.sql import quoted
from edgewise.errors import caller
from edgewise.graphs.checks import integer, one_of
from edgewise.graphs.drawing import require_package
from edgewise.language import nodes
from edgewise.language.statements import atoms

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

READERS = {".parquet": "read_parquet", ".csv": "read_csv"}
COMPARED = {"leq": "<=", "lt": "<", "geq": ">=", "gt": ">", "eq": "=", "neq": "<>"}
COUNT, RESULT = "groundings", "all.parquet"
INTEGERS = {f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "BIG", "HUGE")}
KINDS = dict.fromkeys([*INTEGERS, "INTEGER", "UINTEGER"], "integers") | {"VARCHAR": "strings"}
Values = dict[str, int | str]  # of the parameters of a query


def join(
    rule: nodes.Rule,
    tables: Mapping[str, str | Path],
    into: str | Path,
    *,
    memory: str = "1GB",
    pieces: int = 1,
    threads: int = 1,
    duplicates: Literal["refuse", "once"] = "refuse",
) -> int:
    """Join the body of a rule over tables and write its rule heads to a Parquet file; their number.

    A column for each term of the rule head, then `groundings`, how many each has: conditions
    filter, they do not multiply. `rows(pyarrow.parquet.read_table(into).drop(["groundings"]))` is
    the relation as an input of a model. `memory` is what DuckDB may hold; the rest it writes beside
    the result. In `pieces`, by the first term of the rule head, it needs less at a time. A row that
    a table has twice is refused, or counts "once".

    >>> import tempfile
    >>> from pathlib import Path
    >>> from edgewise import R, V
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "edge.csv").write_text("a,b\\n0,1\\n1,2\\n1,3\\n")
    >>> two_hops = R.path(V.X, V.Z) <= (R.edge(V.X, V.Y), R.edge(V.Y, V.Z))
    >>> join(two_hops, {"edge": folder / "edge.csv"}, folder / "path.parquet")
    2
    """
    require_package("duckdb")
    import duckdb

    integer(threads, "threads", 1)
    one_of(duplicates, "duplicates", ("refuse", "once"))
    count = integer(pieces, "pieces", 1)
    queries = [to_sql(rule, tables, piece=(piece, count)) for piece in range(count)]
    path = Path(into)
    try:  # a folder of its own: other joins, and files of the user, may have any name
        with (
            TemporaryDirectory(prefix=f"{path.name}.", dir=path.parent) as folder,
            duckdb.connect() as connection,
        ):
            connection.execute(f"SET memory_limit = {_text(memory)}")
            connection.execute(f"SET temp_directory = {_text(str(Path(folder) / 'spilled'))}")
            connection.execute(f"SET threads = {threads}")
            connection.execute("SET preserve_insertion_order = false")
            _check_tables(rule, tables, duplicates, connection)
            found = _written(queries, Path(folder), connection)
            os.replace(Path(folder) / RESULT, path)
            return found
    except (duckdb.Error, OSError) as problem:
        raise UnreadableSource(
            f"{_raiser(problem)}: {str(problem).splitlines()[0]}",
            caller(),
            "check the files, the memory limit, and that there is space on the disk",
        ) from None


def _check_tables(
    rule: nodes.Rule,
    tables: Mapping[str, str | Path],
    duplicates: str,
    connection: DuckDBPyConnection,
) -> None:
    """Columns are keys: as many as an atom has terms, integers or strings, none missing."""
    kinds: dict[str, list[str]] = {}  # of the columns of each relation
    for atom in atoms(rule.body):
        if isinstance(atom, nodes.Atom) and atom.relation not in kinds:
            source = _source(tables[atom.relation])
            described = connection.execute(f"DESCRIBE FROM {source}").fetchall()
            columns = {quoted(name): kind for name, kind, *_ in described}
            kinds[atom.relation] = _kinds(columns, atom)
            _check_rows(atom, source, list(columns), duplicates, connection)
        if isinstance(atom, nodes.Atom) and len(kinds[atom.relation]) != len(atom.terms):
            columns_of, terms = len(kinds[atom.relation]), len(atom.terms)
            raise _refusal(
                f"`{atom.relation}` has {columns_of} columns, `{atom!r}` {terms} terms", atom
            )
    _check_kinds(rule, kinds)


def _kinds(columns: Mapping[str, str], atom: nodes.Atom) -> list[str]:
    for name, kind in columns.items():
        if kind not in KINDS and not kind.startswith("ENUM"):
            raise _refusal(
                f"column {name} of `{atom.relation}` is {kind}: keys are integers or strings", atom
            )
    return [KINDS.get(kind, "strings") for kind in columns.values()]


def _check_rows(
    atom: nodes.Atom,
    source: str,
    columns: list[str],
    duplicates: str,
    connection: DuckDBPyConnection,
) -> None:
    missing = " OR ".join(f"{name} IS NULL" for name in columns)
    if connection.execute(f"SELECT 1 FROM {source} WHERE {missing} LIMIT 1").fetchone():
        raise _refusal(f"`{atom.relation}` has a row with a key that is null", atom)
    if duplicates == "refuse":
        keys = ", ".join(columns)
        twice = f"SELECT {keys} FROM {source} GROUP BY {keys} HAVING count(*) > 1 LIMIT 1"
        if found := connection.execute(twice).fetchone():
            raise BadJoin(
                f"`{atom.relation}` has the key {found!r} twice",
                atom.place,
                'give each key once, or count it once by `duplicates="once"`',
            )


def _check_kinds(rule: nodes.Rule, kinds: Mapping[str, list[str]]) -> None:
    """DuckDB would convert: a string never equals an integer here."""
    of: dict[str, tuple[str, object]] = {}  # of variables, with the first atom that has it

    def kind(term: nodes.Term) -> str:
        if isinstance(term, nodes.Variable):
            return of[term.name][0]
        return "integers" if isinstance(term, int) else "strings"

    body = sorted(atoms(rule.body), key=lambda atom: not isinstance(atom, nodes.Atom))
    for atom in body:
        if isinstance(atom, nodes.Atom):
            for term, column in zip(atom.terms, kinds[atom.relation], strict=True):
                if isinstance(term, nodes.Variable):
                    of.setdefault(term.name, (column, atom))
                if kind(term) != column:
                    seen = f" in `{of[term.name][1]!r}`" if isinstance(term, nodes.Variable) else ""
                    raise _refusal(
                        f"`{term!r}` is one of {column} in `{atom!r}`, of {kind(term)}{seen}", atom
                    )
        elif len({kind(term) for term in atom.terms}) > 1:
            raise _refusal(f"`{atom!r}` compares integers with strings", atom)


def _source(path: str | Path) -> str:
    return f"{READERS[Path(path).suffix]}({_text(os.fspath(path))})"


def _raiser(problem: Exception) -> str:
    return "the result" if isinstance(problem, OSError) else "DuckDB"


def _written(
    queries: list[tuple[str, Values]], folder: Path, connection: DuckDBPyConnection
) -> int:
    """Write the rows of all queries to one file of a folder; their number."""
    parts = [str(folder / f"{piece}.parquet") for piece in range(len(queries))]
    for (query, values), part in zip(queries, parts, strict=True):
        connection.execute(f"COPY ({query}) TO {_text(part)} (FORMAT parquet)", values or None)
    every = f"SELECT * FROM read_parquet([{', '.join(map(_text, parts))}])"
    written = f"COPY ({every}) TO {_text(str(folder / RESULT))} (FORMAT parquet)"
    (found,) = connection.execute(written).fetchone() or (0,)
    return int(found)


def to_sql(
    rule: nodes.Rule, tables: Mapping[str, str | Path], *, piece: tuple[int, int] = (0, 1)
) -> tuple[str, Values]:
    """The query whose rows are the rule heads, and how many groundings each has; of several pieces,
    those of one. Then the values of its parameters: the constants of the rule.

    >>> from edgewise import R, V
    >>> rule = R.two(V.X, V.Z) <= (R._e(V.X, V.Y), R._e(V.Y, V.Z))
    >>> print(to_sql(rule, {"e": "e.parquet"})[0])
    SELECT v0 AS "X", v1 AS "Z", count(*) AS groundings FROM (SELECT DISTINCT a0.k0 AS v0, \
a1.k1 AS v1 FROM read_parquet('e.parquet') AS a0(k0, k1), read_parquet('e.parquet') AS a1(k0, k1) \
WHERE a0.k1 = a1.k0) GROUP BY ALL
    """
    writer = _SqlWriter(rule, tables)
    return writer.query(piece), writer.values


class _SqlWriter:
    def __init__(self, rule: nodes.Rule, tables: Mapping[str, str | Path]) -> None:
        if not isinstance(rule, nodes.Rule):
            raise _refusal(f"expected a rule, got {type(rule).__name__}", None)
        self.rule, self.tables = rule, tables
        self.places: dict[str, str] = {}  # of variables
        self.sources: list[str] = []
        self.tests: list[str] = []
        self.visible: list[str] = []
        self.values: Values = {}

    def query(self, piece: tuple[int, int]) -> str:
        body = list(atoms(self.rule.body))
        positive = [one for one in body if isinstance(one, nodes.Atom) and not one.negated]
        for number, atom in enumerate(positive):
            self._positive(atom, f"a{number}")
        for other in body:
            if other not in positive:
                self._condition(other)
        heads = [self._head(term) for term in self.rule.head.terms]
        if piece[1] > 1:
            if not heads:
                raise _refusal("a rule head without terms has no pieces", self.rule.head)
            self.tests.append(f"hash({self.places[heads[0]]}) % {piece[1]} = {piece[0]}")
        shown = list(dict.fromkeys([*heads, *self.visible]))
        # numbered, since to SQL names that differ in case alone are one
        numbered = {name: f"v{at}" for at, name in enumerate(shown)}
        inner = ", ".join(f"{self.places[n]} AS {v}" for n, v in numbered.items()) or "1 AS one"
        where = f" WHERE {' AND '.join(self.tests)}" if self.tests else ""
        names = "".join(f"{numbered[name]} AS {quoted(name)}, " for name in heads)
        source = ", ".join(self.sources)
        distinct = f"SELECT DISTINCT {inner} FROM {source}{where}"
        return f"SELECT {names}count(*) AS {COUNT} FROM ({distinct}) GROUP BY ALL"

    def _positive(self, atom: nodes.Atom, name: str) -> None:
        if atom.weight is not None:
            raise _refusal(f"`{atom!r}` has a weight", atom)
        self.sources.append(self._table(atom, name))
        for at, term in enumerate(atom.terms):
            place = f"{name}.k{at}"
            if isinstance(term, nodes.Variable) and term.name not in self.places:
                self.places[term.name] = place
            else:
                self.tests.append(f"{self._term(term, atom)} = {place}")
            if isinstance(term, nodes.Variable) and not atom.hidden:
                self.visible.append(term.name)

    def _table(self, atom: nodes.Atom, name: str) -> str:
        path = self.tables.get(atom.relation)
        if path is None:
            raise _refusal(f"there is no table for `{atom.relation}`", atom)
        if not isinstance(path, str | Path):
            kind = type(path).__name__
            raise _refusal(f"the table of `{atom.relation}` is {kind}, not a path", atom)
        if Path(path).suffix not in READERS:
            raise _refusal(f"`{path}` is neither Parquet nor CSV", atom)
        columns = ", ".join(f"k{at}" for at in range(len(atom.terms)))
        return f"{_source(path)} AS {name}({columns})"

    def _condition(self, atom: object) -> None:
        match atom:
            case nodes.Atom():
                names = [self._term(term, atom) for term in atom.terms]
                pairs = " AND ".join(f"n.k{at} = {one}" for at, one in enumerate(names)) or "TRUE"
                self.tests.append(
                    f"NOT EXISTS (SELECT 1 FROM {self._table(atom, 'n')} WHERE {pairs})"
                )
            case nodes.SpecialAtom(name=name) if name in COMPARED and len(atom.terms) == 2:
                a, b = (self._term(term, atom) for term in atom.terms)
                test = f"{a} {COMPARED[name]} {b}"
                self.tests.append(f"NOT ({test})" if atom.negated else test)
            case _:
                raise _refusal(f"`{atom!r}` has no SQL", atom)

    def _head(self, term: nodes.Term) -> str:
        if not isinstance(term, nodes.Variable):
            raise _refusal(f"the rule head has the constant {term!r}", self.rule.head)
        self._term(term, self.rule.head)
        return term.name

    def _term(self, term: nodes.Term, atom: object) -> str:
        if isinstance(term, nodes.Variable):
            if term.name not in self.places:
                raise _refusal(f"no table binds `{term.name}`", atom)
            return self.places[term.name]
        name = f"c{len(self.values)}"
        self.values[name] = int(term) if isinstance(term, int) else str(term)
        return f"${name}"


def _text(value: str) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _refusal(what: str, atom: object) -> BadJoin:
    return BadJoin(
        what,
        getattr(atom, "place", None) or caller(),
        "a join is of relations in files, with comparisons and negation; values and weights "
        "belong to the rules of the model",
    )
