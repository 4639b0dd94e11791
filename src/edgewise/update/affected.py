"""The rule heads that changed rows reach: those rows alone, joined with the other relations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from edgewise.ground.body import Body
from edgewise.ground.index import Index, Keys, distinct_rows
from edgewise.ground.join import distinct
from edgewise.ground.rules import Grounder, GroundRule
from edgewise.language import nodes
from edgewise.language.statements import atoms
from edgewise.language.terms import variables

WANTED = "@wanted"


def reached(grounder: Grounder, body: Body, changed: Mapping[str, Tensor], first: bool) -> Tensor:
    """The keys of the rule heads that some grounding with a changed row has (semi-naive).

    A body without relations, such as weights alone, has all its groundings from the `first` call.
    """
    head, found = body.rule.head, [torch.zeros(0, len(body.rule.head.terms), dtype=torch.int64)]
    if not body.positive:
        return keys_of(grounder.ground(body).heads) if first else found[0]
    for at, atom in body.positive.items():
        if atom.relation in changed:
            new = Keys(changed[atom.relation])
            bindings = grounder.bindings(body, at, new)
            columns = [grounder.column(term, bindings) for term in head.terms]
            found.append(
                torch.stack(columns, 1)
                if columns
                else torch.zeros(min(bindings.count, 1), 0, dtype=torch.int64)
            )
    return distinct_rows(torch.cat(found))


def needs_all(rule: nodes.Rule, changed: Mapping[str, Tensor], recomputed: set[str]) -> bool:
    """Whether a change may remove rule heads, or move pairs of a pattern: all are recomputed."""
    for atom in atoms(rule.body):
        if isinstance(atom, nodes.PatternAtom):
            return True
        if isinstance(atom, nodes.Atom) and (
            atom.relation in recomputed or (atom.negated and atom.relation in changed)
        ):
            return True
    return False


def grounded(grounder: Grounder, body: Body, heads: Tensor) -> GroundRule:
    """The rule for some rule heads alone, and for those that a softmax normalises with them.

    A variable that only a family of weights holds takes all values of its domain.
    """
    rule = body.rule
    named = next((f for f in rule.functions if dict(f.arguments).get("agg_terms")), None)
    free = set(named["agg_terms"]) if named is not None else set()
    held = {v.name for atom in atoms(rule.body) for v in variables(atom.terms)}
    free |= {v.name for v in variables(rule.head.terms)} - held
    bound = [
        p
        for p, t in enumerate(rule.head.terms)
        if not (isinstance(t, nodes.Variable) and t.name in free)
    ]
    wanted = nodes.Atom(WANTED, tuple(rule.head.terms[p] for p in bound), hidden=True)
    restricted = Body(replace(rule, body=(*rule.body, wanted)), body.domains)
    at = next(n for n, literal in enumerate(restricted.literals) if literal is wanted)
    keys = Keys(distinct_rows(heads[:, bound]))
    with_wanted = replace(grounder, relations=grounder.relations | {WANTED: keys}, joins={})
    bindings = distinct(with_wanted.bindings(restricted, at, keys), restricted.visible)
    return with_wanted.finish(restricted, bindings)


def keys_of(index: Index) -> Tensor:
    """(rows, arity)."""
    columns = [index.column(p) for p in range(index.arity)]
    return torch.stack(columns, 1) if columns else torch.zeros(index.rows, 0, dtype=torch.int64)
