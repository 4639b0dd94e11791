"""Reads atoms: of relations, special predicates and patterns."""

from __future__ import annotations

from importlib import import_module

from edgewise.errors import EdgewiseError, nearest
from edgewise.language import nodes, surface
from edgewise.language.parser_values import term_list, text_of, whole
from edgewise.language.specials import SPECIALS
from edgewise.language.tokens import Cursor, Token


def atom(cursor: Cursor, hidden: bool = False) -> nodes.Atom:
    """`name(terms)`, `name/2(terms)` or `name`."""
    first = cursor.token
    relation = relation_name(cursor)
    arity = whole(cursor, "the arity is a number, `h/1`") if cursor.take("/") else None
    items = term_list(cursor) if cursor.kind == "(" else ()
    if arity is not None and arity != len(items):
        raise cursor.mistake(
            f"`{relation}/{arity}` has {arity} terms, here are {len(items)}",
            cursor.span(first),
            f"write {arity} terms, or leave out the `/{arity}`",
        )
    return nodes.Atom(relation, items, hidden=hidden, place=cursor.span(first))


def relation_name(cursor: Cursor) -> str:
    """The name of a relation; in a block, a parameter's name stands for the parameter."""
    first = cursor.next()
    if first.kind == "name":
        bound = (scope[first.text] for scope in reversed(cursor.scopes) if first.text in scope)
        return f"^{first.text}" if next(bound, False) else first.text
    if first.kind == "string":
        return text_of(first)
    if first.kind == "^" and cursor.kind in ("name", "variable", "string"):
        name = text_of(cursor.next())
        known = [p for scope in cursor.scopes for p in scope]
        if name not in known:
            near = nearest(name, known)
            raise cursor.mistake(
                f"`^{name}` is no parameter of this block",
                cursor.span(first),
                f"did you mean `^{near}`?" if near else "list it: `layer * 2 (x = a) -> out {`",
            )
        return f"^{name}"
    raise _no_relation(cursor, first)


def _no_relation(cursor: Cursor, token: Token) -> EdgewiseError:
    place = cursor.source.span(token.start, token.end)
    if token.kind == "variable":
        return cursor.mistake(
            f"`{token.text}` is a variable, here a relation is expected",
            place,
            f'the name of a relation begins with a lower-case letter, or write `"{token.text}"`',
        )
    shown = f"`{token.text}`" if token.text else "the end of the text"
    return cursor.mistake(
        f"expected an atom, got {shown}", place, "an atom is `name(terms)`, as in `a(X)`"
    )


def hidden_special(cursor: Cursor, first: Token) -> nodes.Expression:
    """`*@leq(X, Y)`: a special predicate carries no value anyway."""
    inner = special_or_pattern(cursor)
    if inner.carries_value:
        raise cursor.mistake(
            "a hidden atom carries no value, and this one is there for its value",
            cursor.span(first),
            "leave out the `*`, or the atom",
        )
    return inner


def special_or_pattern(cursor: Cursor) -> nodes.Expression:
    first = cursor.next()
    if cursor.kind == "(":
        start, end = _balanced(cursor)
        return _pattern(cursor, first, start + 1, end - 1)
    name = cursor.expect("name", "write `@leq(X, Y)`, or a pattern, `@window(3)(I, J)`")
    if name.text in SPECIALS and name.text != "fn":
        items = term_list(cursor) if cursor.kind == "(" else ()
        return nodes.SpecialAtom(name.text, items, place=cursor.span(first))
    if cursor.kind == "(":
        end = _balanced(cursor)[1]
        if cursor.kind == "(":
            return _pattern(cursor, first, name.start, end)
    near = surface.ELSEWHERE.get(name.text) or nearest(name.text, list(SPECIALS))
    raise surface.UnknownSpecial(
        f"there is no special predicate `@{name.text}`",
        cursor.span(first),
        f"did you mean `@{near}`?" if near else f"a pattern is `@{name.text}(...)(I, J)`",
    )


def _balanced(cursor: Cursor) -> tuple[int, int]:
    """Step over `(...)`; where in the text it starts and ends."""
    first, depth = cursor.token, 0
    while True:
        token = cursor.next()
        depth += (token.kind == "(") - (token.kind == ")")
        if depth == 0:
            return first.start, token.end
        if token.kind == "end":
            place = cursor.source.span(first.start, first.end)
            raise cursor.mistake("the parenthesis is not closed", place, "write `)` where it ends")


def _pattern(cursor: Cursor, first: Token, start: int, end: int) -> nodes.PatternAtom:
    text = cursor.source.text[start:end]
    place = cursor.source.span(start, end)
    try:
        pattern = import_module("edgewise.graphs").parse(text)
    except EdgewiseError as error:
        raise type(error)(error.message, place, error.help) from None
    except (RecursionError, MemoryError):
        raise cursor.mistake(
            "the pattern is nested too deep", place, "write it in fewer parentheses"
        ) from None
    items = term_list(cursor)
    if len(items) != 2:
        raise cursor.mistake(
            f"a pattern is a set of pairs, here are {len(items)} terms",
            cursor.span(first),
            "write two terms, `@window(3)(I, J)`",
        )
    return nodes.PatternAtom(pattern, items, cursor.span(first))
