"""Prints atoms, expressions and weights in the text form."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from edgewise.errors import EdgewiseError, caller
from edgewise.language import nodes, tokens

NAME = re.compile(tokens.NAME)
VARIABLE = re.compile(tokens.VARIABLE)
INFIX = {"sum": (" + ", 1), "elproduct": (" * ", 2), "product": (" @ ", 2)}
ALONE = ("slope", "k", "p", "shape")


class NoTextForm(EdgewiseError):
    """A Python function or module that a program holds cannot be written as text."""

    code = "no-text-form"
    example = "Program([(R.h(V.X) <= R.a(V.X)) | [F.call(abs)]]).text()"
    instead = "Program([(R.h(V.X) <= R.a(V.X)) | [F.abs]]).text()"


@dataclass(frozen=True)
class Style:
    """How to print: which parameters of blocks go without `^`, and whether for reading back."""

    scopes: tuple[dict[str, bool], ...] = ()
    exact: bool = True


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


def terms(items: tuple[nodes.Term, ...]) -> str:
    return f"({', '.join(map(term, items))})" if items else ""


def number(value: float) -> str:
    if math.isinf(value):
        return "1e999" if value > 0 else "-1e999"
    return repr(float(value))


def expression(node: nodes.Expression, style: Style, level: int = 0) -> str:
    """An expression inside an operator of strength `level`; 0 is an item of a body."""
    match node:
        case nodes.Weight():
            return weight(node, style, level > 0)
        case nodes.Atom():
            marks = ("!" if node.negated else "") + ("*" if node.hidden else "")
            shown = marks + relation(node.relation, style) + terms(node.terms)
        case nodes.SpecialAtom():
            shown = ("!" if node.negated else "") + _special(node, style) + terms(node.terms)
        case nodes.PatternAtom():
            shown = ("!@" if node.negated else "@") + _pattern(node.pattern) + terms(node.terms)
        case nodes.Apply():
            shown = _apply(node, style, level)
        case _:
            raise TypeError(f"not an expression: {node!r}")
    return shown if node.weight is None else f"{weight(node.weight, style)} {shown}"


def _special(node: nodes.SpecialAtom, style: Style) -> str:
    return f"@fn({_held(node.function, style)})" if node.function else f"@{node.name}"


def _pattern(pattern: Any) -> str:
    shown = repr(pattern)
    is_call = re.match(r"[a-z]\w*\(", shown) and _closes_last(shown)
    return shown if is_call else f"({shown})"


def _closes_last(shown: str) -> bool:
    """Whether the first parenthesis closes at the very end."""
    depth = 0
    for at, letter in enumerate(shown):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter == ")":
            return at == len(shown) - 1
    return False


def _apply(node: nodes.Apply, style: Style, level: int) -> str:
    function, operands = node.function, node.operands
    has_weight = node.weight is not None
    if function.name in INFIX and len(operands) == 2:
        sign, strength = INFIX[function.name]
        left = expression(operands[0], style, strength)
        shown = left + sign + expression(operands[1], style, strength + 1)
        return f"({shown})" if level > strength or has_weight else shown
    if function.name == "transp" and isinstance(operands[0], nodes.Atom):
        return f"{expression(operands[0], style, 3)}.T"
    if function.name == "reverse" and not isinstance(operands[0], nodes.Weight):
        shown = f"-{expression(operands[0], style, 3)}"
        return f"({shown})" if has_weight else shown
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


def functions(items: tuple[nodes.Function, ...], style: Style) -> str:
    return f"[{', '.join(function(item, style) for item in items)}]"


def argument(value: Any, style: Style) -> str:
    if isinstance(value, nodes.Opaque):
        return _held(value, style)
    if isinstance(value, tuple):
        return f"({', '.join(argument(item, style) for item in value)})"
    return number(value) if isinstance(value, float) else str(value)


def _held(held: nodes.Opaque, style: Style) -> str:
    shown = getattr(held.thing, "__name__", type(held.thing).__name__)
    if style.exact:
        raise NoTextForm(
            f"`{shown}` is Python and has no text form",
            caller(),
            "keep the program in Python, or say it with rules and the functions of `F`",
        )
    return f"⟨{shown}⟩"


def weight(node: nodes.Weight, style: Style, in_expression: bool = False) -> str:
    """`{8,2}`, `<0.5>`, `$w={8,2}`, `$q(H)={16,64}`, `$w`."""
    is_number = node.name is None and isinstance(_numbers(node, style), float)
    if is_number and in_expression:  # there a number alone is a constant
        shown = number(_numbers(node, style))
        return shown if node.is_fixed else f"$={shown}"
    mark = f"${name(node.name)}{terms(node.keys)}" if node.name is not None else ""
    if not node.is_declared and node.fill is None:
        return f"<{mark}>" if node.is_fixed else mark
    shown = f"<{_value(node, style)}>" if node.is_fixed else _value(node, style)
    return f"{mark}={shown}" if mark else shown


def _value(node: nodes.Weight, style: Style) -> str:
    if node.value is not None:
        return _nested(_numbers(node, style))
    sizes = ",".join(map(str, node.shape or ()))
    fill = "" if node.fill is None else f" = {number(node.fill)}"
    return f"{{{(sizes + fill).strip()}}}"


def _numbers(node: nodes.Weight, style: Style) -> Any:
    """The value as numbers; what a tensor holds is printed, not the tensor."""
    if not isinstance(node.value, nodes.Opaque):
        return float(node.value) if isinstance(node.value, int) else node.value
    found = node.value.thing.tolist()
    if not _is_finite(found):
        raise NoTextForm(
            "a tensor holds values that are not numbers, or none",
            node.place,
            "give it other values",
        )
    return float(found) if isinstance(found, int) else found


def _is_finite(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_finite, value))
    return isinstance(value, int | float) and not math.isnan(value)


def _nested(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_nested, value))}]"
    return number(value)
