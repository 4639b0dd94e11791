"""What the benchmark scripts share: time, the machine, and the file with the result."""

import json
import os
import pathlib
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import torch

RESULTS = pathlib.Path(__file__).parent / "results"


def commit() -> str:
    """That of the checkout, unless EDGEWISE_COMMIT names the one that a copy was made of."""
    if known := os.environ.get("EDGEWISE_COMMIT"):
        return known
    command = ["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> dict[str, str | int]:
    out: dict[str, str | int] = {"torch": torch.__version__, "python": platform.python_version()}
    if torch.cuda.is_available():
        return {**out, "hardware": torch.cuda.get_device_name()}
    return {**out, "hardware": _processor(), "threads": torch.get_num_threads()}


def _processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def cpu_seconds(run: Callable[[], object], repeats: int = 3) -> dict[str, float]:
    """The least of several runs after one to warm up: process time, and time on the clock.

    Process time is what a busy machine disturbs least.
    """
    run()
    return {name: round(taken, 4) for name, taken in least(run, repeats).items()}


def least(run: Callable[[], object], repeats: int) -> dict[str, float]:
    """The least of several runs: process time, and time on the clock."""
    used, passed = [], []
    for _ in range(repeats):
        a, b = time.process_time(), time.perf_counter()
        run()
        used.append(time.process_time() - a)
        passed.append(time.perf_counter() - b)
    return {"cpu_s": min(used), "wall_s": min(passed)}


def gpu_ms(run: Callable[[], object], seconds: float = 0.3) -> float:
    """The median over up to 12 times of up to 16 calls in a row, by events on the device.

    Calls in a row, as in training: the next is prepared while the last one runs. What is slow is
    run less often: about `seconds` in all.
    """
    for _ in range(3):
        run()
    took = _elapsed(run, 1) / 1e3
    calls = max(1, min(16, int(seconds / 12 / took)))
    repeats = max(3, min(12, int(seconds / (calls * took))))
    return round(statistics.median(_elapsed(run, calls) for _ in range(repeats)), 4)


def issue_us(run: Callable[[], object], calls: int = 30) -> float:
    """Microseconds of the processor for one call: what it takes to prepare and launch it."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        run()
    passed = time.perf_counter() - start
    torch.cuda.synchronize()
    return round(passed / calls * 1e6, 1)


def _elapsed(run: Callable[[], object], calls: int) -> float:
    """Milliseconds of one of `calls` calls."""
    torch.cuda.synchronize()
    a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    a.record()
    for _ in range(calls):
        run()
    b.record()
    b.synchronize()
    return a.elapsed_time(b) / calls


def write(name: str, results: object) -> None:
    folder = pathlib.Path(os.environ.get("OUT", RESULTS))
    folder.mkdir(exist_ok=True, parents=True)
    content = {"machine": machine(), "commit": commit(), "results": results}
    (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def written(name: str) -> dict[str, Any]:
    """The results of the last run, to which one section of a script adds its own."""
    path = RESULTS / f"{name}.json"
    found = json.loads(path.read_text())["results"] if path.exists() else {}
    return found if isinstance(found, dict) else {}


def skip(reason: str) -> None:
    """End the script here: what it needs is not on this machine."""
    print(f"skipped: {reason}")
    raise SystemExit(0)
