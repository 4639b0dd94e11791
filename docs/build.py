"""Make the generated pages, then run the code of all pages; `mkdocs build` does the rest.

A page that prints something else than it says fails the build.
"""

from __future__ import annotations

import difflib
import shutil
import sys
import traceback
from importlib import import_module
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

import api  # noqa: E402
import blocks  # noqa: E402
import errors  # noqa: E402
import gallery  # noqa: E402
import tables  # noqa: E402

GENERATED = DOCS / "reference" / "errors"


def graphs() -> str:
    """Every pattern with its set."""
    module = import_module("edgewise.graphs")
    parts = [
        "# Graphs",
        "Sets of pairs (i, j): query i attends to key j. A graph is an atom, "
        "`window(3)(V.I, V.J)`; graphs are closed under `|`, `&`, `-`, `~` and `.T`.",
    ]
    named = {**module.PATTERNS, "grid": module.grid}
    parts += [f"## `{name}`\n\n{api.described(kind)}" for name, kind in sorted(named.items())]
    return "\n\n".join(parts) + "\n"


def differences() -> list[str]:
    """How the pages differ from what their code prints, and which of them raise."""
    found: list[str] = []
    for path in sorted(DOCS.rglob("*.md")):
        if not {GENERATED, DOCS / "gallery"} & set(path.parents):
            page = path.read_text(encoding="utf-8")
            name = str(path.relative_to(DOCS.parent))
            try:
                new = blocks.executed(page)
            except Exception:  # code of a page may raise anything; the other pages are still tried
                found += [f"{name} raises", traceback.format_exc()]
                continue
            found += difflib.unified_diff(page.splitlines(), new.splitlines(), name, name, n=1)
    return found


def copy_notebooks() -> None:
    """The notebooks of the examples, which `mkdocs build` runs."""
    folder = DOCS / "notebooks"
    shutil.rmtree(folder, ignore_errors=True)
    # what notebooks printed with other code of ours would be shown again
    shutil.rmtree(DOCS.parent / ".cache" / "mkdocs-jupyter", ignore_errors=True)
    folder.mkdir()
    for path in sorted((DOCS.parent / "examples").glob("*.ipynb")):
        shutil.copy(path, folder)


def main() -> int:
    reference = DOCS / "reference"
    errors.write(GENERATED)
    gallery.write(DOCS)
    copy_notebooks()
    own = {
        "api.md": api.page,
        "modules.md": api.modules_page,
        "neuralogic.md": api.neuralogic_page,
        "graphs.md": graphs,
    }
    for name, made in {**tables.PAGES, **own}.items():
        (reference / name).write_text(made(), encoding="utf-8")
    found = differences()
    print("\n".join(found) if found else "every page prints what it says")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
