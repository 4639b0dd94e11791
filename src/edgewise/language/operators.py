"""What can be written between the atoms of a rule."""

from __future__ import annotations

import math
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from numbers import Real
from typing import Any

from edgewise.errors import EdgewiseError, Place, caller, notebook, safe_repr
from edgewise.language import functions, nodes
from edgewise.language.term_expressions import Comparable, Equality

MAX_DEPTH = 75


class MissingParentheses(EdgewiseError):
    """Python reads `h <= a | [...]` as `h <= (a | [...])`, and `h <= a, b` as two things."""

    code = "missing-parentheses"
    example = "R.h(V.X) <= R.a(V.X) | [F.relu]"
    instead = "(R.h(V.X) <= R.a(V.X)) | [F.relu]"


class ChainedRule(EdgewiseError):
    """Python turns `a <= b <= c` into `a <= b and b <= c`, which would lose a rule."""

    code = "chained-rule"
    example = "Program([R.h <= R.a <= R.b])"
    instead = "Program([R.h <= R.a, R.a <= R.b])"


class NoTruthValue(EdgewiseError):
    """`and`, `or`, `not` and `if` ask Python whether an atom is true, before any fact is known.

    Of two graphs, `a and b` would be b alone: write `a & b`, `a | b` and `~a`.
    """

    code = "no-truth-value"
    example = "R.h(V.X) <= (R.a(V.X) and R.b(V.X))"
    instead = "R.h(V.X) <= (R.a(V.X), R.b(V.X))"


class BadOperator(EdgewiseError):
    """The operators of a body are `+ - * @ &`, `.T`, `-b` (1 − b), `~b` (not) and comparisons."""

    code = "bad-operator"
    example = "R.h(V.X) <= R.a(V.X) ** 2"
    instead = "R.h(V.X) <= F.square(R.a(V.X))"


class UnknownMethod(EdgewiseError, AttributeError):
    """Atoms and variables are no tensors: what is computed from them is written with `F`."""

    code = "unknown-method"
    example = "R.h(V.X) <= R.a(V.X).relu()"
    instead = "R.h(V.X) <= F.relu(R.a(V.X))"


class BadHead(EdgewiseError):
    """The head of a rule is one plain atom: what the rule derives."""

    code = "bad-head"
    example = "~R.h(V.X) <= R.a(V.X)"
    instead = "R.h(V.X) <= R.a(V.X)"


class BadBody(EdgewiseError):
    """A body is an atom, an expression over atoms, or a tuple of those."""

    code = "bad-body"
    example = 'R.h(V.X) <= "a(X)"'
    instead = "R.h(V.X) <= R.a(V.X)"


class ConditionInExpression(EdgewiseError):
    """Hidden, negated and special atoms carry no value, so nothing can be computed from them."""

    code = "condition-in-expression"
    example = "R.h(V.X) <= R.a(V.X) + R._b(V.X)"
    instead = "R.h(V.X) <= (R.a(V.X), R._b(V.X))"


def missing_parentheses(item: nodes.Expression) -> MissingParentheses:
    help = "put the rule into parentheses: `(head <= body) | [...]`"
    if isinstance(item, nodes.ValueComparison):
        help = "this compares values; a rule is written with `<=`: `(head <= body) | [...]`"
    return MissingParentheses(
        f"`|` applies to a rule, here it applies to `{item!r}`", caller(), help
    )


def note_parentheses(error: BaseException) -> None:
    """Add to Python's error for `head <= (a, b) | [...]`, raised before any code of ours, a note.

    It is the error of a tuple and a list, in code that writes rules.
    """
    if str(error) != "unsupported operand type(s) for |: 'tuple' and 'list'":
        return
    used = [
        value
        for frame, _ in traceback.walk_tb(error.__traceback__)
        for value in (*frame.f_globals.values(), *frame.f_locals.values())
    ]
    if any(type(value).__module__.startswith("edgewise.language") for value in used):
        error.add_note("help: put the rule into parentheses: `(head <= (a, b)) | [...]`")


