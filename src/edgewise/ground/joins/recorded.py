"""Joins that are kept: the groundings of bodies, by what the bodies say and the keys they read.

What is looked up is named by its contents, so a record is only ever used for the same join.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from edgewise.ground.index import Constants, Grid, Index, Keys
from edgewise.ground.joins.body import SAMPLES, Body
from edgewise.ground.joins.join import Bindings
from edgewise.language import nodes

if TYPE_CHECKING:
    from edgewise.ground.grounder import Grounder


@dataclass(eq=False)
class RecordedJoins:
    """Joins and least fixpoints of earlier groundings; new ones are added."""

    joins: dict[str, Bindings] = field(default_factory=dict)
    fixpoints: dict[str, dict[str, Index]] = field(default_factory=dict)
    added: int = 0
    _digests: dict[int, tuple[object, str]] = field(default_factory=dict)

    def bindings(self, grounder: Grounder, body: Body, joined: Callable[[], Bindings]) -> Bindings:
        """The groundings of a body."""
        name = self._name(grounder, [body.keys, body.visible], self._read(grounder, body))
        found = self.joins.get(name)
        if found is None or not fits(found, body, grounder):
            found = self.joins[name] = joined()
            self.added += 1
        return widened(found)

    def fixpoint(
        self,
        grounder: Grounder,
        bodies: Iterable[Body],
        part: set[str],
        derived: Callable[[], None],
    ) -> None:
        """Extend the relations that need one another by their least fixpoint."""
        about: list[object] = [sorted(part)]
        read: list[Index] = []
        for body in bodies:
            head = body.rule.head
            names = [one.relation for one in body.literals if isinstance(one, nodes.Atom)]
            about += [head.relation, repr(head.terms), body.keys, names]
            read += self._read(grounder, body)
        known = [grounder.relations[one] for one in sorted(part) if one in grounder.relations]
        name = self._name(grounder, [*about, len(known)], [*read, *known])
        found = self.fixpoints.get(name)
        if found is None:
            derived()
            heads = part | {body.rule.head.relation for body in bodies}
            relations = grounder.relations
            found = {one: relations[one] for one in sorted(heads) if one in relations}
            self.fixpoints[name] = found
            self.added += 1
        grounder.relations.update(found)

    @staticmethod
    def _read(grounder: Grounder, body: Body) -> list[Index]:
        found = [a for a in body.literals if isinstance(a, nodes.Atom)]
        return [grounder.index(atom.relation, len(atom.terms)) for atom in found]

    def _name(self, grounder: Grounder, about: list[object], read: Iterable[Index]) -> str:
        samples = grounder.relations.get(SAMPLES)
        count = None if samples is None else samples.rows
        parts = [count, self._digest(grounder.constants), *map(self._digest, read)]
        return hashlib.sha256(repr((about, parts)).encode()).hexdigest()

    def _digest(self, thing: Index | Constants) -> str:
        if isinstance(thing, Grid):
            return repr(thing.sizes)
        if id(thing) not in self._digests:
            if isinstance(thing, Keys):
                found = f"{tuple(thing.keys.shape)} {digest(thing.keys)}"
            else:
                found = hashlib.sha256(repr(thing.strings).encode()).hexdigest()
            self._digests[id(thing)] = thing, found  # which keeps the thing, and its id
        return self._digests[id(thing)][1]


def digest(tensor: Tensor) -> str:
    """The hash of the numbers of a tensor.

    >>> digest(torch.tensor([1, 2])) == digest(torch.tensor([[1], [2]]))
    True
    >>> digest(torch.ones(4, 2)[:1, 0]) == digest(torch.ones(1))
    True
    """
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    flat = flat.as_strided(flat.shape, (1,))  # of one number it may be any
    return hashlib.sha256(flat.view(torch.uint8).numpy().data).hexdigest()


def fits(found: Bindings, body: Body, grounder: Grounder) -> bool:
    """Whether groundings assign what a body needs, with rows and keys that there are."""
    if not set(body.visible) <= found.columns.keys():
        return False
    for at, atom in body.positive.items():
        index = grounder.index(atom.relation, len(atom.terms))
        if at in found.rows and not _below(found.rows[at], index.rows):
            return False
        for place, term in enumerate(atom.terms):
            column = found.columns.get(term.name) if isinstance(term, nodes.Variable) else None
            sizes = index.sizes if isinstance(index, Grid) else None
            if column is not None and sizes is not None and not _below(column, sizes[place]):
                return False
    return all(
        _below(found.rows[at], grounder.domain(literal).rows)
        for at, literal in enumerate(body.literals)
        if isinstance(literal, nodes.Weight) and at in found.rows
    )


def _below(column: Tensor, size: int) -> bool:
    if not column.numel():
        return True
    low, high = column.aminmax()
    return int(low) >= 0 and int(high) < size


def narrowed(column: Tensor) -> Tensor:
    """Integers in half the bytes, where they fit.

    >>> narrowed(torch.tensor([3])).dtype, narrowed(torch.tensor([1 << 40])).dtype
    (torch.int32, torch.int64)
    """
    return column.to(torch.int32) if _below(column, 1 << 31) else column


def widened(found: Bindings) -> Bindings:
    columns = {name: column.to(torch.int64) for name, column in found.columns.items()}
    return Bindings(found.count, columns, {at: r.to(torch.int64) for at, r in found.rows.items()})
