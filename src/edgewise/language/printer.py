"""Prints syntax trees as the Python code that builds them: the `repr` of every node."""

from __future__ import annotations

import math
import re
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from edgewise.functions import DEFINITIONS
from edgewise.language import nodes, operators

if TYPE_CHECKING:
    from edgewise.language.program import Program

INFIX = {  # function → its operator and how tight it binds
    name: (f" {d.operator[0]} ", d.operator[1]) for name, d in DEFINITIONS.items() if d.operator
}
IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
RESERVED = {"special", "hidden"}


def python(node: Any) -> str:
    """The node as Python code.

    >>> from edgewise.language import R, V, F
    >>> python((R.h(V.X) <= (R.a(V.X).T @ R.b(V.X), ~R.c(V.X))) | [F.leaky_relu(0.2)])
    '(R.h(V.X) <= (R.a(V.X).T @ R.b(V.X), ~R.c(V.X))) | [F.leaky_relu(0.2)]'
    """
    match node:
        case nodes.Function():
            return f"F.{node.name}" + _arguments(node)
        case nodes.Weight():
            return _weight(node)
        case nodes.Expression():
            return expression(node, 0)
        case nodes.Rule():
            return _rule(node)
        case nodes.Fact():
            return expression(node.atom, 0)
        case nodes.Line():
            functions = f" | {_list(node.functions)}" if node.functions else ""
            return f"{_relation(node.relation, False)}/{node.arity}{functions}"
        case nodes.Stack():
            return _stack(node)
    return repr(node)


def program(item: Program) -> str:
    lines = [f"    {_indented(python(s))},\n" for s in item.statements]
    options = "".join(f", {option}" for option in _options(item))
    inside = "\n" + "".join(lines) if lines else ""
    return f"Program([{inside}]{options})"


def _options(item: Program) -> list[str]:
    options = []
    if item.aggregation != nodes.Function("sum_agg"):
        options.append(f"aggregation={python(item.aggregation)}")
    if item.domains:
        pairs = (
            f"{_variable(k)}: {list(v) if isinstance(v, tuple) else v!r}" for k, v in item.domains
        )
        options.append(f"domains={{{', '.join(pairs)}}}")
    if item.rounds is not None:
        options.append(f"rounds={item.rounds}")
    return options


def expression(node: Any, level: int) -> str:
    """An expression inside an operator of binding strength `level`."""
    match node:
        case nodes.Atom():
            marked = ("~" if node.negated else "") + _relation(node.relation, node.hidden)
            return marked + _terms(node.terms) + _bracket(node.weight)
        case nodes.SpecialAtom(formula=formula) if formula is not None:
            shown = formula.shown([_term(term) for term in node.terms])
            return f"~({shown})" if node.negated else shown
        case nodes.SpecialAtom():
            name = f"fn({node.function!r})" if node.function else node.name
            name = "_in" if name == "in" else name
            marked = "~" if node.negated else ""
            return f"{marked}R.special.{name}{_terms(node.terms)}{_bracket(node.weight)}"
        case nodes.PatternAtom():
            return ("~" if node.negated else "") + pattern(node.pattern) + _terms(node.terms)
        case nodes.Weight() if level and _is_number(node):
            return nested(node.value)
        case nodes.Weight():
            return _weight(node)
        case nodes.Apply():
            return _apply(node, level)
        case nodes.ValueComparison():
            shown = f"{expression(node.left, 1)} {node.sign} {expression(node.right, 1)}"
            return f"~({shown})" if node.negated else shown
    raise TypeError(f"not an expression: {node!r}")


def pattern(item: Any) -> str:
    """A pattern before its terms: a call as it is, an expression in parentheses."""
    shown = repr(item)
    return shown if re.match(r"[a-z]\w*\(", shown) and _closes_last(shown) else f"({shown})"


def _closes_last(shown: str) -> bool:
    """True if the first parenthesis closes at the very end."""
    depth = 0
    for at, letter in enumerate(shown):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter == ")":
            return at == len(shown) - 1
    return False


def _apply(node: nodes.Apply, level: int) -> str:
    name, weight = node.function.name, _bracket(node.weight)
    if name in INFIX and len(node.operands) == 2:
        symbol, strength = INFIX[name]
        left, right = node.operands
        # Python would add two plain numbers by itself
        first = expression(left, 0 if _is_number(left) and _is_number(right) else strength)
        taken = operators.subtracted(right) if name == "sum" else None
        if taken is not None:
            shown = f"{first} - {expression(taken, strength + 1)}"
        else:
            shown = first + symbol + expression(right, strength + 1)
        return f"({shown}){weight}" if level > strength or weight else shown
    if name == "transp" and isinstance(node.operands[0], nodes.Atom):
        return f"{expression(node.operands[0], 3)}.T{weight}"
    operands = ", ".join(expression(operand, 0) for operand in node.operands)
    options = _arguments(node.function)[1:-1]
    if options and len(node.operands) == 1:
        return f"F.{name}({options})({operands}){weight}"
    return f"F.{name}({operands}{', ' + options if options else ''}){weight}"