def watch_for_parentheses() -> None:
    """See uncaught errors: those that Python prints, and those of a notebook."""
    shown = sys.excepthook

    def excepthook(kind: Any, error: BaseException, trace: Any) -> None:
        note_parentheses(error)
        shown(kind, error, trace)

    def cell(
        shell: Any, kind: Any, error: BaseException, trace: Any, tb_offset: Any = None
    ) -> None:
        note_parentheses(error)
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)

    shell = notebook()
    if shell is None:
        sys.excepthook = excepthook
    elif not shell.custom_exceptions:
        shell.set_custom_exc((TypeError,), cell)


def no_truth_value(item: object) -> NoTruthValue:
    """Python would drop one of two things that `and` or `or` joins."""
    match item:
        case nodes.Function():
            help = "list the functions of a rule: `| [F.product, F.tanh]`"
        case nodes.Line():
            help = "put the lines into a list, `Program([line, line])`"
        case nodes.SpecialAtom():
            help = (
                "a chain such as `0 <= V.I <= 5` is two conditions: write `0 <= V.I, V.I <= 5`; "
                "`not a` is `~a`, `a and b` is `(a, b)`, `min(V.I, V.J) <= 5` two rules"
            )
        case nodes.ValueComparison():
            help = (
                "a chain such as `0 < R.a < 1` is two conditions: write `R.a > 0, R.a < 1`; "
                "`not a` is `~a`, `a and b` is `(a, b)`, `max(R.a, R.b)` is `F.max(R.a, R.b)`"
            )
        case nodes.Expression():
            help = "write a body as a tuple `(a, b)`, and negation as `~b`"
        case _:
            help = "programs are joined by `a + b`; `program is None` tells whether there is one"
    return NoTruthValue(f"`{safe_repr(item)}` has no truth value", caller(), help)


def no_operator() -> BadOperator:
    return BadOperator(
        "values are joined by `+`, `-`, `*` and `@` only",
        caller(),
        "1 / a is `F.inverse(a)`, a² is `F.square(a)`; keys are computed: `V.I // 2`, `V.I % 2`",
    )


def tensor_function(function: Any) -> BadOperator:
    """`torch.relu(R.a)`: a rule has no tensors yet."""
    name = getattr(function, "__name__", "").strip("_")
    same = functions.DEFINITIONS.get(functions.ELSEWHERE.get(name, name))
    if same is not None and same.kind == functions.TRANSFORMATION:
        help = f"write `F.{same.name}(R.a(V.X))`"
    else:
        help = (
            "a tensor in a rule is a weight, `W[tensor].fixed()`; so is a layer, "
            "`R.a(V.X)[64, 32]`; any module applies as `F.call(module)(R.a(V.X))`"
        )
    return BadOperator(
        f"torch's `{name}` takes tensors, and an atom has no value yet", caller(), help
    )


def unknown_method(item: object, name: str) -> AttributeError:
    """`R.a.relu`, `V.I.isin`: what torch and pandas have as methods."""
    if name.startswith("_"):  # what Python, notebooks and copies look for
        return AttributeError(name)
    same = functions.DEFINITIONS.get(functions.ELSEWHERE.get(name, name))
    if isinstance(item, Comparable):
        help = "compare it, `V.I - V.J <= 5`; for one of several, `R.special._in(V.I, 1, 2)`"
    elif same is not None and same.kind == functions.TRANSFORMATION:
        help = f"write `F.{same.name}({safe_repr(item)})`"
    else:
        help = "write a function, `F.relu(R.a)`; over groundings, `(rule) | [F.sum_agg]`"
    return UnknownMethod(f"`{safe_repr(item)}` has no method `{name}`", caller(), help)


def conditions_joined(place: Place) -> BadOperator:
    return BadOperator(
        "`&` and `|` do not join conditions",
        place,
        "write conditions side by side in the body, `(a, b)`; for either of two, write two rules",
    )


def refuse_joined(*items: Any) -> None:
    """Refuse `a & b` where one is a condition: of two values `&` is the sum."""
    for item in items:
        if isinstance(item, Comparable | Equality) or (
            isinstance(item, nodes.Expression) and not item.carries_value
        ):
            raise conditions_joined(caller())


def joined(left: Any, right: Any) -> nodes.Apply:
    """`a & b` of two values: their sum."""
    refuse_joined(left, right)
    return replace(apply("sum", left, right), joined=True)


