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


def test_cells_are_picked_by_number_and_what_is_done_stays(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCH))
    import grid_gpu
    from grid_cells import cells

    assert grid_gpu.numbers(grid_gpu.selected([], "1/1", "3-5,9")) == [3, 4, 5, 9]
    assert grid_gpu.numbers(grid_gpu.selected([], "2/2", "3-5,9")) == [4, 9]
    first, second = (cell.name for cell in cells()[:2])
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setattr(grid_gpu, "written", lambda name: {})
    row = {"cell": first, "done": True, "error": 0.5, "forward_times_best": 2.0}
    grid_gpu.saved({first: row}, cells()[:2])
    assert grid_gpu.done_before(tmp_path / "grid_gpu.json") == {first: row}
    assert grid_gpu.done_before(None) == {}
    rows = [row, {**row, "cell": second, "forward_times_best": 0.5}, {"cell": "x", "done": False}]
    assert grid_gpu.summary(rows).splitlines() == [
        "below the best peer:",
        f"  0.50 forward {second}",
        "2 figures of 2 cells, 50% at or above the best peer, geometric mean 1.00×",
    ]


def test_a_budget_of_time_ends_a_run(monkeypatch, tmp_path):
    """What fails is a row of its own, and the cells after it are run."""
    monkeypatch.syspath_prepend(str(BENCH))
    import grid_gpu
    from grid_cells import cells

    ran, kept = [], []

    def measured(cell, peers):
        ran.append(cell)
        if len(ran) == 1:
            raise RuntimeError("out of registers")
        return {"cell": cell.name, "done": True, "error": 0.5}

    monkeypatch.setattr(grid_gpu, "measured", measured)
    monkeypatch.setattr(grid_gpu, "saved", lambda rows, chosen: kept.append(len(rows)))
    monkeypatch.setattr(grid_gpu.time, "time", lambda: len(ran))
    given = type("Given", (), {"resume": None, "warm": 0, "alone": False})
    rows = grid_gpu.timed(given, cells(), 2)
    assert [len(ran), kept, len(rows)] == [3, [1, 2, 3], 3]
    assert rows[cells()[0].name]["failed"] == "out of registers"


def test_a_cell_is_checked_without_a_gpu():
    pytest.importorskip("triton", reason="triton is not installed")
    out = ran("--check", "sinks", "1 last")
    assert "triton_decoding" in out
    assert "1 cells, the largest error 0." in out
