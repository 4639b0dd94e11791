"""The code of the front pages runs, and prints what they say."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import blocks  # noqa: E402


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md"])
def test_a_page_prints_what_it_says(name):
    page = (ROOT / name).read_text(encoding="utf-8")
    assert blocks.executed(page) == page, f"run `python docs/blocks.py {name}` and read it"


def test_the_readme_is_short_and_shows_a_program_first():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert "```text" in lines[:25]
