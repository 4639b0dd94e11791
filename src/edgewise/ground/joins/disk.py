"""Keys that stay in a table on disk, and the part of a body that is joined there.

Of a body, the atoms of such tables are joined outside of memory, with those that share variables
with them and the conditions on both; what is left is joined to the result in memory, some rows at a
time. `TableJoin` says what to join; how is up to the tables (`data/disk_joins.py`: as SQL).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from torch import Tensor

from edgewise.ground.index import STRINGS, Grid, Index, Keys
from edgewise.ground.joins.body import Body, is_read
from edgewise.ground.joins.join import Bindings
from edgewise.language import nodes
from edgewise.language.term_expressions import Tree

COMPARED = ("leq", "lt", "geq", "gt", "eq", "neq", "in", "alldiff")
Terms = tuple[nodes.Term | int, ...]


class DiskRows(Protocol):
    """The rows of a join, on disk."""

    @property
    def count(self) -> int: ...

    def all(self) -> Bindings: ...

    def chunks(self) -> Iterator[Bindings]: ...


class DiskTable(Protocol):
    """A table on disk: distinct keys in order, as codes."""

    @property
    def rows(self) -> int: ...

    @property
    def ends(self) -> list[tuple[int, int]]:
        """The least and the largest key of each column; empty without rows."""

    @property
    def arity(self) -> int: ...

    def read(self) -> Tensor:
        """The keys (rows, arity); refused where they are more than the table may take."""

    def joined(self, join: TableJoin) -> AbstractContextManager[DiskRows]:
        """The rows of a join, while the context is open."""


class KeysOnDisk(Keys):
    """The keys of a table on disk; `keys` reads them, everything else is known without."""

    table: DiskTable

    def __init__(self, table: DiskTable) -> None:
        object.__setattr__(self, "table", table)

    @cached_property
    def keys(self) -> Tensor:
        return self.table.read()

    @property
    def arity(self) -> int:
        return self.table.arity

    @property
    def rows(self) -> int:
        return self.table.rows

    @property
    def ends(self) -> list[tuple[int, int]]:
        return self.table.ends


@dataclass(frozen=True)
class TableJoin:
    """A part of a body: its atoms, conditions on their variables, and what is asked for.

    `needed` are variables, first those that groundings are sorted by; `read` the atoms of tables
    on disk whose rows are asked for too.
    """

    atoms: Mapping[int, tuple[Terms, Index]]
    negated: Mapping[int, tuple[Terms, Index]]
    tests: tuple[tuple[nodes.SpecialAtom, Terms], ...]
    needed: tuple[str, ...]
    read: tuple[int, ...]

    @property
    def table(self) -> DiskTable | None:
        """One of the tables on disk; None if only literals that are left read some."""
        every = (index for _, index in (*self.atoms.values(), *self.negated.values()))
        return next((index.table for index in every if isinstance(index, KeysOnDisk)), None)


def split(
    body: Body, indices: Mapping[int, Index], terms: Mapping[int, Terms]
) -> tuple[TableJoin, list[int]]:
    """The part of a body that is joined on disk, and its other literals.

    `indices` and `terms` are of all atoms, those that are negated too, and `terms` of predicates.
    """
    atoms = _linked(body, indices)
    known = {name for at in atoms for name in body.names[at]}
    negated, tests, rest = [], [], []
    for at, literal in enumerate(body.literals):
        if at in atoms:
            continue
        bound = set(body.names[at]) <= known
        if bound and isinstance(literal, nodes.Atom) and at not in body.positive:
            negated.append(at)
        elif bound and isinstance(literal, nodes.SpecialAtom) and has_sql(literal):
            tests.append((literal, terms[at]))
        elif bound and isinstance(indices.get(at), Grid) and at in body.positive:
            atoms.append(at)
        else:
            rest.append(at)
    wanted = {name for at in rest for name in body.names[at]} & known
    needed = [name for name in body.visible if name in known]
    needed += sorted(wanted - set(needed))
    read = [at for at in atoms if is_read(body.literals[at])]
    join = TableJoin(
        {at: (terms[at], indices[at]) for at in atoms},
        {at: (terms[at], indices[at]) for at in negated},
        tuple(tests),
        tuple(needed),
        tuple(at for at in read if isinstance(indices[at], KeysOnDisk)),
    )
    return join, rest


def _linked(body: Body, indices: Mapping[int, Index]) -> list[int]:
    """The positive atoms of tables on disk, and explicit keys that share variables with them."""
    listed = [at for at in body.positive if isinstance(indices[at], Keys)]
    found = [at for at in listed if isinstance(indices[at], KeysOnDisk)]
    if not found:  # tables that are negated alone: what binds their variables
        negated = {
            name
            for at, index in indices.items()
            if isinstance(index, KeysOnDisk)
            for name in body.names[at]
        }
        found = [at for at in listed if negated & set(body.names[at])]
    count = -1
    while count != len(found):
        count, known = len(found), {name for at in found for name in body.names[at]}
        found += [at for at in listed if at not in found and known & set(body.names[at])]
    return sorted(found)


def has_sql(literal: nodes.SpecialAtom) -> bool:
    """Whether a predicate is a comparison that reads as one in SQL."""
    if literal.carries_value or literal.function is not None:
        return False
    formula = literal.formula
    if formula is None:
        return literal.name in COMPARED
    return _is_plain(formula.left) and _is_plain(formula.right)


def _is_plain(tree: Tree) -> bool:
    """Arithmetic that rounds nothing, on numbers that 64 bits hold."""
    if isinstance(tree, int):
        return abs(tree) < STRINGS
    name, *operands = tree
    return name == "term" or (name in ("+", "-", "abs") and all(map(_is_plain, operands)))
