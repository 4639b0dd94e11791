"""Which of the keys of a relation is the node that decides its rank, by the rules alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from edgewise.distributed.errors import NotDistributed
from edgewise.errors import caller
from edgewise.ground.rules import normalised
from edgewise.language import nodes
from edgewise.language.statements import atoms


def refusal(what: str) -> NotDistributed:
    """The error about a model that is not of nodes alone."""
    return NotDistributed(
        f"the model cannot be partitioned: {what}",
        caller(),
        "what is one for all nodes is computed from the outputs of all ranks, or on one process",
    )


def node_variables(rule: nodes.Rule, places: Mapping[str, set[int]]) -> set[str]:
    """The variables of a rule that are nodes, by the places where relations have some."""
    found = set()
    for atom in atoms(rule.body):
        if isinstance(atom, nodes.Atom) and not atom.negated:
            terms = [atom.terms[at] for at in places.get(atom.relation, ())]
            found |= {term.name for term in terms if isinstance(term, nodes.Variable)}
    return found


def node_places(
    rules: Sequence[nodes.Rule], dense: Iterable[str], arities: Mapping[str, int]
) -> dict[str, set[int]]:
    """Relation → which of its keys are nodes that may decide its rank: of dense inputs the first,
    of given keys all, of rule heads those that are nodes in every body, not normalised over."""
    places = {name: {0} for name in dense} | {n: set(range(arity)) for n, arity in arities.items()}
    for rule in rules:
        name, known = rule.head.relation, node_variables(rule, places)
        apart = known.difference(normalised(rule) or ())
        terms = [v.name if isinstance(v, nodes.Variable) else None for v in rule.head.terms]
        found = {at for at, term in enumerate(terms) if term in apart}
        if known and not found:
            raise refusal(f"`{name}` is computed from all nodes")
        places[name] = places.get(name, found) & found
        if found and not places[name]:
            raise refusal(f"`{name}` has nodes in different places")
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
