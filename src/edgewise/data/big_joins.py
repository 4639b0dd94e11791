"""Joins whose rows are more than memory holds: from tables on disk to a file.

`model.ground` joins tables on disk as it needs them, and holds the groundings of its rules; `join`
is for those that are themselves too many.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgewise.data.disk_joins import JoinWriter, in_ranges, sources
from edgewise.data.disk_table import Scratch, parquet, write
from edgewise.data.errors import BadJoin
from edgewise.data.sql import quoted
from edgewise.data.tables_on_disk import bytes_of, on_disk
from edgewise.errors import caller
from edgewise.ground.index import STRINGS, Constants, Keys
from edgewise.ground.joins.body import Body
from edgewise.ground.joins.disk import KeysOnDisk, TableJoin, Terms, split
from edgewise.inputs.on_disk import rows_on_disk
from edgewise.language import nodes
from edgewise.language.statements import atoms
from edgewise.language.terms import variables

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

COUNT = "groundings"


def join(
    rule: nodes.Rule,
    tables: Mapping[str, str | Path | rows_on_disk],
    into: str | Path,
    *,
    memory: str = "1GB",
    duplicates: Literal["refuse", "once"] = "refuse",
) -> int:
    """Join a body over tables and write its rule heads to a Parquet file; returns their number.

    A column for each term of the rule head, then `groundings`, how many each has: conditions
    filter, they do not multiply. `on_disk(into, keys=["X", "Z"])` is the relation as an input of a
    model. Tables are files, or what `on_disk` gives, with `memory` and `duplicates` as there.

    >>> import tempfile
    >>> from edgewise import R, V
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "edge.csv").write_text("a,b\\n0,1\\n1,2\\n1,3\\n")
    >>> two_hops = R.path(V.X, V.Z) <= (R.edge(V.X, V.Y), R.edge(V.Y, V.Z))
    >>> join(two_hops, {"edge": folder / "edge.csv"}, folder / "path.parquet")
    2
    """
    path = Path(into)
    work = Scratch(bytes_of(memory), str(path.parent))
    _check_rule(rule, tables)
    for name, table in tables.items():
        if isinstance(table, str | Path) and path.exists() and path.samefile(table):
            raise BadJoin(
                f"`{into}` is the table of `{name}`, which the result would replace",
                caller(),
                "write to another file",
            )
    with ExitStack() as stack:
        held = {}
        for name, table in tables.items():
            if not isinstance(table, rows_on_disk):
                folder = path.parent
                table = on_disk(table, memory=memory, duplicates=duplicates, folder=folder)
                stack.callback(table.table.remove)
            held[name] = table
        found, constants = _split(rule, held)
        connection, spilled = stack.enter_context(work.connection("the join"))
        writer = JoinWriter(found, sources(connection))
        heads = list(dict.fromkeys(v.name for v in variables(rule.head.terms)))
        counted = _counted(found, heads, constants, connection)
        files = in_ranges(
            lambda lead: counted(writer.rows(lead)),
            found,
            work,
            connection,
            spilled,
            writer.values,
        )
        merged = files[0][0]
        if len(files) > 1:
            names = ", ".join(map(quoted, [*heads, COUNT]))
            every = " UNION ALL ".join(f"SELECT {names} FROM {parquet(one)}" for one, _ in files)
            merged = spilled / "all.parquet"
            write(connection, every, merged)
        os.replace(merged, path)
        return sum(count for _, count in files)


def _counted(
    join: TableJoin, heads: list[str], constants: Constants, connection: DuckDBPyConnection
) -> Callable[[str], str]:
    """From the query of groundings to that of rule heads, with names for codes."""
    codes = [f"v{join.needed.index(name)}" for name in heads]
    strings = {name for name in heads if _is_text(name, join)}
    if strings:
        connection.execute(
            f"CREATE TEMP TABLE words AS SELECT unnest($words) AS word, unnest(range({STRINGS}, "
            f"{STRINGS + len(constants.strings)})) AS code",
            {"words": constants.strings},
        )
    shown, joins = "", ""
    for name, code in zip(heads, codes, strict=True):
        joins += f" JOIN words AS w{code} ON w{code}.code = t.{code}" if name in strings else ""
        shown += f"{f'w{code}.word' if name in strings else f't.{code}'} AS {quoted(name)}, "
    one_each = set(heads) == set(join.needed)

    def query(rows: str) -> str:
        some = f"SELECT {', '.join(codes)}, {'1' if one_each else 'count(*)'}::BIGINT AS n"
        grouped = f"{some} FROM ({rows}){'' if one_each else ' GROUP BY ALL'}"
        return f"SELECT {shown}t.n AS {COUNT} FROM ({grouped}) AS t{joins}"

    return query


def _is_text(name: str, join: TableJoin) -> bool:
    """Whether the keys of a variable are strings."""
    for terms, index in join.atoms.values():
        for term, (low, _) in zip(
            terms, index.ends if isinstance(index, Keys) else (), strict=False
        ):
            if isinstance(term, nodes.Variable) and term.name == name:
                return low >= STRINGS
    return False


def _check_rule(rule: nodes.Rule, tables: Mapping[str, object]) -> None:
    if not isinstance(rule, nodes.Rule):
        raise _refusal(f"expected a rule, got {type(rule).__name__}", None)
    body = [atom for atom in atoms(rule.body) if isinstance(atom, nodes.Atom)]
    for atom in body:
        table = tables.get(atom.relation)
        if table is None:
            raise _refusal(f"there is no table for `{atom.relation}`", atom)
        if not isinstance(table, str | Path | rows_on_disk):
            kind = type(table).__name__
            raise _refusal(f"the table of `{atom.relation}` is {kind}, not a path", atom)
        if atom.weight is not None:
            raise _refusal(f"`{atom!r}` has a weight", atom)
    bound = {term for atom in body if not atom.negated for term in atom.terms}
    for term in rule.head.terms:
        if not isinstance(term, nodes.Variable):
            raise _refusal(f"the rule head has the constant {term!r}", rule.head)
        if term not in bound:
            raise _refusal(f"no table binds `{term.name}`", rule.head)
    if not rule.head.terms:
        raise _refusal("the rule head has no terms", rule.head)


def _split(rule: nodes.Rule, tables: Mapping[str, rows_on_disk]) -> tuple[TableJoin, Constants]:
    """The body as a join of tables in which strings are numbered together."""
    body = Body(rule, {})
    terms = chain.from_iterable(a.terms for a in atoms(rule.body))
    constants = Constants([*terms, *chain.from_iterable(t.strings for t in tables.values())])  # type: ignore[list-item]
    numbered = {name: table.renumbered(constants).index for name, table in tables.items()}
    indices: dict[int, KeysOnDisk] = {}
    for at, atom in enumerate(body.literals):
        if isinstance(atom, nodes.Atom):
            index = indices[at] = numbered[atom.relation]
            if index.arity != len(atom.terms):
                what = f"`{atom.relation}` has {index.arity} columns, `{atom!r}` "
                raise _refusal(f"{what}{len(atom.terms)} terms", atom)
    _check_kinds(body, indices)
    coded: dict[int, Terms] = {
        at: tuple(t if isinstance(t, nodes.Variable) else constants.code(t) for t in literal.terms)
        for at, literal in enumerate(body.literals)
        if isinstance(literal, nodes.Atom | nodes.SpecialAtom)
    }
    found, rest = split(body, indices, coded)
    if rest:
        raise _refusal(f"`{body.literals[rest[0]]!r}` has no SQL", body.literals[rest[0]])
    return TableJoin(found.atoms, found.negated, found.tests, found.needed, ()), constants


def _check_kinds(body: Body, indices: Mapping[int, KeysOnDisk]) -> None:
    """Refuse what is an integer in one place and a string in another: it has no values."""
    known: dict[nodes.Term, tuple[str, object]] = {}  # of terms, with the first atom that says it
    for at, literal in enumerate(body.literals):
        if isinstance(literal, nodes.Weight):
            continue
        ends = indices[at].ends if at in indices else []
        kinds = ["strings" if low >= STRINGS else "integers" for low, _ in ends]
        for term, kind in zip(literal.terms, kinds, strict=False):
            own = "strings" if isinstance(term, str) else "integers"
            first = known.setdefault(
                term, (kind if isinstance(term, nodes.Variable) else own, literal)
            )
            if first[0] != kind:
                seen = f" in `{first[1]!r}`" if isinstance(term, nodes.Variable) else ""
                what = f"`{term!r}` is one of {kind} in `{literal!r}`, of {first[0]}{seen}"
                raise _refusal(what, literal)


def _refusal(what: str, atom: object) -> BadJoin:
    return BadJoin(
        what,
        getattr(atom, "place", None) or caller(),
        "a join is of relations in files, with comparisons and negation; values and weights "
        "belong to the rules of the model",
    )
