"""Errors are part of the interface: what is wrong, where, why, and the next step."""

import itertools
import linecache
import os
import reprlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from types import CodeType
from typing import Any, ClassVar, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Span:
    """A piece of one line of source: columns `column` to `end`, counted from 1, `end` excluded."""

    file: str
    line: int
    column: int = 1
    end: int = 2
    source: str = field(default="", repr=False)

    @classmethod
    def of(cls, name: str, text: object) -> "Span":
        """All of a text that is not a line of a file, such as an argument of the command line."""
        return cls(name, 1, 1, len(str(text)) + 1, source=str(text))

    @property
    def text(self) -> str:
        return self.source or linecache.getline(self.file, self.line).rstrip("\n")


@dataclass(frozen=True)
class Caller:
    """The Python expression being evaluated when something was built.

    Only the instruction is stored; line and columns are computed when an error is shown.
    """

    code: CodeType
    instruction: int

    @property
    def span(self) -> Span:
        positions = itertools.islice(self.code.co_positions(), self.instruction // 2, None)
        line, end_line, column, end = next(positions, (None, None, None, None))
        line = line or self.code.co_firstlineno
        text = linecache.getline(self.code.co_filename, line).rstrip("\n")
        if column is None or end is None:
            return Span(self.code.co_filename, line)
        first = len(text.encode()[:column].decode(errors="ignore")) + 1
        if end_line != line:
            return Span(self.code.co_filename, line, first, max(len(text) + 1, first + 1))
        last = len(text.encode()[:end].decode(errors="ignore")) + 1
        return Span(self.code.co_filename, line, first, max(last, first + 1))

    def __deepcopy__(self, memo: dict[int, object]) -> "Caller":
        return self

    def __reduce__(self) -> tuple[type[Span], tuple[object, ...]]:
        span = self.span  # code does not travel between processes; the line it says does
        return Span, (span.file, span.line, span.column, span.end, span.text)


Place = Span | Caller
LONGEST_LINE = 160


def caller() -> Caller:
    """The place in user code that called into Edgewise.

    >>> caller().code.co_name
    '<module>'
    """
    frame = sys._getframe(1)
    # a compiled model is called by way of torch
    inside = (*("edgewise", "torch.", "contextlib", "functools"), "transformers.", "importlib.")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(inside):
        if (
            frame.f_globals.get("__name__") == "edgewise.errors"
            and frame.f_code.co_name == "<module>"
        ):
            break  # this module's own doctest
        frame = frame.f_back
    return Caller(frame.f_code, frame.f_lasti)


LONGEST = 400  # characters of a caller's own text in a message


def safe_repr(item: object) -> str:
    """`repr(item)` for a message, abbreviated if it is long or nested too deeply to print."""
    try:
        return _short(repr(item))
    except RecursionError:
        return reprlib.repr(item)
    except Exception:  # of the caller's class, or an integer of more digits than Python prints
        return f"<{type(item).__name__}>"


def named(name: object) -> str:
    """What was written where a name or a path belongs, for a message."""
    return _short(str(name)) if isinstance(name, str | os.PathLike) else safe_repr(name)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def iterates(item: object) -> bool:
    """Whether `for` runs over it: a tensor has `__iter__`, also without an axis."""
    try:
        return isinstance(item, Iterable) and iter(item) is not None
    except Exception:
        return False


def counted(number: int | None, noun: str) -> str:
    """A number of things.

    >>> counted(1, "column"), counted(7, "row")
    ('1 column', '7 rows')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def nearest(name: object, names: Sequence[str]) -> str | None:
    """The known name that `name` is most likely a misspelling of.

    >>> nearest("edgse", ["node", "edge"])
    'edge'
    """
    if not isinstance(name, str):
        return None
    found = get_close_matches(name, names, n=1, cutoff=0.6)
    if not found:
        found = [known for known in names if known.lower() == name.lower()]
    return found[0] if found else None


def suggest(name: object, names: Sequence[str], otherwise: str = "") -> str:
    """The next step after an unknown name: the nearest known one, `otherwise`, or all of them.

    >>> suggest("edgse", ["node", "edge"]), suggest("x", ["node", "edge"])
    ('did you mean `edge`?', 'choose one of node, edge')
    """
    if near := nearest(name, names):
        return f"did you mean `{near}`?"
    return otherwise or f"choose {'one of ' if len(names) > 1 else ''}{', '.join(names)}"


class Diagnostic(Exception):
    """What errors and warnings share: a code, a message, a place and the next step.

    The docstring of a subclass says why its case is one; `example` is a program that raises it
    and `instead` is what to write. The pages of docs/reference/errors are made from them.
    """

    kind: ClassVar[str] = "error"
    code: ClassVar[str] = "error"
    example: ClassVar[str] = ""
    instead: ClassVar[str] = ""

    def __init__(self, message: str, place: Place | None = None, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.help = help
        self.place = place

    @property
    def span(self) -> Span | None:
        """Where it is: file, line and columns."""
        return self.place.span if isinstance(self.place, Caller) else self.place

    def __str__(self) -> str:
        return render(self.kind, self.code, self.message, self.span, self.help)


class EdgewiseError(Diagnostic):
    """Base of all errors of Edgewise: `.code`, `.message`, `.span` and `.help`.

    >>> from edgewise import F
    >>> try:
    ...     F.sofmax_agg
    ... except EdgewiseError as error:
    ...     print(error.code, "|", error.message, "|", error.help)
    unknown-function | there is no function `sofmax_agg` | did you mean `F.softmax_agg`?
    """

    @property
    def errors(self) -> tuple["EdgewiseError", ...]:
        """The errors reported together; here only this one."""
        return (self,)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the error, and of the traceback how to see it."""
        shell = notebook()
        if shell is not None and shell.InteractiveTB.mode == "Verbose":
            tb = shell.InteractiveTB
            return list(tb.structured_traceback(type(self), self, self.__traceback__))
        return [coloured(str(self)), f"{DIM}traceback folded: `%xmode Verbose` shows it{PLAIN}"]


class UnknownOption(EdgewiseError):
    """A function has no option of this name, which may be that of another library."""

    code = "unknown-option"
    example = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h, fullgraph=True)"
    instead = "torch.compile(Program([R.h(V.X) <= R.a(V.X)]).compile(R.h), fullgraph=True)"


