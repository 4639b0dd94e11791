"""Short labels of atoms, weights and functions."""

from collections.abc import Sequence
from typing import Any

from edgewise.language import functions, nodes, printer
from edgewise.language.statements import atoms
from edgewise.language.terms import variables

INFIX = {"leq": "≤", "lt": "<", "geq": "≥", "gt": ">", "eq": "=", "neq": "≠"}
ARITHMETIC = {"add": "+", "sub": "−", "mul": "·", "div": "÷", "mod": "mod"}
OPERATORS = {**printer.INFIX, "product": (" · ", 2)}


def name(relation: str) -> str:
    return relation.removeprefix("^")


def terms(items: Sequence[nodes.Term]) -> str:
    shown = (t.name if isinstance(t, nodes.Variable) else str(t) for t in items)
    return f"({', '.join(shown)})" if items else ""


def special(atom: nodes.SpecialAtom) -> str:
    """A predicate as mathematics writes it.

    >>> from edgewise.language import R, V
    >>> special(R.special.leq(V.J, V.I)), special(R.special.sub(V.I, V.J, V.D))
    ('J ≤ I', 'I − J = D')
    """
    t = [x.name if isinstance(x, nodes.Variable) else str(x) for x in atom.terms]
    if atom.name in INFIX and len(t) == 2:
        shown = f"{t[0]} {INFIX[atom.name]} {t[1]}"
    elif atom.name in ARITHMETIC and len(t) == 3:
        shown = f"{t[0]} {ARITHMETIC[atom.name]} {t[1]} = {t[2]}"
    elif atom.name == "next" and len(t) == 2:
        shown = f"{t[0]} + 1 = {t[1]}"
    elif atom.name.removesuffix("_eval") in ARITHMETIC and len(t) == 2:
        shown = f"{t[0]} {ARITHMETIC[atom.name.removesuffix('_eval')]} {t[1]}"
    else:
        shown = f"{atom.name}{terms(atom.terms)}"
    return f"¬({shown})" if atom.negated else shown


def formula(item: Any, level: int = 0) -> str:
    """An expression without its weights.

    >>> from edgewise.language import R, V
    >>> formula(R.k(V.J).T @ R.q(V.I)), formula(-R.a * (R.b + R.c))
    ('k(J)ᵀ · q(I)', '(1 − a) * (b + c)')
    """
    match item:
        case nodes.Atom():
            return ("¬" if item.negated else "") + name(item.relation) + terms(item.terms)
        case nodes.SpecialAtom():
            return special(item)
        case nodes.PatternAtom():
            return ("¬" if item.negated else "") + repr(item.pattern) + terms(item.terms)
        case nodes.Weight():
            return symbol(item)
        case nodes.Apply():
            return _apply(item, level)
    return repr(item)


def is_plain(item: Any) -> bool:
    """True if an item of a body is one atom, at most under unary functions."""
    if isinstance(item, nodes.Apply):
        return len(item.operands) == 1 and is_plain(item.operands[0])
    return not isinstance(item, nodes.Weight)


def _apply(item: nodes.Apply, level: int) -> str:
    called, operands = item.function.name, item.operands
    if called in OPERATORS and len(operands) > 1:
        symbol, strength = OPERATORS[called]
        shown = symbol.join(formula(operand, strength) for operand in operands)
        return f"({shown})" if level > strength else shown
    if called == "transp":
        return f"{formula(operands[0], 3)}ᵀ"
    if called == "reverse":
        return f"(1 − {formula(operands[0], 2)})"
    return f"{called}({', '.join(formula(o) for o in operands)})"


def weight(item: nodes.Weight) -> str:
    """The shape of a weight, or its number; a family with its keys.

    >>> from edgewise.language import R, V, W
    >>> weight(R.a[64, 32].weight), weight(R.a[2.0].weight), weight(W.q(V.H)[16, 64])
    ('64×32', '2', 'q(H) 16×64')
    """
    called = f"{item.name}{terms(item.keys)}" if item.name else ""
    if item.shape is not None:
        shape = "×".join(map(str, item.shape))
    elif isinstance(item.value, nodes.Opaque):
        shape = "×".join(map(str, getattr(item.value.thing, "shape", ()))) or "scalar"
    elif isinstance(item.value, tuple):
        inner = item.value[0]
        shape = f"{len(item.value)}" + (f"×{len(inner)}" if isinstance(inner, tuple) else "")
    else:
        shape = "" if item.value is None else f"{item.value:.4g}"
    return " ".join(part for part in (called, shape) if part)


def symbol(item: nodes.Weight) -> str:
    """A weight inside a formula: its number, its name, or W."""
    if item.name:
        return f"{item.name}{terms(item.keys)}"
    return f"{item.value:.4g}" if isinstance(item.value, float | int) else "W"


def function(item: nodes.Function) -> str:
    """A function with its arguments: `softmax over J`, `leaky_relu(0.2)`."""
    over = dict(item.arguments).get("agg_terms")
    if over:
        return f"{functions.definition(item).word} over {', '.join(over)}"
    if item.name == "call":
        return type(item["module"].thing).__name__
    return printer.python(item).removeprefix("F.")


def computing(rule: nodes.Rule, aggregation: nodes.Function) -> str:
    """How a rule computes: its functions, and the defaults where they apply."""
    values = [item for item in rule.body if item.carries_value]
    kinds = {functions.kind(f): f for f in rule.functions}
    formulas = [formula(v) for v in values if isinstance(v, nodes.Apply) and not is_plain(v)]
    parts = [", ".join(formulas)] if formulas else []
    if functions.COMBINATION in kinds:
        parts.append(function(kinds[functions.COMBINATION]))
    elif len(values) > 1:
        parts.append("sum")
    parts += [function(f) for f in rule.functions if functions.kind(f) == functions.TRANSFORMATION]
    inner = {v.name for item in values for a in atoms(item) for v in variables(a.terms)}
    if functions.AGGREGATION in kinds:
        parts.append(function(kinds[functions.AGGREGATION]))
    elif inner - {v.name for v in variables(rule.head.terms)}:
        parts.append(function(aggregation))
    return " → ".join(parts)
