"""A plan bound to its inputs: a source for each data relation, batches and facts checked.

A batch is one more key: rules over ragged samples get a variable for the sample.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.ground.embeddings import Stacks, stacked
from edgewise.ground.index import Constants, Grid, pack
from edgewise.ground.joins.body import SAMPLES
from edgewise.ground.source import Source, refuse_mixed
from edgewise.inputs.batched_rules import batched_plan, batched_relations
from edgewise.inputs.errors import BadInput
from edgewise.inputs.facts import FactTable, FactTables, fact_rows, held_tensors
from edgewise.inputs.kinds import Input, ragged, rows
from edgewise.inputs.on_disk import rows_on_disk
from edgewise.inputs.sources import (
    dense_source,
    fact_source,
    in_every_sample,
    in_samples,
    ragged_source,
    rows_source,
)
from edgewise.language import nodes
from edgewise.language.statements import atoms, remembered, weights
from edgewise.plan.nodes import Attention, Plan, Step
from edgewise.weights import declared_shape


@dataclass(frozen=True, eq=False)
class BoundPlan:
    """A plan for these inputs, with a source for each data relation."""

    plan: Plan
    sources: dict[str, Source]
    constants: Constants
    dense: frozenset[str]
    samples: int | None
    in_batch: frozenset[str] = frozenset()  # relations whose first key is the sample
    stacks: Stacks = field(default_factory=dict)

    def stacked(self, inputs: Iterable[str], weights: Mapping[str, Tensor]) -> BoundPlan:
        """The same with one rule for those that differ in a relation of facts and its weight."""
        derived = {rule.head.relation for rule in self.plan.rules}
        facts = {n: s for n, s in self.sources.items() if n not in derived.union(inputs)}
        shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
        plan, more, stacks = stacked(self.plan, facts, shapes)
        return replace(self, plan=plan, sources=self.sources | more, stacks=stacks)


def prepare(
    plan: Plan,
    arities: Mapping[str, int],
    inputs: Mapping[str, Input],
    facts: FactTables | None,
    dtype: torch.dtype,
    fuse: bool = True,
) -> BoundPlan:
    """`fuse` is off where every sample of a ragged batch needs its own rows, rule by rule."""
    samples = count_samples(inputs, facts)
    plan = _fused_beside(plan, {*inputs, *(facts.tables if facts is not None else ())})
    constants, inputs, facts = with_one_vocabulary(plan, inputs, facts)
    sources = {n: _source(n, t, arities[n], value_lengths(plan, n)) for n, t in inputs.items()}
    check_batches(sources, samples)
    in_batch: set[str] = set()
    if samples is not None:
        # a dense batch beside ragged samples has the sample as one more axis
        sources = {n: in_samples(s) if s.batched else s for n, s in sources.items()}
        own = {n for n, t in inputs.items() if isinstance(t, ragged)}
        own |= {n for n, s in sources.items() if s.index.arity > arities[n]}
        own |= set(facts.tables) if facts is not None and facts.samples is not None else set()
        # the keys of the output begin with the sample, whatever data reaches it
        derived = {rule.head.relation for rule in plan.rules}
        in_batch = batched_relations(plan.rules, own | (derived & plan.wanted))
        for name in sources.keys() & in_batch - own:
            sources[name] = in_every_sample(sources[name], samples)
        plan = batched_plan(plan if fuse else replace(plan, steps=plan.rules), in_batch)
    tables = {} if facts is None else facts.tables
    sources |= _fact_sources(plan, tables, in_batch, samples, constants, dtype, sources)
    if samples is not None:
        sources[SAMPLES] = Source(Grid((samples,)), stored=torch.ones(samples), dense=True)
    dense = frozenset(name for name, source in sources.items() if source.dense)
    return BoundPlan(plan, sources, constants, dense, samples, frozenset(in_batch))


def _fused_beside(plan: Plan, named: set[str]) -> Plan:
    """The plan without the fused steps inside which a relation is that has data of its own; a mask
    that reads the rules of such a relation reads its facts too."""
    steps: list[Step] = []
    unfused = list(plan.unfused)
    for step in plan.steps:
        rules = () if isinstance(step, nodes.Rule) else step.replaces
        inside = {rule.head.relation for rule in rules if rule.head.relation != step.head.relation}
        if inside & named:
            name = min(inside & named)
            unfused.append((step.head.relation, f"`{name}` has facts beside its rule"))
            steps += rules
        elif isinstance(step, Attention) and step.pairs.without_facts & named:
            assert step.pairs.with_facts is not None
            steps.append(replace(step, pairs=step.pairs.with_facts))
        else:
            steps.append(step)
    # the same plan where nothing changes: what was found out about it stays known
    same = len(steps) == len(plan.steps) and all(map(operator.is_, steps, plan.steps))
    return plan if same else replace(plan, steps=tuple(steps), unfused=tuple(unfused))


def with_one_vocabulary(
    plan: Plan, inputs: Mapping[str, Input], facts: FactTables | None
) -> tuple[Constants, Mapping[str, Input], FactTables | None]:
    """The strings of rules, facts and inputs numbered together, and both with those numbers."""
    known = Constants(strings(plan)) if facts is None else facts.constants
    named = [item for item in inputs.values() if input_strings(item)]
    if not named:
        return known, inputs, facts
    constants = Constants(chain(known.strings, *map(input_strings, named)))
    inputs = {name: renumbered(item, constants) for name, item in inputs.items()}
    return constants, inputs, facts and facts.renumbered(constants)


def input_strings(item: Input) -> tuple[str, ...]:
    """The strings among the keys of an input."""
    if isinstance(item, ragged):
        return tuple(chain.from_iterable(map(input_strings, item.samples)))
    return item.strings if isinstance(item, rows) else ()


def renumbered(item: Input, constants: Constants) -> Input:
    """The same keys by the numbers that strings have among these constants."""
    if isinstance(item, ragged):
        return ragged([renumbered(sample, constants) for sample in item.samples])
    return item.renumbered(constants) if isinstance(item, rows) else item


def strings(plan: Plan) -> tuple[str, ...]:
    """The strings among the constants of a plan."""
    return remembered(plan, _strings)


def _strings(plan: Plan) -> Iterator[str]:
    terms: list[nodes.Term] = []
    for rule in plan.rules:
        for atom in (rule.head, *atoms(rule)):
            terms += atom.terms
        for weight in weights(rule):
            terms += weight.keys
    for _, domain in plan.domains:
        terms += () if isinstance(domain, int) else domain
    for fact in plan.facts:
        terms += fact.atom.terms
    for output in plan.outputs:
        terms += output.terms
    return (term for term in terms if isinstance(term, str))


def value_lengths(plan: Plan, relation: str) -> set[int]:
    """The lengths of vectors that the weights applied to a relation take; a column takes 1, a
    scalar any."""
    return {length for name, length in remembered(plan, _applied_lengths) if name == relation}


def _applied_lengths(plan: Plan) -> Iterator[tuple[str, int]]:
    declared = [w for rule in plan.rules for w in weights(rule) if w.is_declared]
    shapes = {weight.name: declared_shape(weight) for weight in declared}
    for rule in plan.rules:
        for atom in atoms(rule):
            if isinstance(atom, nodes.Atom) and atom.weight is not None:
                shape = shapes.get(atom.weight.name, ())
                if max(shape, default=1) > 1:
                    yield atom.relation, shape[1] if len(shape) == 2 else 1


def _source(name: str, item: Input, arity: int, inner: set[int]) -> Source:
    if isinstance(item, ragged):
        return ragged_source(name, item, arity)
    if isinstance(item, rows_on_disk):
        return item.source(name, arity)
    if isinstance(item, rows):
        return rows_source(name, item, arity)
    return dense_source(name, item, arity, inner)


def _fact_sources(
    plan: Plan,
    tables: Mapping[str, FactTable],
    in_batch: set[str],
    samples: int | None,
    constants: Constants,
    dtype: torch.dtype,
    others: Mapping[str, Source],
) -> dict[str, Source]:
    """Facts of the program are weights; facts of the data replace them."""
    stated: dict[str, list[nodes.Fact]] = {}
    for fact in plan.facts:
        stated.setdefault(fact.atom.relation, []).append(fact)
    made = {}
    for relation in {**stated, **tables}:
        if relation in others and relation in tables:
            raise BadInput(
                f"`{relation}` is given both as an input and as facts", caller(), "give it one way"
            )
        if relation in others:
            raise BadInput(
                f"`{relation}` is given as an input, and the program has facts of it",
                caller(),
                f"give what replaces them by `ground(facts=[{nodes.Atom(relation)!r}(...)])`, "
                "or take them out of the program",
            )
        table, own = tables.get(relation), stated.get(relation, [])
        if table is not None and not own and table.in_samples == (relation in in_batch):
            values = partial(table.stored, dtype)
            made[relation] = fact_source(relation, table.keys, values, table.leaves)
        else:
            facts = _by_key(own, table, samples if relation in in_batch else None)
            made[relation] = _mixed_source(relation, facts, constants, dtype)
    return made


Stated = tuple[nodes.Atom, nodes.Weight | None]  # a fact, and its weight if it is the program's


def _by_key(
    own: list[nodes.Fact], table: FactTable | None, samples: int | None
) -> dict[tuple[Any, ...], Stated]:
    """Facts by key, in a batch with the sample's number first; one for all is in every sample."""
    found: dict[tuple[Any, ...], Stated] = {}
    everywhere = [()] if samples is None else [(number,) for number in range(samples)]
    for fact in own:
        found |= {(*first, *fact.atom.terms): (fact.atom, fact.atom.weight) for first in everywhere}
    if table is not None:
        numbers = table.keys[:, 0].tolist() if table.in_samples else None
        for row, atom in enumerate(table.atoms):
            firsts = everywhere if numbers is None or samples is None else [(numbers[row],)]
            found |= {(*first, *atom.terms): (atom, None) for first in firsts}
    return found


