"""The shape of the gallery; `make examples` runs it."""

import ast
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
