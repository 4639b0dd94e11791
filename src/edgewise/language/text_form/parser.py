"""Reads the statements of the text form: rules, facts, relation lines, stacks and imports."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgewise.errors import EdgewiseError, raise_all
from edgewise.language import blocks, nodes, operators, program, statements
from edgewise.language.specials import SPECIALS
from edgewise.language.text_form import published
from edgewise.language.text_form.expressions import atom, item, relation_name
from edgewise.language.text_form.lists import (
    LEARNABLE,
    OFFSET,
    ListEntry,
    entries,
    functions_of,
    option,
    set_options,
    starts_list,
)
from edgewise.language.text_form.samples import refuse_lists
from edgewise.language.text_form.tokens import MAX_ERRORS, BadSyntax, Cursor, SourceText, unquoted
from edgewise.language.text_form.values import NUMBERS, STARTS, integer, placed, text_of, weight

TEXT = "<text>"  # the file of a program that is not in one
IMPORT = re.compile(
    r"import[ \t]+(\"[^\"\n]*\"|'[^'\n]*'|[^\s:(\"'%][^\s%]*)[ \t]*(?:%[^\n]*)?\r?(?=\n|$)"
)
MOST_FILES = 50  # that import one another


class NotSupported(EdgewiseError):
    """Parts of the published grammar that this language says in another way."""

    code = "not-supported"
    example = 'Program.parse("$w [value=0.5]")'
    instead = 'Program.parse("h(X) :- $w=<0.5> a(X).")'


def parse(text: str, file: str = TEXT, *, lifts: bool = False) -> program.Program:
    """The program of a text; all its errors are reported together.

    With `lifts`, a fact with variables holds for all constants, as NeuraLogic reads it.

    >>> parse("h(X) :- a(X), !b(X). [activation=tanh]")
    Program([
        (R.h(V.X) <= (R.a(V.X), ~R.b(V.X))) | [F.tanh],
    ])
    """
    if not isinstance(text, str):
        raise BadSyntax(
            f"the text of a program is a string, got {type(text).__name__}",
            help="write `Program.parse(text)`",
        )
    cursor = Cursor(SourceText(text, file))
    cursor.published.lifts = lifts
    options: dict[str, Any] = {}
    found = _statements(cursor, options)
    raise_all(cursor.errors[:MAX_ERRORS])
    extra = cursor.published
    refuse_lists(found, extra.facts)
    found = published.fixed(published.with_offsets(found, extra.offsets), extra.unlearned)
    return program.Program(published.lifted(found, extra.lifted), **options)


def _statements(cursor: Cursor, options: dict[str, Any] | None) -> list[nodes.Statement]:
    """Statements up to the end of the text, or of the block if there are no options to set."""
    found: list[nodes.Statement] = []
    closing = "end" if options is not None else "}"
    while cursor.kind not in (closing, "end"):
        start = cursor.position
        cursor.heights.clear()
        cursor.types.clear()
        try:
            found += _statement(cursor, options)
        except EdgewiseError as error:
            cursor.errors += error.errors
            _recover(cursor, start, options is None)
        if len(cursor.errors) >= MAX_ERRORS:
            cursor.position = len(cursor.tokens) - 1
    return found


def _recover(cursor: Cursor, start: int, in_block: bool) -> None:
    """Step to where the next statement begins."""
    depth = 0
    if cursor.position == start:
        cursor.next()
    for token in cursor.tokens[start : cursor.position]:
        depth += (token.kind == "{") - (token.kind == "}")
    if cursor.last.kind == ".":
        return
    while cursor.kind != "end":
        if cursor.kind == "}" and depth <= 0 and in_block:
            return
        token = cursor.next()
        depth += (token.kind == "{") - (token.kind == "}")
        if token.kind == ".":
            break
    if starts_list(cursor):
        _skip_list(cursor)


def _skip_list(cursor: Cursor) -> None:
    while cursor.kind not in ("]", "end", "."):
        cursor.next()
    cursor.take("]")


def _statement(cursor: Cursor, options: dict[str, Any] | None) -> list[nodes.Statement]:
    first, second, third = cursor.token, cursor.ahead(), cursor.ahead(2)
    if _is_import(cursor):
        inner = _imported(cursor)
        found = _statements(inner, options)
        cursor.errors += inner.errors
        return found
    if first.kind == "$" and third.kind == "[" and cursor.ahead(3).text == LEARNABLE:
        return _weight_line(cursor)
    if starts_list(cursor):
        set_options(cursor, entries(cursor), options)
        cursor.take(".")
        return []
    if first.kind in ("name", "string") and second.kind == "*" and third.kind == "int":
        with cursor.nested():
            return [_stack(cursor)]
    if first.kind in ("name", "string", "^") and (line := _line(cursor)) is not None:
        return line
    return _rule_or_facts(cursor, options)


def _weight_line(cursor: Cursor) -> list[nodes.Statement]:
    """`$w [learnable=false]`."""
    cursor.next()
    name = cursor.next().text
    if option(entries(cursor), LEARNABLE) is False:
        cursor.published.unlearned.add(name)
    cursor.take(".")
    return []


def _rule_or_facts(cursor: Cursor, options: dict[str, Any] | None) -> list[nodes.Statement]:
    first = cursor.token
    head = _head(cursor)
    if not (cursor.take(":-") or cursor.take("<=")):
        return _facts(cursor, head)
    body: list[nodes.Expression] = []
    while cursor.kind not in (".", "end"):
        body.append(item(cursor))
        is_offset = cursor.kind in NUMBERS and cursor.ahead().kind == "."  # `h :- a 0.5.`
        if not cursor.take(",") and not is_offset:
            break
    body += [published.of_type(*found) for found in cursor.types]
    _end(cursor, "the rule", "in a body, `,` separates the items")
    place = cursor.span(first)
    try:
        rule = operators.rule(head, tuple(body))
    except EdgewiseError as error:
        raise placed(error, place) from None
    listed: list[ListEntry] = []
    if starts_list(cursor):
        listed = entries(cursor)
        if any(entry.key == "rounds" or isinstance(entry.key, nodes.Variable) for entry in listed):
            set_options(cursor, listed, options)
            listed = []
    listed_functions = functions_of(cursor, listed)
    offset, head = option(listed, OFFSET), rule.head
    if option(listed, LEARNABLE) is False and head.weight is not None:
        head = replace(head, weight=head.weight.fixed())
    found = rule.body if offset is None else (*rule.body, offset)
    return [nodes.Rule(head, found, listed_functions, place)]


def _head(cursor: Cursor) -> nodes.Atom:
    """An atom with a weight before it, of a rule or a fact."""
    first = cursor.token
    value = weight(cursor) if first.kind in STARTS else None
    if value is not None and value.name and starts_list(cursor):
        raise NotSupported(
            f"the weight `${value.name}` has a list of its own",
            cursor.span(first),
            "write it with the weight: `$w=<0.5>` is fixed, `$w={8 = 1.0}` filled",
        )
    if cursor.kind == "@" and cursor.ahead().kind == "name" and cursor.ahead().text not in SPECIALS:
        cursor.next()
        cursor.published.marked.add(cursor.token.text)
    if cursor.kind in ("!", "~", "@", "-", "("):
        raise operators.BadHead(
            f"a rule head cannot begin with {cursor.shown()}",
            cursor.span(),
            "a rule head is `name(terms)`",
        )
    cursor.take("*")  # what is derived is not hidden; the mark belongs to an occurrence
    found = atom(cursor)
    return nodes.Atom(found.relation, found.terms, value, place=cursor.span(first))


def _facts(cursor: Cursor, head: nodes.Atom) -> list[nodes.Statement]:
    heads = [head]
    while cursor.take(","):
        heads.append(_head(cursor))
    _end(cursor, "the fact", "a rule is `head :- body.`")
    cursor.published.facts.append(heads)
    for one in heads:
        for term in one.terms:
            if isinstance(term, nodes.Variable) and not cursor.published.lifts:
                raise BadSyntax(
                    f"`{term.name}` is a variable, and a fact has none",
                    term.place,
                    "a fact is `a(1).`; a rule is `head :- body.`",
                )
    lifted = [one for one in heads if any(isinstance(t, nodes.Variable) for t in one.terms)]
    cursor.published.lifted += lifted
    heads = [one for one in heads if one not in lifted]
    typed = [published.of_type(*t) for t in cursor.types if not isinstance(t[1], nodes.Variable)]
    return [statements.fact(one) for one in (*heads, *typed)]


def _end(cursor: Cursor, what: str, why: str) -> None:
    """The dot; if a line break is there instead, report it and continue."""
    if cursor.take("."):
        return
    place = cursor.source.span(cursor.last.end, cursor.last.end + 1)
    if not cursor.starts_line() and cursor.kind != "}":
        why = "negation is `!a(X)`" if cursor.last.text == "not" else why
        raise cursor.mistake(f"expected `,` or `.`, got {cursor.shown()}", help=why)
    error = BadSyntax(f"{what} has no end", place, "write `.` after it")
    cursor.errors.append(error)


def _line(cursor: Cursor) -> list[nodes.Statement] | None:
    """`h/1 [sum, tanh]`, `h/1 {3,1}`; None if this is a different statement."""
    first, start = cursor.token, cursor.position
    is_marked = first.kind == "^"
    if cursor.ahead(1 + is_marked).kind != "/":
        if cursor.ahead(1 + is_marked).kind == "[":
            raise cursor.mistake(
                "the line of a relation needs its arity",
                cursor.span(),
                f"write `{first.text}/1 [tanh]`",
            )
        return None
    relation = relation_name(cursor)
    cursor.next()
    arity = integer(cursor, "the arity is a number, `h/1`")
    if starts_list(cursor):
        listed = entries(cursor)
        place = cursor.span(first)
        cursor.take(".")
        if (offset := option(listed, OFFSET)) is not None:
            cursor.published.offsets[relation, arity] = offset
        found = functions_of(cursor, listed)
        return [nodes.Line(relation, arity, found, place)] if found or not listed else []
    if cursor.kind in STARTS:
        cursor.published.offsets[relation, arity] = weight(cursor)
        cursor.take(".")
        return []
    cursor.position = start
    return None


def _stack(cursor: Cursor) -> nodes.Stack:
    """`layer * 12 (x = tokens) -> out { ... }`."""
    first = cursor.next()
    cursor.next()
    count = integer(cursor, "a stack is repeated an integer number of times")
    if count < 0:
        raise cursor.mistake(
            "a stack cannot be repeated fewer than 0 times", cursor.span(first), "write 0"
        )
    inputs, scope = _parameters(cursor)
    cursor.scopes.append(scope)
    try:
        cursor.expect("->", "name the output of a copy: `layer * 2 (x = a) -> out {`")
        outputs = _outputs(cursor)
        place = cursor.span(first)
        cursor.expect("{", "the statements of a stack go in `{ ... }`")
        inside = statements.flatten(_statements(cursor, None))
        cursor.expect("}", "close the block of the stack")
    finally:
        cursor.scopes.pop()
    unknown = [name for name in outputs if name not in blocks.defined(inside)]
    if not cursor.errors and (unknown or len(outputs) != len(inputs)):
        raise blocks.BadBlock(
            f"the block takes {len(inputs)} and returns {len(outputs)} relations"
            if len(outputs) != len(inputs)
            else f"the block has no rule for its output `{unknown[0]}`",
            place,
            "return one relation that the block defines for each parameter",
        )
    return nodes.Stack(text_of(first), count, tuple(scope), inputs, outputs, inside, place)


def _parameters(cursor: Cursor) -> tuple[tuple[str, ...], dict[str, bool]]:
    """`(x = tokens, ^y = edges)`; a name after `^` is written so in the block as well."""
    cursor.expect("(", "say what the first copy reads: `layer * 2 (x = a) -> out {`")
    scope: dict[str, bool] = {}

    def parameter() -> str:
        is_bare = not cursor.take("^")
        name = cursor.next()
        if name.kind not in ("name", "variable", "string") or text_of(name) in scope:
            cursor.position -= name.kind != "end"
            raise cursor.mistake(
                f"expected a new parameter, got {cursor.shown()}", help="write `(x = a)`"
            )
        scope[text_of(name)] = is_bare
        cursor.expect("=", "say what the first copy reads: `(x = a)`")
        return relation_name(cursor)

    why = "parameters are separated by `,` and closed by `)`"
    return tuple(cursor.separated(")", parameter, why)), scope


def _outputs(cursor: Cursor) -> tuple[str, ...]:
    if not cursor.take("("):
        return (relation_name(cursor),)
    why = "outputs are separated by `,` and closed by `)`"
    return tuple(cursor.separated(")", lambda: relation_name(cursor), why))


def _is_import(cursor: Cursor) -> bool:
    """True at a line `import ./other.rules`, which stands for the statements of that file."""
    token = cursor.token
    return (
        token.text == "import"
        and cursor.starts_line() | (cursor.position == 0)
        and bool(IMPORT.match(cursor.source.text, token.start))
    )


def _imported(cursor: Cursor) -> Cursor:
    """A cursor at the start of the file that the line names, relative to the file it stands in."""
    first = cursor.token
    match = IMPORT.match(cursor.source.text, first.start)
    assert match is not None
    place = cursor.source.span(*match.span(1))
    while cursor.token.start < match.end() and cursor.kind != "end":
        cursor.next()
    written = unquoted(match[1]) if match[1][0] in "\"'" else match[1]
    if cursor.source.file == TEXT:
        raise cursor.mistake(
            "a text that is not in a file cannot import one", place, "write `Program.load(path)`"
        )
    here = Path(cursor.source.file)
    try:
        path = (here.parent / written).resolve()
        source = path.read_text(encoding="utf-8")
    except (OSError, ValueError, RuntimeError) as problem:  # a loop of links is a RuntimeError
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise cursor.mistake(
            f"cannot read `{written}`: {why}", place, f"paths are relative to `{here.name}`"
        ) from None
    files = cursor.files or (here.resolve(),)
    if path in files or len(files) >= MOST_FILES:
        raise cursor.mistake(
            f"`{written}` imports itself" if path in files else "too many imports in one another",
            place,
            "leave out one of the `import` lines",
        )
    inner = Cursor(SourceText(source, str(here.parent / written)))
    inner.published, inner.files = cursor.published, (*files, path)
    return inner
