"""Pages whose code is run: each ```python block is followed by what it prints, as ```text.

A page is right if executing it changes nothing. `python docs/blocks.py PAGE...` writes what the
blocks print into the pages.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from edgewise import EdgewiseError

BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n(?:\n```text\n(?P<output>.*?)```\n)?", re.DOTALL)
FILE = "example.py"


def executed(page: str) -> str:
    """The page with every block's output after it; the blocks of a page are one file."""
    names: dict[str, Any] = {"__name__": "__main__"}
    before = ""

    def run(match: re.Match[str]) -> str:
        nonlocal before
        code = match["code"]
        output = printed(code, names, before)
        before += code
        shown = f"\n```text\n{output}```\n" if output else ""
        return f"```python\n{code}```\n{shown}"

    return BLOCK.sub(run, page)


def printed(code: str, names: dict[str, Any], before: str = "") -> str:
    """What a block prints: warnings as they come, an error of ours at the end."""
    source = before + code
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    placed = "\n" * before.count("\n") + code
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", ".*torch.jit.*", DeprecationWarning)  # torch's own
        warnings.showwarning = lambda message, *_, **__: print(message)
        try:
            exec(compile(placed, FILE, "exec"), names)
        except EdgewiseError as error:
            print(error)
    text = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
    return text.rstrip("\n") + "\n" if text.strip() else ""


def main(paths: list[str]) -> None:
    for path in map(Path, paths):
        page = path.read_text(encoding="utf-8")
        path.write_text(executed(page), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
