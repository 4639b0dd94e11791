"""A rank that is killed: torchrun restarts all, and the end is that of a run that never was."""

import runpy
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_a_killed_rank_is_restarted_without_a_trace(tmp_path, monkeypatch):
    for folder in (BENCH, BENCH.parent / "tests" / "training"):
        monkeypatch.syspath_prepend(str(folder))
    found = runpy.run_path(str(BENCH / "rank_kills.py"), run_name="bench")
    ((rank, step),) = found["main"](1, 2, "ddp", 0, tmp_path)
    assert rank in (0, 1)
    assert 0 < step < found["STEPS"]
