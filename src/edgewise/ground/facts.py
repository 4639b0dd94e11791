"""Facts given as data, read once: relation by relation, as columns of keys and values.

What is plainly right is seen on whole columns; anything else is checked fact by fact, for the sake
of the error that says which one is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.checks import refuse
from edgewise.checks.facts import data_atoms, listed, plain_atom
from edgewise.ground.constants import STRINGS, Constants
from edgewise.ground.index import pack
from edgewise.ground.inputs import fact_rows, ragged
from edgewise.language import nodes
from edgewise.language.program import Program

Samples = list[tuple[nodes.Atom, ...]]


@dataclass(frozen=True, eq=False)
class Table:
    """The facts of one relation.

    `order` puts them into key order, in which `keys` (rows, arity) are, with the sample's number
    first in a batch. `values` are plain numbers, if there are any.
    """

    atoms: list[nodes.Atom]
    samples: list[int]
    keys: Tensor
    order: Tensor
    values: Tensor | None

    def stored(self, dtype: torch.dtype) -> list[Tensor] | Tensor:
        """The values in key order: one tensor, or one for each fact where they are tensors."""
        if self.values is not None:
            return self.values.to(dtype)[self.order]
        if all(atom.weight is None for atom in self.atoms):
            return torch.ones(len(self.atoms), dtype=dtype)
        (name,) = {atom.relation for atom in self.atoms}
        return fact_rows([self.atoms[i] for i in self.order.tolist()], dtype)[name][1]


@dataclass(frozen=True, eq=False)
class Facts:
    """Facts by relation; `samples` is the size of a batch."""

    tables: dict[str, Table]
    constants: Constants
    samples: int | None = None


@dataclass
class _Listed:
    """The facts of one relation as they come, then by columns."""

    atoms: list[nodes.Atom]
    samples: list[int]
    columns: list[tuple[Any, ...]] | None = None  # None: look at each
    values: Tensor | None = None


def read_facts(
    given: Iterable[Any] | ragged,
    program: Program,
    strings: Iterable[str],
    check: Callable[[tuple[nodes.Atom, ...]], None],
) -> Facts:
    """Read and check facts; `strings` are those of the rules, `check` refuses unfit facts."""
    batched = isinstance(given, ragged)
    samples = [list(listed(s)) for s in (given.samples if isinstance(given, ragged) else [given])]
    found = _by_relation(samples)
    words = set(strings)
    for part in found.values():
        _lay_out(part, words)
    constants = Constants(words)
    tables = {name: _table(part, constants, batched) for name, part in found.items()}
    good = {name: table for name, table in tables.items() if table is not None}
    if len(good) == len(tables):
        one_of_each = tuple(table.atoms[0] for table in good.values())
        if one_of_each:
            refuse(program, [one_of_each])
        check(one_of_each)
        return Facts(good, constants, len(samples) if batched else None)
    read: Samples = [data_atoms(sample) for sample in samples]
    refuse(program, read)
    for sample in read:
        check(sample)
    constants = Constants(term for part in found.values() for term in _terms(part, words))
    slow = {name: _slow_table(part, constants, batched) for name, part in found.items()}
    return Facts(slow, constants, len(samples) if batched else None)


def _by_relation(samples: Sequence[list[Any]]) -> dict[str, _Listed]:
    found: dict[str, _Listed] = {}
    for number, sample in enumerate(samples):
        for item in sample:
            atom = item if type(item) is nodes.Atom and not item.negated else plain_atom(item)
            part = found.get(atom.relation)
            if part is None:
                part = found[atom.relation] = _Listed([], [])
            part.atoms.append(atom)
            part.samples.append(number)
    return found


def _lay_out(part: _Listed, words: set[str]) -> None:
    """Columns of keys and plain values, and the words among them; no columns if not plain."""
    terms = [atom.terms for atom in part.atoms]
    if len(set(map(len, terms))) > 1:
        return
    columns = list(zip(*terms, strict=True))
    for column in columns:
        kinds = set(map(type, column))
        if not kinds <= {int, str}:
            return
        if str in kinds:
            words.update(column if len(kinds) == 1 else (t for t in column if type(t) is str))
    weights = [atom.weight for atom in part.atoms]
    if any(weight is not None for weight in weights):
        values = [None if weight is None or weight.keys else weight.value for weight in weights]
        if not set(map(type, values)) <= {float} and not set(map(type, values)) <= {tuple}:
            return
        try:
            part.values = torch.tensor(values, dtype=torch.float64)
        except (ValueError, TypeError):  # of different shapes
            return
        if bool(part.values.isnan().any()):
            return
    part.columns = columns


def _table(part: _Listed, constants: Constants, batched: bool) -> Table | None:
    """The facts in key order; None if something is wrong, or not plain."""
    if part.columns is None:
        return None
    codes = [_codes(column, constants) for column in part.columns]
    rows = len(part.atoms)
    if any(code is None for code in codes):
        return None
    first = [torch.tensor(part.samples)] if batched else []
    table = [*first, *(code for code in codes if code is not None)]
    if not table:
        return _made(part, torch.zeros(rows, 0).long(), torch.arange(rows)) if rows == 1 else None
    ordered, order = pack(table)[0].sort(stable=True)
    if bool((ordered[1:] == ordered[:-1]).any()):
        return None  # a fact is stated twice
    return _made(part, torch.stack(table, 1)[order], order)


def _made(part: _Listed, keys: Tensor, order: Tensor) -> Table:
    return Table(part.atoms, part.samples, keys, order, part.values)


def _codes(column: tuple[Any, ...], constants: Constants) -> Tensor | None:
    kinds = set(map(type, column))
    ranks = constants.ranks
    if kinds == {str}:
        found = np.fromiter(map(ranks.__getitem__, column), np.int64, len(column)) + STRINGS
        return torch.from_numpy(found)
    try:
        if kinds == {int}:
            numbers = torch.from_numpy(np.fromiter(column, np.int64, len(column)))
            return numbers if bool((numbers.abs() < STRINGS).all()) else None
        return torch.tensor([constants.code(term) for term in column], dtype=torch.int64)
    except (OverflowError, KeyError):
        return None


def _terms(part: _Listed, words: set[str]) -> Iterator[nodes.Constant]:
    yield from words
    for atom in part.atoms:
        yield from atom.terms  # type: ignore[misc]


def _slow_table(part: _Listed, constants: Constants, batched: bool) -> Table:
    """Facts that were looked at one by one, whatever their values."""
    terms: list[Any] = [atom.terms for atom in part.atoms]
    keys = constants.keys(terms, len(terms[0]))
    if batched:
        keys = torch.cat([torch.tensor(part.samples).unsqueeze(1), keys], 1)
    order = torch.arange(len(keys))
    if keys.shape[1]:
        order = pack(list(keys.unbind(1)))[0].argsort(stable=True)
    return _made(part, keys[order], order)
