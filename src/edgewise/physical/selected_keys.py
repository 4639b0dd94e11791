"""The keys that a computed selection leaves, as inputs of the model that reads them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.ground.index import STRINGS
from edgewise.ground.joins.join import over_limit
from edgewise.ground.value_runs import pairs, ranks, runs
from edgewise.inputs.kinds import ragged
from edgewise.language import nodes
from edgewise.physical.relation import Relation
from edgewise.plan.value_ranks import LATER, PairwiseComparison, RankedComparison, SplitComparison

Selected = dict[str, Tensor | ragged | list[Any]]


def chosen_keys(found: Relation, arity: int, samples: int | None) -> Tensor | ragged | list[Any]:
    """The keys of a selection that hold: one tensor, or one for each sample; atoms if strings."""
    keys, holds = found.index, (found.data != 0).cpu()
    each = [keys[:, row] for row in (holds if found.batched else holds[None])]
    return _in_samples(found, each, arity, samples)


def _in_samples(
    found: Relation, each: list[Tensor], arity: int, samples: int | None
) -> Tensor | ragged | list[Any]:
    """Keys of `arity` columns, with one more for the sample if ragged; or those of each batch."""
    if not found.batched:
        (keys,) = each
        if len(keys) == arity:
            return _named(found, keys)
        each = [keys[1:, keys[0] == k] for k in range(samples or 0)]
    if any(bool((own >= STRINGS).any()) for own in each):
        return [_atoms(found, own) for own in each]
    return ragged(each)


def samples_of(selected: Selected) -> int | None:
    """How many samples earlier selections have: of a dense batch, these alone tell."""
    for one in selected.values():
        if isinstance(one, ragged):
            return len(one.samples)
        if isinstance(one, list) and one and isinstance(one[0], list):
            return len(one)
    return None


def of_sides(
    comparison: SplitComparison, sides: list[Relation], samples: int | None, limit: int
) -> Selected:
    """What a comparison of the values of two keys leaves."""
    if isinstance(comparison, RankedComparison):
        return _by_ranks(comparison, sides, samples)
    return _by_pairs(comparison, sides, samples, limit)


@dataclass(frozen=True, eq=False)
class ValuedKeys:
    """The keys of one side of a comparison, (arity, rows), and their values, (rows, columns)."""

    keys: Tensor
    values: Tensor


def _by_pairs(
    comparison: PairwiseComparison, sides: list[Relation], samples: int | None, limit: int
) -> Selected:
    """The pairs of keys that hold, of several samples those of each."""
    each = [
        _each_sample(side, len(places), columns, samples)
        for side, places, columns in zip(
            sides, comparison.places, comparison.columns_of, strict=True
        )
    ]
    found: list[Tensor] = []
    needed = 0
    for k in range(max(map(len, each))):
        left, right = (one[k if len(one) > 1 else 0] for one in each)
        parts = [torch.zeros((len(comparison.rule.head.terms), 0), dtype=torch.int64)]
        for rows in pairs(comparison, left.values, right.values):
            keys = parts[0].new_empty((len(parts[0]), len(rows[0])))
            for side, places, at in zip((left, right), comparison.places, rows, strict=True):
                keys[list(places)] = side.keys[:, at]
            needed += keys.nbytes
            if needed > limit:
                count = needed // max(8 * len(keys), 1)
                raise over_limit(comparison.rule, count, needed, limit, "")
            parts.append(keys)
        found.append(torch.cat(parts, 1))
    name = comparison.rule.head.relation
    own: Tensor | ragged | list[Any] = ragged(found)
    if any(bool((keys >= STRINGS).any()) for keys in found):
        own = [_paired_atoms(comparison, sides, keys) for keys in found]
    if all(
        not side.batched and len(side.index) == len(places)
        for side, places in zip(sides, comparison.places, strict=True)
    ):
        (own,) = own.samples if isinstance(own, ragged) else own
    return {name: own}


def _each_sample(side: Relation, arity: int, columns: int, samples: int | None) -> list[ValuedKeys]:
    """The rows of each sample; those of all samples once."""
    values = side.data.detach().cpu()
    values = values.reshape(len(values) if side.batched else 1, len(side), columns)
    if len(side.index) == arity:
        return [ValuedKeys(side.index, own) for own in values]
    each = [side.index[0] == k for k in range(samples or 0)]
    return [ValuedKeys(side.index[1:, own], values[0, own]) for own in each]


def _paired_atoms(
    comparison: PairwiseComparison, sides: list[Relation], keys: Tensor
) -> list[nodes.Atom]:
    """Keys, of which some are strings, as atoms: each side has names of its own."""
    columns: list[list[nodes.Constant]] = [[] for _ in keys]
    for side, places in zip(sides, comparison.places, strict=True):
        for place in places:
            columns[place] = [side.constants.constant(key) for key in keys[place].tolist()]
    name = comparison.rule.head.relation
    return [nodes.Atom(name, terms) for terms in zip(*columns, strict=True)]


def _by_ranks(comparison: RankedComparison, sides: list[Relation], samples: int | None) -> Selected:
    """Keys with the runs of ranks that they meet, and keys with their rank."""
    meeting, ranked = sides
    with_runs, with_rank = (
        len(plan.outputs[0].terms) + more
        for plan, more in zip(comparison.plans, (2, 1), strict=True)
    )
    order, rank = ranks(ranked.data.detach().cpu())
    values = meeting.data.detach().cpu()
    batch = len(values) if meeting.batched else 1
    columns = values.reshape(batch, len(meeting), comparison.columns).unbind(-1)
    found = runs(comparison, columns, order)
    met = [
        torch.cat([torch.cat([meeting.index, start[None, k], end[None, k]])[:, rows[k]]
                   for rows, start, end in found], 1)
        for k in range(batch)
    ]  # fmt: skip
    own = (rank if ranked.batched else rank[None]).unbind()
    numbered = [torch.cat([ranked.index, one[None]])[:, one >= 0] for one in own]
    made = {ranked.name: _in_samples(ranked, numbered, with_rank, samples)}
    if comparison.is_outside:
        later = copy.copy(meeting)
        later.name = comparison.head.relation + LATER
        after = [keys[:, keys[-2] > 0] for keys in met]
        made[later.name] = _in_samples(later, after, with_runs, samples)
        met = [keys[:, keys[-2] == 0] for keys in met]
    return {**made, meeting.name: _in_samples(meeting, met, with_runs, samples)}


def _named(found: Relation, keys: Tensor) -> Tensor | list[Any]:
    return _atoms(found, keys) if bool((keys >= STRINGS).any()) else keys


def _atoms(found: Relation, keys: Tensor) -> list[nodes.Atom]:
    """Keys, of which some are strings, as atoms."""
    constant = found.constants.constant
    return [nodes.Atom(found.name, tuple(map(constant, key))) for key in keys.T.tolist()]


def with_facts(own_facts: Any, listed: Mapping[str, list[Any]]) -> Any:
    """Facts, with the atoms of selections: in every sample, or a list for each."""
    samples = [items for items in listed.values() if items and isinstance(items[0], list)]
    if not samples and not isinstance(own_facts, ragged):
        atoms = [atom for items in listed.values() for atom in items]
        return [*(own_facts or ()), *atoms] if listed else own_facts
    count = len(own_facts.samples) if isinstance(own_facts, ragged) else len(samples[0])
    each = own_facts.samples if isinstance(own_facts, ragged) else [own_facts or ()] * count
    made = [list(facts) for facts in each]
    for items in listed.values():
        for at, own in enumerate(made):
            own += items[at] if items in samples else items
    return ragged(made)


def key_of(item: Tensor | ragged | list[Any]) -> Any:
    """What is equal for equal selections."""
    if isinstance(item, list):
        return repr(item)
    parts = item.samples if isinstance(item, ragged) else (item,)
    return tuple((tuple(part.shape), part.numpy().tobytes()) for part in parts)