def checks_options(
    by_position: str = "", otherwise: str = "", /, **instead: str
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A function that refuses options it does not have; `instead` says what to write for those of
    other libraries, `by_position` for options without a name, `otherwise` for names like no option.

    >>> @checks_options(sep="write `between=`")
    ... def joined(words: list[str], *, between: str = "") -> str:
    ...     return between.join(words)
    >>> try:
    ...     joined(["a", "b"], sep=" ")
    ... except UnknownOption as error:
    ...     print(error.message, "|", error.help)
    `joined` has no option `sep` | write `between=`
    """

    def checked(function: Callable[P, T]) -> Callable[P, T]:
        found = signature(function).parameters.values()
        known = [one.name for one in found if one.kind is one.KEYWORD_ONLY]
        names = {one.name for one in found}
        most, own = len(names) - len(known), len(names & {"self"})
        called = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        @wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> T:
            if len(args) > most:
                shown = f"`{called}` takes {counted(most - own, 'argument')} by position"
                help = by_position or f"write options by name: {', '.join(known)}"
                raise UnknownOption(f"{shown}, and got {len(args) - own}", caller(), help)
            for name in options:
                if name not in names:
                    far = otherwise if not get_close_matches(name, known) else ""
                    help = instead.get(name) or far or suggest(name, known)
                    shown = f"`{called}` has no option `{name}`"
                    raise UnknownOption(shown, caller(), help)
            return function(*args, **options)

        return call

    return checked


class SeveralErrors(EdgewiseError):
    """All errors of one stage; `code`, `span` and `help` are those of the first."""

    def __init__(self, errors: Sequence[EdgewiseError]) -> None:
        super().__init__(errors[0].message, errors[0].place, errors[0].help)
        self._errors = tuple(errors)
        self.code = errors[0].code  # type: ignore[misc]

    @property
    def errors(self) -> tuple[EdgewiseError, ...]:
        return self._errors

    def __str__(self) -> str:
        return "\n\n".join(map(str, self._errors)) + f"\n\n{len(self._errors)} errors"


class EdgewiseWarning(Diagnostic, UserWarning):
    """Something that is valid but probably not intended.

    >>> from edgewise import Program, R, V
    >>> (warning,) = Program([R.h(V.I) <= (R.a(V.I), R.b("I"))]).check()
    >>> warning.code, warning.help
    ('likely-variable', 'did you mean `V.I`?')
    """

    kind = "warning"
    code = "warning"


def raise_all(errors: Sequence[EdgewiseError]) -> None:
    """Raise the errors of one stage: none, one, or several together; the same one once."""
    errors = list({str(error): error for error in errors}.values())
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise SeveralErrors(errors)


def render(kind: str, code: str, message: str, span: Span | None, help: str) -> str:
    """A diagnostic as text.

    >>> span = Span("a.rules", 3, 3, 4, source="h(X) :- a(Y).")
    >>> print(render("error", "unbound-variable", "`X` is unbound", span, "add `b(X)`"))
    error[unbound-variable]: `X` is unbound
      --> a.rules:3:3
       |
    3  | h(X) :- a(Y).
       |   ^
    help: add `b(X)`
    """
    lines = [f"{kind}[{code}]: {message}"]
    if span is not None:
        lines.append(f"  --> {_shown_file(span.file)}:{span.line}:{span.column}")
        if span.text:
            number = f"{span.line:<2} "
            gutter = " " * len(number)
            text, first, width = _excerpt(span)
            caret = " " * first + "^" * width
            lines += [f"{gutter}|", f"{number}| {text}", f"{gutter}| {caret}"]
    if help:
        lines.append(f"help: {help}")
    return "\n".join(lines)


def _shown_file(name: str) -> str:
    """A file; a cell of a notebook by its number, not by the file that IPython makes of it."""
    shell = notebook()
    cell = shell.compile.format_code_name(name) if shell is not None else None
    return " ".join(cell) if cell else name


def notebook() -> Any:
    """IPython's shell, if this runs in one."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


RED, CYAN, DIM, PLAIN = "\x1b[1;31m", "\x1b[36m", "\x1b[2m", "\x1b[0m"


def coloured(shown: str) -> str:
    """A rendered diagnostic for a terminal: what it is in red, places dim, the next step in cyan.

    >>> coloured("error[a]: b") == f"{RED}error[a]{PLAIN}: b"
    True
    """
    return "\n".join(map(_coloured_line, shown.split("\n")))


def _coloured_line(line: str) -> str:
    start, _, rest = line.partition(":")
    if start.startswith(("error[", "warning[")) and start.endswith("]"):
        return f"{RED}{start}{PLAIN}:{rest}"
    if start == "help":
        return f"{CYAN}help{PLAIN}:{rest}"
    if line.startswith("  -->"):
        return f"{DIM}{line}{PLAIN}"
    before, bar, caret = line.partition("| ")
    if bar and not before.strip() and caret.strip("^ ") == "":
        return f"{before}{bar}{RED}{caret}{PLAIN}"
    return line


def _excerpt(span: Span) -> tuple[str, int, int]:
    """The line as shown, the column of its caret and its width; a long line is cut around it."""
    indent = len(span.text) - len(span.text.lstrip())
    text, first = span.text.strip(), max(span.column - 1 - indent, 0)
    width = max(1, span.end - span.column)
    if len(text) <= LONGEST_LINE:
        return text, first, width
    start = min(max(first - LONGEST_LINE // 2, 0), max(len(text) - LONGEST_LINE, 0))
    part = text[start : start + LONGEST_LINE]
    before, after = "…" if start else "", "…" if start + len(part) < len(text) else ""
    first += len(before) - start
    width = min(width, len(before) + len(part) + len(after) - first)
    return f"{before}{part}{after}", first, max(width, 1)
