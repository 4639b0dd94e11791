"""Turn index arithmetic between two variables into a pattern of `edgewise.graphs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgewise.graphs import Pattern, causal, strided, window
from edgewise.language import nodes
from edgewise.language.dependencies import components, needs
from edgewise.language.statements import atoms, weights
from edgewise.language.terms import variables
from edgewise.passes.formula_patterns import formula_pattern
from edgewise.plan.nodes import Plan

Pair = tuple[str, str]
AT_MOST, AT_LEAST = {"leq": 0, "lt": -1}, {"geq": 0, "gt": 1}


def find_patterns(plan: Plan) -> Plan:
    graph = needs(plan.rules)
    # recursion finds its atoms one by one: arithmetic computes the next, a pattern lists all
    recursive = {
        name for part in components(graph) for name in part if any(part & graph[n] for n in part)
    }
    return replace(
        plan,
        steps=tuple(
            _rule(s) if isinstance(s, nodes.Rule) and s.head.relation not in recursive else s
            for s in plan.steps
        ),
    )


def _rule(rule: nodes.Rule) -> nodes.Rule:
    specials = [
        item
        for item in rule.body
        if isinstance(item, nodes.SpecialAtom) and not item.carries_value and not item.negated
    ]
    distances = {
        name: special
        for special in specials
        if (name := _distance(special)) is not None and _only_in(name, rule, specials)
    }
    found: dict[Pair, Pattern] = {}
    used: list[nodes.SpecialAtom] = []
    for special in specials:
        pair, pattern, also = _pattern(special, specials, distances)
        if pair is not None and pattern is not None and _held_by_atoms(rule, pair):
            found[pair] = found[pair] & pattern if pair in found else pattern
            used += [special, *also]
    if not found:
        return rule
    rest = [item for item in rule.body if not any(item is u for u in used)]
    made = [
        nodes.PatternAtom(pattern, (nodes.Variable(i), nodes.Variable(j)), rule.place)
        for (i, j), pattern in found.items()
    ]
    return replace(rule, body=(*rest, *made))


def _distance(special: nodes.SpecialAtom) -> str | None:
    """D in `sub(I, J, D)`."""
    if special.name != "sub" or not all(isinstance(t, nodes.Variable) for t in special.terms):
        return None
    names = [v.name for v in variables(special.terms)]
    return names[2] if len(set(names)) == 3 else None


def _only_in(name: str, rule: nodes.Rule, specials: Sequence[nodes.SpecialAtom]) -> bool:
    """Whether a variable occurs in these conditions and nowhere else."""
    elsewhere = [a for a in atoms(rule.body) if not any(a is s for s in specials)]
    terms = [t for a in (rule.head, *elsewhere) for t in a.terms]
    terms += [k for w in weights(rule) for k in w.keys]
    return name not in {v.name for v in variables(terms)}


def _held_by_atoms(rule: nodes.Rule, pair: Pair) -> bool:
    """Whether ordinary atoms bind both ends, so that the pattern only filters."""
    held = {
        v.name
        for a in atoms(rule.body)
        if isinstance(a, nodes.Atom) and not a.negated
        for v in variables(a.terms)
    }
    return set(pair) <= held and pair[0] != pair[1]


def _pattern(
    special: nodes.SpecialAtom,
    specials: Sequence[nodes.SpecialAtom],
    distances: dict[str, nodes.SpecialAtom],
) -> tuple[Pair | None, Pattern | None, list[nodes.SpecialAtom]]:
    """The pairs a condition allows, and the conditions on its distance that it takes along."""
    name = _distance(special)
    if name in distances:
        on_it = [s for s in specials if s is not special and _mentions(s, name)]
        pattern: Pattern | None = causal()
        for other in on_it:
            pattern = None if pattern is None else _with_distance(pattern, name, other)
        i, j, _ = (v.name for v in variables(special.terms))
        return (i, j), pattern, on_it
    match special.name, special.terms:
        case "formula", (nodes.Variable(name=a), nodes.Variable(name=b)) if (
            special.formula is not None and not {a, b} & distances.keys()
        ):
            return (a, b), formula_pattern(special.formula), []
        case (  # not eq and neq, which strings meet too
            ("leq" | "lt" | "geq" | "gt" | "next"),
            (nodes.Variable(name=a), nodes.Variable(name=b)),
        ) if a not in distances and b not in distances:
            return (a, b), compared(special.name), []
        case "sub", (nodes.Variable(name=a), nodes.Variable(name=b), int(k)) if k >= 0:
            return (a, b), _exactly(k), []
        case "add", (nodes.Variable(name=b), int(k), nodes.Variable(name=a)) if k >= 0:
            return (a, b), _exactly(k), []
        case "add", (int(k), nodes.Variable(name=b), nodes.Variable(name=a)) if k >= 0:
            return (a, b), _exactly(k), []
    return None, None, []


def _mentions(special: nodes.SpecialAtom, name: str | None) -> bool:
    return any(v.name == name for v in variables(special.terms))


def _exactly(distance: int) -> Pattern:
    band = causal() & window(distance)
    return band - window(distance - 1) if distance else band


def compared(name: str) -> Pattern | None:
    """The pairs (a, b) of integers with a ≤ b, a < b, ..."""
    table = {
        "leq": causal().T,
        "lt": causal().T - window(0),
        "geq": causal(),
        "gt": causal() - window(0),
        "eq": window(0),
        "neq": ~window(0),
        "next": _exactly(1).T,
    }
    return table.get(name)


def _with_distance(
    pattern: Pattern, distance: str | None, other: nodes.SpecialAtom
) -> Pattern | None:
    """The pairs of `pattern` whose distance meets one more condition; None if not known how."""
    match other.name, other.terms:
        case (("leq" | "lt"), (nodes.Variable(name=d), int(k))) if d == distance:
            most = k + AT_MOST[other.name]
            return pattern & window(most) if most >= 0 else None
        case (("geq" | "gt"), (nodes.Variable(name=d), int(k))) if d == distance:
            least = k + AT_LEAST[other.name]
            return pattern - window(least - 1) if least > 0 else pattern
        case "eq", (nodes.Variable(name=d), int(k)) if d == distance and k >= 0:
            return pattern & _exactly(k)
        case "mod", (nodes.Variable(name=d), int(step), 0) if d == distance and step > 0:
            return pattern & strided(step)
    return None
