"""Reads expressions: what can stand in a body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from edgewise.errors import EdgewiseError, Span
from edgewise.language import brackets, functions, nodes, operators
from edgewise.language.parser_atoms import atom, hidden_special, special_or_pattern
from edgewise.language.parser_lists import argument, near_function
from edgewise.language.parser_values import (
    NUMBERS,
    STARTS,
    placed,
    weight,
)
from edgewise.language.specials import SPECIALS
from edgewise.language.tokens import MAX_DEPTH, Cursor, Token

INFIX = {"+": ("sum", 1), "&": ("sum", 1), "*": ("elproduct", 2), "@": ("product", 2)}
TERMS = ("name", "variable", "int", "string")


def item(cursor: Cursor) -> nodes.Expression:
    """One item of a body; a number alone is a learnable offset, as everywhere outside of sums."""
    if cursor.kind in NUMBERS and cursor.ahead().kind in (",", ".", "end"):
        return weight(cursor)
    return expression(cursor, 0)


def expression(cursor: Cursor, least: int) -> nodes.Expression:
    """Operands joined by operators that bind stronger than `least`."""
    first = cursor.token
    left = operand(cursor)
    while True:
        name, strength = _infix(cursor)
        if strength <= least:
            return left
        if cursor.kind in NUMBERS:  # `a +1`: the sign was the operator
            token = cursor.token
            cursor.tokens[cursor.position] = token._replace(text=token.text[1:])
        else:
            cursor.next()
        pair = (left, expression(cursor, strength))
        left = _built(cursor, first, partial(operators.apply, name, *pair), *pair)


def _infix(cursor: Cursor) -> tuple[str, int]:
    token = cursor.token
    sign = token.text[:1] if token.kind in NUMBERS else token.kind
    if sign == "-":
        raise operators.BadOperator(
            "there is no subtraction: `-b` is the soft negation 1 − b",
            cursor.span(),
            "write `a + <-1.0> b`",
        )
    if sign in ("*", "@") and not cursor.is_adjacent() and cursor.ahead().start == token.end:
        raise cursor.mistake(
            f"is this a product, or is a `,` missing before `{sign}{cursor.ahead().text[:20]}`?",
            help=f"write `a {sign} b` with spaces for a product, and `a, {sign}b` for a condition",
        )
    return INFIX.get(sign, ("", 0))


def operand(cursor: Cursor) -> nodes.Expression:
    first = cursor.token
    with cursor.nested():
        if first.kind in STARTS:
            return _weighted(cursor)
        if cursor.take("-"):
            inner = operand(cursor)
            return _built(cursor, first, partial(operators.apply, "reverse", inner), inner)
        return _postfix(cursor, first, primary(cursor))


def _weighted(cursor: Cursor) -> nodes.Expression:
    first = cursor.token
    found = weight(cursor)
    if cursor.kind in STARTS and cursor.token.text[0] not in "+-":
        raise brackets.TwoWeights(
            "two weights stand side by side", cursor.span(), "write one weight before an atom"
        )
    if not _starts_operand(cursor):
        if first.kind in NUMBERS:
            found = found.fixed()  # a constant, as in `a(X) + 2.0`
        return _postfix(cursor, first, found)
    inner = _postfix(cursor, cursor.token, primary(cursor))
    if isinstance(inner, nodes.Weight):
        raise brackets.TwoWeights("a weight has a weight", cursor.span(first), "write one weight")
    if inner.weight is not None:
        raise brackets.TwoWeights(
            "the expression has a weight already", cursor.span(first), "write one weight"
        )
    heights = cursor.heights.get(id(inner), (0,))
    made = _at(cursor, first, lambda: brackets.weighted(inner, found))
    cursor.heights[id(made)] = (heights[0], made)
    return made


def _starts_operand(cursor: Cursor) -> bool:
    if cursor.kind == "@":  # after a weight: a special atom if it can carry one, else the product
        name = cursor.ahead()
        return name.text in SPECIALS and name.start == cursor.token.end
    return cursor.kind in ("name", "string", "variable", "(", "^", "!", "~")


def _postfix(cursor: Cursor, first: Token, inner: nodes.Expression) -> nodes.Expression:
    while cursor.take(".T"):
        inner = _built(cursor, first, partial(operators.apply, "transp", inner), inner)
    return inner


def primary(cursor: Cursor) -> nodes.Expression:
    first = cursor.token
    match first.kind:
        case "(":
            cursor.next()
            inner = expression(cursor, 0)
            cursor.expect(")", "close the parenthesis that is open")
            return inner
        case "!" | "~":
            return _negated(cursor)
        case "*":
            cursor.next()
            if cursor.kind == "@":
                return hidden_special(cursor, first)
            return atom(cursor, hidden=True)
        case "@":
            return special_or_pattern(cursor)
        case "name" if cursor.ahead().kind == "(" and not _is_term_list(cursor):
            return _function(cursor)
        case "name" | "string" | "^":
            return atom(cursor)
    return atom(cursor)


def _negated(cursor: Cursor) -> nodes.Expression:
    first = cursor.next()
    if cursor.kind in ("!", "~", "(", "-"):
        raise cursor.mistake("only an atom can be negated", help="write `!b(X)`; `-b(X)` is 1 − b")
    inner = primary(cursor)
    return _at(cursor, first, lambda: operators.negate(inner))


def _is_term_list(cursor: Cursor) -> bool:
    """Whether the parentheses after a name hold terms only: then it is an atom."""
    at = cursor.position + 2
    while (kind := cursor.tokens[at].kind) != ")":
        if kind == "?":
            at += 1
            kind = cursor.tokens[at].kind
        if kind not in TERMS or cursor.tokens[at + 1].kind not in (",", ")"):
            return False
        at += 2 if cursor.tokens[at + 1].kind == "," else 1
    return True


def _function(cursor: Cursor) -> nodes.Expression:
    """`exp(a(X))`, `slice(a(X), rows=(0, 2))`."""
    first = cursor.token
    if first.text not in functions.SIGNATURES:
        return _not_a_function(cursor)
    cursor.next()
    cursor.next()
    operands: list[nodes.Expression] = []
    given: dict[str, Any] = {}
    while cursor.kind != ")":
        if cursor.kind == "name" and cursor.ahead().kind == "=":
            name = cursor.next().text
            cursor.next()
            given[name] = argument(cursor)
        else:
            operands.append(expression(cursor, 0))
        if not cursor.take(","):
            break
    cursor.expect(")", f"the operands of `{first.text}` are separated by `,` and closed by `)`")
    function = functions.named(first.text, cursor.source.span(first.start, first.end))
    if not operands:
        raise cursor.mistake(
            f"`{first.text}` needs an operand", cursor.span(first), "write `exp(a(X))`"
        )
    call = partial(functions.call, function, tuple(operands), given)
    return _built(cursor, first, call, *operands)


def _not_a_function(cursor: Cursor) -> nodes.Expression:
    """An atom with bad terms, or a function that does not exist."""
    first, inside, after = cursor.token, cursor.ahead(2), cursor.ahead(3)
    if inside.kind in ("name", "string") and after.kind in ("(", "+", "&", "*", "@", ".T"):
        near = near_function(first.text)
        raise functions.UnknownFunction(
            f"there is no function `{first.text}`, and the terms of an atom are no atoms",
            cursor.span(),
            f"did you mean `{near}`?" if near else "give the inner part a rule of its own",
        )
    return atom(cursor)


def _built(
    cursor: Cursor, first: Token, make: Callable[[], Any], *parts: nodes.Expression
) -> nodes.Expression:
    """What `make` gives, with its place, unless it is nested too deep to be worked with."""
    height = 1 + max(cursor.heights.get(id(part), (0,))[0] for part in parts)
    if height > MAX_DEPTH:
        raise cursor.mistake(
            f"the expression has more than {MAX_DEPTH} operators one inside the other",
            cursor.span(first),
            "write `sum(a, b, ...)`, or give a part a rule of its own",
        )
    for part in parts:
        if not part.carries_value and isinstance(part.place, Span):
            raise operators.ConditionInExpression(
                f"`{part.place.text[part.place.column - 1 : part.place.end - 1]}` is a condition "
                "and carries no value",
                part.place,
                "put it beside the expression, `expression, condition`",
            )
    made = _at(cursor, first, make)
    cursor.heights[id(made)] = (height, made)
    return made


def _at(cursor: Cursor, first: Token, make: Callable[[], Any]) -> Any:
    place = cursor.span(first)
    try:
        return replace(make(), place=place)
    except EdgewiseError as error:
        raise placed(error, place) from None
