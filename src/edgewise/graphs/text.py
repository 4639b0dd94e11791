"""Parsing the text form of patterns, which is their repr."""

import ast
import re
from collections.abc import Callable, Mapping
from operator import and_, or_, sub
from typing import Any

from edgewise.errors import EdgewiseError, Span, caller, suggest
from edgewise.graphs.algebra import DEEPEST
from edgewise.graphs.checks import LARGEST, short_repr
from edgewise.graphs.families import Family, Layer, per_layer
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.grid import grid

PatternLike = Layer | per_layer
SUCH_AS = "`window(3) | global_tokens(1)`"
LONGEST = 1_000_000
MOST_OPERATORS = 1_000  # in a row and around it: fewer than any recursion limit allows
BREAK = re.compile(r"[\r\n\f\v]")
LONG_NUMBER = re.compile(r"[0-9_]{1000,}")
SIGNS = re.compile(r"[|&~+\-(),[\]]|\.(?=[A-Za-z_])")
OPERATORS = {ast.BitOr: or_, ast.BitAnd: and_, ast.Sub: sub}
METHODS = ("shift", "restrict", "compose", "power")


class BadPattern(EdgewiseError):
    """The text of a pattern is an expression of patterns: calls, `| & - ~`, `.T` and methods."""

    code = "bad-pattern"
    example = 'parse("windw(3)")'
    instead = 'parse("window(3)")'


def parse_pattern(text: str, names: Mapping[str, Callable[..., Any]]) -> PatternLike:
    """The pattern that `text` describes, built from `names`; no code is evaluated."""
    if not isinstance(text, str):
        raise BadPattern(
            f"the text of a pattern is a string, got {short_repr(text)}",
            caller(),
            f"write {SUCH_AS}",
        )
    text = text.strip()
    if len(text) > LONGEST:
        raise _refused(
            text, f"the text is longer than {LONGEST:,} characters", "build it in Python"
        )
    if _operators(text) > MOST_OPERATORS:
        raise _too_many(text)
    try:
        tree, text = _tree(text)
    except (SyntaxError, ValueError) as error:
        if long := LONG_NUMBER.search(text):
            span = Span("<pattern>", 1, 1, 2, source=long[0][:40] + " …")
            what, fix = f"a number of {len(long[0]):,} digits", f"numbers are at most {LARGEST:,}"
            raise BadPattern(what, span, fix) from None
        column, line = getattr(error, "offset", None) or 1, getattr(error, "lineno", None) or 1
        span = Span("<pattern>", line, column, column + 1, source=_line(text, line) or text or " ")
        fix = f"write a pattern, such as {SUCH_AS}"
        if "#" in text and BREAK.search(text):
            fix = "several lines with comments need parentheses around them"
        raise BadPattern("this is not an expression", span, fix) from None
    except (RecursionError, MemoryError):
        raise _too_many(text) from None
    out = _PatternReader(text, names).value(tree.body)
    if not isinstance(out, PatternLike):
        span = Span("<pattern>", 1, 1, len(_line(text, 1)) + 1, source=_line(text, 1))
        raise BadPattern(
            "this is a value, not a pattern", span, "write a pattern, such as `window(3)`"
        )
    return out


def _tree(text: str) -> tuple[ast.Expression, str]:
    """The expression and the text it was parsed from, in which line breaks may be blanks."""
    try:
        return ast.parse(text, mode="eval"), text
    except SyntaxError:
        line = BREAK.sub(" ", text)
        if line == text or "#" in text:  # a comment would hide what follows it
            raise
        return ast.parse(line, mode="eval"), line


def _operators(text: str) -> int:
    """The nesting depth of the operators, counted before parsing."""
    under, most = [0], 0
    for sign in SIGNS.findall(text):
        if sign in "([":
            under.append(under[-1])
        elif sign in ")]":
            under = under[:-1] or [0]
        elif sign == ",":
            under[-1] = under[-2] if len(under) > 1 else 0
        else:
            under[-1] += 1
            most = max(most, under[-1])
    return most


def _too_many(text: str) -> BadPattern:
    what = f"more than {MOST_OPERATORS:,} operators in a row or nested"
    fix = "put some of a long row of `|` into parentheses, or build the pattern in Python"
    return _refused(text, what, fix)


def _refused(text: str, message: str, fix: str) -> BadPattern:
    """An error about the whole text, pointing at its first character."""
    return BadPattern(message, Span("<pattern>", 1, 1, 2, source=_line(text, 1)), fix)


