"""The pages of docs/reference/errors: one for every code, made from the error classes.

What each example says is what it really raises when the page is made.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import linecache
import math
import re
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import edgewise
from edgewise.errors import EdgewiseError, EdgewiseWarning, SeveralErrors

FILE = "example.py"
Kind = type[EdgewiseError] | type[EdgewiseWarning]


def every() -> list[Kind]:
    """All kinds of errors and warnings that the package defines, by code.

    One that only changes how Python sees another, as for traces, has no code of its own.
    """
    _load_kinds()
    found = [*_below(EdgewiseError), *_below(EdgewiseWarning)]
    own = (k for k in found if k.__module__.startswith("edgewise.") and "code" in vars(k))
    return sorted((k for k in own if k is not SeveralErrors), key=lambda k: k.code)


@functools.cache
def _load_kinds() -> None:
    """Import every module with a class below the kinds known so far."""
    root = Path(edgewise.__path__[0])
    classes = {
        file: re.findall(r"^class (\w+)\((\w+)\)", file.read_text(), re.MULTILINE)
        for file in sorted(root.rglob("*.py"))
    }
    known, before = {"EdgewiseError", "EdgewiseWarning"}, 0
    while len(known) > before:
        before = len(known)
        known |= {name for found in classes.values() for name, base in found if base in known}
    for file, found in classes.items():
        if any(base in known for _, base in found):
            name = ".".join(file.relative_to(root.parent).with_suffix("").parts)
            importlib.import_module(name.removesuffix(".__init__"))


def _below(kind: Any) -> list[Any]:
    return [one for sub in kind.__subclasses__() for one in (sub, *_below(sub))]


def run(source: str) -> Any:
    """The value of the last expression of `source`, evaluated as a file of its own."""
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    tree = ast.parse(source, FILE)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    names = _names()
    exec(compile(tree, FILE, "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), FILE, "eval"), names)


SEVERAL = "# on two ranks"
FULL = "# on a full disk"


def runs_here(kind: Kind) -> bool:
    if SEVERAL in kind.example or FULL in kind.example:
        return False
    return "cuda" not in kind.example or torch.cuda.is_available()


def needs(kind: Kind) -> str:
    """What an example cannot be shown without."""
    if FULL in kind.example:
        return "a full disk"
    return "two ranks" if SEVERAL in kind.example else "a GPU"


def _names() -> dict[str, Any]:
    """What examples may use: the public names, the patterns, and q, k, v of 8 tokens."""
    graphs = importlib.import_module("edgewise.graphs")
    names = {name: one for name, one in vars(graphs).items() if not name.startswith("_")}
    names |= {name: getattr(edgewise, name) for name in edgewise.__all__}
    kernels = importlib.import_module("edgewise.kernels.attention")
    names |= {"attention": kernels.attention, "math": math, "torch": torch, "__name__": FILE}
    names["viz"] = importlib.import_module("edgewise.viz")
    return names | {name: torch.zeros(1, 2, 8, 4) for name in "qkv"}


@functools.cache
def diagnostics(source: str) -> tuple[EdgewiseError | EdgewiseWarning, ...]:
    """What `source` raises, or the warnings that it gives."""
    with (
        warnings.catch_warnings(record=True) as caught,
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),  # an example may save a file
    ):
        warnings.simplefilter("always")
        try:
            result = run(source)
        except EdgewiseError as error:
            return (_placed(error),)
    given = result if isinstance(result, list) else []
    warned = [w.message for w in caught] + given
    return tuple(_placed(w) for w in warned if isinstance(w, EdgewiseWarning))


def _placed(found: Any) -> Any:
    """The same, with its line of source: the next example will have the same file name."""
    for one in (found, *getattr(found, "errors", ())):
        if one.span is not None:
            one.place = replace(one.span, source=one.span.text)
    return found


def message(source: str) -> str:
    """The same as text, without what differs from run to run."""
    text = "\n\n".join(map(str, diagnostics(source)))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def page(kind: Kind) -> str:
    is_error = issubclass(kind, EdgewiseError)
    effect = "An error: nothing is evaluated." if is_error else "A warning: the program runs."
    return f"""\
# {kind.code}

{effect}

## Why

{inspect.getdoc(kind)}

## Example

```python
{kind.example}
```

```text
{message(kind.example) if runs_here(kind) else f"(needs {needs(kind)} to show)"}
```

## Instead

```python
{kind.instead}
```
"""


def index(kinds: list[Kind]) -> str:
    rows = [
        f"| [{k.code}]({k.code}.md) | {str(inspect.getdoc(k)).splitlines()[0]} |" for k in kinds
    ]
    return "\n".join(
        [
            "# Errors and warnings",
            "",
            "Every message has a code, a place, and a next step. This is the list of codes.",
            "",
            "| code | why |",
            "| --- | --- |",
            *rows,
            "",
        ]
    )


def write(folder: Path | str) -> None:
    """Write one page for each code, and an index, into `folder`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    kinds = every()
    for kind in kinds:
        (folder / f"{kind.code}.md").write_text(page(kind), encoding="utf-8")
    (folder / "index.md").write_text(index(kinds), encoding="utf-8")


if __name__ == "__main__":
    write(Path(__file__).parent / "reference" / "errors")
