"""Which of the keys of a relation is the node that decides its rank, by the rules alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from edgewise.distributed.errors import NotDistributed
from edgewise.distributed.node_ranges import Range, head_ranges
from edgewise.errors import caller
from edgewise.ground.ground_rule import normalised
from edgewise.language import nodes
from edgewise.language.specials import computes
from edgewise.language.statements import atoms


def refusal(what: str) -> NotDistributed:
    """The error about a model whose rows ranks cannot share."""
    return NotDistributed(
        f"the model cannot be partitioned: {what}",
        caller(),
        "run it without `mesh=`; ranks can each have some of the samples, as under DDP",
    )


def node_variables(rule: nodes.Rule, places: Mapping[str, set[int]]) -> set[str]:
    """The variables of a rule that are nodes, by the places where relations have some, and those
    that are computed from them, but for differences: these are distances."""
    found: set[str] = set()
    for atom in atoms(rule.body):
        if isinstance(atom, nodes.Atom) and not atom.negated:
            terms = [atom.terms[at] for at in places.get(atom.relation, ())]
            found |= {term.name for term in terms if isinstance(term, nodes.Variable)}
    waiting = [one for one in atoms(rule.body) if isinstance(one, nodes.SpecialAtom)]
    while found and (ready := [one for one in waiting if _computed(one, found) is not None]):
        waiting = [one for one in waiting if one not in ready]
        found |= {name for one in ready if (name := _computed(one, found)) is not None}
    return found


def _computed(atom: nodes.SpecialAtom, known: set[str]) -> str | None:
    """The variable that a predicate computes from nodes, if it is a node as well."""
    names = [term.name if isinstance(term, nodes.Variable) else None for term in atom.terms]
    free = [at for at, name in enumerate(names) if name is not None and name not in known]
    if atom.negated or len(free) != 1 or free[0] not in computes(atom):
        return None
    others = len([name for name in names if name in known])
    is_result = free[0] == len(names) - 1 and atom.name != "sub"
    return names[free[0]] if others == 1 or (others and is_result) else None


def node_places(
    rules: Sequence[nodes.Rule],
    dense: Iterable[str],
    known: Mapping[str, Sequence[Range]],
    count: int,
) -> dict[str, set[int]]:
    """Relation → which of its keys are nodes that may decide its rank: of dense inputs the first,
    of given keys all, of rule heads those that are nodes in every body, not normalised over.
    `known` bounds the keys of inputs; what may be beyond the `count` nodes decides nothing."""
    ranges = dict(known)
    places = {name: set(range(len(bounds))) for name, bounds in known.items()}
    places |= {name: {0} for name in dense}
    for rule in rules:
        name, variables = rule.head.relation, node_variables(rule, places)
        apart = variables.difference(normalised(rule) or ())
        bounds = head_ranges(rule, ranges)
        found = {
            at
            for at, (term, (low, high)) in enumerate(zip(rule.head.terms, bounds, strict=True))
            if isinstance(term, nodes.Variable) and term.name in apart and low >= 0
            if high < count
        }
        places[name] = places.get(name, found) & found
        before = ranges.get(name, bounds)
        hull = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(before, bounds, strict=True)]
        ranges[name] = hull
    return places


def node_axes(rules: Sequence[nodes.Rule], places: Mapping[str, set[int]]) -> dict[str, int]:
    """Derived relation → the key that decides its rank: the one by which most of the rules that
    read it have their own nodes; relations without one are on all ranks."""
    votes: dict[str, list[int]] = {}
    axes: dict[str, int] = {}
    for rule in reversed(rules):
        name = rule.head.relation
        if not places[name]:
            continue
        if name not in axes:
            axes[name] = max(sorted(places[name]), key=votes.get(name, []).count)
        own = rule.head.terms[axes[name]]
        for atom in atoms(rule.body):
            if isinstance(atom, nodes.Atom) and own in atom.terms:
                votes.setdefault(atom.relation, []).append(atom.terms.index(own))
    return axes
