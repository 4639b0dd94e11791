"""Delta joins: the rule heads that changed rows reach, and the groundings of those alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from edgewise.ground.body import Body
from edgewise.ground.index import Keys, distinct_rows
from edgewise.ground.join import distinct
from edgewise.ground.rules import Grounder, GroundRule, normalised
from edgewise.language import nodes
from edgewise.language.program import Domain
from edgewise.language.statements import atoms
from edgewise.language.terms import variables

WANTED = "@wanted"  # the relation of the rule heads that are grounded


class DeltaRule:
    """A rule whose groundings are found from changed rows (semi-naive), or for some rule heads.

    The latter are bound but for variables that a softmax normalises over, and those that only a
    family of weights holds, which take all values of their domain.
    """

    def __init__(self, rule: nodes.Rule, domains: Mapping[str, Domain]) -> None:
        self.rule = rule
        self.body = Body(rule, domains)
        free = set(normalised(rule) or ())
        held = {v.name for atom in atoms(rule.body) for v in variables(atom.terms)}
        free |= {v.name for v in variables(rule.head.terms)} - held
        terms = rule.head.terms
        bound = [not (isinstance(t, nodes.Variable) and t.name in free) for t in terms]
        self._bound = [p for p, fixed in enumerate(bound) if fixed]
        self.exact = all(bound)  # `grounded` has the groundings of no other rule head
        wanted = nodes.Atom(WANTED, tuple(terms[p] for p in self._bound), hidden=True)
        self._restricted = Body(replace(rule, body=(*rule.body, wanted)), domains)
        literals = self._restricted.literals
        self._wanted = next(n for n, literal in enumerate(literals) if literal is wanted)

    def needs_all(self, changed: Mapping[str, Tensor], recomputed: set[str]) -> bool:
        """Whether a change may remove rule heads, or move pairs of a pattern."""
        for atom in atoms(self.rule.body):
            if isinstance(atom, nodes.PatternAtom):
                return True
            if isinstance(atom, nodes.Atom) and (
                atom.relation in recomputed or (atom.negated and atom.relation in changed)
            ):
                return True
        return False

    def reached(self, grounder: Grounder, changed: Mapping[str, Tensor], first: bool) -> Tensor:
        """The keys of rule heads with a grounding that reads a changed row, repetitions included.

        A body without relations, such as weights alone, has all its groundings from the `first`
        call.
        """
        terms = self.rule.head.terms
        found = [torch.zeros(0, len(terms), dtype=torch.int64)]
        if not self.body.positive:
            return grounder.ground(self.body).heads.keys if first else found[0]
        for at, atom in self.body.positive.items():
            if atom.relation in changed:
                bindings = grounder.bindings(self.body, at, Keys(changed[atom.relation]))
                keys = grounder.keys(self.rule.head, bindings)
                found.append(keys if terms else keys[:1])
        return torch.cat(found)

    def grounded(self, grounder: Grounder, heads: Tensor) -> GroundRule:
        """The ground rule for some rule heads alone, and for those normalised with them."""
        keys = Keys(heads if self.exact else distinct_rows(heads[:, self._bound]))
        own = replace(grounder, relations=grounder.relations | {WANTED: keys}, joins={})
        bindings = own.bindings(self._restricted, self._wanted, keys)
        return own.finish(self._restricted, distinct(bindings, self._restricted.visible))
