"""Reads weights and values: `{8,2}`, `<0.5>`, `[1, 2]`, `$w={8,2}`, `$q(H)={16,64}`."""

from __future__ import annotations

import re
from dataclasses import replace

from edgewise.errors import EdgewiseError, Span
from edgewise.language import brackets, functions, nodes, terms
from edgewise.language.text_form.tokens import Cursor, Token, unquoted

NUMBERS = ("int", "float")
STARTS = (*NUMBERS, "<", "[", "{", "$")
MOST_ELEMENTS = 1_000_000
PYTHON = re.compile(r"\b[FV]\.(?=\w)")


def weight(cursor: Cursor) -> nodes.Weight:
    """A weight of any form."""
    first = cursor.token
    found = _named(cursor) if cursor.take("$") else plain(cursor)
    if found.name is None and not found.is_declared:
        raise cursor.mistake(
            "the weight has no shape", cursor.span(first), "write one: `{64 = 1.0}`"
        )
    return replace(found, place=cursor.span(first))


def _named(cursor: Cursor) -> nodes.Weight:
    first = cursor.last
    if cursor.take("="):
        return plain(cursor)
    if cursor.kind not in ("name", "string"):
        raise cursor.mistake(
            f"expected the name of a weight after `$`, got {cursor.shown()}",
            help="write `$w={8,2}`, or `$w` for a weight declared elsewhere",
        )
    name = text_of(cursor.next())
    keys: tuple[nodes.Term, ...] = ()
    if cursor.kind == "(" and cursor.is_adjacent():
        keys = term_list(cursor)
    if not cursor.take("="):
        return nodes.Weight(name=name, keys=keys)
    found = plain(cursor)
    if found.name is not None:
        raise brackets.BadWeight(
            "the weight has two names", cursor.span(first), "name it once, `$w=<{8,2}>`"
        )
    return replace(found, name=name, keys=keys)


def plain(cursor: Cursor) -> nodes.Weight:
    """A weight without a name, fixed if it stands in `<...>`."""
    first = cursor.token
    if cursor.take("<"):
        if cursor.kind == "<":
            raise cursor.mistake("the value is fixed twice", help="write one pair, `<0.5>`")
        inner = _named(cursor) if cursor.take("$") else plain(cursor)
        cursor.expect(">", "a fixed value is written `<0.5>`")
        return replace(inner, is_fixed=True)
    if cursor.kind in NUMBERS:
        return brackets.weight(number(cursor), cursor.span(first))
    if cursor.take("{"):
        return _shape(cursor, first)
    if cursor.take("["):
        value = _matrix(cursor) if cursor.kind == "[" else _vector(cursor)
        return brackets.weight(value, cursor.span(first))
    raise cursor.mistake(
        f"expected a value, got {cursor.shown()}",
        help="write a number, a vector `[1, 2]`, a matrix `[[1, 2], [3, 4]]` or a shape `{8,2}`",
    )


def number(cursor: Cursor) -> float:
    if cursor.kind not in NUMBERS:
        raise cursor.mistake(
            f"expected a number, got {cursor.shown()}", help="write one such as `0.5`"
        )
    return float(cursor.next().text)


def integer(cursor: Cursor, why: str) -> int:
    """An integer; one with too many digits is an error."""
    token = cursor.expect("int", why)
    return integer_of(token, cursor.span(token))


def integer_of(token: Token, place: Span) -> int:
    if len(token.text) > 1000:
        raise terms.BadTerm("the number has too many digits", place, "write it as a string")
    return int(token.text)


def _shape(cursor: Cursor, first: Token) -> nodes.Weight:
    """`{8,2}`, `{64 = 1.0}`; without sizes, `{= 1.0}`, for a shape that is written elsewhere."""
    sizes: list[int] = []
    while cursor.kind not in ("=", "}"):
        sizes.append(integer(cursor, "a shape is `{8,2}`: rows, then columns"))
        if not cursor.take(","):
            break
    fill = number(cursor) if cursor.take("=") else None
    cursor.expect("}", "a shape is `{8,2}`: rows, then columns")
    if not sizes and fill is not None:
        return nodes.Weight(fill=fill)
    return replace(brackets.weight(tuple(sizes), cursor.span(first)), fill=fill)


def _vector(cursor: Cursor) -> list[float] | list[list[float]]:
    """After `[`: numbers, or the size and the elements of a sparse value."""
    first = cursor.token
    items = _numbers(cursor)
    if cursor.take("|"):
        return _sparse(cursor, first, items)
    cursor.expect("]", "a vector is `[1, 2]`, a matrix `[[1, 2], [3, 4]]`")
    return items


