"""The code of the front pages runs, and prints what they say."""

import json
import re
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


@pytest.mark.parametrize(
    "name", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/explanation/decisions.md"]
)
def test_files_that_a_page_names_are_there(name):
    page = (ROOT / name).read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w-]+/)+[\w-]*(?:\.\w+)?)`", page)
    assert named
    places = [ROOT, ROOT / "src" / "edgewise"]
    lost = [one for one in named if not any((place / one).exists() for place in places)]
    assert lost == []


def test_names_that_contributing_places_in_a_file_are_there():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    placed = re.findall(r"`(\w+)` (?:in|of) `([\w/]+\.py)`", page)
    assert len(placed) >= 8
    for name, path in placed:
        file = next(p for p in (ROOT / "src" / "edgewise" / path, ROOT / path) if p.exists())
        assert re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")), f"{name} in {path}"


def test_the_readme_is_short_and_shows_a_program_first():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert "```text" in lines[:25]


def numbers(thing):
    """All numbers in a result."""
    if isinstance(thing, dict):
        thing = list(thing.values())
    if isinstance(thing, list):
        return [number for item in thing for number in numbers(item)]
    return [thing] if isinstance(thing, float) else []


def test_times_are_those_of_the_results_that_the_readme_names():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"\((bench/results/\w+\.json)\)", page)
    held = [n for name in named for n in numbers(json.loads((ROOT / name).read_text())["results"])]
    for row in [line for line in page.splitlines() if line.startswith("|")]:
        for said in re.findall(r"([\d.]+) m?s\b", row):
            places = len(said.partition(".")[2])
            assert any(f"{number:.{places}f}" == said for number in held), f"{said} in {row}"
