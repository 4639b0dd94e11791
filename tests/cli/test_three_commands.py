"""Train, use, load: three commands for a translator, a character GPT and a classifier."""

import json
import sys
from pathlib import Path

import pytest

import edgewise
from edgewise import zoo
from edgewise.cli import main

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from tiny_runs import RECIPES, TEXTS

USE = {"translate": "a man walks", "generate": "to be", "classify": "a fine film"}


@pytest.mark.parametrize("verb", USE)
def test_three_commands(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "recipe.toml").write_text(RECIPES[verb])
    assert main(["train", "recipe.toml", "--out", "run"]) == 0
    capsys.readouterr()
    assert main([verb, "run", USE[verb], "--json"]) == 0
    assert USE[verb] in json.loads(capsys.readouterr().out).values()
    assert zoo.from_pretrained("run").task == verb
    assert isinstance(edgewise.load("run"), edgewise.Model)
