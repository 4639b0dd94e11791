"""Delta joins: the rule heads that a change reaches, and the groundings of those alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from edgewise.ground.ground_rule import GroundRule, normalised
from edgewise.ground.grounder import Grounder
from edgewise.ground.index import Keys, distinct_rows
from edgewise.ground.joins.body import Body
from edgewise.ground.joins.join import distinct
from edgewise.language import nodes
from edgewise.language.defaults import Domain
from edgewise.language.statements import atoms
from edgewise.language.terms import variables
from edgewise.update.tables import Change, Table

WANTED = "@wanted"  # the rule heads that are grounded
CHANGED = "@changed"  # the rows from which a delta join starts


@dataclass(frozen=True, eq=False)
class Edit:
    """One edit while it is carried through the rules: what held before it, and what holds now.

    `changes` and the relations of `now` grow by those that are computed.
    """

    before: Grounder
    now: Grounder
    changes: dict[str, Change]
    facts: Mapping[str, Table]
    tables: dict[str, Table]
    weights: Mapping[str, Tensor]
    renamed: bool  # there are new strings
    first: bool  # there was nothing before
    computed: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)  # why all rows of a relation


@dataclass(frozen=True, eq=False)
class Stratum:
    """A relation that rules derive, or several that need one another, and the weights they read."""

    relations: tuple[str, ...]
    rules: tuple[DeltaRule, ...]
    weights: tuple[str, ...]
    recursive: bool

    def moves(self, edit: Edit) -> bool:
        """Whether all of it is computed again."""
        return edit.first or any(rule.moves(edit) for rule in self.rules)

    def reads(self, changes: Mapping[str, Change]) -> bool:
        own = any(relation in changes for relation in self.relations)
        return own or any(a.relation in changes for rule in self.rules for a in rule.atoms)

    def grounded(self, grounder: Grounder, heads: Tensor) -> tuple[list[GroundRule], Tensor]:
        """The groundings of some rule heads and of those a softmax normalises with them, and which
        rule heads those are."""
        while True:
            grounds = [rule.grounded(grounder, heads) for rule in self.rules]
            pairs = zip(self.rules, grounds, strict=True)
            more = [ground.heads.keys for rule, ground in pairs if not rule.exact]
            joined = distinct_rows(torch.cat([heads, *more])) if more else heads
            if len(joined) == len(heads):
                return grounds, heads
            heads = joined


class DeltaRule:
    """A rule whose groundings are found from changed rows (semi-naive), or for some rule heads.

    The latter are bound but for variables that a softmax normalises over, and those that only a
    family of weights holds, which take all values of their domain. `wanted` is the relation that
    restricts rule heads.
    """

    def __init__(self, rule: nodes.Rule, domains: Mapping[str, Domain], number: int = 0) -> None:
        self.rule = rule
        self.domains = domains
        self.body = Body(rule, domains)
        self.atoms = tuple(a for a in atoms(rule.body) if isinstance(a, nodes.Atom))
        free = set(normalised(rule) or ())
        held = {v.name for atom in atoms(rule.body) for v in variables(atom.terms)}
        free |= {v.name for v in variables(rule.head.terms)} - held
        terms = rule.head.terms
        bound = [not (isinstance(t, nodes.Variable) and t.name in free) for t in terms]
        self.bound_places = [p for p, fixed in enumerate(bound) if fixed]
        self.exact = all(bound)  # `grounded` has the groundings of no other rule head
        self.wanted = f"{WANTED}{number}"
        self.restricted, self._wanted = self._with(
            nodes.Atom(self.wanted, tuple(terms[p] for p in self.bound_places), hidden=True)
        )

    def _with(self, atom: nodes.Atom) -> tuple[Body, int]:
        """The body with one more condition, and its place among the literals."""
        body = Body(replace(self.rule, body=(*self.rule.body, atom)), self.domains)
        return body, next(n for n, literal in enumerate(body.literals) if literal is atom)

    def moves(self, edit: Edit) -> bool:
        """Whether groundings may change with no atom of the body: a pattern has other axes, or a
        called function may give strings that were unknown."""
        for literal in self.body.literals:
            if isinstance(literal, nodes.PatternAtom):
                old, new = (g.axes(self.body, literal).lengths for g in (edit.before, edit.now))
                if not torch.equal(old, new):
                    return True
            if (
                edit.renamed
                and isinstance(literal, nodes.SpecialAtom)
                and literal.function is not None
            ):
                return True
        return False

    def reached(self, edit: Edit, changes: Mapping[str, Change] | None = None) -> Tensor:
        """The keys of rule heads that lose or gain a grounding, or read a value that changed.

        A lost grounding held before, so that it is found there.
        """
        found = [torch.zeros(0, len(self.rule.head.terms), dtype=torch.int64)]
        for atom in self.atoms:
            change = (edit.changes if changes is None else changes).get(atom.relation)
            if change is None:
                continue
            lost, gained = change.removed, change.added
            if atom.negated:
                lost, gained = gained, lost
            elif atom.carries_value:
                gained = torch.cat([gained, change.changed])
            found += [self._heads(edit.before, atom, lost), self._heads(edit.now, atom, gained)]
        return distinct_rows(torch.cat(found))

    def _heads(self, grounder: Grounder, atom: nodes.Atom, keys: Tensor) -> Tensor:
        """The rule heads of groundings in which an atom has one of these keys."""
        head = self.rule.head
        if not len(keys):
            return torch.zeros(0, len(head.terms), dtype=torch.int64)
        some = Keys(distinct_rows(keys))
        body, at = self._with(nodes.Atom(CHANGED, atom.terms, hidden=True))
        own = replace(grounder, relations=grounder.relations | {CHANGED: some}, joins={})
        found = grounder.keys(head, own.bindings(body, at, some))
        return found if head.terms else found[:1]

    def bound(self, heads: Tensor) -> Tensor:
        """What `wanted` holds for some rule heads."""
        return heads if self.exact else distinct_rows(heads[:, self.bound_places])

    def grounded(self, grounder: Grounder, heads: Tensor) -> GroundRule:
        """The ground rule for some rule heads alone, and for those normalised with them."""
        keys = Keys(self.bound(heads))
        own = replace(grounder, relations=grounder.relations | {self.wanted: keys}, joins={})
        bindings = own.bindings(self.restricted, self._wanted, keys)
        return own.finish(self.restricted, distinct(bindings, self.restricted.visible))