def _mixed_source(
    relation: str, facts: Mapping[tuple[Any, ...], Stated], constants: Constants, dtype: torch.dtype
) -> Source:
    """Facts of the program beside those of the data, and facts that hold in every sample."""
    keys = constants.keys(facts, len(next(iter(facts))))
    order = pack(keys.unbind(1))[0].argsort(stable=True) if keys.shape[1] else torch.tensor([0])
    stated = list(facts.values())
    ordered = [stated[place] for place in order.tolist()]
    data = [atom if own is None else replace(atom, weight=None) for atom, own in ordered]
    shapes = [None if own is None else declared_shape(own) for _, own in ordered]

    def values() -> list[Tensor]:
        """The values; a placeholder where a weight takes its place at every step."""
        found = fact_rows(data, dtype)[relation][1]
        return [
            value if shape is None else value.new_zeros(shape)
            for value, shape in zip(found, shapes, strict=True)
        ]

    learnt = tuple((row, str(own.name)) for row, (_, own) in enumerate(ordered) if own is not None)
    return fact_source(relation, keys[order], values, held_tensors(data), learnt)


def check_alike(facts: FactTables, plan: Plan, dtype: torch.dtype) -> None:
    """Refuse facts of one relation with values of different shapes, those of the program too."""
    for relation, table in facts.tables.items():
        stored = table.stored(dtype)
        values = stored[:1] if isinstance(stored, Tensor) else stored
        shapes = [tuple(value.shape) for value in values]
        own = [fact.atom for fact in plan.facts if fact.atom.relation == relation]
        stated = {atom.terms for atom in table.atoms} if own else set()
        learnt = [atom.weight for atom in own if atom.terms not in stated]
        shapes += [() if weight is None else declared_shape(weight) for weight in learnt]
        refuse_mixed(relation, shapes)


