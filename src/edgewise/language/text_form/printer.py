"""Prints programs in the text form, one statement a line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, assert_never

from edgewise.errors import EdgewiseError, caller
from edgewise.language import nodes, operators
from edgewise.language.printer import INFIX, nested, pattern
from edgewise.language.text_form import tokens

if TYPE_CHECKING:
    from edgewise.language.program import Program

NAME = re.compile(tokens.NAME)
VARIABLE = re.compile(tokens.VARIABLE)
INDENT = "    "
ALONE = ("slope", "k", "p", "shape")


class NoTextForm(EdgewiseError):
    """A Python function or module that a program holds cannot be written as text."""

    code = "no-text-form"
    example = "Program([(R.h(V.X) <= R.a(V.X)) | [F.call(abs)]]).text()"
    instead = "Program([(R.h(V.X) <= R.a(V.X)) | [F.abs]]).text()"


@dataclass(frozen=True)
class Style:
    """How to print: which block parameters need no `^`, and whether `parse` must read it back."""

    scopes: tuple[dict[str, bool], ...] = ()
    exact: bool = True


def to_text(program: Program) -> str:
    """The program as text that `Program.parse` reads back.

    >>> from edgewise.language import F, Program, R, V
    >>> to_text(Program([(R.h(V.X) <= (R.a(V.X)[8, 2], ~R.b(V.X))) | [F.tanh]], rounds=3))
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
            how = f" {function_list(item.functions, style)}" if item.functions else ""
            return f"{expression(item.head, style)} :- {body}.{how}"
        case nodes.Fact():
            return f"{expression(item.atom, style)}."
        case nodes.Line():
            how = function_list(item.functions, style)
            return f"{relation(item.relation, style)}/{item.arity} {how}"
        case nodes.Stack():
            return _stack(item, style)
    assert_never(item)


def _stack(stack: nodes.Stack, style: Style) -> str:
    inner = block_style(stack, style)
    lines = [statement(item, inner).replace("\n", f"\n{INDENT}") for item in stack.statements]
    block = "".join(f"{INDENT}{line}\n" for line in lines)
    head = f"{name(stack.name)} * {stack.count} {signature(stack, style, '->')}"
    return f"{head} {{\n{block}}}"


def signature(stack: nodes.Stack, style: Style, arrow: str) -> str:
    """`(x = tokens) -> out`: what the first copy reads, and what each passes to the next."""
    inner = block_style(stack, style)
    pairs = zip(stack.parameters, stack.inputs, strict=True)
    reads = (f"{relation(f'^{p}', inner)} = {relation(source, style)}" for p, source in pairs)
    hands = [relation(output, inner) for output in stack.outputs]
    on = hands[0] if len(hands) == 1 else f"({', '.join(hands)})"
    return f"({', '.join(reads)}) {arrow} {on}"


def block_style(stack: nodes.Stack, style: Style) -> Style:
    """The style inside a block: a parameter whose name no relation has needs no `^`."""
    taken = set(mentioned(stack))
    scope = {p: p not in taken and bool(NAME.fullmatch(p)) for p in stack.parameters}
    return replace(style, scopes=(*style.scopes, scope))


def mentioned(node: Any) -> Iterator[str]:
    """Every relation that a node mentions."""
    match node:
        case nodes.Atom(relation=found) | nodes.Line(relation=found):
            yield found
        case nodes.Apply():
            yield from mentioned(node.operands)
        case nodes.ValueComparison():
            yield from mentioned((node.left, node.right))
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


def name(text: str) -> str:
    return text if NAME.fullmatch(text) else tokens.quoted(text)


def relation(text: str, style: Style) -> str:
    """The name of a relation; the parameter of a block as its header says."""
    if text.startswith("^"):
        for scope in reversed(style.scopes):
            if text[1:] in scope:
                return text[1:] if scope[text[1:]] else parameter(text[1:])
    return name(text)


def parameter(text: str) -> str:
    return f"^{text if VARIABLE.fullmatch(text) else name(text)}"


def variable(text: str) -> str:
    return text if VARIABLE.fullmatch(text) else f"?{name(text)}"


def term(item: nodes.Term) -> str:
    if isinstance(item, nodes.Variable):
        return variable(item.name)
    return name(item) if isinstance(item, str) else str(item)


def term_list(items: tuple[nodes.Term, ...]) -> str:
    return f"({', '.join(map(term, items))})" if items else ""


def expression(node: nodes.Expression, style: Style, level: int = 0) -> str:
    """An expression inside an operator of strength `level`; 0 is an item of a body."""
    match node:
        case nodes.Weight():
            return weight(node, style, level > 0)
        case nodes.Atom():
            marks = ("!" if node.negated else "") + ("*" if node.hidden else "")
            shown = marks + relation(node.relation, style) + term_list(node.terms)
        case nodes.SpecialAtom(formula=formula) if formula is not None:
            shown = formula.shown([term(item) for item in node.terms], "mod")
            shown = f"!({shown})" if node.negated else shown
        case nodes.SpecialAtom():
            shown = ("!" if node.negated else "") + _special(node, style) + term_list(node.terms)
        case nodes.PatternAtom():
            shown = ("!@" if node.negated else "@") + pattern(node.pattern) + term_list(node.terms)
            if style.exact and "where(<" in shown:
                raise _no_text_form(shown)
        case nodes.Apply():
            shown = _apply(node, style, level)
        case nodes.ValueComparison():
            sides = (expression(side, style, 1) for side in (node.left, node.right))
            shown = f" {node.sign} ".join(sides)
            return f"!({shown})" if node.negated else shown
        case _:
            raise TypeError(f"not an expression: {node!r}")
    return shown if node.weight is None else f"{weight(node.weight, style)} {shown}"


