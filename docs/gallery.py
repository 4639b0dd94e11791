"""The gallery: every example and every model on a page of its own, with a picture of its rules.

A picture has each layer of a stack once.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import runpy
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from api import with_code

from edgewise import Program, zoo
from edgewise.language.nodes import Stack

EXAMPLES = Path(__file__).parents[1] / "examples"


@dataclass(frozen=True)
class Entry:
    """What a page shows."""

    name: str
    title: str
    description: str
    program: Program
    code: str


class _Captured(Exception):
    """The program that an example solves or compiles first."""


def examples() -> Iterator[Entry]:
    for path in sorted(EXAMPLES.glob("[0-9]*.py")):
        source = path.read_text(encoding="utf-8")
        text = ast.get_docstring(ast.parse(source)) or ""
        number, _, words = path.stem.partition("_")
        title = f"{int(number)}. {words.replace('_', ' ').capitalize()}"
        yield Entry(path.stem, title, text, program_of(path), f"```py\n{source.rstrip()}\n```")


def program_of(path: Path) -> Program:
    """The first program that a script solves or compiles; the script goes no further."""

    def capture(self: Program, *_: Any, **__: Any) -> NoReturn:
        raise _Captured(self)

    patched = {name: capture for name in ("solve", "compile")}
    try:
        with mock.patch.multiple(Program, **patched), contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(str(path), run_name="__main__")
    except _Captured as found:
        return found.args[0]
    raise LookupError(f"{path.name} solves and compiles no program")


def models() -> Iterator[Entry]:
    for module in zoo.MODELS:
        name = module.__name__.rpartition(".")[2]
        text = inspect.getdoc(module) or ""
        program = module.program(module.Config())
        shown = f"    edgewise models {name}\n\n```py\n{program}\n```"
        yield Entry(name, f"`zoo.{name}`", text, program, shown)


def once(program: Program) -> Program:
    """The same program with the layers of every stack once."""
    statements = [replace(s, count=1) if isinstance(s, Stack) else s for s in program.statements]
    domains = dict(program.domains)
    return Program(statements, aggregation=program.aggregation, domains=domains)


def card(entry: Entry) -> str:
    first = entry.description.partition("\n")[0].replace("`", "")
    return (
        f'<a class="card" href="gallery/{entry.name}.html">'
        f'<img src="gallery/{entry.name}.svg" alt="the rules of {entry.name}" loading="lazy">'
        f"<b>{escape(entry.title.strip('`'))}</b><span>{escape(first)}</span></a>"
    )


def write(docs: Path) -> None:
    """The page `gallery.md`, and a page and a picture for each entry."""
    folder = docs / "gallery"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    sections = {
        "Examples": ("Scripts of fewer than 80 lines; `make examples` runs them.", examples()),
        "Models": ("As rules, equal to the originals; [measured](models.md).", models()),
    }
    parts = ["# Gallery", "Each picture is drawn by `program.draw()`, with one layer of a stack."]
    for title, (text, entries) in sections.items():
        cards = []
        for entry in entries:
            once(entry.program).draw().save(folder / f"{entry.name}.svg")
            picture = f"![The rules of {entry.name} as a graph]({entry.name}.svg)"
            page = [f"# {entry.title}", with_code(entry.description), entry.code, picture]
            (folder / f"{entry.name}.md").write_text("\n\n".join(page) + "\n", encoding="utf-8")
            cards.append(card(entry))
        parts += [f"## {title}", text, '<div class="gallery">' + "\n".join(cards) + "</div>"]
    (docs / "gallery.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
