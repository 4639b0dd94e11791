"""The pieces of the text form: names, numbers, strings and signs, each with its place."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from edgewise.errors import EdgewiseError, Span

Item = TypeVar("Item")


class BadSyntax(EdgewiseError):
    """The text form is a list of rules `head :- body.`, facts, relation lines and stacks."""

    code = "syntax-error"
    example = 'Program.parse("h(X) : a(X).")'
    instead = 'Program.parse("h(X) :- a(X).")'


class Token(NamedTuple):
    """A piece of text; the kind of a sign is the sign itself."""

    kind: str
    text: str
    start: int
    end: int


NAME = r"[a-z][A-Za-z0-9_-]*(?:\.[a-z0-9][A-Za-z0-9_-]*)*"
VARIABLE = r"[A-Z_][A-Za-z0-9_-]*"
MAX_ERRORS = 20
MAX_DEPTH = 80

PIECES = re.compile(
    rf"""(?P<skip>[\s\ufeff]+|%[^\n]*|/\*[\s\S]*?\*/)
    |(?P<name>{NAME})
    |(?P<variable>{VARIABLE})
    |(?P<float>[+-]?[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))
    |(?P<int>[+-]?[0-9]+)
    |(?P<string>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
    |(?P<open>/\*[\s\S]*|["'][^\n]*)
    |(?P<sign>:-|->|<=|>=|==|!=|//|\.T(?![A-Za-z0-9_])|[.,()\[\]{{}}<>=$~!@*+&|/:?^-])
    |(?P<bad>[^\s\x00-\x7f]+|[\s\S])""",
    re.VERBOSE,
)
ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|([\s\S]))")
LETTERS = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}
HINTS = {
    "#": "a comment begins with `%`",
    ";": "a rule ends with `.`, and a body is a list with `,`; for either of two, write two rules",
    "\\": "negation is `!a(X)`, unequal `X != Y`",
}


class SourceText:
    """A text with the places in it."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.lines = text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)

    def span(self, start: int, end: int) -> Span:
        """The place of `text[start:end]`, as much of it as is on its first line."""
        line = bisect_right(self.starts, start) - 1
        line = min(line, len(self.lines) - 1)
        source = self.lines[line].rstrip("\r")
        first = start - self.starts[line]
        last = max(first + 1, min(end - self.starts[line], len(source)))
        return Span(self.file, line + 1, first + 1, last + 1, source)


def tokenize(source: SourceText) -> tuple[list[Token], list[EdgewiseError]]:
    """The pieces of a text, and the errors in it; four `end` tokens close the list.

    >>> [token.text for token in tokenize(SourceText("h(X) :- a(X).", ""))[0][:5]]
    ['h', '(', 'X', ')', ':-']
    """
    tokens: list[Token] = []
    errors: list[EdgewiseError] = []
    for match in PIECES.finditer(source.text):
        kind = match.lastgroup
        if kind == "skip":
            continue
        text = match.group()
        if kind == "sign":
            tokens.append(Token(text, text, match.start(), match.end()))
        elif kind in ("bad", "open"):
            if len(errors) < MAX_ERRORS:
                errors.append(_not_a_piece(source, text, match.start()))
        else:
            tokens.append(Token(kind or "", text, match.start(), match.end()))
    end = len(source.text)
    return tokens + [Token("end", "", end, end)] * 4, errors


def _not_a_piece(source: SourceText, text: str, start: int) -> BadSyntax:
    if text.startswith("/*"):
        place = source.span(start, start + 2)
        return BadSyntax("the comment is not closed", place, "write `*/` where it ends")
    place = source.span(start, start + len(text))
    if text[0] in "\"'":
        return BadSyntax(
            "the string is not closed on its line",
            place,
            f"write {text[0]} where it ends; a line break in a string is `\\n`",
        )
    hint = HINTS.get(text[0], "a name with such characters goes into quotes")
    return BadSyntax(f"unexpected `{text[:20]}`", place, hint)


def unquoted(text: str) -> str:
    """What a quoted string says.

    >>> unquoted(r'"a\\n\\u{e9}"')
    'a\\né'
    """

    def letter(match: re.Match[str]) -> str:
        if match[1]:
            return chr(min(int(match[1], 16), 0x10FFFF))
        return LETTERS.get(match[2], match[2])

    return ESCAPE.sub(letter, text[1:-1])


def quoted(text: str) -> str:
    """A string that `unquoted` reads back, with every letter printable.

    >>> print(quoted('say "hi"\\n'))
    "say \\"hi\\"\\n"
    """
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    if letter == "\n":
        return "\\n"
    return letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}"


class Published:
    """What a text says about relations beside its statements, as published templates do."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, int], Any] = {}
        self.facts: list[list[Any]] = []  # of each statement without a body
        self.lifts = False  # whether facts may have variables
        self.lifted: list[Any] = []  # those that have
        self.marked: set[str] = set()  # relations whose rule heads are written `@name`
        self.unlearned: set[str] = set()  # weights with `[learnable=false]`


class Cursor:
    """A position in a list of tokens, and what has been found on the way."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.tokens, self.errors = tokenize(source)
        self.position = 0
        self.depth = 0
        self.scopes: list[dict[str, bool]] = []  # parameters of blocks: written without `^`?
        self.heights: dict[int, tuple[int, object]] = {}  # of the expressions of a statement
        self.types: list[tuple[str, Any, Span]] = []  # of the terms of a statement
        self.published = Published()
        self.files: tuple[Path, ...] = ()  # that import this text, from the first on

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    @property
    def kind(self) -> str:
        return self.tokens[self.position].kind

    @property
    def last(self) -> Token:
        return self.tokens[max(0, self.position - 1)]

    def ahead(self, count: int = 1) -> Token:
        return self.tokens[min(self.position + count, len(self.tokens) - 1)]

    def next(self) -> Token:
        token = self.tokens[self.position]
        if token.kind != "end":
            self.position += 1
        return token

    def take(self, kind: str) -> bool:
        """Whether the next token is of this kind; then step over it."""
        if self.tokens[self.position].kind != kind:
            return False
        self.position += 1
        return True

    def expect(self, kind: str, why: str) -> Token:
        if self.kind != kind:
            shown = {"int": "an integer", "name": "a name"}.get(kind, f"`{kind}`")
            raise self.mistake(f"expected {shown}, got {self.shown()}", help=why)
        return self.next()

    def separated(self, close: str, read: Callable[[], Item], why: str) -> list[Item]:
        """What `read` gives of the items separated by `,` up to `close`, which is stepped over."""
        found: list[Item] = []
        while self.kind != close:
            found.append(read())
            if not self.take(","):
                break
        self.expect(close, why)
        return found

    def shown(self) -> str:
        text = self.token.text
        return f"`{text[:20]}`" if text else "the end of the text"

    def is_adjacent(self) -> bool:
        """Whether no space is left of the next token."""
        return self.position > 0 and self.last.end == self.token.start

    def starts_line(self) -> bool:
        between = self.source.text[self.last.end : self.token.start]
        return "\n" in between or self.kind == "end"

    def span(self, first: Token | None = None) -> Span:
        """The place of the next token, or from `first` to the token before."""
        if first is None:
            return self.source.span(self.token.start, self.token.end)
        return self.source.span(first.start, max(first.end, self.last.end))

    def mistake(self, message: str, place: Span | None = None, help: str = "") -> BadSyntax:
        return BadSyntax(message, place or self.span(), help)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """One level deeper, up to MAX_DEPTH levels."""
        if self.depth >= MAX_DEPTH:
            raise self.mistake(
                f"this is nested more than {MAX_DEPTH} deep",
                help="give the inner part a rule of its own",
            )
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