class BatchMismatch(EdgewiseError):
    """The samples of a batch are matched one to one; none is repeated or left out."""

    code = "batch-mismatch"
    example = (
        "Program([R.h(V.X) <= (R.a(V.X), R.b(V.X))]).compile(R.h)"
        "(a=ragged([torch.ones(3)]), b=ragged([torch.ones(3), torch.ones(2)]))"
    )
    instead = (
        "Program([R.h(V.X) <= (R.a(V.X), R.b(V.X))]).compile(R.h)"
        "(a=ragged([torch.ones(3), torch.ones(2)]), b=ragged([torch.ones(3), torch.ones(2)]))"
    )


def count_samples(inputs: Mapping[str, Input], facts: FactTables | None) -> int | None:
    counts = {name: len(item.samples) for name, item in inputs.items() if isinstance(item, ragged)}
    if facts is not None and facts.samples is not None:
        counts["facts"] = facts.samples
    _refuse_counts(counts)
    return next(iter(counts.values()), None)


def batched_inputs(
    plan: Plan, arities: Mapping[str, int], inputs: Mapping[str, Input]
) -> frozenset[str]:
    """The dense inputs whose first axis is the sample."""
    tensors = {name: item for name, item in inputs.items() if isinstance(item, Tensor)}
    found = {n: dense_source(n, t, arities[n], value_lengths(plan, n)) for n, t in tensors.items()}
    return frozenset(name for name, source in found.items() if source.batched)


def check_batches(sources: Mapping[str, Source], samples: int | None) -> None:
    """One batch has one size; an axis of length 1 is a batch of one, never repeated."""
    counts = {name: s.batch for name, s in sources.items() if s.batched}
    _refuse_counts(counts if samples is None else {"the ragged samples": samples} | counts)


def _refuse_counts(counts: Mapping[str, int]) -> None:
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise BatchMismatch(
            f"the inputs have different numbers of samples ({shown})",
            caller(),
            "give every batched input one item for each sample",
        )