def _matrix(cursor: Cursor) -> list[list[float]]:
    rows = []
    while cursor.take("["):
        rows.append(_numbers(cursor))
        cursor.expect("]", "a row of a matrix is `[1, 2]`")
        cursor.take(",")
    cursor.expect("]", "a matrix is `[[1, 2], [3, 4]]`")
    return rows


def _numbers(cursor: Cursor) -> list[float]:
    items = [number(cursor)]
    while cursor.take(","):
        items.append(number(cursor))
    return items


def _sparse(cursor: Cursor, first: Token, sizes: list[float]) -> list[float] | list[list[float]]:
    """`[5| 1:0.5, 3:2.0]` and `[2,3| 0,1:0.5]`: positions count from 0, the rest is 0."""
    place = cursor.span(first)
    shape = brackets.weight(tuple(map(_as_size, sizes)), place).shape or ()
    columns = shape[1] if len(shape) == 2 else 1
    if shape[0] * columns > MOST_ELEMENTS:
        raise cursor.mistake(
            f"the value has {shape[0] * columns} elements", place, "give it as a tensor"
        )
    rows = [[0.0] * columns for _ in range(shape[0])]
    seen: set[tuple[int, ...]] = set()
    while cursor.kind != "]":
        at, element = _element(cursor, shape, seen)
        rows[at[0]][at[1] if len(at) == 2 else 0] = element
        if not cursor.take(","):
            break
    cursor.expect("]", "a sparse vector is `[5| 1:0.5, 3:2.0]`")
    return rows if len(shape) == 2 else [row[0] for row in rows]


def _as_size(size: float) -> float:
    return int(size) if size.is_integer() else size


def _element(
    cursor: Cursor, shape: tuple[int, ...], seen: set[tuple[int, ...]]
) -> tuple[tuple[int, ...], float]:
    first = cursor.token
    why = "an element is `position:value`, such as `1:0.5`, or `0,1:0.5` in a matrix"
    is_open = cursor.take("(")
    at = [integer(cursor, why)]
    if len(shape) == 2:
        cursor.expect(",", why)
        at.append(integer(cursor, why))
    cursor.expect(":", why)
    key = tuple(at)
    inside = all(0 <= i < n for i, n in zip(key, shape, strict=True))
    if not inside or key in seen:
        reason = "is given twice" if inside else f"is outside of {shape}"
        raise cursor.mistake(
            f"position {key} {reason}", cursor.span(first), "positions count from 0"
        )
    seen.add(key)
    value = number(cursor)
    if is_open:
        cursor.expect(")", "close the element, `(1:0.5)`")
    return key, value


def term_list(cursor: Cursor) -> tuple[nodes.Term, ...]:
    """`(X, 3, name, "any text")`."""
    cursor.expect("(", "terms go in parentheses, as in `a(X, 3)`")
    why = "terms are separated by `,` and closed by `)`"
    return tuple(cursor.separated(")", lambda: term(cursor), why))


def term(cursor: Cursor) -> nodes.Term:
    """A variable, a name, an integer or a string; `woman:Y` is a variable of a type."""
    first = cursor.token
    if first.kind in ("name", "variable") and cursor.ahead().kind == ":":
        cursor.next()
        cursor.next()
        found = term(cursor)
        cursor.types.append((first.text, found, cursor.span(first)))
        return found
    token = cursor.next()
    match token.kind:
        case "name":
            return token.text
        case "variable":
            return nodes.Variable(token.text, cursor.span(token))
        case "int":
            return integer_of(token, cursor.span(token))
        case "string":
            return unquoted(token.text)
        case "float":
            return terms.term(float(token.text), cursor.span(token))
        case "?" if cursor.kind in ("name", "variable", "int", "string"):
            return nodes.Variable(text_of(cursor.next()), cursor.span(token))
    shown = f"`{token.text}`" if token.text else "the end of the text"
    raise cursor.mistake(
        f"expected a term, got {shown}",
        cursor.source.span(token.start, token.end),
        "a term is a variable `X`, a name, an integer or a string in quotes",
    )


def text_of(token: Token) -> str:
    """The name that a bare or quoted token stands for."""
    return unquoted(token.text) if token.kind == "string" else token.text


def placed(error: EdgewiseError, place: Span) -> EdgewiseError:
    """The same error, located in the text instead of in the parser."""
    if not isinstance(error.place, Span):
        error.place = place
    if isinstance(error, functions.BadFunction):
        help = PYTHON.sub("", error.help)
        return functions.BadFunction(PYTHON.sub("", error.message), error.place, help)
    return error
