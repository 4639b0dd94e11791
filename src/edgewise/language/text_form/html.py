"""Programs in notebooks: the text form in colours, a stack as a box with its count."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from edgewise.language import nodes
from edgewise.language.text_form import printer, tokens
from edgewise.language.text_form.printer import Style, name

if TYPE_CHECKING:
    from edgewise.language.program import Program

# middle tones, to be read on a light and on a dark page
COLOURS = {"variable": "#b8661b", "weight": "#2f7fc1", "string": "#3a8f4d", "how": "#8b5cb8"}
PIECES = re.compile(
    rf"""(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<weight>\$(?:{tokens.NAME})?(?:\([^()\s]*\))?(?:=<?\{{[^}}]*\}}>?)?
        |<?\{{[^}}]*\}}>?|<?\[+[-+0-9][^\]]*\]+>?
        |<?(?<![\w.])[-+]?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?>?)
    |(?P<sign>\.T)
    |(?P<how>\[[^\]\n]*\]$)
    |(?P<name>{tokens.NAME})
    |(?P<variable>\??{tokens.VARIABLE}|\?{tokens.NAME})""",
    re.VERBOSE,
)
FONT = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px;line-height:1.6"
LINE = "white-space:pre-wrap;padding-left:2em;text-indent:-2em"
BOX = "border:1px solid #8886;border-radius:6px;padding:2px 10px 4px;margin:4px 0"
COUNT = "float:right;font-weight:bold;color:#8b5cb8;padding-left:1em"


def to_html(program: Program) -> str:
    """A self-contained piece of HTML: no script, every string of the program escaped.

    >>> from edgewise.language import Program, R
    >>> "&lt;b&gt;" in to_html(Program([R.a("<b>")]))
    True
    """
    style = Style(exact=False)
    options = printer.options(program, style)
    lines = [_line(options)] if options else []
    lines += [_statement(statement, style) for statement in program.statements]
    return f'<div style="{FONT}">{"".join(lines)}</div>'


def _statement(statement: nodes.Statement, style: Style) -> str:
    if not isinstance(statement, nodes.Stack):
        return _line(printer.statement(statement, style))
    shown = f"{name(statement.name)} {printer.signature(statement, style, '→')}"
    inside = printer.block_style(statement, style)
    block = "".join(_statement(item, inside) for item in statement.statements)
    count = f'<div style="{COUNT}">×{statement.count}</div>'
    return f'<div style="{BOX}">{count}{_line(shown)}{block}</div>'


def _line(shown: str) -> str:
    return f'<div style="{LINE}">{_coloured(shown)}</div>'


def _coloured(shown: str) -> str:
    parts: list[str] = []
    at = 0
    for match in PIECES.finditer(shown):
        parts.append(escape(shown[at : match.start()]))
        colour = COLOURS.get(match.lastgroup or "")
        piece = escape(match.group())
        parts.append(f'<span style="color:{colour}">{piece}</span>' if colour else piece)
        at = match.end()
    return "".join(parts) + escape(shown[at:])