def _is_number(node: Any) -> bool:
    return isinstance(node, nodes.Weight) and (
        node.name is None and node.is_fixed and isinstance(node.value, float)
    )


def _arguments(function: nodes.Function) -> str:
    if not function.arguments:
        return ""
    alone = len(function.arguments) == 1 and function.arguments[0][0] in (
        "slope",
        "k",
        "p",
        "module",
    )
    shown = (_argument(name, value, alone) for name, value in function.arguments)
    return f"({', '.join(shown)})"


def _argument(name: str, value: Any, alone: bool) -> str:
    if name == "agg_terms" and value is not None:
        return f"agg_terms=[{', '.join(_variable(v) for v in value)}]"
    shown = nested(value) if isinstance(value, float) else repr(value)
    return shown if alone else f"{name}={shown}"


def _variable(name: str) -> str:
    return f"V.{name}" if _is_identifier(name) else f"V[{_string(name)}]"


def _is_identifier(name: str) -> bool:
    return bool(IDENTIFIER.match(name)) and not iskeyword(name)


def _string(text: str) -> str:
    is_plain = text.isprintable() and not set(text) & set('"\\')
    return f'"{text}"' if is_plain else repr(text)


def _relation(name: str, hidden: bool) -> str:
    if name[:1] == "^" and name[1:].isidentifier() and not hidden:
        return name[1:]  # the parameter of a block
    if not _is_identifier(name) or name in RESERVED or (hidden and name.endswith("_")):
        return f"R.hidden[{_string(name)}]" if hidden else f"R[{_string(name)}]"
    return f"R._{name}" if hidden else f"R.{name}"


def _terms(terms: tuple[nodes.Term, ...]) -> str:
    return f"({', '.join(map(_term, terms))})" if terms else ""


def _term(term: nodes.Term) -> str:
    return _variable(term.name) if isinstance(term, nodes.Variable) else repr(term)


def _bracket(weight: nodes.Weight | None) -> str:
    if weight is None:
        return ""
    if weight.keys or weight.fill is not None or weight.name == "" or not weight.is_declared:
        return f"[{_weight(weight)}]"
    inside = _inside(weight)
    name = f"{_string(weight.name)}: " if weight.name else ""
    return f"[{name}{inside}]" + (".fixed()" if weight.is_fixed else "")


def _inside(weight: nodes.Weight) -> str:
    if weight.shape is not None:
        if len(weight.shape) == 1:
            return f"({weight.shape[0]},)" if weight.name else f"{weight.shape[0]},"
        return ", ".join(map(str, weight.shape))
    return nested(weight.value)


def nested(value: Any) -> str:
    """Numbers, and lists of them."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(nested, value))}]"
    if isinstance(value, float) and math.isinf(value):
        return "1e999" if value > 0 else "-1e999"
    return repr(value)


def _weight(weight: nodes.Weight) -> str:
    name = "W"
    if weight.name is not None:
        is_plain = _is_identifier(weight.name)
        name = f"W.{weight.name}" if is_plain else f"W[{_string(weight.name)}]"
    inside = _inside(weight) if weight.is_declared else ""
    shape = f"[{inside.strip('()') if weight.shape else inside}]" if inside else ""
    fill = f".filled({nested(weight.fill)})" if weight.fill is not None else ""
    return name + _terms(weight.keys) + shape + fill + (".fixed()" if weight.is_fixed else "")


def _rule(rule: nodes.Rule) -> str:
    shown = [expression(item, 0) for item in rule.body]
    body = shown[0] if len(shown) == 1 else f"({', '.join(shown)})"
    text = f"{expression(rule.head, 0)} <= {body}"
    return f"({text}) | {_list(rule.functions)}" if rule.functions else text


def _list(functions: tuple[nodes.Function, ...]) -> str:
    return f"[{', '.join(map(python, functions))}]"


def _stack(stack: nodes.Stack) -> str:
    lines = "".join(f"    {_indented(python(s))},\n" for s in stack.statements)
    outputs = ", ".join(_relation(name, False) for name in stack.outputs)
    heads = [s.head.relation for s in stack.statements if isinstance(s, nodes.Rule)]
    block = f"[\n{lines}]" if heads[-1:] == list(stack.outputs) else f"([\n{lines}], [{outputs}])"
    inputs = ", ".join(_relation(name, False) for name in stack.inputs)
    name = "" if stack.name == "layer" else f", name={_string(stack.name)}"
    return f"repeat(lambda {', '.join(stack.parameters)}: {block}, {stack.count}{name})({inputs})"


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")
