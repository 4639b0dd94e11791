"""Facts as data, read once: relation by relation, as columns of keys and values.

Regular facts are read column by column; anything else is checked fact by fact, so that the error
names the fact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.checks import refuse
from edgewise.checks.atoms import data_atoms, listed, plain_atom
from edgewise.ground.index import STRINGS, Constants, pack
from edgewise.inputs.key_columns import recoded
from edgewise.inputs.kinds import ragged
from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.layouts.ragged import Ints, pointer, ranges
from edgewise.weights import exact


@dataclass(frozen=True, eq=False)
class FactTable:
    """The facts of one relation, in key order.

    `keys` are (rows, arity), with the sample's number first in a batch; `places` say where the
    facts stand in `source`. `values` are plain numbers, if there are any.
    """

    relation: str
    keys: Tensor
    places: Tensor
    source: Sequence[nodes.Atom]
    values: Tensor | None = None

    @cached_property
    def atoms(self) -> list[nodes.Atom]:
        return [self.source[place] for place in self.places.tolist()]

    @property
    def in_samples(self) -> bool:
        return self.keys.shape[1] > len(self.source[int(self.places[0])].terms)

    def stored(self, dtype: torch.dtype) -> list[Tensor] | Tensor:
        """The values: one tensor, or one for each fact where they are tensors."""
        if self.values is not None:
            return self.values.to(dtype)
        return fact_rows(self.atoms, dtype)[self.relation][1]

    def of_samples(self, numbers: Ints, samples: int) -> FactTable | None:
        """The facts of some samples, numbered in their order; None where they have none."""
        counts = np.bincount(self.keys[:, 0].numpy(), minlength=samples)
        chosen = counts[numbers]
        rows = torch.from_numpy(ranges(pointer(counts)[:-1][numbers], chosen))
        if not len(rows):
            return None
        keys = self.keys[rows]
        keys[:, 0] = torch.from_numpy(np.repeat(np.arange(len(numbers)), chosen))
        values = None if self.values is None else self.values[rows]
        return replace(self, keys=keys, places=self.places[rows], values=values)

    @property
    def leaves(self) -> list[Tensor]:
        """The tensors of the caller among the values."""
        return [] if self.values is not None else held_tensors(self.atoms)


@dataclass(frozen=True, eq=False)
class FactTables:
    """Facts by relation; `samples` is the size of a batch."""

    tables: dict[str, FactTable]
    constants: Constants
    samples: int | None = None

    def of_samples(self, numbers: Ints) -> FactTables:
        """The facts of some samples of a batch, in this order; of one for all, all of them."""
        if self.samples is None:
            return self
        found = {n: table.of_samples(numbers, self.samples) for n, table in self.tables.items()}
        tables = {name: table for name, table in found.items() if table is not None}
        return FactTables(tables, self.constants, len(numbers))

    def renumbered(self, constants: Constants) -> FactTables:
        """The same by the numbers that strings have among more; their order stays."""
        own, ranks = self.constants.strings, constants.ranks
        tables = {
            name: replace(table, keys=recoded(table.keys, own, ranks))
            for name, table in self.tables.items()
        }
        return FactTables(tables, constants, self.samples)


class _Irregular(Exception):
    """Internal: a fact is wrong, or its value is a tensor, and facts are read one by one."""


def read_facts(
    facts: Iterable[Any] | ragged,
    program: Program,
    strings: Iterable[str],
    check: Callable[[tuple[nodes.Atom, ...]], None],
) -> FactTables:
    """Read and check facts; `strings` are those of the rules, `check` refuses unfit facts."""
    batch = facts.samples if isinstance(facts, ragged) else None
    samples = [list(listed(sample)) for sample in ([facts] if batch is None else batch)]
    flat = list(chain.from_iterable(samples))
    if not set(map(type, flat)) <= {nodes.Atom} or True in {atom.negated for atom in flat}:
        flat = [plain_atom(item) for item in flat]
    numbers = np.repeat(np.arange(len(samples)), [len(sample) for sample in samples])
    size, words = None if batch is None else len(samples), set(strings)
    try:
        tables, constants = _by_columns(flat, None if batch is None else numbers, words)
    except _Irregular:
        read = [data_atoms(sample) for sample in samples]
        refuse(program, read)
        for sample in read:
            check(sample)
        return _one_by_one(flat, numbers, words, size)
    one_of_each = tuple(flat[int(table.places[0])] for table in tables.values())
    if one_of_each:
        refuse(program, [one_of_each])
    check(one_of_each)
    return FactTables(tables, constants, size)


def _by_columns(
    flat: list[nodes.Atom], samples: np.ndarray | None, words: set[str]
) -> tuple[dict[str, FactTable], Constants]:
    """The tables of plain facts; relations of one arity are sorted together."""
    names = [atom.relation for atom in flat]
    terms = [atom.terms for atom in flat]
    number = {name: n for n, name in enumerate(dict.fromkeys(names))}
    ids = _integers(map(number.__getitem__, names), len(flat))
    lengths = _integers(map(len, terms), len(flat))
    arities = np.zeros(len(number), np.int64)
    arities[ids] = lengths
    if not np.array_equal(arities[ids], lengths):
        raise _Irregular
    alike = [np.flatnonzero(lengths == arity) for arity in sorted(set(arities.tolist()))]
    columns = [_columns(terms, places, words) for places in alike]
    constants = Constants(words)
    weights = [atom.weight for atom in flat]
    valued = set(map(type, weights)) != {type(None)}
    made: dict[int, FactTable] = {}
    for places, keys in zip(alike, columns, strict=True):
        first = [ids[places]] if samples is None else [ids[places], samples[places]]
        coded = first + [_codes(column, constants) for column in keys]
        for relation, own, at in _sorted([torch.from_numpy(c) for c in coded], places):
            values = _values([weights[p] for p in at.tolist()] if valued else [None] * len(at))
            made[relation] = FactTable(names[int(at[0])], own, at, flat, values)
    return {name: made[n] for name, n in number.items()}, constants


def _integers(items: Iterable[int], count: int) -> np.ndarray:
    return np.fromiter(items, np.int64, count)


def _columns(terms: list[Any], places: np.ndarray, words: set[str]) -> list[list[Any]]:
    """The keys at some places column by column; strings among them are added to `words`."""
    some = terms if len(places) == len(terms) else [terms[place] for place in places.tolist()]
    columns = [[key[position] for key in some] for position in range(len(some[0]))]
    for column in columns:
        kinds = set(map(type, column))
        if not kinds <= {int, str}:
            raise _Irregular
        if str in kinds:
            words.update(column if len(kinds) == 1 else [k for k in column if type(k) is str])
    return columns


def _codes(column: list[Any], constants: Constants) -> np.ndarray:
    """Keys as integers, strings by rank."""
    kinds, ranks = set(map(type, column)), constants.ranks
    if kinds == {str}:
        return _integers(map(ranks.__getitem__, column), len(column)) + STRINGS
    integers = column if kinds == {int} else [0 if type(k) is str else k for k in column]
    try:
        found = _integers(integers, len(integers))
    except OverflowError:
        raise _Irregular from None
    if bool((np.abs(found) >= STRINGS).any()):
        raise _Irregular
    if kinds == {int}:
        return found
    return _integers((STRINGS + ranks[k] if type(k) is str else k for k in column), len(column))


def _sorted(table: list[Tensor], places: np.ndarray) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The relations of a table: each with its keys in order, and the places of its facts."""
    ordered, order = pack(table)[0].sort(stable=True)
    if bool((ordered[1:] == ordered[:-1]).any()):
        raise _Irregular  # one is stated twice
    relations, counts = torch.unique_consecutive(table[0][order], return_counts=True)
    keys = torch.stack(table, 1)[order][:, 1:]
    at = torch.from_numpy(places)[order]
    parts = counts.tolist()
    yield from zip(relations.tolist(), keys.split(parts), at.split(parts), strict=True)


