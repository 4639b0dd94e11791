"""A program as a plan for one of its relations: named weights, and only what the output needs."""

from __future__ import annotations

from edgewise.errors import EdgewiseError, caller, nearest
from edgewise.language import nodes
from edgewise.language.dependencies import needs
from edgewise.language.program import Program
from edgewise.language.statements import name_weights
from edgewise.plan.nodes import Plan


class UnknownOutput(EdgewiseError):
    """A compiled model computes one relation, and something must derive it."""

    code = "unknown-output"
    example = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.hh)"
    instead = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)"


def lower(program: Program, output: nodes.Atom) -> Plan:
    """The rules, facts and lines that `output` needs, weights named as in the full program."""
    if not isinstance(output, nodes.Atom):
        raise UnknownOutput(f"`{output!r}` is not a relation", caller(), "write `compile(R.out)`")
    if output.negated or output.hidden or output.weight is not None:
        raise UnknownOutput(
            f"`{output!r}` is an occurrence in a body, not a relation",
            caller(),
            f"write `compile(R.{output.relation})`",
        )
    relation = program.aliases.get(output.relation, output.relation)
    statements = name_weights(program)
    rules = [s for s in statements if isinstance(s, nodes.Rule)]
    graph = needs(rules)
    if relation not in graph:
        near = nearest(relation, list(graph))
        raise UnknownOutput(
            f"no rule derives `{output.relation}`",
            caller(),
            f"did you mean `R.{near}`?" if near else f"derived are {', '.join(graph)}",
        )
    wanted, waiting = set(), [relation]
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += graph.get(name, ())
    arity = next(len(r.head.terms) for r in rules if r.head.relation == relation)
    named = {t.name for t in output.terms if isinstance(t, nodes.Variable)}
    if (output.terms and len(named) != arity) or len(output.terms) not in (0, arity):
        raise UnknownOutput(
            f"a model computes all of `{output.relation}`, not `{output!r}`",
            caller(),
            f"write `compile(R.{output.relation})`, and select from its output",
        )
    variables = tuple(nodes.Variable(f"X{i}") for i in range(arity))
    return Plan(
        nodes.Atom(relation, variables),
        tuple(r for r in rules if r.head.relation in wanted),
        tuple(s for s in statements if isinstance(s, nodes.Fact) and s.atom.relation in wanted),
        tuple(s for s in statements if isinstance(s, nodes.Line) and s.relation in wanted),
        program.aggregation,
        program.domains,
        program.rounds,
    )
