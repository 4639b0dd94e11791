"""`edgewise train`, as a user types it."""

import subprocess
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
    said = capsys.readouterr().out
    assert "from step 12" in said
    assert "\x1b" not in said  # neither colours nor a bar where there is no terminal


def test_a_dry_run_says_what_it_costs_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(put(tmp_path)), "--out", str(tmp_path / "run"), "--dry-run"]) == 0
    said = capsys.readouterr().out
    for part in ("weights", "FLOP in all", "activations", "window(2)", "strided(3)", "█"):
        assert part in said
    assert not (tmp_path / "run").exists()


INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path
from edgewise.cli import main

out, times = Path(sys.argv[2]), int(sys.argv[3])

def interrupt():
    while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").read_text():
        time.sleep(0.002)
    for _ in range(times):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.0005)

threading.Thread(target=interrupt, daemon=True).start()
sys.exit(main(["train", sys.argv[1], "--out", str(out)]))
"""


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_saves_and_ends_and_a_second_one_stops(times: int, tmp_path: Path) -> None:
    path = str(put(tmp_path, RECIPE.replace("steps = 12", "steps = 4000")))
    command = [sys.executable, "-c", INTERRUPTED, path, str(tmp_path / "run"), str(times)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 130 or (times == 2 and ended.returncode == -2)
    steps = [int(p.name[5:]) for p in (tmp_path / "run" / "checkpoints").glob("step-*")]
    assert max(steps) < 4000
    if times == 1:
        assert f"saved at step {max(steps):,}; the same command continues" in ended.stdout


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
