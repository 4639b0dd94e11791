"""The grid of GPU benchmarks: which cells it has, and that one is checked without a GPU."""

import os
import pathlib
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).parents[1] / "bench"


def ran(*words):
    command = [sys.executable, str(BENCH / "grid_gpu.py"), *words]
    paths = os.pathsep.join([str(BENCH.parent / "src"), str(BENCH)])
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_cells_are_many_and_parts_have_all(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    from grid_cells import cells
    from grid_gpu import selected

    assert len(cells()) >= 60
    parts = [selected([], f"{at}/3") for at in (1, 2, 3)]
    assert sorted(repr(cell) for part in parts for cell in part) == sorted(map(repr, cells()))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert {cell.d for cell in cells()} >= {32, 64, 80, 96, 112, 128, 192, 256}


def test_a_cell_is_checked_without_a_gpu():
    pytest.importorskip("triton", reason="triton is not installed")
    out = ran("--check", "sinks", "1 last")
    assert "triton_decoding" in out
    assert "1 cells, the largest error 0." in out