class _PatternReader:
    def __init__(self, text: str, names: Mapping[str, Callable[..., Any]]) -> None:
        self.text, self.names = text, names
        self.lines = text.splitlines()
        self.depth = 0

    def value(self, node: ast.expr) -> Any:
        self.depth += 1
        if self.depth > DEEPEST:
            fix = "use fewer parentheses; hops are `power(k)`"
            raise self._error(node, f"nested more than {DEEPEST} levels deep", fix)
        out = self._value(node)
        self.depth -= 1
        return out

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.BinOp(op=ast.BitOr() | ast.BitAnd() | ast.Sub()):
                return self._binary(node)
            case ast.UnaryOp(op=ast.Invert()):
                pattern = self._pattern(node.operand)
                return self._guarded(node, lambda: ~pattern)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
                return -self.value(node.operand)
            case ast.Attribute(attr="T"):
                pattern = self._pattern(node.value)
                return self._guarded(node, lambda: pattern.T)
            case ast.Name():
                return self._called(node, node, [], {})
            case ast.Call():
                return self._call(node)
            case ast.Constant(value=int() | float() | str() | None):
                return node.value
            case ast.Tuple() | ast.List():
                items = [self.value(item) for item in node.elts]
                return tuple(items) if isinstance(node, ast.Tuple) else items
            case ast.Constant(value=value) if value is ...:
                raise self._error(node, "an abridged list", "write all elements")
        raise self._error(node, "this cannot be part of a pattern", "use calls, `| & - ~` and `.T`")

    def _binary(self, node: ast.BinOp) -> Any:
        """A row of one operator, such as `a | b | c`, from left to right."""
        row: list[ast.BinOp] = []
        first: ast.expr = node
        while isinstance(first, ast.BinOp) and type(first.op) is type(node.op):
            row.append(first)
            first = first.left
        out = self._pattern(first)
        for step in reversed(row):
            left, right = out, self._pattern(step.right)
            sign = OPERATORS[type(node.op)]
            out = self._guarded(step, lambda: sign(left, right))  # noqa: B023
        return out

    def _pattern(self, node: ast.expr) -> Any:
        out = self.value(node)
        if not isinstance(out, Pattern | Family):
            raise self._error(
                node, "expected a pattern here", "write a pattern, such as `window(3)`"
            )
        return out

    def _call(self, node: ast.Call) -> Any:
        if any(isinstance(arg, ast.Starred) for arg in node.args):
            raise self._error(node, "`*` cannot be part of a pattern", "write each argument")
        args = [self.value(arg) for arg in node.args]
        named = {word.arg: self.value(word.value) for word in node.keywords if word.arg}
        if len(named) < len(node.keywords):
            starred = any(word.arg is None for word in node.keywords)
            what = "`**` cannot be part of a pattern" if starred else "an argument is repeated"
            raise self._error(node, what, "write each argument once")
        match node.func:
            case ast.Name():
                return self._called(node, node.func, args, named)
            case ast.Call():
                build = self.value(node.func)
                if isinstance(build, grid):
                    return self._guarded(node, lambda: build(*args, **named))
            case ast.Attribute(attr=method) if method in METHODS:
                build = getattr(self._pattern(node.func.value), method)
                return self._guarded(node, lambda: build(*args, **named))
            case ast.Attribute(attr=method):
                fix = suggest(method, METHODS)
                raise self._error(node.func, f"patterns have no method `{method}`", fix)
        raise self._error(node, "this cannot be called", "call a pattern by name")

    def _called(
        self, node: ast.expr, name: ast.Name, args: list[Any], named: dict[str, Any]
    ) -> Any:
        if name.id not in self.names:
            fix = suggest(name.id, sorted(self.names))
            raise self._error(name, f"there is no pattern `{name.id}`", fix)
        return self._guarded(node, lambda: self.names[name.id](*args, **named))

    def _guarded(self, node: ast.expr, build: Callable[[], Any]) -> Any:
        """`build()`, with errors located in the text."""
        try:
            return build()
        except EdgewiseError as error:
            error.place = self._span(node)
            raise
        except TypeError as error:
            reason = str(error).replace(".__init__()", "")
            raise self._error(node, reason, "compare with the pattern's help") from None

    def _error(self, node: ast.expr, message: str, fix: str) -> BadPattern:
        return BadPattern(message, self._span(node), fix)

    def _span(self, node: ast.expr) -> Span:
        line = self.lines[node.lineno - 1] if node.lineno <= len(self.lines) else ""
        first = len(line.encode()[: node.col_offset].decode()) + 1
        last = len(line) + 1
        if node.end_lineno == node.lineno and node.end_col_offset is not None:
            last = len(line.encode()[: node.end_col_offset].decode()) + 1
        return Span("<pattern>", node.lineno, first, last, source=line)


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1] if 0 < number <= len(lines) else ""
