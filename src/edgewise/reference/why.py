"""Why an atom has its value: the groundings behind it, what each gives, and its share.

`reference/render.py` prints it, and says how many groundings at most.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.checks.evaluation import BadQuery
from edgewise.errors import caller
from edgewise.functions import Law
from edgewise.language import functions, nodes
from edgewise.language.functions import definition
from edgewise.language.statements import SUM, atoms, combination
from edgewise.reference.evaluate import (
    GroundAtom,
    Values,
    combine,
    located,
    normalise,
    uses,
)
from edgewise.reference.ground import RuleGroundings
from edgewise.reference.join import Assignment, Key, ground
from edgewise.reference.render import as_data, as_html, as_text, number
from edgewise.reference.solution import Solution
from edgewise.weights import WeightTable


@dataclass(frozen=True, eq=False)
class Grounding:
    """One grounding: its assignment, the atoms it used, what it gives, and its share.

    `contribution` is f(comb(W·b, ...)), before aggregation; `conditions` are ground atoms that
    carry no value, a witness for each variable that only they mention.
    """

    assignment: tuple[tuple[str, nodes.Constant], ...]
    used: tuple[tuple[nodes.Atom | nodes.SpecialAtom, Tensor], ...]
    conditions: tuple[nodes.Atom | nodes.SpecialAtom | nodes.PatternAtom, ...]
    contribution: Tensor
    share: float | None


@dataclass(frozen=True, eq=False)
class Member:
    """One rule head of a softmax group: its score and the weight it gets."""

    atom: nodes.Atom
    score: Tensor
    weight: Tensor


@dataclass(frozen=True, eq=False)
class Derivation:
    """What one rule gives to the atom: `value` = W_h · aggregation(contributions).

    For a softmax over `agg_terms` the contributions aggregate to the atom's score, `group` has
    the rule heads it is normalised with, itself included, and `weight` is what it gets among them.
    """

    rule: nodes.Rule
    aggregation: nodes.Function
    groundings: tuple[Grounding, ...]
    group: tuple[Member, ...]
    weight: Tensor | None
    value: Tensor
    share: float | None


@dataclass(frozen=True, eq=False)
class Why:
    """An atom, its value, and the derivations behind it; printed, a table.

    `fact` is the value that a fact states, if any; `line` combines several derivations.

    >>> from edgewise.language import Program, R, V
    >>> solution = Program([R.h(V.X) <= R.a(V.X, V.Y)]).solve([R.a(1, 2)[3.0], R.a(1, 4)[1.0]])
    >>> [g.share for g in solution.why(R.h(1)).derivations[0].groundings]
    [0.75, 0.25]
    """

    atom: nodes.Atom
    value: Tensor
    fact: Tensor | None
    fact_share: float | None
    derivations: tuple[Derivation, ...]
    line: nodes.Line | None

    def to_json(self) -> dict[str, Any]:
        """The same as dicts, lists, strings and numbers.

        >>> from edgewise import Program, R, V
        >>> why = Program([R.h <= R.x(V.I)]).solve([R.x(0)[1.0]]).why(R.h)
        >>> sorted(why.to_json())
        ['atom', 'derivations', 'fact', 'fact_share', 'line', 'value']
        """
        return as_data(self)

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def why(solution: Solution, atom: nodes.Atom) -> Why:
    """The groundings behind the value of a ground atom.

    The share of grounding g with contribution v_g in out = agg(v_1, ..., v_n) is

        share(g) = p_g / Σ |p|,   p_g = ⟨J_gᵀ·out, v_g⟩,   J_g = ∂out/∂v_g

    p_g is what g adds in the direction of the value: for sum, avg and concat the part that comes
    from it. A grounding that pulls the other way, evidence against, has a negative share; the sizes
    of all shares sum to one. For max and min it goes to the winners of each element, ties equally;
    for top-k to the chosen. For count every grounding has an equal part, for a softmax without
    `agg_terms` its weight. Where out is 0 a sum has nothing to share, and the share is None.
    Derivations share the relation's combination likewise.

    Dropout of a solution in training is drawn again.

    >>> from edgewise import R, V, Program
    >>> program = Program([R.h(V.X) <= (R.a(V.Y), R._edge(V.X, V.Y))])
    >>> facts = [R.a(1)[3.0], R.a(2)[1.0], R.edge(0, 1), R.edge(0, 2)]
    >>> print(program.solve(facts).why(R.h(0)))
    R.h(0) = 4
    R.h(V.X) <= (R.a(V.Y), R._edge(V.X, V.Y))
      sum_agg over 2 groundings
       share                contribution  X  Y  from      where
       75.0%  ████████████  3             0  1  a(1) = 3  edge(0, 1)
       25.0%  ████          1             0  2  a(2) = 1  edge(0, 2)
    """
    if isinstance(atom, nodes.Atom) and any(isinstance(t, nodes.Variable) for t in atom.terms):
        raise _open(solution, atom)
    value = solution[atom]
    relation = solution.program.aliases.get(atom.relation, atom.relation)
    return _explained(solution, (relation, atom.terms), value)  # type: ignore[arg-type]


def _open(solution: Solution, atom: nodes.Atom) -> BadQuery:
    some = list(solution[nodes.Atom(atom.relation, atom.terms)])[:3]
    shown = ", ".join(f"`{a!r}`" for a in some)
    return BadQuery(
        f"`{atom!r}` has variables; `why` explains one atom",
        caller(),
        f"give one, such as {shown}" if some else "give an atom without variables",
    )


def _explained(solution: Solution, atom: GroundAtom, value: Tensor) -> Why:
    evaluator = solution.evaluator
    relation, key = atom
    values = evaluator.before.get(relation, solution.values_by_atom)
    written = [rule for rule in solution.program.rules if rule.head.relation == relation]
    found = [
        # as written: the evaluator's rule has a name on every weight
        replace(derivation, rule=_in_use(own, rule.rule, evaluator.weights))
        for own, rule in zip(written, evaluator.rules.get(relation, ()), strict=True)
        if key in rule.heads
        if (derivation := located(own, lambda r=rule: _derived(solution, r, key, values)))  # type: ignore[misc]
    ]
    line = evaluator.lines.get(relation) if found else None
    fact = evaluator.facts.get(atom)
    parts = ([] if fact is None else [fact]) + [d.value for d in found]
    how = combination(line.functions) if line is not None else SUM
    shares = _shared(how, parts, lambda items: combine(how, items))
    of_fact = None if fact is None else shares.pop(0)
    derivations = tuple(replace(d, share=s) for d, s in zip(found, shares, strict=True))
    return Why(nodes.Atom(relation, key), value, fact, of_fact, derivations, line)


def _in_use(own: Any, named: Any, weights: WeightTable) -> Any:
    """A rule with the values that its weights have now, where it says which they start from."""

    def go(*fields: str) -> dict[str, Any]:
        return {f: _in_use(getattr(own, f), getattr(named, f), weights) for f in fields}

    match own:
        case tuple():
            return tuple(_in_use(a, b, weights) for a, b in zip(own, named, strict=True))
        case nodes.Rule():
            return replace(own, **go("head", "body"))
        case nodes.Apply():
            return replace(own, **go("operands", "weight"))
        case nodes.Atom() | nodes.SpecialAtom():
            return replace(own, **go("weight"))
        case nodes.Weight(value=tuple() | float() | int()):
            tensor = weights.tensors[named.name].detach()
            if own.keys:  # one for each key: no single value to show
                return replace(own, value=None, shape=tuple(tensor.shape[len(own.keys) :]))
            return replace(own, value=_rounded(tensor.tolist()))
    return own


def _rounded(value: Any) -> Any:
    return tuple(map(_rounded, value)) if isinstance(value, list) else float(number(value))


def _derived(
    solution: Solution, rule: RuleGroundings, key: Key, values: Values
) -> Derivation | None:
    evaluator = solution.evaluator
    own = (f for f in rule.rule.functions if functions.kind(f) == functions.AGGREGATION)
    aggregation = next(own, evaluator.aggregation)
    grouped = dict(aggregation.arguments).get("agg_terms")
    inner = evaluator.aggregation if grouped else aggregation
    by_head = {
        head: [
            (bound, evaluator.grounding(rule.rule, bound, values))
            for bound in rule.heads[head]
            if all(atom in values for atom in uses(rule.rule, bound))
        ]
        for head in rule.groups[key]
    }
    if not by_head[key]:
        return None
    contributions = [value for _, value in by_head[key]]
    shares = _shares(inner, contributions)
    groundings = tuple(
        Grounding(
            tuple(bound.items()),
            _used(solution, rule.rule, bound, values),
            _conditions(rule.rule, bound, rule.witnesses[tuple(bound.values())]),
            value,
            share,
        )
        for (bound, value), share in zip(by_head[key], shares, strict=True)
    )
    scores = {h: combine(inner, [v for _, v in pairs]) for h, pairs in by_head.items() if pairs}
    group: tuple[Member, ...] = ()
    out, weight = scores[key], None
    if grouped:
        group = _group(rule.rule.head.relation, aggregation, scores)
        weight = out = next(m.weight for m in group if m.atom.terms == key)
    if rule.rule.head.weight is not None:
        # the rule head's weight is what turns the aggregate into the value
        out = evaluator.rule(rule, key, values)[key]
    return Derivation(rule.rule, aggregation, groundings, group, weight, out, None)


def _group(
    relation: str, aggregation: nodes.Function, scores: dict[Key, Tensor]
) -> tuple[Member, ...]:
    weights = normalise(aggregation, list(scores.values()))
    return tuple(
        Member(nodes.Atom(relation, head), score, weight)
        for (head, score), weight in zip(scores.items(), weights, strict=True)
    )


def _used(
    solution: Solution, rule: nodes.Rule, bound: Assignment, values: Values
) -> tuple[tuple[nodes.Atom | nodes.SpecialAtom, Tensor], ...]:
    """The atoms that carried values into a grounding."""
    found: list[tuple[nodes.Atom | nodes.SpecialAtom, Tensor]] = []
    for atom in atoms(rule.body):
        if isinstance(atom, nodes.PatternAtom) or not atom.carries_value:
            continue
        key = ground(atom.terms, bound)
        plain: nodes.Atom | nodes.SpecialAtom
        if isinstance(atom, nodes.Atom):
            plain = nodes.Atom(atom.relation, key)
        else:
            plain = nodes.SpecialAtom(atom.name, key)
        found.append((plain, solution.evaluator.expression(plain, bound, values)))
    return tuple(found)


def _conditions(
    rule: nodes.Rule, bound: Assignment, witness: Assignment
) -> tuple[nodes.Atom | nodes.SpecialAtom | nodes.PatternAtom, ...]:
    """How conditions hold: atoms of relations, and what else has variables of its own."""
    found = []
    for atom in atoms(rule.body):
        own = any(isinstance(t, nodes.Variable) and t.name not in bound for t in atom.terms)
        if not atom.carries_value and (own or isinstance(atom, nodes.Atom)):
            found.append(replace(atom, terms=ground(atom.terms, witness)))
    return tuple(found)


def _shares(aggregation: nodes.Function, values: Sequence[Tensor]) -> list[float | None]:
    if Law.NORMALISES in definition(aggregation):  # without agg_terms: the vector of weights
        return combine(aggregation, values).detach().reshape(-1).tolist()
    return _shared(aggregation, values, lambda items: combine(aggregation, items))


def _shared(
    how: nodes.Function, values: Sequence[Tensor], function: Callable[[Sequence[Tensor]], Tensor]
) -> list[float | None]:
    """p_g = ⟨J_gᵀ·out, v_g⟩ of each value, divided by Σ |p|; None where it is 0/0 or infinite."""
    if definition(how).gradient == "0":  # how many there are
        return [1 / len(values)] * len(values)
    if not values:
        return []
    with torch.enable_grad():
        leaves = [value.detach().clone().requires_grad_() for value in values]
        out = function(leaves)
        grads: Sequence[Tensor | None] = [None] * len(leaves)
        if out.requires_grad:
            grads = torch.autograd.grad(out, leaves, out.detach(), allow_unused=True)
    total = float(out.detach().square().sum())
    if total == 0 and definition(how).is_extreme:  # the winners stay the same after adding 1
        return _shared(how, [value + 1 for value in values], function)
    parts = [
        0.0 if g is None else float((g * leaf).detach().sum())
        for g, leaf in zip(grads, leaves, strict=True)
    ]
    size = math.fsum(map(abs, parts))
    if total == 0 or size == 0 or not math.isfinite(size):
        return [None] * len(parts)
    return [part / size for part in parts]
