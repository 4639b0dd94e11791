"""Reads what can stand in a body: atoms, special predicates, patterns, functions, operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from edgewise.errors import EdgewiseError, Span, nearest
from edgewise.language import brackets, functions, nodes, operators, printer, specials
from edgewise.language.specials import SPECIALS
from edgewise.language.term_expressions import COMPARED
from edgewise.language.text_form.comparisons import compares_terms, term_comparison
from edgewise.language.text_form.lists import call_arguments, near_function
from edgewise.language.text_form.tokens import MAX_DEPTH, Cursor, Token
from edgewise.language.text_form.values import (
    NUMBERS,
    STARTS,
    integer,
    placed,
    term_list,
    text_of,
    weight,
)

INFIX = {sign.strip(): (name, level) for name, (sign, level) in printer.INFIX.items()}
INFIX["&"] = INFIX["+"]  # as NeuraLogic writes it
SOFT = ("~", "-")  # 1 − b, as NeuraLogic writes it and as Python does
TERMS = ("name", "variable", "int", "string")


def item(cursor: Cursor) -> nodes.Expression:
    """One item of a body; a number alone is a learnable offset, as everywhere outside of sums."""
    if cursor.kind in NUMBERS and cursor.ahead().kind in (",", ".", "end"):
        return weight(cursor)
    if compares_terms(cursor):
        return term_comparison(cursor)
    first = cursor.token
    found = expression(cursor, 0)
    return _compared(cursor, first, found) if cursor.kind in COMPARED else found


def _compared(cursor: Cursor, first: Token, left: nodes.Expression) -> nodes.Expression:
    """`left > right`, a condition on values."""
    sign = cursor.next()
    if sign.kind in ("==", "!="):
        raise cursor.mistake(
            f"values are not compared by `{sign.kind}`", cursor.span(sign), "write `>` or `<=`"
        )
    right = expression(cursor, 0)
    if cursor.kind in COMPARED:
        raise operators.NoTruthValue(
            "comparisons cannot be chained", cursor.span(first), "write `a > 0.1, a < 0.5`"
        )
    return _built(cursor, first, partial(operators.comparison, left, sign.kind, right), left, right)


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
        make = operators.difference if name == "-" else partial(operators.apply, name)
        left = _built(cursor, first, partial(make, *pair), *pair)


def _infix(cursor: Cursor) -> tuple[str, int]:
    token = cursor.token
    sign = token.text[:1] if token.kind in NUMBERS else token.kind
    if sign == "-":
        return "-", INFIX["+"][1]
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
        if first.kind in SOFT:
            return _softly_negated(cursor)
        return _postfix(cursor, first, primary(cursor))


def _weighted(cursor: Cursor) -> nodes.Expression:
    first = cursor.token
    found = weight(cursor)
    compares = first.kind in NUMBERS and cursor.kind == "<" and cursor.ahead(2).kind != ">"
    if cursor.kind in STARTS and cursor.token.text[0] not in "+-" and not compares:
        raise brackets.TwoWeights(
            "two weights side by side", cursor.span(), "write one weight before an atom"
        )
    if not _starts_operand(cursor):
        if first.kind in NUMBERS:
            found = found.fixed()  # a constant, as in `a(X) + 2.0`
        return _postfix(cursor, first, found)
    if cursor.kind == "@" and cursor.ahead().text not in SPECIALS:
        cursor.next()  # special predicates carry no weight: this is a relation
    inner = _postfix(cursor, cursor.token, primary(cursor))
    if isinstance(inner, nodes.Weight):
        raise brackets.TwoWeights(
            "a weight before another weight", cursor.span(first), "write one weight"
        )
    if inner.weight is not None:
        raise brackets.TwoWeights(
            "the expression already has a weight", cursor.span(first), "write one weight"
        )
    heights = cursor.heights.get(id(inner), (0,))
    made = _at(cursor, first, lambda: brackets.weighted(inner, found))
    cursor.heights[id(made)] = (heights[0], made)
    return made


def _starts_operand(cursor: Cursor) -> bool:
    if cursor.kind == "@":  # after a weight: a special atom if it can carry one, else the product
        name = cursor.ahead()
        is_relation = name.kind == "name" and cursor.ahead(2).kind in ("(", ",", ".")
        return (name.text in SPECIALS or is_relation) and name.start == cursor.token.end
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
        case "!":
            return _negated(cursor)
        case "~":
            return _softly_negated(cursor)
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
    if cursor.kind == "(" and compares_terms(cursor):
        cursor.next()
        found = term_comparison(cursor)
        cursor.expect(")", "close the parenthesis that is open")
        return _at(cursor, first, lambda: operators.negate(found))
    if cursor.take("("):
        start = cursor.token
        left = expression(cursor, 0)
        if cursor.kind not in COMPARED:
            raise cursor.mistake(
                "only an atom or a comparison can be negated",
                help="write `!b(X)`; `~b(X)` is 1 − b",
            )
        inner = _compared(cursor, start, left)
        cursor.expect(")", "close the parenthesis that is open")
        return _at(cursor, first, lambda: operators.negate(inner))
    if cursor.kind in ("!", *SOFT):
        raise cursor.mistake("only an atom can be negated", help="write `!b(X)`; `~b(X)` is 1 − b")
    inner = primary(cursor)
    return _at(cursor, first, lambda: operators.negate(inner))


def _softly_negated(cursor: Cursor) -> nodes.Expression:
    """`~b(X)`: 1 − b(X), for every b(X) that holds."""
    first = cursor.next()
    inner = operand(cursor)
    if not inner.carries_value:
        raise operators.ConditionInExpression(
            "`~b` is the soft negation 1 − b, and a condition carries no value",
            cursor.span(first),
            "write `!` for what does not hold, as in `!b(X)`",
        )
    return _built(cursor, first, partial(operators.apply, "reverse", inner), inner)


def _is_term_list(cursor: Cursor) -> bool:
    """Whether the parentheses after a name hold terms only: then it is an atom."""
    at = cursor.position + 2
    while (kind := cursor.tokens[at].kind) != ")":
        if kind == "?":
            at += 1
            kind = cursor.tokens[at].kind
        if kind in ("name", "variable") and cursor.tokens[at + 1].kind == ":":
            at += 2
            kind = cursor.tokens[at].kind
        if kind not in TERMS or cursor.tokens[at + 1].kind not in (",", ")"):
            return False
        at += 2 if cursor.tokens[at + 1].kind == "," else 1
    return True


def _function(cursor: Cursor) -> nodes.Expression:
    """`exp(a(X))`, `slice(a(X), rows=(0, 2))`."""
    first = cursor.token
    if first.text not in functions.DEFINITIONS:
        return _not_a_function(cursor)
    cursor.next()
    cursor.next()
    why = f"the operands of `{first.text}` are separated by `,` and closed by `)`"
    operands, keywords = call_arguments(cursor, lambda: expression(cursor, 0), why)
    function = functions.named(first.text, cursor.source.span(first.start, first.end))
    if not operands:
        raise cursor.mistake(
            f"`{first.text}` needs an operand", cursor.span(first), "write `exp(a(X))`"
        )
    call = partial(functions.call, function, tuple(operands), keywords)
    return _built(cursor, first, call, *operands)


def _not_a_function(cursor: Cursor) -> nodes.Expression:
    """An atom with bad terms, or a function that does not exist."""
    first, inside, after = cursor.token, cursor.ahead(2), cursor.ahead(3)
    if inside.kind in ("name", "string") and after.kind in ("(", "+", "&", "*", "@", ".T"):
        near = near_function(first.text)
        raise functions.UnknownFunction(
            f"there is no function `{first.text}`, and a term cannot be an atom",
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
            f"the expression has more than {MAX_DEPTH} nested operators",
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


def atom(cursor: Cursor, hidden: bool = False) -> nodes.Atom:
    """`name(terms)`, `name/2(terms)` or `name`."""
    first = cursor.token
    relation = relation_name(cursor)
    arity = integer(cursor, "the arity is a number, `h/1`") if cursor.take("/") else None
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
                f"`^{name}` is not a parameter of this block",
                cursor.span(first),
                f"did you mean `^{near}`?" if near else "list it: `layer * 2 (x = a) -> out {`",
            )
        return f"^{name}"
    raise _no_relation(cursor, first)


def _no_relation(cursor: Cursor, token: Token) -> EdgewiseError:
    place = cursor.source.span(token.start, token.end)
    if token.kind == "variable":
        equation = f"what is computed is an equation: `{token.text} == Y + 1`"
        lower = f'the name of a relation begins with a lower-case letter, or write `"{token.text}"`'
        return cursor.mistake(
            f"`{token.text}` is a variable, here a relation is expected",
            place,
            equation if cursor.token.text == "is" else lower,
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
            "a hidden atom carries no value, but this one contributes its value",
            cursor.span(first),
            "leave out the `*`, or the atom",
        )
    return inner


def special_or_pattern(cursor: Cursor) -> nodes.Expression:
    first = cursor.next()
    if cursor.kind == "(":
        start, end = _balanced(cursor)
        return _pattern(cursor, first, start + 1, end - 1)
    if cursor.kind == "name" and cursor.token.text in cursor.published.marked:
        return atom(cursor)
    name = cursor.expect("name", "write `@leq(X, Y)`, or a pattern, `@window(3)(I, J)`")
    if name.text in SPECIALS and name.text != "fn":
        items = term_list(cursor) if cursor.kind == "(" else ()
        return nodes.SpecialAtom(name.text, items, place=cursor.span(first))
    if cursor.kind == "(":
        end = _balanced(cursor)[1]
        if cursor.kind == "(":
            return _pattern(cursor, first, name.start, end)
    near = specials.ELSEWHERE.get(name.text) or nearest(name.text, list(SPECIALS))
    raise specials.UnknownSpecial(
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
