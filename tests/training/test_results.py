"""The page of results says what `bench/results/training.json` holds, of recipes that are there."""

import json
from pathlib import Path

import pytest

from edgewise import training

ROOT = Path(__file__).parents[2]
ROWS = json.loads((ROOT / "bench" / "results" / "training.json").read_text())["results"]
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['recipe']}-{row['seed']}")
def test_a_figure_is_on_the_page_in_a_line_of_its_recipe(row):
    lines = [line for line in PAGE.splitlines() if f"| `{row['recipe']}`" in line]
    assert any(str(row["value"]) in line for line in lines), (row["value"], lines)
    assert row["commit"] in PAGE
    assert all(row[name] for name in ("hardware", "torch", "command"))


@pytest.mark.parametrize("name", sorted({row["recipe"] for row in ROWS}))
def test_its_recipe_can_be_read(name):
    recipe = training.load(ROOT / "recipes" / f"{name}.toml")
    assert recipe.training.seed == 1
    assert f"recipes/{name}.toml" in next(r["command"] for r in ROWS if r["recipe"] == name)
