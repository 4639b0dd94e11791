"""A program as a plan for its outputs: named weights, only what they need; what a plan must be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from edgewise.errors import EdgewiseError, caller, nearest, safe_repr
from edgewise.language import nodes
from edgewise.language.dependencies import components, needs, reachable
from edgewise.language.program import Program
from edgewise.language.statements import atoms, is_selection, name_weights, weights
from edgewise.language.terms import variables
from edgewise.plan.nodes import Attention, Fused, Plan
from edgewise.plan.score import names_in


class UnknownOutput(EdgewiseError):
    """A compiled model computes relations, and something must derive each of them."""

    code = "unknown-output"
    example = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.hh)"
    instead = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)"


def _derived(relations: list[str]) -> str:
    if not relations:
        return "the program has no rules: write one that derives it"
    return f"rules derive {', '.join(relations)}"


def lower(
    program: Program,
    *outputs: nodes.Atom,
    several: bool = False,
    as_inputs: frozenset[str] = frozenset(),
) -> Plan:
    """The rules, facts and lines that `outputs` need, weights named as in the full program.

    `several` outputs are returned by name; those in `as_inputs` are not derived.
    """
    statements = name_weights(program)
    rules = [s for s in statements if isinstance(s, nodes.Rule)]
    graph = needs(rules)
    queries = tuple(_query(program, output, rules, graph) for output in outputs)
    names = tuple(output.relation for output in outputs)
    for name in names:
        if names.count(name) > 1:
            raise UnknownOutput(
                f"`{name}` is an output twice, and outputs are returned by name",
                caller(),
                f"write it once, and choose rows by `model(..., want={{{name!r}: ...}})`",
            )
    derived = {name: read for name, read in graph.items() if name not in as_inputs}
    wanted = reachable(derived, [query.relation for query in queries]) - as_inputs
    return Plan(
        queries,
        tuple(r for r in rules if r.head.relation in wanted),
        tuple(s for s in statements if isinstance(s, nodes.Fact) and s.atom.relation in wanted),
        tuple(s for s in statements if isinstance(s, nodes.Line) and s.relation in wanted),
        program.aggregation,
        program.domains,
        program.rounds,
        names=names if several else (),
    )


def selections(program: Program, outputs: Iterable[nodes.Atom]) -> tuple[str, ...]:
    """The relations that hold where their value is not 0, of those that outputs need, in an order
    in which each can be computed."""
    graph = needs(program.rules)
    starts = (program.aliases.get(o.relation, o.relation) for o in outputs)
    wanted = reachable(graph, starts)
    parts = (sorted(filter(is_selection, part)) for part in components(graph))
    return tuple(name for part in parts for name in part if name in wanted)


def _query(
    program: Program, output: nodes.Atom, rules: list[nodes.Rule], graph: dict[str, set[str]]
) -> nodes.Atom:
    """What an output asks of its relation: every term a variable, or a constant."""
    if not isinstance(output, nodes.Atom):
        raise UnknownOutput(
            f"`{safe_repr(output)}` is not a relation", caller(), "write `compile(R.out)`"
        )
    if output.negated or output.hidden or output.weight is not None:
        raise UnknownOutput(
            f"`{output!r}` is an occurrence in a body, not a relation",
            caller(),
            f"write `compile({nodes.Atom(output.relation)!r})`",
        )
    relation = program.aliases.get(output.relation, output.relation)
    if relation not in graph:
        near = nearest(relation, list(graph))
        raise UnknownOutput(
            f"no rule derives `{output.relation}`",
            caller(),
            f"did you mean `{nodes.Atom(near)!r}`?" if near else _derived(list(graph)),
        )
    arity = next(len(r.head.terms) for r in rules if r.head.relation == relation)
    if len(output.terms) not in (0, arity):
        raise UnknownOutput(
            f"`{output.relation}` has {arity} terms, `{output!r}` {len(output.terms)}",
            caller(),
            f"write `compile({nodes.Atom(output.relation)!r})` for all of it",
        )
    variables = tuple(nodes.Variable(f"X{i}") for i in range(arity))
    return nodes.Atom(relation, output.terms or variables)


class BadPlan(AssertionError):
    """A pass made a plan that is not one: a mistake of ours, never of a program."""


def assert_well_formed(plan: Plan, inputs: frozenset[str] | None = None) -> None:
    """Raise `BadPlan` with everything that is wrong.

    `inputs` are the relations that data gives; None leaves them open.

    >>> from edgewise.language import R, V, Program
    >>> from edgewise.plan.lower import lower
    >>> assert_well_formed(lower(Program([R.h(V.X) <= R.a(V.X)]), R.h), frozenset({"a"}))
    """
    wrong = list(problems(plan, inputs))
    if wrong:
        raise BadPlan("; ".join(wrong))


def problems(plan: Plan, inputs: frozenset[str] | None = None) -> Iterator[str]:
    """What is wrong with a plan."""
    yield from _output(plan)
    yield from _defined(plan, inputs)
    yield from _arities(plan)
    for rule in plan.rules:
        yield from _bound(rule)
        yield from _named(rule)
    for step in plan.steps:
        if not isinstance(step, nodes.Rule):
            yield from _attention(plan, step)


def _output(plan: Plan) -> Iterator[str]:
    derived = {rule.head.relation for rule in plan.rules}
    for relation in sorted(plan.wanted - derived):
        yield f"nothing derives the output `{relation}`"


def _defined(plan: Plan, inputs: frozenset[str] | None) -> Iterator[str]:
    """Every relation that is read is derived, a fact or an input; every derived one is read."""
    graph = needs(plan.rules)
    derived = {rule.head.relation for rule in plan.rules}
    stated = {fact.atom.relation for fact in plan.facts}
    if inputs is not None:
        for relation in sorted(set().union(*graph.values()) - derived - stated - inputs):
            yield f"`{relation}` is read and nothing gives it"
    read = plan.wanted.union(*graph.values())
    for relation in sorted(derived - read):
        yield f"`{relation}` is derived and nothing reads it"


def _arities(plan: Plan) -> Iterator[str]:
    known: dict[str, int] = {}
    for rule in plan.rules:
        for atom in (rule.head, *atoms(rule.body)):
            if isinstance(atom, nodes.Atom):
                arity = known.setdefault(atom.relation, len(atom.terms))
                if arity != len(atom.terms):
                    yield f"`{atom.relation}` has {arity} terms and {len(atom.terms)}"


def _bound(rule: nodes.Rule) -> Iterator[str]:
    """The variables of the head are those that something in the body binds."""
    held = {
        v.name
        for a in atoms(rule.body)
        if not isinstance(a, nodes.PatternAtom) and not a.negated
        for v in variables(a.terms)
    }
    held |= {v.name for w in weights(rule) for v in variables(w.keys)}
    for variable in variables(rule.head.terms):
        if variable.name not in held:
            yield f"`{variable.name}` in the head of `{rule!r}` is not bound"


def _named(rule: nodes.Rule) -> Iterator[str]:
    for weight in weights(rule):
        if weight.name is None and not _is_plain_number(weight):
            yield f"a weight of `{rule!r}` has no name"


def _is_plain_number(weight: nodes.Weight) -> bool:
    return weight.is_fixed and isinstance(weight.value, float | int)


def _attention(plan: Plan, node: Fused) -> Iterator[str]:
    name, scores = (
        node.head.relation,
        {r.head.relation for r in node.replaces} - {node.head.relation},
    )
    heads = {v.name for v in variables(node.head.terms)}
    if heads != {*node.shared, node.query}:
        yield f"the attention `{name}` has heads {sorted(heads)}"
    if isinstance(node, Attention):
        queries, keys = node.score.queries, (*node.score.keys, node.value)
    else:
        queries, keys = node.of_queries, node.of_keys
    if node.query in names_in(keys):
        yield f"keys or values of the attention `{name}` hold its query"
    if node.key in names_in(queries):
        yield f"queries of the attention `{name}` hold its key"
    for step in plan.steps:
        body = step.body if isinstance(step, nodes.Rule) else ()
        if any(isinstance(a, nodes.Atom) and a.relation in scores for a in atoms(body)):
            yield f"the weights inside the attention `{name}` are read elsewhere"
    if any(name in part and len(part) > 1 for part in components(needs(plan.rules))):
        yield f"the attention `{name}` is recursive"
