"""Patterns as text: what they print is what `parse` reads."""

import ast
from collections.abc import Callable, Mapping
from typing import Any

from edgewise.errors import EdgewiseError, Span, nearest
from edgewise.graphs.families import per_head, per_layer
from edgewise.graphs.pattern import Pattern

Readable = Pattern | per_head | per_layer
METHODS = ("shift", "restrict", "compose", "power")


class BadPattern(EdgewiseError):
    """The text of a pattern is an expression of patterns: calls, `| & - ~`, `.T` and methods."""

    code = "bad-pattern"
    example = 'parse("windw(3)")'
    instead = 'parse("window(3)")'


def parsed(text: str, names: Mapping[str, Callable[..., Any]]) -> Readable:
    """The pattern written in `text`, of the patterns in `names`; nothing is ever executed."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        column, line = getattr(error, "offset", None) or 1, getattr(error, "lineno", None) or 1
        source = _line(text.strip(), line)
        span = Span("<pattern>", line, column, column + 1, source=source or text or " ")
        raise BadPattern(
            "this is not an expression", span, "write such as `window(3) | global_tokens(1)`"
        ) from None
    out = _Reader(text.strip(), names).value(tree.body)
    if not isinstance(out, Readable):
        raise BadPattern(
            "this is a value, not a pattern",
            Span("<pattern>", 1, 1, len(text) + 1, source=text),
            "write such as `window(3)`",
        )
    return out


class _Reader:
    def __init__(self, text: str, names: Mapping[str, Callable[..., Any]]) -> None:
        self.text, self.names = text, names

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.BinOp(op=ast.BitOr() | ast.BitAnd() | ast.Sub()):
                return self._binary(node)
            case ast.UnaryOp(op=ast.Invert()):
                return ~self._pattern(node.operand)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
                return -self.value(node.operand)
            case ast.Attribute(attr="T"):
                return self._pattern(node.value).T
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
                raise self._error(node, "a long list was shortened here", "write it in full")
        raise self._error(node, "this cannot be part of a pattern", "use calls, `| & - ~` and `.T`")

    def _binary(self, node: ast.BinOp) -> Any:
        left, right = self._pattern(node.left), self._pattern(node.right)
        if isinstance(right, per_head) and isinstance(left, Pattern):
            left = per_head(*[left] * len(right))
        match node.op:
            case ast.BitOr():
                return self._guarded(node, lambda: left | right)
            case ast.BitAnd():
                return self._guarded(node, lambda: left & right)
        return self._guarded(node, lambda: left - right)

    def _pattern(self, node: ast.expr) -> Any:
        out = self.value(node)
        if not isinstance(out, Pattern | per_head):
            raise self._error(node, "expected a pattern here", "write such as `window(3)`")
        return out

    def _call(self, node: ast.Call) -> Any:
        if any(isinstance(arg, ast.Starred) for arg in node.args):
            raise self._error(node, "`*` cannot be part of a pattern", "write each argument")
        args = [self.value(arg) for arg in node.args]
        named = {word.arg: self.value(word.value) for word in node.keywords if word.arg}
        if len(named) < len(node.keywords):
            raise self._error(node, "`**` cannot be part of a pattern", "write each argument")
        match node.func:
            case ast.Name():
                return self._called(node, node.func, args, named)
            case ast.Attribute(attr=method) if method in METHODS:
                build = getattr(self._pattern(node.func.value), method)
                return self._guarded(node, lambda: build(*args, **named))
            case ast.Attribute(attr=method):
                near = nearest(method, METHODS)
                fix = f"did you mean `{near}`?" if near else f"there are {', '.join(METHODS)}"
                raise self._error(node.func, f"patterns have no method `{method}`", fix)
        raise self._error(node, "this cannot be called", "call a pattern by its name")

    def _called(
        self, node: ast.expr, name: ast.Name, args: list[Any], named: dict[str, Any]
    ) -> Any:
        if name.id not in self.names:
            near = nearest(name.id, list(self.names))
            fix = (
                f"did you mean `{near}`?" if near else f"there are {', '.join(sorted(self.names))}"
            )
            raise self._error(name, f"there is no pattern `{name.id}`", fix)
        return self._guarded(node, lambda: self.names[name.id](*args, **named))

    def _guarded(self, node: ast.expr, build: Callable[[], Any]) -> Any:
        """`build()`, its mistakes shown at their place in the text."""
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
        line = _line(self.text, node.lineno)
        first = len(line.encode()[: node.col_offset].decode()) + 1
        last = len(line) + 1
        if node.end_lineno == node.lineno and node.end_col_offset is not None:
            last = len(line.encode()[: node.end_col_offset].decode()) + 1
        return Span("<pattern>", node.lineno, first, last, source=line)


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1] if 0 < number <= len(lines) else ""
