"""`edgewise graph`, as a user types it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgewise.cli import main


def test_it_draws(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "window(1)", "--n", "3"]) == 0
    assert capsys.readouterr().out == "window(1), 3 tokens, 7 edges\n██·\n███\n·██\n"


def test_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "window(3) | global_tokens(1)", "--n", "4096", "--stats"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("window(3) | global_tokens(1), 4,096 tokens\n")
    assert "layers to full receptive field  2" in out


def test_json_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "causal()", "--n", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["edges"] == 36
    assert found["layers"] is None
    assert found["how"]["gap"] == "exact"


@pytest.mark.parametrize("kind", ["matrix", "ring", "force"])
def test_it_writes_a_figure(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out.png"
    assert main(["graph", "window(3)", "--n", "32", "--png", str(path), "--kind", kind]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


BAD = {
    "bad-pattern": ["windw(3)"],
    "bad-size": ["window(3)", "--n", "0"],
    "missing-seed": ["random_edges(3)"],
    "several-graphs": ["per_head(window(1), window(2))"],
    "cannot-write": ["window(3)", "--png", "no/such/folder/out.png"],
    "graph-too-large": ["window(3)", "--n", "5000", "--png", "out.png", "--kind", "ring"],
    "bad-choice": ["window(3)", "--png", "out.png", "--kind", "pie"],
    "size-mismatch": ["documents([3, 4])", "--n", "8"],
    "edge-out-of-range": ["from_edges([(0, 9)])", "--n", "4"],
    "tree-cycle": ["tree([1, 0])"],
    "too-many-pairs": ["random_edges(3, seed=0)", "--n", "2147483647"],
}


@pytest.mark.parametrize("code", BAD)
def test_a_mistake_is_shown_without_a_traceback(
    code: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["graph", *BAD[code]]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error[{code}]: ")
    assert "\nhelp: " in said
    assert "Traceback" not in said
    assert ".py" not in said


HOSTILE = ["~" * 10_000 + "full()", "full()" + ".T" * 20_000, "(" * 5000, "full(" * 150, "\x00"]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:12])
def test_hostile_text_is_a_mistake_too(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", text]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error[bad-pattern]: ")
    assert "^" in said
    assert "\nhelp: " in said
    assert len(said) < 1000


def test_a_file_name_that_is_no_picture(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "window(3)", "--png", "out.txt"]) == 2
    assert "error[cannot-write]" in capsys.readouterr().err


def test_the_command_is_installed() -> None:
    code = "import sys; from edgewise.cli import main; sys.exit(main(['graph', '--help']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--stats" in done.stdout


def test_the_command_is_a_module() -> None:
    command = [sys.executable, "-m", "edgewise", "graph", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--stats" in done.stdout
