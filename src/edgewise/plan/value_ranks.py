"""Comparisons of the values of two keys, as runs of ranks.

`a(I) + b(J) > c` holds for up to n² pairs. For one I it holds from some value of b(J) on, because
rounding keeps order. So it is read as `runs(I, A, B), ranks(J, C), leq(A, C), lt(C, B)`, where C is
the rank of b(J) among all, and A to B the ranks for which the comparison with a(I) holds: n rows
each, which masks take as intervals and joins as ranges. `ground/value_runs.py` finds them.
A comparison of several numbers of both, such as (a(I) − a(J))² + (b(I) − b(J))² ≤ 1, is tested for
all pairs, some at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edgewise.functions import DEFINITIONS, Law
from edgewise.language import nodes
from edgewise.language.dependencies import needs, reachable
from edgewise.language.statements import assigned_variables
from edgewise.plan.nodes import Plan

SIDES = (" runs", " ranks")
LATER = " later runs"
COMPARED = ("greater", "greater_equal")
# order is kept, or turned, by rounding too, and of finite numbers none gives NaN
INCREASING = ("sum", "avg", "max", "min", "relu")
DECREASING = ("reverse",)
SCALED = ("elproduct", "product")


@dataclass(frozen=True)
class ValueColumn(nodes.Expression):
    """The value of one of the two keys: a column of the side with runs, or of the other, from −1
    down: a ranked value is its only one."""

    at: int
    is_number: bool = False  # finite, and the same for all keys
    place = None


@dataclass(frozen=True)
class RankedComparison:
    """A selection that compares values of two keys with no variable in common.

    `test` is the comparison over columns. In the ranked value each of the `monotone` comparisons
    holds up to some value or from it on, and between two such values the test does not change.
    """

    head: nodes.Atom
    columns: int
    test: nodes.Apply
    monotone: tuple[nodes.Apply, ...]
    plans: tuple[Plan, Plan]  # of the columns with runs, and of the ranked value

    @property
    def columns_of(self) -> tuple[int, int]:
        """How many columns each side has."""
        return self.columns, 1

    @property
    def is_outside(self) -> bool:
        """Whether it holds below some value and above another one: |x| > c."""
        return _is_absolute(self.test.operands[0])

    def bodies(
        self, terms: tuple[nodes.Term, ...], number: int
    ) -> list[tuple[nodes.Expression, ...]]:
        """The selection of some terms, by ranks: one body or the other."""
        place = {v: at for at, v in enumerate(self.head.terms)}
        start, end, rank = (nodes.Variable(f"@{number} {name}") for name in ("from", "to", "rank"))
        tables = []
        for plan, more in zip(self.plans, ((start, end), (rank,)), strict=True):
            (head,) = plan.outputs
            own = tuple(terms[place[v]] for v in _terms(plan, head.relation))
            tables.append(nodes.Atom(head.relation, (*own, *more), hidden=True))
        runs, ranks = tables
        later = replace(runs, relation=self.head.relation + LATER)
        between = nodes.SpecialAtom("leq", (start, rank)), nodes.SpecialAtom("lt", (rank, end))
        return [(one, ranks, *between) for one in ((runs, later) if self.is_outside else (runs,))]

    def rules(self) -> list[nodes.Rule]:
        """The selection as a relation that ranks derive."""
        bodies = self.bodies(self.head.terms, 0)
        return [nodes.Rule(self.head, body, (), self.head.place) for body in bodies]


@dataclass(frozen=True)
class PairwiseComparison:
    """A selection that compares several values of two keys with no variable in common: `test` is
    the comparison over columns of both. The keys of a side are at its `places` of the rule head."""

    rule: nodes.Rule
    test: nodes.Apply
    columns_of: tuple[int, int]
    places: tuple[tuple[int, ...], tuple[int, ...]]
    plans: tuple[Plan, Plan]


SplitComparison = RankedComparison | PairwiseComparison


def split(plan: Plan) -> SplitComparison | None:
    """The plan of a selection as one of each key, by ranks if it comes apart; None if a value
    reads both keys, or a function is not elementwise."""
    (output,) = plan.outputs
    rules = [r for r in plan.rules if r.head.relation == output.relation]
    if len(rules) != 1 or len(rules[0].body) != 1 or rules[0].functions:
        return None
    (rule,) = rules
    value = rule.body[0]
    if not isinstance(value, nodes.Apply) or value.function.name not in COMPARED or value.weight:
        return None
    groups = _groups(value)
    if len(groups) != 2:
        return None
    for own, other in (groups, groups[::-1]):
        parts = _ColumnReader(own, other)
        test = replace(value, operands=tuple(map(parts.read, value.operands)))
        monotone = tuple(_monotone(test))
        if len(parts.ranked) == 1 and all(_is_monotone(item) for item in monotone):
            plans = parts.plans(plan, rule)
            return RankedComparison(rule.head, len(parts.columns), test, monotone, plans)
    parts = _ColumnReader(*groups)
    test = replace(value, operands=tuple(map(parts.read, value.operands)))
    if not all(map(_is_elementwise, test.operands)):
        return None
    terms = [t.name for t in rule.head.terms if isinstance(t, nodes.Variable)]
    left, right = (tuple(map(terms.index, group)) for group in groups)
    sizes = (len(parts.columns), len(parts.ranked))
    return PairwiseComparison(rule, test, sizes, (left, right), parts.plans(plan, rule))


def by_ranks(plan: Plan, known: Mapping[str, RankedComparison]) -> Plan:
    """A plan that reads the ranks of comparisons; one that is negated, or has two bodies, is a
    relation of its own."""
    apart: set[str] = set()
    steps = []
    for step in plan.steps:
        assert isinstance(step, nodes.Rule)
        body: list[nodes.Expression] = []
        for at, item in enumerate(step.body):
            name = item.relation if isinstance(item, nodes.Atom) else ""
            if name not in known:
                body.append(item)
            elif isinstance(item, nodes.Atom) and not (item.negated or known[name].is_outside):
                body += known[name].bodies(item.terms, at)[0]
            else:
                apart.add(name)
                body.append(item)
        steps.append(replace(step, body=tuple(body)))
    for name in sorted(apart):
        steps += known[name].rules()
    return replace(plan, steps=tuple(steps))


class _ColumnReader:
    """An expression over columns, and what each of them is."""

    def __init__(self, own: Sequence[str], other: Sequence[str]) -> None:
        self.groups = (own, other)
        self.own, self.other = set(own), set(other)
        self.columns: list[nodes.Expression] = []
        self.ranked: list[nodes.Expression] = []

    def read(self, item: nodes.Expression) -> nodes.Expression:
        """The expression; numbers and weights are columns too."""
        names = set(_variables(item))
        if names & self.own and names & self.other:
            assert isinstance(item, nodes.Apply)
            return replace(item, operands=tuple(map(self.read, item.operands)))
        if names & self.other:
            if item not in self.ranked:
                self.ranked.append(item)
            return ValueColumn(-1 - self.ranked.index(item))
        if item not in self.columns:
            self.columns.append(item)
        return ValueColumn(self.columns.index(item), _is_number(item))

    def plans(self, plan: Plan, rule: nodes.Rule) -> tuple[Plan, Plan]:
        """The plans of the columns of each side."""
        own, other = self.groups
        runs = _side(plan, rule, self.columns, own, SIDES[0])
        return runs, _side(plan, rule, self.ranked, other, SIDES[1])


def _is_number(item: nodes.Expression) -> bool:
    if isinstance(item, ValueColumn):
        return item.is_number
    value = item.value if isinstance(item, nodes.Weight) and item.is_fixed else None
    return isinstance(value, int | float) and math.isfinite(value)


def _groups(value: nodes.Expression) -> list[tuple[str, ...]]:
    """Variables, those of one atom together, as they are written."""
    found: list[list[str]] = []
    for atom in _atoms(value):
        own = list(_variables(atom))
        joined = [group for group in found if {*group} & {*own}]
        rest = [group for group in found if group not in joined]
        if own:
            found = [*rest, list(dict.fromkeys([*(n for g in joined for n in g), *own]))]
    return [tuple(group) for group in found]


def _atoms(item: nodes.Expression) -> Iterator[nodes.Expression]:
    """What an expression combines; one with a weight is not looked into."""
    if isinstance(item, nodes.Apply) and item.weight is None:
        for operand in item.operands:
            yield from _atoms(operand)
    else:
        yield item


def _monotone(test: nodes.Apply) -> Iterator[nodes.Apply]:
    """|x| > c changes where x > c or −x > c does."""
    signs: list[tuple[nodes.Expression, ...]] = []
    for item in test.operands:
        inner = item.operands[0] if _is_absolute(item) else None  # type: ignore[attr-defined]
        signs.append((item,) if inner is None else (inner, _negated(inner)))
    for left in signs[0]:
        for right in signs[1]:
            yield replace(test, operands=(left, right))


def _negated(item: nodes.Expression) -> nodes.Apply:
    minus = nodes.Weight(value=-1.0, is_fixed=True)
    return nodes.Apply(nodes.Function("elproduct"), (minus, item), None)


def _is_absolute(item: nodes.Expression) -> bool:
    return isinstance(item, nodes.Apply) and item.function.name == "abs" and item.weight is None


def _is_monotone(item: nodes.Expression) -> bool:
    """Whether an expression moves in one direction with the ranked value."""
    if not isinstance(item, nodes.Apply):
        return True
    if item.weight is not None or item.function.arguments:
        return False
    name = item.function.name
    fine = name in (*COMPARED, *INCREASING, *DECREASING) or (
        name in SCALED and len(item.operands) == 2 and any(_is_number(o) for o in item.operands)
    )
    return fine and all(map(_is_monotone, item.operands))


def _is_elementwise(item: nodes.Expression) -> bool:
    """Whether an expression of columns is computed from one number of each."""
    if not isinstance(item, nodes.Apply):
        return True
    if item.weight is not None or item.function.arguments:
        return False
    name = item.function.name
    fine = name in COMPARED or Law.ELEMENTWISE in DEFINITIONS[name].laws
    return fine and all(map(_is_elementwise, item.operands))


def _variables(value: nodes.Expression) -> tuple[str, ...]:
    return tuple(assigned_variables(nodes.Rule(nodes.Atom(""), (value,))))


def _terms(plan: Plan, relation: str) -> tuple[nodes.Term, ...]:
    return next(rule.head.terms for rule in plan.rules if rule.head.relation == relation)


def _side(
    plan: Plan,
    rule: nodes.Rule,
    parts: Sequence[nodes.Expression],
    names: Sequence[str],
    suffix: str,
) -> Plan:
    """The plan of the values of one key: one number, or a vector of several."""
    value = parts[0]
    if len(parts) > 1:
        value = nodes.Apply(nodes.Function("concat"), tuple(parts), None, rule.place)
    head = replace(
        rule.head,
        relation=rule.head.relation + suffix,
        terms=tuple(map(nodes.Variable, names)),
    )
    rules = [*(r for r in plan.rules if r is not rule), nodes.Rule(head, (value,), (), rule.place)]
    wanted = reachable(needs(rules), [head.relation])
    terms = tuple(nodes.Variable(f"X{at}") for at in range(len(names)))
    return replace(
        plan,
        outputs=(nodes.Atom(head.relation, terms),),
        steps=tuple(r for r in rules if r.head.relation in wanted),
        facts=tuple(f for f in plan.facts if f.atom.relation in wanted),
        lines=tuple(line for line in plan.lines if line.relation in wanted),
    )
