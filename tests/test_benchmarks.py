"""The benchmark page says what the results say, and `make bench` knows every script."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return lambda name: runpy.run_path(str(ROOT / "bench" / f"{name}.py"), run_name="bench")


def test_the_page_has_the_numbers_of_the_results(bench):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert bench("plots")["filled"](page) == page, "run `python bench/plots.py` and read it"


def test_every_script_is_run_or_left_out_for_a_reason(bench):
    runner = bench("all")
    known = {*runner["PARTS"], *runner["scripts"]()}
    assert known == {path.stem for path in (ROOT / "bench").glob("*.py")}
    for table in ("PACKAGES", "TUNING"):
        assert set(runner[table]) <= known, table


def test_what_needs_a_gpu_is_left_out_without_one(bench, monkeypatch, capsys):
    runner = bench("all")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["all.py", "attention_gpu"])
    assert runner["main"]() == 0
    assert "attention_gpu: left out, there is no CUDA GPU here" in capsys.readouterr().out
