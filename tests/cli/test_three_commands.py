"""Train, use, load: three commands for a translator, a character GPT and a classifier."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from tiny_runs import RECIPES, TEXTS

USE = {"translate": "a man walks", "generate": "to be", "classify": "a fine film"}
LOAD = """
import edgewise
from edgewise import zoo
print(zoo.from_pretrained("run").task, type(edgewise.load("run")).__name__)
"""


def run(folder: Path, *arguments: str) -> str:
    """What a Python process prints, as a user starts it in a folder."""
    command = [sys.executable, *arguments]
    # one thread each: the tests of other workers need the cores
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("verb", USE)
def test_three_commands(verb: str, tmp_path: Path) -> None:
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "recipe.toml").write_text(RECIPES[verb])
    assert "validation loss" in run(tmp_path, "-m", "edgewise", "train", "recipe.toml", "--out=run")
    used = run(tmp_path, "-m", "edgewise", verb, "run", USE[verb], "--json")
    assert USE[verb] in json.loads(used).values()
    assert run(tmp_path, "-c", LOAD).split() == [verb, "Model"]
