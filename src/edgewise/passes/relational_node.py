"""The attention node with vectors of edges that a weighted sum is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from edgewise.language import functions, nodes
from edgewise.language.statements import atoms, combination
from edgewise.language.terms import variables
from edgewise.passes.attention_node import Replaced, WeightedSum
from edgewise.plan.nodes import Dot
from edgewise.plan.relational import EdgeDot, EdgeVector, RelationalAttention
from edgewise.plan.score import NotASum, Term, is_row, names_in, terms_of, times

QUERY, KEY, EDGE = "query", "key", "edge"
TRANSPOSE = nodes.Function("transp")


class _NotRelational(Exception):
    """Internal: the score or the value is made of something else."""


@dataclass
class _ScoreParts:
    """The parts of a score and a value, as they are found."""

    query: str
    key: str
    shared: frozenset[str]
    dots: list[Dot] = field(default_factory=list)
    by_query: list[EdgeDot] = field(default_factory=list)
    by_key: list[EdgeDot] = field(default_factory=list)
    biases: list[nodes.Expression] = field(default_factory=list)
    values: list[nodes.Expression] = field(default_factory=list)
    edge_values: list[EdgeVector] = field(default_factory=list)

    def kind(self, term: Term) -> str:
        """What a term is a value of: of each query, of each key or of each edge."""
        names = names_in(term.factors)
        if not names <= {self.query, self.key} | self.shared:
            raise _NotRelational
        if self.key not in names:
            return QUERY
        return EDGE if self.query in names else KEY

    def add_score(self, term: Term) -> None:
        rows = [n for n, f in enumerate(term.factors) if is_row(f) and names_in(f)]
        if not rows and self.kind(term) != QUERY:
            self.biases.append(times(term.factors))
            return
        if len(rows) != 1:
            raise _NotRelational
        start = rows[0]
        ends = (n for n in range(start + 1, len(term.factors)) if names_in(term.factors[n]))
        end = next(ends, None)
        row = term.factors[start]
        if end is None or not isinstance(row, nodes.Apply):
            raise _NotRelational
        scale = (*term.factors[:start], *term.factors[end + 1 :])
        if names_in(scale):
            raise _NotRelational
        for left in terms_of("sum", row.operands):
            for right in terms_of("sum", (times(term.factors[start + 1 : end + 1]),)):
                self._add_dot(left, right, scale)

    def _add_dot(self, left: Term, right: Term, scale: tuple[nodes.Expression, ...]) -> None:
        a, b = times(left.factors), times(right.factors)
        kinds = (self.kind(left), self.kind(right))
        match kinds:
            case (_, "edge") if kinds[0] != EDGE:
                row, edge, of = a, right, kinds[0]
            case ("edge", _) if kinds[1] != EDGE:
                row, edge, of = b, left, kinds[1]
            case ("query", "key"):
                self.dots.append(Dot(a, b, scale))
                return
            case ("key", "query"):
                self.dots.append(Dot(b, a, scale))
                return
            case ("query", "query"):
                raise _NotRelational
            case _:
                self.biases.append(times((*scale, nodes.Apply(TRANSPOSE, (a,)), b)))
                return
        into = self.by_query if of == QUERY else self.by_key
        into.append(EdgeDot(row, self._vector(edge), scale))

    def add_value(self, term: Term) -> None:
        match self.kind(term):
            case "key":
                self.values.append(times(term.factors))
            case "edge":
                self.edge_values.append(self._vector(term))
            case _:
                raise _NotRelational

    def _vector(self, term: Term) -> EdgeVector:
        """The weight that is the last to be applied apart, if no edge has one of its own."""
        first, *rest = term.factors
        weight: nodes.Weight | None
        edge: nodes.Expression | None
        if isinstance(first, nodes.Weight):
            weight, edge = first, times(tuple(rest)) if rest else None
        elif not rest and isinstance(first, nodes.Atom | nodes.Apply):
            weight, edge = first.weight, replace(first, weight=None)
        else:
            weight, edge = None, None
        if weight is None or edge is None or not names_in(weight) <= self.shared:
            return EdgeVector(times(term.factors))
        return EdgeVector(edge, weight)


def relational_node(
    sum_: WeightedSum, using: nodes.Rule, replaces: Replaced
) -> RelationalAttention | None:
    """The node, if vectors of edges are part of the score or of the value."""
    rule, key = sum_.score, sum_.key
    heads = [v.name for v in variables(rule.head.terms) if v.name != key]
    conditions = [item for item in rule.body if not item.carries_value]
    listed = [c for c in conditions if isinstance(c, nodes.Atom) and not c.negated]
    transformed = any(functions.kind(f) == functions.TRANSFORMATION for f in rule.functions)
    if transformed or len(listed) != len(conditions):
        return None
    try:
        items = tuple(item for item in rule.body if item.carries_value)
        score = terms_of(combination(rule.functions).name, items)
        query = _query(heads, key, (*rule.body, sum_.value))
        parts = _ScoreParts(query, key, frozenset(heads) - {query})
        for term in score:
            parts.add_score(term)
        for term in terms_of("sum", (sum_.value,)):
            parts.add_value(term)
    except (NotASum, _NotRelational):
        return None
    if not (parts.by_query or parts.by_key or parts.edge_values) or _stray(listed, {*heads, key}):
        return None
    found = vars(parts)
    each = {name: tuple(x) for name, x in found.items() if isinstance(x, list)}
    shared = tuple(n for n in heads if n != query)
    head = replace(using.head, weight=None)
    return RelationalAttention(
        head, query, key, shared, **each, listed=tuple(listed), dropout=sum_.dropout,
        replaces=replaces,
    )  # fmt: skip


def _stray(conditions: Sequence[nodes.Atom], names: set[str]) -> bool:
    return not names_in(tuple(conditions)) <= names


def _query(heads: Sequence[str], key: str, items: tuple[nodes.Expression, ...]) -> str:
    """The query's variable: one that stands in an atom with the key, and beside it the least."""
    read = [a for a in atoms(items) if isinstance(a, nodes.Atom)]
    pairs = [a for a in read if key in {v.name for v in variables(a.terms)}]
    beside = [n for n in heads if any(n in {v.name for v in variables(a.terms)} for a in pairs)]
    if not beside:
        raise _NotRelational
    return min(beside, key=lambda n: sum(n in names_in(a) for a in pairs))
