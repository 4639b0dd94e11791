"""Reads what stands in brackets after a rule, or alone: functions, keys, program options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgewise.errors import EdgewiseError, nearest, suggest
from edgewise.functions import Law
from edgewise.language import functions, nodes, program
from edgewise.language.text_form.tokens import Cursor, Token
from edgewise.language.text_form.values import (
    NUMBERS,
    integer,
    placed,
    term,
    term_list,
    weight,
)

KINDS = {
    "activation": functions.TRANSFORMATION,
    "transformation": functions.TRANSFORMATION,
    "combination": functions.COMBINATION,
    "aggregation": functions.AGGREGATION,
}
SUFFIXES = {functions.AGGREGATION: "_agg", functions.COMBINATION: "_comb"}
PUBLISHED = {
    **{"leakyrelu": "leaky_relu", "crosssum": "crossum", "sigm": "sigmoid"},
    **{"transpose": "transp", "transposition": "transp", "exponentiation": "exp"},
    **{"elementproduct": "elproduct", "logarithm": "log", "squareroot": "sqrt"},
}
OFFSET, LEARNABLE = "offset", "learnable"  # of a rule or a relation in published templates


@dataclass(frozen=True)
class ListEntry:
    """One entry of a list: `relu`, `activation=relu`, `rounds=3` or `H=8`."""

    token: Token
    key: str | nodes.Variable | None
    value: Any


def starts_list(cursor: Cursor) -> bool:
    """Whether `[` opens a list of functions or options, not a vector."""
    return cursor.kind == "[" and cursor.ahead().kind in ("name", "variable", "]", "?", "^")


def entries(cursor: Cursor) -> list[ListEntry]:
    """`[product, leaky_relu(0.2), softmax_agg(J)]`, `[activation=tanh]`, `[rounds=3, H=8]`."""
    cursor.expect("[", "functions go in brackets")
    why = "functions are separated by `,` and closed by `]`"
    return [one for found in cursor.separated("]", lambda: _entry(cursor), why) for one in found]


def _entry(cursor: Cursor) -> list[ListEntry]:
    first = cursor.token
    if first.kind in ("variable", "?"):
        variable = term(cursor)
        cursor.expect("=", "the domain of a variable is `H=8`, or `H=(a, b)`")
        return [ListEntry(first, variable, _domain(cursor))]  # type: ignore[arg-type]
    cursor.take("^")  # some published files mark their keys so
    if cursor.kind == "name" and cursor.ahead().kind == "=":
        key = cursor.next()
        cursor.next()
        if key.text in KINDS:
            return [ListEntry(first, key.text, f) for f in _keyed(cursor, KINDS[key.text])]
        if key.text == OFFSET:
            return [ListEntry(first, OFFSET, weight(cursor))]
        if key.text == LEARNABLE:
            return [ListEntry(first, LEARNABLE, _truth(cursor))]
        if key.text == "rounds":
            return [ListEntry(first, "rounds", integer(cursor, "`rounds` is an integer"))]
        raise functions.BadFunction(
            f"there is no option `{key.text}`",
            cursor.source.span(key.start, key.end),
            suggest(key.text, [*KINDS, OFFSET, LEARNABLE, "rounds"]),
        )
    return [ListEntry(first, None, function(cursor))]


def _truth(cursor: Cursor) -> bool:
    token = cursor.expect("name", "write `learnable=true` or `learnable=false`")
    if token.text not in ("true", "false"):
        raise cursor.mistake(
            f"`{token.text}` is neither true nor false",
            cursor.span(token),
            "write `learnable=false`",
        )
    return token.text == "true"


def _domain(cursor: Cursor) -> Any:
    if cursor.kind == "(":
        return list(term_list(cursor))
    return integer(cursor, "a domain is a number, or a list of constants `(a, b)`")


def _keyed(cursor: Cursor, kind: str) -> list[nodes.Function]:
    """The functions after `key=`; published names leave out suffixes and join two by `-`."""
    token = cursor.token
    names = token.text.split("-") if token.kind == "name" else []
    if len(names) == 2 and all(_known(name, "") for name in names):
        cursor.next()
        place = cursor.span(token)
        return [functions.named(_known(name, "") or name, place) for name in names]
    found = function(cursor, kind)
    if functions.kind(found) != kind:
        raise functions.BadFunction(
            f"`{found.name}` is not a {kind} but a{_n(functions.kind(found))}",
            cursor.span(token),
            f"write it as `[{found.name}]`, without the key",
        )
    return [found]


def _n(kind: str) -> str:
    return ("n " if kind == functions.AGGREGATION else " ") + kind


def _known(name: str, kind: str) -> str | None:
    """The function that a name of the published language stands for."""
    for known in (name + SUFFIXES.get(kind, ""), name, PUBLISHED.get(name, "")):
        if known in functions.DEFINITIONS and kind in ("", functions.DEFINITIONS[known].kind):
            return known
    return name if name in functions.DEFINITIONS else None


def near_function(name: str) -> str | None:
    """The function that a name may be meant for."""
    return functions.ELSEWHERE.get(name) or nearest(name, list(functions.DEFINITIONS))


def function(cursor: Cursor, kind: str = "") -> nodes.Function:
    """`relu`, `leaky_relu(0.2)`, `slice(rows=(0, 2))`, `softmax_agg(I, J)`."""
    first = cursor.expect("name", "write functions, as in `[product, relu]`")
    name = _known(first.text, kind)
    if name is None:
        near = near_function(first.text)
        raise functions.UnknownFunction(
            f"there is no function `{first.text}`",
            cursor.source.span(first.start, first.end),
            f"did you mean `{near}`?" if near else "see docs/reference/functions for the list",
        )
    try:
        return _with_arguments(cursor, name, first)
    except EdgewiseError as error:
        raise placed(error, cursor.span(first)) from None


def _with_arguments(cursor: Cursor, name: str, first: Token) -> nodes.Function:
    found = functions.named(name, cursor.span(first))
    if cursor.take("("):
        items, keywords = call_arguments(
            cursor, lambda: argument(cursor), "arguments are separated by `,` and closed by `)`"
        )
        if Law.NORMALISES in functions.DEFINITIONS[name] and not keywords:
            items = [items]  # the variables themselves are the one argument
        made = functions.call(found, tuple(items), keywords)
        found = nodes.Function(name, made.arguments, cursor.span(first))
    return functions.listed(found)[0]


def call_arguments(
    cursor: Cursor, read: Callable[[], Any], why: str
) -> tuple[list[Any], dict[str, Any]]:
    """What stands in the parentheses of a call: items, as `read` reads them, and `name=value`."""
    items: list[Any] = []
    keywords: dict[str, Any] = {}

    def one() -> None:
        if cursor.kind == "name" and cursor.ahead().kind == "=":
            name = cursor.next().text
            cursor.next()
            keywords[name] = argument(cursor)
        else:
            items.append(read())

    cursor.separated(")", one, why)
    return items, keywords


def argument(cursor: Cursor) -> Any:
    """A number, a variable, a name, or a list of those in `(...)` or `[...]`."""
    if cursor.kind in ("(", "["):
        close = ")" if cursor.next().kind == "(" else "]"
        return tuple(
            cursor.separated(close, lambda: _single(cursor), "a list of numbers is `(0, 2)`")
        )
    return _single(cursor)


def _single(cursor: Cursor) -> Any:
    if cursor.kind not in NUMBERS:
        return term(cursor)
    token = cursor.next()
    if token.kind == "float" or len(token.text) > 1000:
        return float(token.text)
    return int(token.text)


def functions_of(cursor: Cursor, listed: list[ListEntry]) -> tuple[nodes.Function, ...]:
    for entry in listed:
        if entry.key == "rounds" or isinstance(entry.key, nodes.Variable):
            raise cursor.mistake(
                "this is an option of the program, not of a rule",
                cursor.source.span(entry.token.start, entry.token.end),
                "write options first in the text, `[rounds=3, H=8]`",
            )
    return tuple(entry.value for entry in listed if entry.key not in (OFFSET, LEARNABLE))


def option(listed: list[ListEntry], key: str) -> Any:
    """The last value of an option such as `offset`, or None."""
    return next((entry.value for entry in reversed(listed) if entry.key == key), None)


def set_options(cursor: Cursor, listed: list[ListEntry], options: dict[str, Any] | None) -> None:
    """`[aggregation=avg_agg, rounds=3, H=8]`: the options of the program."""
    for entry in listed:
        place = cursor.source.span(entry.token.start, entry.token.end)
        is_domain = isinstance(entry.key, nodes.Variable)
        if options is None or not (is_domain or entry.key in ("aggregation", "rounds")):
            raise cursor.mistake(
                "this is not an option of a program",
                place,
                "a list alone sets `aggregation`, `rounds` and domains `H=8`; functions follow "
                "the `.` of a rule",
            )
        key = "domains" if is_domain else str(entry.key)
        value: Any = {entry.key: entry.value} if is_domain else entry.value
        before = options.get(key)
        if before is not None and (not is_domain or entry.key in before):
            raise cursor.mistake("the option is set twice", place, "write it once")
        options[key] = {**(before or {}), **value} if is_domain else value
        try:
            program.Program([], **{key: value})
        except EdgewiseError as error:
            raise type(error)(error.message, place, error.help) from None
