"""The lengths of dense axes, and the keys that must lie on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.ground.index import Grid, Index, KeyOutOfRange, Keys, index_of
from edgewise.ground.joins.body import SAMPLE, SAMPLES
from edgewise.inputs.batched_rules import closure
from edgewise.inputs.prepare import BoundPlan
from edgewise.language import nodes
from edgewise.language.defaults import Domain
from edgewise.language.dependencies import components, needs
from edgewise.language.statements import atoms, remembered, weights
from edgewise.language.terms import variables
from edgewise.plan.nodes import Plan

End = int | Tensor  # the length of an axis; of ragged data (samples,)
Lengths = Mapping[str, tuple[End, ...]]  # axis by axis


def dense_sizes(prepared: BoundPlan) -> dict[str, tuple[int, ...]]:
    """The lengths of the axes of every dense relation."""
    domains = dict(prepared.plan.domains)
    every = prepared.plan.stated_rules
    dense = dense_relations(every, prepared.dense, domains)
    sizes = {name: prepared.sources[name].index.spans for name in prepared.dense}
    rules = [rule for rule in every if rule.head.relation in dense]
    heads = [(rule.head.relation, _head_axes(rule, domains)) for rule in rules]
    changed = True
    while changed:
        changed = False
        for relation, axes in heads:
            found = None if axes is None else _shortest(axes, sizes)
            if found is not None:
                longest = tuple(map(max, found, sizes.get(relation, found)))
                if sizes.get(relation) != longest:
                    sizes[relation] = longest
                    changed = True
    return sizes


def check_keys(prepared: BoundPlan) -> None:
    """Refuse keys beyond the dense axes they are joined with: they would be dropped silently."""
    for atom, outside, column, end in _beyond(prepared):
        rows = outside.nonzero()
        if len(rows):
            at = int(rows[0, 0])
            key = prepared.constants.constant(int(column[at]))
            length = int(end[at]) if isinstance(end, Tensor) else end
            raise KeyOutOfRange(
                f"`{atom.relation}` has the key {key!r}, but the axis it is joined with has length "
                f"{length}",
                caller(),
                "give keys below the length of the dense input, or the input as `rows(...)`",
            )


def without_keys_beyond(prepared: BoundPlan) -> BoundPlan:
    """The same without keys beyond the dense axes they are joined with."""
    outside: dict[str, Tensor] = {}
    for atom, found, _, _ in _beyond(prepared):
        outside[atom.relation] = outside.get(atom.relation, found) | found
    sources = dict(prepared.sources)
    for name, found in outside.items():
        if bool(found.any()):
            source, rows = sources[name], (~found).nonzero()[:, 0]
            order = rows if source.order is None else source.order[rows]
            index = index_of(source.index.keys[rows])
            sources[name] = replace(source, index=index, order=order)
    return replace(prepared, sources=sources)


def _beyond(prepared: BoundPlan) -> Iterator[tuple[nodes.Atom, Tensor, Tensor, End]]:
    """For each term that is joined with a dense axis: its atom, which keys are beyond that, the
    keys, and the length of the axis, of all or of each key."""
    rules = prepared.plan.rules
    own = {rule.head.relation for rule in rules}
    own |= {fact.atom.relation for fact in prepared.plan.facts}  # not data
    dense = _dense_axes(prepared)
    keyed = {name: s for name, s in prepared.sources.items() if name not in own | dense.keys()}
    if not keyed:
        return
    lengths = _axes(prepared, dense)
    for rule in rules:
        read = [atom for atom in _positive(rule) if atom.relation in keyed]
        ends = _ends(rule, lengths) if read else {}
        for atom in read:
            index = keyed[atom.relation].index
            for position, term in enumerate(atom.terms):
                if term not in ends or not index.rows:
                    continue
                end = ends[term]
                if _inside(index, position, end):
                    continue
                column = index.column(position)
                if isinstance(end, Tensor):
                    if atom.terms[0] != SAMPLE:
                        continue  # holds in every sample, also in those that are shorter
                    end = end[index.column(0)]
                yield atom, (column < 0) | (column >= end), column, end


def _inside(index: Index, position: int, end: End) -> bool:
    """Whether the ends of a column alone say that all of its keys are on an axis."""
    if not isinstance(index, Keys) or (isinstance(end, Tensor) and not len(end)):
        return False
    low, high = index.ends[position]
    return low >= 0 and high < (int(end.min()) if isinstance(end, Tensor) else end)


def _dense_axes(prepared: BoundPlan) -> dict[str, tuple[End, ...]]:
    """The lengths of dense data; ragged data has one for each sample."""
    found: dict[str, tuple[End, ...]] = {}
    for name, source in prepared.sources.items():
        if source.lengths is not None:
            found[name] = tuple(source.lengths)
        elif source.dense and isinstance(source.index, Grid):
            first = 1 if name in prepared.in_batch or name == SAMPLES else 0
            found[name] = source.index.sizes[first:]
    return found


def _axes(prepared: BoundPlan, data: Lengths) -> Lengths:
    """The lengths of dense data and of what is derived from it."""
    found, ordered = dict(data), remembered(prepared.plan, _in_order)
    derived = [(name, rules) for name, rules in ordered if name not in prepared.sources]
    changed = True
    while changed:  # once more only where relations need one another
        changed = False
        for name, rules in derived:
            longest = _longest(rules, found)
            if longest is not None and not _same(longest, found.get(name)):
                found[name] = longest
                changed = True
    return found


def _in_order(plan: Plan) -> Iterator[tuple[str, list[nodes.Rule]]]:
    """The relations that rules derive, each after those it needs, with their rules."""
    own: dict[str, list[nodes.Rule]] = {}
    for rule in plan.rules:
        own.setdefault(rule.head.relation, []).append(rule)
    for part in components(needs(plan.rules)):
        for name in sorted(part):
            yield name, own[name]


def _longest(rules: list[nodes.Rule], lengths: Lengths) -> tuple[End, ...] | None:
    """The longest axes that several rules of one relation give; None if one is not dense."""
    made = []
    for rule in rules:
        ends, head = _ends(rule, lengths), _own(rule.head)
        if not all(term in ends for term in head):
            return None
        made.append([ends[term] for term in head])
    return tuple(reduce(_longer, axis) for axis in zip(*made, strict=True))


def _longer(one: End, other: End) -> End:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return torch.maximum(torch.as_tensor(one), torch.as_tensor(other))
    return max(one, other)


def _shorter(one: End, other: End) -> End:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return torch.minimum(torch.as_tensor(one), torch.as_tensor(other))
    return min(one, other)


def _same(one: tuple[End, ...], other: tuple[End, ...] | None) -> bool:
    return other is not None and all(map(_equal, one, other))


def _equal(one: End, other: End) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return not isinstance(one, Tensor) and not isinstance(other, Tensor) and one == other


def _ends(rule: nodes.Rule, lengths: Lengths) -> dict[nodes.Term, End]:
    """Variable → the shortest of the dense axes it runs along."""
    found: dict[nodes.Term, End] = {}
    for atom in _positive(rule):
        if atom.relation in lengths:
            for term, length in zip(_own(atom), lengths[atom.relation], strict=True):
                if isinstance(term, nodes.Variable):
                    found[term] = _shorter(found.get(term, length), length)
    return found


def _positive(rule: nodes.Rule) -> tuple[nodes.Atom, ...]:
    return remembered(rule, _positive_atoms)


def _positive_atoms(rule: nodes.Rule) -> Iterator[nodes.Atom]:
    return (a for a in atoms(rule) if isinstance(a, nodes.Atom) and not a.negated)


def _own(atom: nodes.Atom) -> tuple[nodes.Term, ...]:
    return atom.terms[1:] if atom.terms and atom.terms[0] == SAMPLE else atom.terms


def dense_relations(
    rules: Iterable[nodes.Rule], inputs: Iterable[str], domains: Mapping[str, Domain]
) -> set[str]:
    """Relations some rule of which runs over full axes: every variable of its head is on one.

    >>> from edgewise.language import R, V
    >>> rules = [R.q(V.I) <= R.x(V.I)[8, 8], R.h(V.I) <= (R.q(V.J), R._edge(V.J, V.I))]
    >>> sorted(dense_relations(rules, ["x"], {}))
    ['q', 'x']
    """
    return closure(rules, inputs, lambda rule, dense: _is_dense(rule, dense, domains))


def _is_dense(rule: nodes.Rule, dense: set[str], domains: Mapping[str, Domain]) -> bool:
    for name, read, is_key in remembered(rule, _head_terms):
        if name is None:
            return False
        # a family runs over all of its domain where no atom says which keys there are
        ranged = is_key and isinstance(domains.get(name), int) and not read
        if not ranged and not any(relation in dense for relation, _ in read):
            return False
    return True


Axis = tuple[list[tuple[str, int]], int | None]  # of relations, and the size of a domain


def _head_axes(rule: nodes.Rule, domains: Mapping[str, Domain]) -> list[Axis] | None:
    """The axes that each term of a rule head runs along; None where one is not a variable."""
    found: list[Axis] = []
    for name, read, is_key in remembered(rule, _head_terms):
        if name is None:
            return None
        domain = domains.get(name) if is_key else None
        found.append((read, domain if isinstance(domain, int) else None))
    return found


def _head_terms(rule: nodes.Rule) -> Iterator[tuple[str | None, list[tuple[str, int]], bool]]:
    """Each term of a rule head: its name, None of a constant, the places of atoms where it stands,
    and whether it is a key of a weight."""
    keys = {v.name for weight in weights(rule) for v in variables(weight.keys)}
    places: dict[str, list[tuple[str, int]]] = {}
    for atom in _positive(rule):
        for p, term in enumerate(atom.terms):
            if isinstance(term, nodes.Variable):
                places.setdefault(term.name, []).append((atom.relation, p))
    for term in rule.head.terms:
        name = term.name if isinstance(term, nodes.Variable) else None
        yield name, places.get(name or "", []), name in keys


def _shortest(axes: Iterable[Axis], sizes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...] | None:
    """The lengths of a rule head's axes: lengths intersect, they never broadcast."""
    found = []
    for read, domain in axes:
        ends = [sizes[relation][p] for relation, p in read if relation in sizes]
        ends += [] if domain is None else [domain]
        if not ends:
            return None
        found.append(min(ends))
    return tuple(found)