def refuse_joined_body(rule: nodes.Rule, listed: tuple[nodes.Function, ...]) -> None:
    """Refuse `(h <= a & b) | [F.product]`: the sum would be the one thing to be multiplied."""
    for function in listed:
        named = functions.kind(function) == functions.COMBINATION and function.name != "sum"
        for item in rule.body if named else ():
            if isinstance(item, nodes.Apply) and item.joined:
                raise BadOperator(
                    f"`&` is a sum, and `F.{function.name}` would combine nothing but that sum",
                    item.place,
                    "write the body as a tuple `(a, b)`; a sum inside of it as `a + b`",
                )


def apply(function: nodes.Function | str, *operands: Any) -> nodes.Apply:
    """`function(operands)` as an expression."""
    place = caller()
    if isinstance(function, str):
        function = nodes.Function(function)
    values = tuple(operand(item, place) for item in operands)
    if (
        len(values) == 1
        and not isinstance(values[0], nodes.Weight)
        and values[0].weight is not None
    ):
        # functions come before the weight: f(x[W]) is W·f(x)
        bare = replace(values[0], weight=None)  # type: ignore[type-var]
        return nodes.Apply(function, (bare,), values[0].weight, place)
    return nodes.Apply(function, values, None, place)


def refuse_depth(node: nodes.Apply) -> None:
    """Bound the depth of expressions, so that no function that walks them overflows the stack."""
    depth = 1 + max((operand.depth for operand in node.operands), default=0)
    if depth > MAX_DEPTH:
        raise BadBody(
            f"the expression is more than {MAX_DEPTH} functions or operators deep",
            node.place or caller(),
            "write a rule for a part of it, or a body `(a, b, ...)` with a combination",
        )
    object.__setattr__(node, "depth", depth)


def negate(item: nodes.Expression) -> nodes.Expression:
    """`~item`, negation as failure."""
    if isinstance(item, nodes.Apply | nodes.Weight):
        raise BadOperator(
            f"only an atom can be negated, not `{item!r}`",
            caller(),
            "`~b` is negation as failure; `-b` is 1 − b",
        )
    if item.weight is not None or (item.carries_value and isinstance(item, nodes.SpecialAtom)):
        raise BadOperator(
            f"`{item!r}` has a value, but a negated atom carries none",
            caller(),
            "leave the weight out",
        )
    return replace(item, negated=not item.negated, place=caller())  # type: ignore[type-var,attr-defined]


def operand(item: Any, place: Place) -> nodes.Expression:
    if isinstance(item, Real) and not isinstance(item, bool):
        with suppress(OverflowError):
            return nodes.Weight(value=float(item), is_fixed=True, place=place)
    if not isinstance(item, nodes.Expression):
        raise BadBody(
            f"`{safe_repr(item)}` is not an atom, an expression or a number",
            place,
            "numbers in a rule are a weight: `W[tensor].fixed()`, `W[[1.0, 2.0]].fixed()`"
            if hasattr(item, "shape") or isinstance(item, list)
            else "write relations as `R.name(...)`",
        )
    if not item.carries_value or getattr(item, "negated", False):
        raise ConditionInExpression(
            f"`{item!r}` is a condition and carries no value",
            item.place,
            "put it beside the expression: `(expression, condition)`",
        )
    return item


def difference(left: Any, right: Any) -> nodes.Apply:
    """`left - right`, which is `left + -1.0 * right`."""
    return apply("sum", left, apply("elproduct", -1.0, right))


def subtracted(node: Any) -> nodes.Expression | None:
    """b of an expression that is `-1.0 * b`, as `a - b` holds it."""
    match node:
        case nodes.Apply(
            nodes.Function(name="elproduct"),
            (nodes.Weight(name=None, is_fixed=True, value=-1.0), right),
            None,
        ):
            return right
    return None


def comparison(left: Any, sign: str, right: Any) -> nodes.ValueComparison:
    """The condition `left sign right` on values."""
    place = caller()
    if any(isinstance(side, Real) and math.isnan(side) for side in (left, right)):
        raise BadBody("a comparison with NaN never holds", place, "give a number")
    if isinstance(right, list | tuple):
        raise BadBody(
            f"`{sign}` compares two values, and a tuple is not one",
            place,
            "a rule is `head <= (a, b)`",
        )
    return nodes.ValueComparison(sign, operand(left, place), operand(right, place), place=place)


