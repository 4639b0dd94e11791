"""Prints programs in the text form, one statement a line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_never

from edgewise.language import nodes
from edgewise.language.text_body import (
    NAME,
    Style,
    expression,
    function,
    functions,
    name,
    relation,
    term,
    variable,
)

if TYPE_CHECKING:
    from edgewise.language.program import Program

INDENT = "    "


def text(program: Program) -> str:
    """The program as text that `Program.parse` reads back.

    >>> from edgewise.language import F, Program, R, V
    >>> text(Program([(R.h(V.X) <= (R.a(V.X)[8, 2], ~R.b(V.X))) | [F.tanh]], rounds=3))
    '[rounds=3]\\nh(X) :- {8,2} a(X), !b(X). [tanh]\\n'
    """
    style = Style()
    set_first = options(program, style)
    lines = [set_first] if set_first else []
    lines += [statement(item, style) for item in program.statements]
    return "".join(f"{line}\n" for line in lines)


def options(program: Program, style: Style) -> str:
    """`[aggregation=avg_agg, rounds=3, H=8]`: what differs from the defaults."""
    shown = []
    if program.aggregation != nodes.Function("sum_agg"):
        shown.append(f"aggregation={function(program.aggregation, style)}")
    if program.rounds is not None:
        shown.append(f"rounds={program.rounds}")
    for key, domain in program.domains:
        values = f"({', '.join(map(term, domain))})" if isinstance(domain, tuple) else domain
        shown.append(f"{variable(key)}={values}")
    return f"[{', '.join(shown)}]" if shown else ""


def statement(item: nodes.Statement, style: Style) -> str:
    match item:
        case nodes.Rule():
            body = ", ".join(expression(part, style) for part in item.body)
            how = f" {functions(item.functions, style)}" if item.functions else ""
            return f"{expression(item.head, style)} :- {body}.{how}"
        case nodes.Fact():
            return f"{expression(item.atom, style)}."
        case nodes.Line():
            how = functions(item.functions, style)
            return f"{relation(item.relation, style)}/{item.arity} {how}"
        case nodes.Stack():
            return _stack(item, style)
    assert_never(item)


def _stack(stack: nodes.Stack, style: Style) -> str:
    inner = within(stack, style)
    lines = [statement(item, inner).replace("\n", f"\n{INDENT}") for item in stack.statements]
    block = "".join(f"{INDENT}{line}\n" for line in lines)
    head = f"{name(stack.name)} * {stack.count} {signature(stack, style, '->')}"
    return f"{head} {{\n{block}}}"


def signature(stack: nodes.Stack, style: Style, arrow: str) -> str:
    """`(x = tokens) -> out`: what the first copy reads, and what each hands on."""
    inner = within(stack, style)
    pairs = zip(stack.parameters, stack.inputs, strict=True)
    reads = (f"{relation(f'^{p}', inner)} = {relation(given, style)}" for p, given in pairs)
    hands = [relation(output, inner) for output in stack.outputs]
    on = hands[0] if len(hands) == 1 else f"({', '.join(hands)})"
    return f"({', '.join(reads)}) {arrow} {on}"


def within(stack: nodes.Stack, style: Style) -> Style:
    """The style inside of a block: parameters that no relation is called like need no `^`."""
    taken = set(mentioned(stack))
    scope = {p: p not in taken and bool(NAME.fullmatch(p)) for p in stack.parameters}
    return replace(style, scopes=(*style.scopes, scope))


def mentioned(node: Any) -> Iterator[str]:
    """Every relation that is named inside of a node."""
    match node:
        case nodes.Atom(relation=found) | nodes.Line(relation=found):
            yield found
        case nodes.Apply():
            yield from mentioned(node.operands)
        case nodes.Rule():
            yield from mentioned((node.head, *node.body))
        case nodes.Fact():
            yield from mentioned(node.atom)
        case nodes.Stack():
            yield from node.outputs
            yield from mentioned(node.statements)
            for inner in node.statements:
                if isinstance(inner, nodes.Stack):
                    yield from inner.inputs
        case tuple():
            for item in node:
                yield from mentioned(item)
