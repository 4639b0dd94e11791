"""Reads published example and query files: conjunctions of ground facts, with their labels."""

from __future__ import annotations

from dataclasses import dataclass

from edgewise.errors import EdgewiseError, raise_all
from edgewise.language import nodes
from edgewise.language.text_form.tokens import MAX_ERRORS, BadSyntax, Cursor, SourceText, unquoted
from edgewise.language.text_form.values import STARTS, integer_of, term_list, weight

SIMPLE = ("name", "int")


@dataclass(frozen=True)
class Example:
    """Facts that belong together, and the queries about them; a query's weight is its label."""

    queries: tuple[nodes.Fact, ...]
    facts: tuple[nodes.Fact, ...]


def parse_examples(text: str, file: str = "<text>") -> tuple[Example, ...]:
    """The examples of a file, `label :- fact, fact.` or `fact, fact.`

    >>> parse_examples("1.0 predict :- bond(c_1, c_2), carbon(c_1).")[0].facts
    (R.bond('c_1', 'c_2'), R.carbon('c_1'))
    """
    return _parsed(text, file, is_queries=False)


def parse_queries(text: str, file: str = "<text>") -> tuple[Example, ...]:
    """The queries of a file, one example's on each line: `1.0 predict.`

    >>> parse_queries("1.0 predict. 0.0 predict.")[1].queries
    (R.predict[0.0],)
    """
    return _parsed(text, file, is_queries=True)


def _parsed(text: str, file: str, is_queries: bool) -> tuple[Example, ...]:
    cursor = Cursor(SourceText(text, file))
    found: list[Example] = []
    while cursor.kind != "end" and len(cursor.errors) < MAX_ERRORS:
        try:
            found.append(_example(cursor, is_queries))
        except EdgewiseError as error:
            cursor.errors.append(error)
            while cursor.kind != "end" and cursor.next().kind != ".":
                pass
    raise_all(cursor.errors)
    return tuple(found)


def _example(cursor: Cursor, is_queries: bool) -> Example:
    facts = _conjunction(cursor)
    if cursor.take("."):
        return Example(facts, ()) if is_queries else Example((), facts)
    if is_queries or not cursor.take(":-"):
        raise cursor.mistake(
            f"expected `,` or `.`, got {cursor.shown()}",
            help="a query ends with `.`" if is_queries else "write `1.0 predict :- a(1), b(2).`",
        )
    queries, facts = facts, () if cursor.kind == "." else _conjunction(cursor)
    cursor.expect(".", "an example is a list of facts with `,` that ends with `.`")
    return Example(queries, facts)


def _conjunction(cursor: Cursor) -> tuple[nodes.Fact, ...]:
    found = [_fact(cursor)]
    while cursor.take(","):
        found.append(_fact(cursor))
    return tuple(found)


def _fact(cursor: Cursor) -> nodes.Fact:
    first = cursor.token
    value = weight(cursor) if first.kind in STARTS else None
    name = cursor.next()
    if name.kind not in ("name", "string"):
        raise BadSyntax(
            f"expected a fact, got `{name.text}`",
            cursor.source.span(name.start, name.end),
            "an example holds facts such as `bond(c_1, c_2, 0)`, without rules",
        )
    relation = name.text if name.kind == "name" else unquoted(name.text)
    terms = _constants(cursor) if cursor.kind == "(" else ()
    return nodes.Fact(nodes.Atom(relation, terms, value, place=cursor.span(first)))


def _constants(cursor: Cursor) -> tuple[nodes.Constant, ...]:
    """`(c_1, c_2, 0)`, straight from the tokens: files hold many thousands of these."""
    tokens, at = cursor.tokens, cursor.position + 1
    found: list[nodes.Constant] = []
    while tokens[at].kind in SIMPLE and tokens[at + 1].kind in (",", ")"):
        token = tokens[at]
        found.append(token.text if token.kind == "name" else integer_of(token, cursor.span()))
        at += 2
        if tokens[at - 1].kind == ")":
            cursor.position = at
            return tuple(found)
    return _checked(cursor)


def _checked(cursor: Cursor) -> tuple[nodes.Constant, ...]:
    found: list[nodes.Constant] = []
    for term in term_list(cursor):
        if isinstance(term, nodes.Variable):
            raise BadSyntax(
                f"`{term.name}` is a variable, and a fact has none",
                term.place,
                "a constant begins with a lower-case letter, or stands in quotes",
            )
        found.append(term)
    return tuple(found)
