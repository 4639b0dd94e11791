"""Keys that come with a step, of relations that rules negate: what they rule out is masked.

`h(I) <= x(J), edge(J, I), ~hide(J, I)` is joined once, without `hide`. At a step, its groundings
that `hide` rules out count as 0 in a sum or mean: nothing is joined, and the plan stays the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.grounder import Grounder
from edgewise.ground.index import Index, Keys
from edgewise.ground.joins.body import terms_of
from edgewise.ground.joins.groups import Lookups
from edgewise.ground.joins.join import expansion
from edgewise.language import nodes
from edgewise.language.functions import definition
from edgewise.language.statements import atoms, combination
from edgewise.physical.demand.need import keys_at
from edgewise.physical.recursion.levels import Levels
from edgewise.physical.recursion.rounds import Rounds
from edgewise.physical.rule import RuleStep
from edgewise.physical.step import Executable, RelationStep


@dataclass(frozen=True, eq=False)
class Ruled:
    """The groundings of a rule by the keys of an atom that it negates."""

    relation: str
    keys: Keys  # of each grounding, not sorted

    @cached_property
    def _lookups(self) -> Lookups:
        return Lookups()

    def out(self, keys: Tensor) -> Tensor:
        """The groundings that keys (rows, arity) rule out."""
        places = tuple(range(self.keys.arity))
        first, counts, groups = self._lookups.matches(self.keys, places, keys.unbind(1))
        _, found = expansion(first, counts, int(counts.sum()))
        return found if groups.order is None else groups.order.index_select(0, found)


class MaskedRule:
    """A rule whose groundings are masked at every step; on the CPU, whatever computes it."""

    def __init__(self, name: str, ground: GroundRule, ruled: tuple[Ruled, ...], covered: bool):
        self.name = name
        self.ruled = ruled
        self.count = ground.count
        self.heads, self.sizes = ground.segments.ids, ground.segments.sizes
        self.covered = covered  # a rule head without groundings has another rule

    def mask(self, hidden: Mapping[str, Tensor]) -> Tensor | None:
        """1 for groundings that are left, 0 for others; None if a rule head loses its last one."""
        found = torch.ones(self.count)
        for one in self.ruled:
            if len(hidden[one.relation]):
                found[one.out(hidden[one.relation])] = 0
        if not self.covered:
            lost = torch.bincount(self.heads[found == 0], minlength=len(self.sizes))
            if bool((lost == self.sizes).any()):
                return None
        return found


def masked(
    executable: Executable, rules: Iterable[nodes.Rule], grounder: Grounder, names: frozenset[str]
) -> tuple[Executable, tuple[MaskedRule, ...]] | None:
    """The plan with a mask for each rule that negates one of the relations; None if it has others,
    which cannot be masked."""
    negating = [rule for rule in rules if any(_names(atom, names) for atom in atoms(rule))]
    steps: list[RelationStep | Levels | Rounds] = []
    made: list[MaskedRule] = []
    for step in executable.steps:
        if not isinstance(step, RelationStep):
            steps.append(step)
            continue
        parts = []
        for part in step.steps:
            if isinstance(part, RuleStep) and part.rule in negating:
                ruled = _ruled(part, executable, grounder, names)
                if ruled is None:
                    return None
                covered = _is_covered(step, negating)
                name = f"@mask{len(made)}"
                made.append(MaskedRule(name, part.ground, ruled, covered))
                part = replace(part, mask=name)
            parts.append(part)
        steps.append(replace(step, steps=tuple(parts)))
    if len(made) != len(negating):
        return None
    return replace(executable, steps=tuple(steps)), tuple(made)


def _names(atom: object, names: frozenset[str]) -> bool:
    return isinstance(atom, nodes.Atom) and atom.relation in names


def _is_covered(step: RelationStep, negating: list[nodes.Rule]) -> bool:
    """Whether another rule derives all atoms of the relation, and adds to them."""
    line = step.merge.line
    if step.facts or (line is not None and combination(line.functions).name != "sum"):
        return False
    return any(
        isinstance(part, RuleStep)
        and part.rule not in negating
        and part.ground.heads.rows == step.merge.index.rows
        for part in step.steps
    )


def _ruled(
    step: RuleStep, executable: Executable, grounder: Grounder, names: frozenset[str]
) -> tuple[Ruled, ...] | None:
    ground = step.ground
    if ground.groups is not None or definition(step.aggregation).kernel not in ("sum", "mean"):
        return None
    columns = dict(_columns(ground, executable, grounder))
    found = []
    for atom in atoms(step.rule):
        if not isinstance(atom, nodes.Atom) or atom.relation not in names:
            continue
        if not atom.negated or not atom.terms:
            return None
        keys = []
        for term in atom.terms:
            if not isinstance(term, nodes.Variable):
                keys.append(torch.full((ground.count,), grounder.constants.code(term)))
            elif term.name in columns:
                keys.append(columns[term.name])
            else:
                return None  # one key for several that hold
        found.append(Ruled(atom.relation, Keys(torch.stack(keys, 1))))
    return tuple(found)


def _columns(
    ground: GroundRule, executable: Executable, grounder: Grounder
) -> Iterator[tuple[str, Tensor]]:
    """What groundings assign to variables of the rule head and of literals whose rows are read."""
    head = ground.rule.head
    yield from _assigned(head.terms, ground.heads, ground.segments.ids)
    for at, rows in ground.rows.items():
        literal = ground.body.literals[at]
        if isinstance(literal, nodes.Weight):
            index = grounder.domain(literal)
        elif isinstance(literal, nodes.Atom) and literal.relation in executable.relations:
            index = executable.relations[literal.relation]
        else:
            continue
        every = torch.arange(ground.count) if rows is None else rows
        yield from _assigned(terms_of(literal), index, every)


def _assigned(
    terms: tuple[nodes.Term, ...], index: Index, rows: Tensor
) -> Iterator[tuple[str, Tensor]]:
    keys = keys_at(index, rows)
    for place, term in enumerate(terms):
        if isinstance(term, nodes.Variable):
            yield term.name, keys[:, place]
