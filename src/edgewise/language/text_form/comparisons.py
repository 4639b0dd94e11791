"""Reads comparisons of terms: `J <= I`, `I - J <= 5`, `abs(I - J) mod 3 == 0`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edgewise.errors import EdgewiseError
from edgewise.language import nodes, operators
from edgewise.language.term_expressions import COMPARED, compared
from edgewise.language.text_form.tokens import Cursor
from edgewise.language.text_form.values import placed, term

SUMS = ("+", "-")
PRODUCTS = ("*", "//", "mod")
WORDS = ("mod", "abs")


def compares_terms(cursor: Cursor) -> bool:
    """Whether a comparison of terms comes next: variables and integers up to `<=` or its like."""
    at, variables = _skipped(cursor, cursor.position)
    if cursor.tokens[at].kind not in COMPARED or at == cursor.position:
        return False
    after, more = _skipped(cursor, at + 1)
    return variables > 0 or (
        more > 0 and cursor.tokens[after].kind in (*COMPARED, ",", ".", "end", ")")
    )


def _skipped(cursor: Cursor, at: int) -> tuple[int, int]:
    """Where an expression over terms ends that begins at a token, and its number of variables."""
    variables = 0
    while True:
        token = cursor.tokens[at]
        if token.kind == "?":
            at += 1
        elif token.kind not in ("variable", "int", "(", ")", *SUMS, *PRODUCTS) and not (
            token.kind == "name" and token.text in WORDS
        ):
            return at, variables
        variables += token.kind in ("variable", "?")
        at += 1


def term_comparison(cursor: Cursor) -> nodes.SpecialAtom:
    first = cursor.token
    left = _sum(cursor)
    sign = cursor.next().kind
    if sign not in COMPARED:
        cursor.position -= sign != "end"
        raise cursor.mistake(
            f"expected a comparison, got {cursor.shown()}", help="write `I - J <= 5`"
        )
    right = _sum(cursor)
    place = cursor.span(first)
    if cursor.kind in COMPARED:
        raise operators.NoTruthValue(
            "comparisons cannot be chained", cursor.span(first), "write `0 <= I, I <= 5`"
        )
    try:
        return replace(compared(left, sign, right), place=place)
    except EdgewiseError as error:
        raise placed(error, place) from None


def _sum(cursor: Cursor) -> Any:
    left = _product(cursor)
    while cursor.kind in SUMS or (cursor.kind == "int" and cursor.token.text[0] in SUMS):
        if cursor.kind == "int":  # `I -1`: the sign was the operator
            token = cursor.token
            sign = token.text[0]
            cursor.tokens[cursor.position] = token._replace(text=token.text[1:])
        else:
            sign = cursor.next().kind
        right = _product(cursor)
        left = left + right if sign == "+" else left - right
    return left


def _product(cursor: Cursor) -> Any:
    left = _primary(cursor)
    while cursor.kind in PRODUCTS or cursor.token.text == "mod":
        sign = cursor.next().text
        right = _primary(cursor)
        if isinstance(left, int) and isinstance(right, int) and not right and sign != "*":
            raise cursor.mistake("this divides by 0", help="write another number")
        left = left * right if sign == "*" else left // right if sign == "//" else left % right
    return left


def _primary(cursor: Cursor) -> Any:
    with cursor.nested():
        if cursor.take("-"):
            return -_primary(cursor)
        if cursor.token.text == "abs" and cursor.ahead().kind == "(":
            cursor.next()
            return abs(_primary(cursor))
        if cursor.take("("):
            inner = _sum(cursor)
            cursor.expect(")", "close the parenthesis that is open")
            return inner
        return term(cursor)
