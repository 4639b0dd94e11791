"""`edgewise train`, as a user types it."""

import sys
from pathlib import Path

import pytest

from edgewise.cli import main

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from tiny_recipe import RECIPE, put


def test_a_recipe_is_run_and_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(put(tmp_path))
    assert main(["train", path, "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "step 12: validation loss" in said
    assert (tmp_path / "run" / "loss.png").exists()
    assert main(["train", path, "--out", str(tmp_path / "run"), "--resume"]) == 0
    assert "from step 12" in capsys.readouterr().out


BAD = {
    "bad-recipe": (RECIPE.replace("layers", "layres"), []),
    "bad-data": (RECIPE.replace("text.txt", "txet.txt"), []),
    "no-such-device": (RECIPE, ["--device", "tpu"]),
}


@pytest.mark.parametrize("code", BAD)
def test_a_mistake_is_shown_without_a_traceback(
    code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, more = BAD[code]
    assert main(["train", str(put(tmp_path, text)), "--out", str(tmp_path / "run"), *more]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error[{code}]: ")
    assert "\nhelp: " in said
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()
