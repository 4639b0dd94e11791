"""Every claim's script runs at its tiny size, and the page of claims says what the results say."""

import json
import runpy
import sys
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
ROOT = Path(__file__).parents[1]
NAMES = sorted(path.stem for path in (ROOT / "bench" / "claims").glob("[a-z]_*.py"))


@pytest.fixture
def claims(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return lambda name: import_module(f"claims.{name}")


def test_the_page_says_what_the_results_say(claims):
    page = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    command = "PYTHONPATH=bench python bench/claims/report.py"
    assert claims("report").text() == page, f"run `{command}` and read it"


def test_every_result_is_that_of_a_claim_with_a_figure(claims):
    known = {claim.result: claim for claim in claims("report").claims().values()}
    for path in sorted((ROOT / "bench" / "results").glob("claims_*.json")):
        claim = known[path.stem]
        assert (ROOT / "docs" / "assets" / f"claim-{claim.letter}.svg").exists(), path.stem
        for size, run in json.loads(path.read_text()).items():
            assert run["command"] == claim.command(size)
            assert all(run[key] for key in ("commit", "machine", "rows"))
            assert len(run["seeds"]) >= 3, path.stem


@pytest.mark.parametrize("name", NAMES)
def test_a_script_runs_at_its_tiny_size(name, claims, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("EDGEWISE_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [name, "--size", "tiny"])
    result = ROOT / "bench" / "results" / f"claims_{name[0]}.json"
    before = result.read_bytes() if result.exists() else None
    runpy.run_path(str(ROOT / "bench" / "claims" / f"{name}.py"), run_name="__main__")
    assert f"({name[0]}) " in capsys.readouterr().out.splitlines()[-1]
    assert (result.read_bytes() if result.exists() else None) == before
