"""The shape of the gallery; `make examples` runs it."""

import ast
import json
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("[0-9]*.py"))


def test_the_gallery_is_numbered_without_gaps():
    assert [path.name[:2] for path in EXAMPLES] == [f"{i:02}" for i in range(1, len(EXAMPLES) + 1)]
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_is_short_says_what_it_is_and_asserts_its_number(path):
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    assert len(source.splitlines()) < 80
    assert ast.get_docstring(tree)
    last = tree.body[-1]
    assert isinstance(last, ast.Assert) or any(isinstance(n, ast.Assert) for n in ast.walk(last))
    assert "print(" in source


NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def test_there_is_a_notebook_for_each_task():
    nav = (Path(__file__).parents[1] / "mkdocs.yml").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) >= 5
    assert [path.name for path in NOTEBOOKS if f"notebooks/{path.name}" not in nav] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_says_what_it_is_and_holds_no_outputs(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert cells[0]["cell_type"] == "markdown"
    assert cells[0]["source"][0].startswith("# ")
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 5
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    for cell in code:
        ast.parse("".join(cell["source"]))
