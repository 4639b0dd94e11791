"""Make the generated pages, then run the code of all pages; `mkdocs build` does the rest.

A page that prints something else than it says fails the build.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from importlib import import_module
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

import blocks  # noqa: E402
import errors  # noqa: E402
import tables  # noqa: E402

PROGRAM = ("parse", "load", "text", "check", "solve", "compile", "weights", "draw")
MODEL = (
    *("inputs", "ground", "rows", "weight", "explain", "profile", "why", "draw", "save", "load"),
)
GENERATED = DOCS / "reference" / "errors"


def api() -> str:
    """The public names with their docstrings."""
    edgewise = import_module("edgewise")
    parts = ["# API", f"{inspect.getdoc(edgewise)}"]
    for name in edgewise.__all__:
        thing = getattr(edgewise, name)
        parts.append(f"## `{name}`\n\n{_described(thing)}")
        if name == "Program":
            parts += [
                f"### `Program.{method}`\n\n{_described(getattr(thing, method))}"
                for method in PROGRAM
            ]
    solve = import_module("edgewise.reference").solve
    solution = import_module("edgewise.reference").Solution
    parts += [f"## solving\n\n{_described(solve)}", f"## solution\n\n{_described(solution)}"]
    compiled = import_module("edgewise.compile").compile
    model, relation = (getattr(import_module("edgewise.module"), n) for n in ("Model", "Relation"))
    parts += [f"## compiling\n\n{_described(compiled)}", f"## model\n\n{_described(model)}"]
    parts += [f"### `model.{m}`\n\n{_described(getattr(model, m))}" for m in MODEL]
    parts.append(f"## the rows that a model gives\n\n{_described(relation)}")
    return "\n\n".join(parts) + "\n"


def graphs() -> str:
    """Every pattern with its set."""
    module = import_module("edgewise.graphs")
    parts = [
        "# Graphs",
        "Sets of pairs (i, j): query i hears key j. A graph is an atom, `window(3)(V.I, V.J)`, and "
        "graphs are closed under `|`, `&`, `-`, `~` and `.T`.",
    ]
    parts += [f"## `{name}`\n\n{_described(kind)}" for name, kind in module.PATTERNS.items()]
    return "\n\n".join(parts) + "\n"


def _described(thing: object) -> str:
    """The docstring with its examples as code."""
    lines, shown = (inspect.getdoc(thing) or "").splitlines(), []
    inside = False
    for line in lines:
        begins = line.startswith(">>>")
        if begins and not inside:
            shown.append("```pycon")
        if inside and not line.strip():
            shown.append("```")
        inside = begins or (inside and bool(line.strip()))
        shown.append(line)
    return "\n".join([*shown, "```"] if inside else shown)


def differences() -> list[str]:
    """How the pages differ from what their code prints."""
    found: list[str] = []
    for path in sorted(DOCS.rglob("*.md")):
        if GENERATED not in path.parents:
            page = path.read_text(encoding="utf-8")
            new = blocks.executed(page)
            name = str(path.relative_to(DOCS.parent))
            found += difflib.unified_diff(page.splitlines(), new.splitlines(), name, name, n=1)
    return found


def main() -> int:
    reference = DOCS / "reference"
    errors.write(GENERATED)
    for name, made in {**tables.PAGES, "api.md": api, "graphs.md": graphs}.items():
        (reference / name).write_text(made(), encoding="utf-8")
    found = differences()
    print("\n".join(found) if found else "every page prints what it says")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
