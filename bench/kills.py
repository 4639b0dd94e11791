"""SIGKILL at random moments of a run; resumed, it ends as one that was never killed, bit for bit.

    PYTHONPATH=src:bench python3 bench/kills.py --count 30 --seed 0

After each kill everything in the folder is complete: every checkpoint, the configuration, the
weights, the lines of the metrics.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import safetensors.torch
import torch
from measure import write

from edgewise import training
from edgewise.training.runs import checkpoint
from edgewise.training.runs.folder import rows

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "training"))

from tiny_recipe import RECIPE, put

STEPS = 120
TEXT = RECIPE.replace("steps = 12", f"steps = {STEPS}").replace("checkpoint = 4", "checkpoint = 3")
TEXT = TEXT.replace("evaluate = 6", 'evaluate = 5\nema = 0.9\naccumulate = 2\nmeasured = "best"')


def run(recipe, out):
    for _ in training.train(recipe, out):
        pass


def killed(recipe, out, seconds):
    """Whether a process that continues the run was killed after some seconds."""
    child = os.fork()
    if not child:
        try:
            run(recipe, out)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)  # not through the cleanup of the parent's folder
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert status in (signal.SIGKILL, 0), status
    return status == signal.SIGKILL


def check(out):
    """Read all that a killed run left; the newest checkpoint, or 0."""
    found = checkpoint.steps(out / "checkpoints")
    for step in found:
        checkpoint.read(out / "checkpoints", step)
    for path in out.glob("*.json"):
        json.loads(path.read_text())
    for path in out.glob("*.safetensors"):
        safetensors.torch.load(path.read_bytes())
    if (out / "recipe.toml").exists():
        training.load(out / "recipe.toml")
    return max(found, default=0)


def content(out, steps=STEPS):
    """What a run leaves, without times."""
    last = checkpoint.folder(out / "checkpoints", steps)
    files = [*out.glob("*.safetensors"), *last.glob("*.safetensors"), out / "tokenizer.json"]
    found = {str(path.relative_to(out)): path.read_bytes() for path in files}
    found["metrics"] = [
        {name: value for name, value in row.items() if name != "seconds"}
        for row in rows(out / "metrics.jsonl")
    ]
    found["summary"] = json.loads((out / "summary.json").read_text())
    found["names"] = sorted(str(path.relative_to(out)) for path in out.rglob("*"))
    return found


def main(count, seed, folder):
    """Kill `count` runs; the steps that the newest checkpoint had after each."""
    torch.set_num_threads(1)  # before the fork, which threads do not survive
    draw, folder = random.Random(seed), Path(folder)
    recipe = training.load(put(folder, TEXT))
    began = time.perf_counter()
    run(recipe, folder / "plain")
    longest = time.perf_counter() - began
    wanted, reached, number = content(folder / "plain"), [], 0
    while len(reached) < count:
        out = folder / f"killed-{number}"
        if killed(recipe, out, draw.uniform(0, 4 * longest / count)):
            reached.append(check(out))
        elif (out / "summary.json").exists():
            assert content(out) == wanted
            number += 1
    run(recipe, folder / f"killed-{number}")
    assert content(folder / f"killed-{number}") == wanted
    return reached


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        reached = main(asked.count, asked.seed, made)
    print("newest checkpoint after each kill:", *reached)
    row = {"recipe": "tests/training/tiny_recipe.py", "steps": STEPS, "kills": asked.count}
    write("kills", row | {"seed": asked.seed, "newest_checkpoint": reached, "same": True})