def _values(weights: list[nodes.Weight | None]) -> Tensor:
    """The values of facts that are numbers, all of one shape; 1 where there is none."""
    kinds = set(map(type, weights))
    if kinds == {type(None)}:
        return torch.ones(len(weights))
    if type(None) in kinds or any(weight.keys for weight in weights if weight is not None):
        raise _Irregular
    values = [weight.value for weight in weights if weight is not None]
    held = set(map(type, values))
    if held != {float} and held != {tuple}:
        raise _Irregular
    try:
        found = torch.tensor(values, dtype=torch.float64)
    except (ValueError, TypeError):  # of different shapes
        raise _Irregular from None
    if bool(found.isnan().any()):
        raise _Irregular
    return found


def _one_by_one(
    flat: list[nodes.Atom], numbers: np.ndarray, words: set[str], size: int | None
) -> FactTables:
    """Facts that were looked at one by one, whatever their values."""
    constants = Constants(chain(words, *(atom.terms for atom in flat)))  # type: ignore[arg-type]
    places: dict[str, list[int]] = {}
    for place, atom in enumerate(flat):
        places.setdefault(atom.relation, []).append(place)
    made = {}
    for name, at in places.items():
        terms: list[Any] = [flat[place].terms for place in at]
        keys, where = constants.keys(terms, len(terms[0])), torch.tensor(at)
        if size is not None:
            keys = torch.cat([torch.from_numpy(numbers)[where].unsqueeze(1), keys], 1)
        order = torch.arange(len(keys))
        if keys.shape[1]:
            order = pack(list(keys.unbind(1)))[0].argsort(stable=True)
        made[name] = FactTable(name, keys[order], where[order], flat)
    return FactTables(made, constants, size)


def fact_rows(
    atoms: Iterable[nodes.Atom], dtype: torch.dtype
) -> dict[str, tuple[list[tuple[nodes.Constant, ...]], list[Any]]]:
    """Facts gathered by relation: keys and values."""
    found: dict[str, tuple[list[Any], list[Any]]] = {}
    one = torch.ones((), dtype=dtype)
    for atom in atoms:
        keys, values = found.setdefault(atom.relation, ([], []))
        keys.append(atom.terms)
        values.append(one if atom.weight is None else _value(atom.weight, dtype))
    return found


def held_tensors(atoms: Iterable[nodes.Atom]) -> list[Tensor]:
    """The tensors that are values of facts."""
    values = (atom.weight.value for atom in atoms if atom.weight is not None)
    things = (value.thing for value in values if isinstance(value, nodes.Opaque))
    return [thing for thing in things if isinstance(thing, Tensor)]


def _value(weight: nodes.Weight, dtype: torch.dtype) -> Tensor:
    value = weight.value
    thing = value.thing if isinstance(value, nodes.Opaque) else value
    return exact(thing, dtype)
