"""SIGKILL of a rank at random steps; torchrun restarts all, and the end is bit for bit the same.

    PYTHONPATH=src:bench python3 bench/rank_kills.py --ranks 2 --shard ddp=10 fsdp2=10

The run without kills has as many ranks. After every kill the files that are there are complete.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kills import check, content
from measure import write
from tiny_recipe import RECIPE, put

from edgewise.training.runs.folder import rows

STEPS, PATIENCE = 60, 600.0
TEXT = RECIPE.replace("steps = 12", f"steps = {STEPS}").replace("checkpoint = 4", "checkpoint = 3")
TEXT = TEXT.replace("log = 2", "log = 1\nema = 0.9\naccumulate = 2")


def started(recipe, out, ranks, shard, restarts):
    """torchrun on one machine."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)),
        *("--max-restarts", str(restarts), "-m", "edgewise", "train", str(recipe)),
        *("--out", str(out), "--set", f"distributed.shard={shard}"),
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, **quiet)


def workers(parent):
    """The processes that torchrun started, by rank."""
    found = {}
    for number in filter(str.isdecimal, os.listdir("/proc")):
        path = Path("/proc", number, "stat")
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) != parent:
                continue
            set_ = path.with_name("environ").read_bytes().split(b"\0")
        except (OSError, ValueError):  # it ended meanwhile
            continue
        for item in set_:
            if item.startswith(b"RANK="):
                found[int(item[5:])] = int(path.parent.name)
    return found


def step_of(out):
    found = rows(out / "metrics.jsonl")
    return found[-1]["step"] if found else 0


def killed(launcher, out, ranks, step, draw):
    """Kill one rank once the run has reached a step; which, and where the run was."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and launcher.poll() is None:
        there = workers(launcher.pid)
        if step_of(out) >= step and len(there) == ranks:
            rank = draw.randrange(ranks)
            os.kill(there[rank], signal.SIGKILL)
            return rank, step_of(out)
        time.sleep(0.001)
    raise AssertionError(f"the run ended or hangs before step {step}: {launcher.poll()}")


def restarted(launcher, before):
    """Wait until torchrun has other processes."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if workers(launcher.pid) and not set(workers(launcher.pid).values()) & before:
            return
        time.sleep(0.05)
    raise AssertionError("no restart")


def main(count, ranks, shard, seed, folder):
    """Kill one run `count` times; rank and step of each kill."""
    draw, recipe = random.Random(seed), put(folder, TEXT)
    assert started(recipe, folder / "plain", ranks, shard, 0).wait(PATIENCE) == 0
    wanted, kills = content(folder / "plain", STEPS), []
    launcher, out = started(recipe, folder / "killed", ranks, shard, count), folder / "killed"
    try:
        for step in sorted(draw.sample(range(1, STEPS), count)):
            before = set(workers(launcher.pid).values())
            kills.append(killed(launcher, out, ranks, step, draw))
            restarted(launcher, before)
            check(out)
        assert launcher.wait(PATIENCE) == 0
    finally:
        launcher.kill()
    assert content(out, STEPS) == wanted
    return kills


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--shard", nargs="+", default=["ddp=10", "fsdp2=10"], help="way=kills")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    found = []
    for shard, count in (text.split("=") for text in asked.shard):
        with tempfile.TemporaryDirectory() as made:
            kills = main(int(count), asked.ranks, shard, asked.seed, Path(made))
        for rank, step in kills:
            print(f"{shard}: rank {rank} was killed after step {step}", flush=True)
        found.append({"shard": shard, "kills": kills, "same": True})
    row = {"recipe": "tests/training/tiny_recipe.py", "steps": STEPS, "ranks": asked.ranks}
    write("rank_kills", row | {"seed": asked.seed, "runs": found})