def compared_values(item: nodes.ValueComparison) -> nodes.Apply:
    """1 where a comparison holds, else 0."""
    pair = (item.left, item.right) if item.sign[0] == ">" else (item.right, item.left)
    name = "greater_equal" if item.sign.endswith("=") else "greater"
    return nodes.Apply(nodes.Function(name), pair, None, item.place)


def rule_or_comparison(left: nodes.Expression, right: Any) -> nodes.Rule | nodes.ValueComparison:
    """`head <= body`; with a number on the right, the condition on a value."""
    if isinstance(right, Real) and not isinstance(right, bool):
        return comparison(left, "<=", right)
    return rule(left, right)


def rule(head: Any, body: Any) -> nodes.Rule:
    place = caller()
    if not isinstance(head, nodes.Atom) or head.negated:
        help = "a rule head is `R.name(terms)`"
        if isinstance(body, nodes.Expression):
            help += f"; to compare values, write `{safe_repr(body)} >= {safe_repr(head)}`"
        raise BadHead(f"`{safe_repr(head)}` cannot be a rule head", place, help)
    items = tuple(body) if isinstance(body, tuple | list) else (body,)
    items = tuple(i.condition if isinstance(i, Equality) else i for i in items)
    for item in items:
        if isinstance(item, nodes.Rule):
            raise ChainedRule(
                "a rule inside the body of a rule",
                item.place,
                "write one `<=` per rule, and put the rules into a list; to compare values, "
                "write `b >= a` for `a <= b`",
            )
        if isinstance(item, bool):
            raise BadBody(
                f"`{item}` is not an atom: Python computes `in`, `is` and `==` of atoms itself",
                place,
                "compare variables, `V.I == 3`, `V.I != V.J`; for one of several, "
                "`R.special._in(V.I, 1, 2)` or a relation: `R._some(V.I)`; values are equal where "
                "`R.a(V.I) >= R.b(V.I), R.b(V.I) >= R.a(V.I)`",
            )
        if not isinstance(item, nodes.Expression):
            raise BadBody(
                f"`{safe_repr(item)}` is not an atom or an expression over atoms",
                place,
                _as_body(item),
            )
        if (
            item.weight is not None
            and isinstance(item, nodes.Atom | nodes.SpecialAtom)
            and not item.carries_value
        ):
            raise ConditionInExpression(
                f"`{item!r}` is a condition, so its weight would change nothing",
                item.place,
                "leave the weight out"
                + (", or use the atom without `hidden`" * getattr(item, "hidden", False)),
            )
    return nodes.Rule(replace(head, hidden=False), items, (), place)


def _as_body(item: Any) -> str:
    """The next step for what is written in a body and is no atom."""
    if isinstance(item, set | frozenset):
        return "a set has no order: write a tuple, `(R.a(V.X), R.b(V.X))`"
    if isinstance(item, list | tuple):
        return "a body is one tuple: write `*` before the inner one, `(R.a(V.X), *conditions)`"
    if hasattr(item, "rows_between"):
        shown = f"{item.__name__}(...)" if isinstance(item, type) else safe_repr(item)
        return f"a pattern is a condition on two terms: `{shown}(V.I, V.J)`"
    if callable(item):
        return "a function of two keys is a pattern: `graphs.where(function)(V.I, V.J)`"
    return "a body is `R.a(V.X)` or a tuple `(R.a(V.X), R.b(V.X))`"


def line(head: Any, arity: Any) -> nodes.Line:
    if not isinstance(head, nodes.Atom) or head.terms or head.weight is not None or head.negated:
        raise BadOperator(
            "`/` gives a relation its arity, as in `R.h/1 | [F.tanh]`",
            caller(),
            f"to divide, write `(1 / {safe_repr(arity)}) * {safe_repr(head)}`"
            if isinstance(arity, Real)
            else "to divide, multiply by `F.inverse(b)`",
        )
    if not isinstance(arity, int) or isinstance(arity, bool) or arity < 0:
        raise BadOperator(
            f"`{safe_repr(arity)}` is not an arity",
            caller(),
            "write the number of terms, as in `R.h/1`; to divide, multiply by `F.inverse(b)`",
        )
    return nodes.Line(head.relation, arity, (), caller())
