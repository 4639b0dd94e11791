"""The terms of atoms: variables and constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any, TypeVar

from edgewise.errors import EdgewiseError, Place, caller, safe_repr
from edgewise.language import nodes, term_expressions


class BadTerm(EdgewiseError):
    """A term is a variable `V.X`, an integer, a string or `C.name`: keys are compared exactly."""

    code = "bad-term"
    example = "R.a(0.5)"
    instead = "R.a(1)[0.5]"


class TermsTwice(EdgewiseError):
    """An atom has one list of terms, and they come before the weight."""

    code = "terms-twice"
    example = "R.a(V.X)(V.Y)"
    instead = "R.a(V.X, V.Y)"


Named = TypeVar("Named", "nodes.Atom", "nodes.SpecialAtom")


def checked(items: Iterable[Any], place: Place) -> tuple[nodes.Term, ...]:
    return tuple(term(item, place) for item in items)


def term(item: Any, place: Place) -> nodes.Term:
    help = "a term is `V.X`, an integer, a string or `C.name`; a value goes into brackets"
    match item:
        case nodes.Variable() | str():
            return item
        case bool():
            reason = "is a bool"
        case Integral():
            return int(item)
        case float():
            reason = "is a float, and keys are compared exactly"
        case nodes.Expression():
            reason = "is an atom"
        case term_expressions.TermExpression():
            raise BadTerm(
                f"the term `{safe_repr(item)}` is computed",
                place,
                f"name it in the body: `V.Next == {safe_repr(item)}`, and write `V.Next` here",
            )
        case list() | tuple():
            reason = f"is a {type(item).__name__}"
            help = "each term stands by itself: write `*` before it"
        case _:
            reason = f"is a {type(item).__name__}"
            if getattr(item, "shape", None) == () and hasattr(item, "item"):
                help = f"write the number of it: `{safe_repr(item.item())}`, by `.item()`"
    raise BadTerm(f"the term `{safe_repr(item)}` {reason}", place, help)


def with_terms(atom: Named, items: tuple[Any, ...], named: Mapping[str, Any]) -> Named:
    place = caller()
    if named:
        shown = ", ".join(map(safe_repr, (*items, *named.values())))
        raise BadTerm(
            f"the term `{next(iter(named))}=` has a name", place,
            f"terms are known by their place: write `({shown})`",
        )  # fmt: skip
    if atom.terms or atom.weight is not None:
        raise TermsTwice(
            f"`{atom!r}` already has its terms or a weight",
            place,
            "write all terms in one pair of parentheses, before the weight; its shape is in "
            "brackets: `R.x(V.I)[64, 32]`",
        )
    if len(items) == 1 and isinstance(items[0], list | tuple):
        items = tuple(items[0])
    return replace(atom, terms=checked(items, place), place=place)


def variables(items: Iterable[nodes.Term]) -> list[nodes.Variable]:
    return [item for item in items if isinstance(item, nodes.Variable)]


def order(key: tuple[nodes.Constant, ...]) -> tuple[tuple[bool, int, str], ...]:
    """Sorts keys: integers by size, then strings by code point.

    >>> sorted([("b",), (10,), ("B",), (2,)], key=order)
    [(2,), (10,), ('B',), ('b',)]
    """
    return tuple((True, 0, k) if isinstance(k, str) else (False, k, "") for k in key)