def _special(node: nodes.SpecialAtom, style: Style) -> str:
    return f"@fn({_python_object(node.function, style)})" if node.function else f"@{node.name}"


def _apply(node: nodes.Apply, style: Style, level: int) -> str:
    function, operands = node.function, node.operands
    has_weight = node.weight is not None
    if function.name in INFIX and len(operands) == 2:
        sign, strength = INFIX[function.name]
        left = expression(operands[0], style, strength)
        taken = operators.subtracted(operands[1]) if function.name == "sum" else None
        if taken is not None:
            shown = f"{left} - {expression(taken, style, strength + 1)}"
        else:
            shown = left + sign + expression(operands[1], style, strength + 1)
        return f"({shown})" if level > strength or has_weight else shown
    if function.name == "transp" and isinstance(operands[0], nodes.Atom):
        return f"{expression(operands[0], style, 3)}.T"
    if function.name == "reverse" and not isinstance(operands[0], nodes.Weight):
        return f"~{expression(operands[0], style, 3)}"
    inside = [_operand(operand, style) for operand in operands]
    inside += [f"{key}={argument(value, style)}" for key, value in function.arguments]
    return f"{function.name}({', '.join(inside)})"


def _operand(node: nodes.Expression, style: Style) -> str:
    """An operand of a function, with `()` where it would look like a term."""
    shown = expression(node, style, 1)
    is_bare = isinstance(node, nodes.Atom) and not node.terms and node.weight is None
    return f"{shown}()" if is_bare else shown


def function(node: nodes.Function, style: Style) -> str:
    """A function in a list: `relu`, `leaky_relu(0.2)`, `softmax_agg(J)`."""
    if not node.arguments:
        return node.name
    key, value = node.arguments[0]
    if key == "agg_terms":
        return f"{node.name}({', '.join(map(variable, value))})"
    if key in (*ALONE, "module"):
        return f"{node.name}({argument(value, style)})"
    shown = (f"{key}={argument(value, style)}" for key, value in node.arguments)
    return f"{node.name}({', '.join(shown)})"


def function_list(items: tuple[nodes.Function, ...], style: Style) -> str:
    return f"[{', '.join(function(item, style) for item in items)}]"


def argument(value: Any, style: Style) -> str:
    if isinstance(value, nodes.Opaque):
        return _python_object(value, style)
    if isinstance(value, tuple):
        return f"({', '.join(argument(item, style) for item in value)})"
    return nested(value) if isinstance(value, float) else str(value)


def _python_object(item: nodes.Opaque, style: Style) -> str:
    shown = getattr(item.thing, "__name__", type(item.thing).__name__)
    if style.exact:
        raise _no_text_form(shown)
    return f"⟨{shown}⟩"


def _no_text_form(shown: str) -> NoTextForm:
    return NoTextForm(
        f"`{shown}` is a Python object and has no text form",
        caller(),
        "keep the program in Python, or write it with rules and the functions of `F`",
    )


def weight(node: nodes.Weight, style: Style, in_expression: bool = False) -> str:
    """`{8,2}`, `<0.5>`, `$w={8,2}`, `$q(H)={16,64}`, `$w`."""
    is_number = node.name is None and isinstance(_numbers(node), float)
    if is_number and in_expression:  # there a number alone is a constant
        shown = nested(_numbers(node))
        return shown if node.is_fixed else f"$={shown}"
    mark = f"${name(node.name)}{term_list(node.keys)}" if node.name is not None else ""
    if not node.is_declared and node.fill is None:
        return f"<{mark}>" if node.is_fixed else mark
    shown = f"<{_value(node, style)}>" if node.is_fixed else _value(node, style)
    return f"{mark}={shown}" if mark else shown


def _value(node: nodes.Weight, style: Style) -> str:
    if node.value is not None:
        return nested(_numbers(node))
    sizes = ",".join(map(str, node.shape or ()))
    fill = "" if node.fill is None else f" = {nested(node.fill)}"
    return f"{{{(sizes + fill).strip()}}}"


def _numbers(node: nodes.Weight) -> Any:
    """The value as numbers; what a tensor holds is printed, not the tensor."""
    if not isinstance(node.value, nodes.Opaque):
        return float(node.value) if isinstance(node.value, int) else node.value
    found = node.value.thing.tolist()
    if not _is_finite(found):
        raise NoTextForm("a tensor is empty or holds NaN", node.place, "give it finite values")
    return float(found) if isinstance(found, int) else found


def _is_finite(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_finite, value))
    return isinstance(value, int | float) and not math.isnan(value)
