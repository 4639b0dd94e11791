"""The axis of each relation that rows are appended to, or why a rule cannot be incremental.

A rule is incremental if every rule head reads rows at its own position: then new positions give new
rule heads and change no other. So is attention along a causal pattern, with the keys and values of
earlier positions cached.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

import torch

import edgewise.graphs as graphs
from edgewise.errors import EdgewiseError, Place
from edgewise.graphs.lengths import length_dependent
from edgewise.language import nodes
from edgewise.language.statements import atoms, is_added, weights, written_for
from edgewise.language.terms import variables
from edgewise.physical.attention.relational import RelationalStep
from edgewise.physical.attention.step import AttentionStep
from edgewise.physical.rule import RuleStep
from edgewise.physical.step import Executable, RelationStep
from edgewise.scores.nodes import Call, I, J, Node, Number, S, separate, walk

POSITIONS = "give positions as an input of their own: `R.position(V.I)`"
MASKS = "give what it reads for all rows that may come: `model.growing(capacity, speaker=...)`"
CAUSAL_EXAMPLE = """\
rules = [
    (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), R.special.leq(V.J, V.I)))
    | [F.product, F.softmax_agg(agg_terms=[V.J])],
    (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
]"""


class CannotGrow(EdgewiseError):
    """Rows can be appended where no row that was computed before would change."""

    code = "cannot-grow"
    example = "Program([R.h <= R.x(V.I)]).compile(R.h).growing(8)(x=torch.ones(1))"
    instead = f"{CAUSAL_EXAMPLE}\nProgram(rules).compile(R.h).growing(8)(x=torch.ones(1, 4))"


@dataclass
class AppendedAxes:
    """Relation → the axis that rows are appended to; relations without one stay as they are."""

    axis: dict[str, int]
    cached: set[str] = field(default_factory=set)  # attention whose keys and values are cached
    static: set[str] = field(default_factory=set)  # derived, and the same for all rows
    masked: Container[str] = ()  # attention whose pairs data chooses, for all rows that may come
    any_score: bool = False  # whether scores may read positions and tables

    def names(self, body: Iterable[nodes.Expression], where: Place | None) -> set[str]:
        """The variables of positions in a body; refuses uses of them that are not incremental."""
        body = tuple(body)
        found = set()
        for atom in atoms(body):
            if isinstance(atom, nodes.Atom) and atom.relation in self.axis:
                term = atom.terms[self.axis[atom.relation]]
                if not isinstance(term, nodes.Variable):
                    raise refusal(f"`{atom!r}` reads one position", where)
                found.add(term.name)
        computed = computed_positions(body, found)
        for atom in atoms(body):
            if isinstance(atom, nodes.SpecialAtom) and computed_by(atom, found) is not None:
                continue
            for at, term in enumerate(atom.terms):
                if isinstance(term, nodes.Variable) and term.name in found | computed:
                    self._check_use(atom, at, where)
        for weight in weights(body):
            by_position = any(v.name in found | computed for v in variables(weight.keys))
            if by_position and (len(weight.keys) > 1 or len(weight.shape or ()) > 1):
                raise refusal(f"`{weight!r}` is a matrix for each position", where, POSITIONS)
        return found

    def _check_use(
        self, atom: nodes.Atom | nodes.SpecialAtom | nodes.PatternAtom, at: int, where: Place | None
    ) -> None:
        if isinstance(atom, nodes.SpecialAtom) and atom.carries_value:
            return
        if not isinstance(atom, nodes.Atom):
            raise refusal(f"`{atom!r}` is a condition on the position", where, POSITIONS)
        if is_added(atom.relation):
            raise refusal(
                f"values decide which rows `{written_for(atom.relation)}` has, and it is no mask",
                where,
                "select after appending, or let attention alone read the condition",
            )
        if self.axis.get(atom.relation) != at:
            raise refusal(
                f"`{atom.relation}` has the axis that grows but does not grow with it",
                where,
                f"give its new rows with every call: `growing({atom.relation}=...)`",
            )

    def add(self, step: RelationStep) -> None:
        """Find the axis of a derived relation, or refuse."""
        found: set[int | None] = {None} if step.facts else set()
        for one in step.steps:
            found.add(self._of(one))
        if len(found) > 1:
            raise refusal(
                f"`{step.relation}` has rows that grow and rows that do not",
                step.steps[0].rule.place,
            )
        (axis,) = found
        if axis is None:
            self.static.add(step.relation)
        else:
            self.axis[step.relation] = axis

    def _of(self, step: RuleStep | AttentionStep | RelationalStep) -> int | None:
        match step:
            case AttentionStep():
                return self._attention(step)
            case RelationalStep():
                rules = step.node.replaces
                if any(self.names(rule.body, rule.place) for rule in rules):
                    relation = step.node.head.relation
                    raise refusal(f"the pairs of `{relation}` are listed", step.rule.place)
                return None
        return self._rule(step.rule)

    def _rule(self, rule: nodes.Rule) -> int | None:
        found = self.names(rule.body, rule.place)
        if not found:
            return None
        if len(found) > 1:
            raise refusal(f"`{rule.head.relation}` joins different positions", rule.place)
        (name,) = found
        for function in rule.functions:
            if name in (dict(function.arguments).get("agg_terms") or ()):
                raise refusal(f"`{function!r}` is over all positions", rule.place)
        axes = _axes_of(rule.head, name)
        if len(axes) != 1:
            raise refusal(f"`{rule.head.relation}` sums over all positions", rule.place)
        return axes[0]

    def _attention(self, step: AttentionStep) -> int | None:
        node, where = step.node, step.rule.place
        relation = node.head.relation
        query = self.names(node.score.queries, where)
        key = self.names((*node.score.keys, node.value), where)
        if not query and not key:
            return None
        if query - {node.query} or key - {node.key} or not query:
            raise refusal(f"`{relation}` attends to positions that it does not have", where)
        tree, added, factor = separate(node.score.tree)
        if factor is not None or not (self.any_score or _of_dot_product(tree)):
            raise refusal(f"the score of `{relation}` {_more_than_biases(tree, factor)}", where)
        for n in added:
            if len(self.names((node.score.reads[n],), where)) > 1:
                raise refusal(f"the score of `{relation}` joins positions", where)
        if step.attending is not None or step.attending_rows is not None:
            raise refusal(f"a row of `{relation}` may have no key", where)
        if relation not in self.masked and (step.choice or node.pairs.listed):
            raise refusal(f"the pairs of `{relation}` are those of a mask over data", where, MASKS)
        if not key and (step.pattern is not None or relation in self.masked):
            raise refusal(f"the pairs of `{relation}` are listed", where)
        if key:
            self.cached.add(relation)
        return _axes_of(node.head, node.query)[0]


def computed_by(atom: nodes.SpecialAtom, names: set[str]) -> str | None:
    """The variable that a sum computes from a position and a constant, which holds at every
    position: `R.special.add(V.I, 2, V.P)`."""
    if atom.name != "add" or atom.negated or len(atom.terms) != 3:
        return None
    position, by, result = atom.terms
    if not isinstance(position, nodes.Variable) or not isinstance(result, nodes.Variable):
        return None
    plain = isinstance(by, int) and not isinstance(by, bool)
    known = position.name in names and result.name not in names
    return result.name if plain and known else None


def computed_positions(body: Iterable[nodes.Expression], names: set[str]) -> set[str]:
    """The variables of a body that are computed from positions."""
    every = (atom for atom in atoms(tuple(body)) if isinstance(atom, nodes.SpecialAtom))
    return {name for atom in every if (name := computed_by(atom, names)) is not None}


def appended_axes(
    executable: Executable, inputs: Iterable[str], capacity: int, masked: Container[str]
) -> AppendedAxes:
    """The axes that are appended to with the first key of `inputs`."""
    axes = AppendedAxes({name: 0 for name in inputs}, masked=masked)
    for step in executable.steps:
        if not isinstance(step, RelationStep):
            raise refusal("the rules are recursive", None)
        axes.add(step)
        for one in step.steps:
            cached = step.relation in axes.cached and step.relation not in masked
            if isinstance(one, AttentionStep) and cached:
                reason = why_not_incremental(one.pattern, capacity)
                if reason is not None:
                    raise refusal(reason, one.rule.place)
    return axes


def _of_dot_product(tree: Node) -> bool:
    """Whether a score is a function of the dot product alone, such as a capped one."""
    parts = list(walk(tree))
    return S in parts and all(part == S or isinstance(part, Call | Number) for part in parts)


def _more_than_biases(tree: Node, factor: int | None) -> str:
    """A cache adds values of relations to a function of the dot product, and has no other terms."""
    if any(part in (I, J) for part in walk(tree)):
        return "has a term computed from positions"
    if factor is not None:
        return "multiplies its dot product with a value of each pair"
    return "has no dot product" if S not in walk(tree) else "reads a table"


def _axes_of(head: nodes.Atom, name: str) -> list[int]:
    return [p for p, t in enumerate(head.terms) if isinstance(t, nodes.Variable) and t.name == name]


def refusal(what: str, where: Place | None, help: str = "") -> CannotGrow:
    return CannotGrow(what, where, help or "recompute all rows: `model(...)`")


# patterns


def why_not_incremental(pattern: graphs.Pattern | None, capacity: int) -> str | None:
    """Why appending a row changes earlier ones, or None."""
    if pattern is None:
        return "every row attends to all rows, later ones too"
    part = length_dependent(pattern)
    if part is not None:
        return f"the pairs of `{part!r}` depend on the number of rows"
    if capacity and pattern.count(capacity) != (pattern & graphs.causal()).count(capacity):
        return f"in `{pattern!r}` a row attends to later rows"
    every = torch.arange(capacity)
    if not bool(pattern.contains(every, every, capacity).all()):
        return f"in `{pattern!r}` a row does not attend to itself, so it may have no key"
    return None
