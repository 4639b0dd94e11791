"""Which key of each relation grows, and why a rule cannot follow.

A rule follows if every head is made of body rows at its own place: then a new place is new heads
and nothing else. Attention along a causal pattern follows too, with the keys and values of all
places before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from edgewise.errors import Place
from edgewise.grow.errors import CannotGrow
from edgewise.grow.patterns import why_not
from edgewise.language import nodes
from edgewise.language.statements import atoms, weights
from edgewise.language.terms import variables
from edgewise.physical.attention import AttentionStep
from edgewise.physical.executable import Executable, RelationStep
from edgewise.scores.nodes import S, separate

POSITIONS = "give positions as an input of their own: `R.place(V.I)`"


@dataclass
class Axes:
    """`place` of a relation is the key that grows; relations without one stay as they are."""

    place: dict[str, int]
    kept: set[str] = field(default_factory=set)  # attention with keys and values to keep
    fixed: set[str] = field(default_factory=set)  # derived, and the same for all rows

    def names(self, body: Iterable[nodes.Expression], where: Place | None) -> set[str]:
        """The variables of a body that grow; refuses uses of them that cannot follow."""
        body = tuple(body)
        found = set()
        for atom in atoms(body):
            if isinstance(atom, nodes.Atom) and atom.relation in self.place:
                term = atom.terms[self.place[atom.relation]]
                if not isinstance(term, nodes.Variable):
                    raise refusal(f"`{atom!r}` reads one place", where)
                found.add(term.name)
        for atom in atoms(body):
            for at, term in enumerate(atom.terms):
                if isinstance(term, nodes.Variable) and term.name in found:
                    self._check_use(atom, at, where)
        for weight in weights(body):
            grows = any(v.name in found for v in variables(weight.keys))
            if grows and (len(weight.keys) > 1 or len(weight.shape or ()) > 1):
                raise refusal(f"`{weight!r}` is a matrix for each place", where, POSITIONS)
        return found

    def _check_use(
        self, atom: nodes.Atom | nodes.SpecialAtom | nodes.PatternAtom, at: int, where: Place | None
    ) -> None:
        if isinstance(atom, nodes.SpecialAtom) and atom.carries_value:
            return
        if not isinstance(atom, nodes.Atom):
            raise refusal(f"`{atom!r}` is a condition on the place", where, POSITIONS)
        if self.place.get(atom.relation) != at:
            raise refusal(
                f"`{atom.relation}` has the axis that grows but does not grow with it",
                where,
                f"give its new rows with every call: `growing({atom.relation}=...)`",
            )

    def follow(self, step: RelationStep) -> None:
        """Find the key of a relation that grows, or refuse."""
        places: set[int | None] = {None} if step.facts else set()
        for one in step.steps:
            place = self._attention(one) if isinstance(one, AttentionStep) else self._rule(one.rule)
            places.add(place)
        if len(places) > 1:
            raise refusal(
                f"`{step.relation}` has rows that grow and rows that do not",
                step.steps[0].rule.place,
            )
        (place,) = places
        if place is None:
            self.fixed.add(step.relation)
        else:
            self.place[step.relation] = place

    def _rule(self, rule: nodes.Rule) -> int | None:
        found = self.names(rule.body, rule.place)
        if not found:
            return None
        if len(found) > 1:
            raise refusal(f"`{rule.head.relation}` joins different places", rule.place)
        (name,) = found
        for function in rule.functions:
            if name in (dict(function.arguments).get("agg_terms") or ()):
                raise refusal(f"`{function!r}` is over all places", rule.place)
        places = _places(rule.head, name)
        if len(places) != 1:
            raise refusal(f"`{rule.head.relation}` sums over all places", rule.place)
        return places[0]

    def _attention(self, step: AttentionStep) -> int | None:
        node, where = step.node, step.rule.place
        query = self.names(node.score.queries, where)
        key = self.names((*node.score.keys, node.value), where)
        if not query and not key:
            return None
        if query - {node.query} or key - {node.key} or not query:
            raise refusal(
                f"`{node.head.relation}` attends to positions that it does not have", where
            )
        tree, added, factor = separate(node.score.tree)
        if tree != S or factor is not None:
            raise refusal(
                f"the score of `{node.head.relation}` is more than dot products and biases", where
            )
        for n in added:
            if len(self.names((node.score.reads[n],), where)) > 1:
                raise refusal(f"the score of `{node.head.relation}` joins places", where)
        if step.attending is not None or step.attending_rows is not None:
            raise refusal(f"a row of `{node.head.relation}` may have no key", where)
        if node.pairs.listed or (step.pattern is not None and not key):
            raise refusal(f"the pairs of `{node.head.relation}` are listed", where)
        if key:
            self.kept.add(node.head.relation)
        return _places(node.head, node.query)[0]


def axes_of(executable: Executable, inputs: Iterable[str], capacity: int) -> Axes:
    """The axes that grow with the first key of `inputs`."""
    axes = Axes({name: 0 for name in inputs})
    for step in executable.steps:
        if not isinstance(step, RelationStep):
            raise refusal("the rules are recursive", None)
        axes.follow(step)
        for one in step.steps:
            if isinstance(one, AttentionStep) and step.relation in axes.kept:
                reason = why_not(one.pattern, capacity)
                if reason is not None:
                    raise refusal(reason, one.rule.place)
    return axes


def _places(head: nodes.Atom, name: str) -> list[int]:
    return [p for p, t in enumerate(head.terms) if isinstance(t, nodes.Variable) and t.name == name]


def refusal(what: str, where: Place | None, help: str = "") -> CannotGrow:
    return CannotGrow(what, where, help or "compute all rows anew: `model(...)`")
