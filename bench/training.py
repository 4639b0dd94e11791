"""Recipes trained side by side on one machine; a row of each run goes to `results/training.json`.

PYTHONPATH=src:bench python3 bench/training.py --data DATA [--out RUNS] [recipe:seed,seed ...]

Without arguments, Multi30k: three seeds of the Transformer, two of each recurrent model. After
`--seconds` all are interrupted, which saves them; the same command continues. Only runs that ended
give a row. `--steps` makes them shorter, for a try; then no row is written.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

from measure import RESULTS, commit, machine

from edgewise import training

RECIPES = pathlib.Path(__file__).resolve().parents[1] / "recipes"
USUAL = ("multi30k:1,2,3", "multi30k-rnn:1,2", "multi30k-rnn-luong:1,2")
METRICS = {  # of a summary: its name in a row, and the factor
    "test bleu": ("sacrebleu on test 2016, lower-cased", 1, 1),
    "test mrr": ("filtered MRR on the test part", 1, 3),
    "test uas": ("UAS on the test part, %", 100, 1),
    "test accuracy": ("accuracy on the test part, %", 100, 1),
    "test mae": ("MAE on the test part", 1, 3),
    "validation loss": ("validation loss, nats per token", 1, 3),
}


def one(name, seed, data, out, steps):
    """One run, in this process; the first SIGINT saves it and ends."""
    recipe, stop = training.load(RECIPES / f"{name}.toml"), threading.Event()
    how = replace(recipe.training, seed=seed, steps=steps or recipe.training.steps)
    signal.signal(signal.SIGINT, lambda number, frame: stop.set())
    for event in training.train(replace(recipe, training=how), out, data=data, stop=stop):
        if event.kind in ("start", "evaluate", "end", "interrupted"):
            numbers = {k: v for k, v in event.values.items() if isinstance(v, int | float)}
            print(f"{name}-{seed} {event.kind} {event.step}: {numbers}", flush=True)


def row(name, seed, out):
    summary = json.loads((out / "summary.json").read_text())
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    measured = {r["step"]: r["validation loss"] for r in lines if "validation loss" in r}
    metric = next(key for key in METRICS if key in summary)
    label, factor, digits = METRICS[metric]
    extra = {
        k: summary[k]
        for k in ("alpha", "validation bleu", "test hits@1", "test hits@10", "test las")
        if k in summary
    }
    where = machine()
    return {
        "recipe": name,
        "seed": seed,
        "weights": round(summary["parameters"], -4 if summary["parameters"] > 100_000 else 0),
        "metric": label,
        "value": round(factor * summary[metric], digits),
        "published": None,
        "hardware": where["hardware"],
        "torch": str(where["torch"]).partition("+")[0],
        "commit": commit(),
        "command": f"edgewise train recipes/{name}.toml --data DATA --out RUN"
        + (f"  # with seed = {seed}" if seed != 1 else ""),
        "steps": summary["steps"],
        "best": round(summary["best validation loss"], 3),
        "best_step": min(measured, key=measured.get),
        "planned": summary["recipe"]["training"]["steps"],
        **extra,
    }


def store(rows):
    """Add rows; they replace those of the same recipe, seed and hardware."""
    path = RESULTS / "training.json"
    table = json.loads(path.read_text())

    def key(found):
        return tuple(found.get(k) for k in ("recipe", "seed", "hardware", "changed"))

    new = {key(found) for found in rows}
    table["results"] = [r for r in table["results"] if key(r) not in new] + rows
    path.write_text(json.dumps(table, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="*", default=USUAL)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs"))
    parser.add_argument("--seconds", type=float, default=560)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--run", help="used by the script itself")
    chosen = parser.parse_args()
    if chosen.run:
        name, seed = chosen.run.split(":")
        one(name, int(seed), chosen.data, chosen.out, chosen.steps)
        return
    runs = [(r.split(":")[0], int(s)) for r in chosen.runs for s in r.split(":")[1].split(",")]
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    began, processes = time.monotonic(), {}
    for name, seed in runs:
        out = chosen.out / f"{name}-{seed}"
        command = [sys.executable, __file__, "--run", f"{name}:{seed}", "--data", chosen.data]
        command += ["--out", str(out), "--steps", str(chosen.steps)]
        processes[name, seed, out] = subprocess.Popen(command)
    while any(p.poll() is None for p in processes.values()):
        time.sleep(1)
        if time.monotonic() - began > chosen.seconds:
            for process in processes.values():
                process.send_signal(signal.SIGINT)
            break
    codes = [process.wait() for process in processes.values()]
    rows = [row(*key) for key in processes if (key[2] / "summary.json").exists()]
    print(json.dumps(rows, indent=1))
    print(f"{len(rows)} of {len(processes)} runs ended in {time.monotonic() - began:.0f} s")
    if rows and not chosen.steps:
        store(rows)
    sys.exit(any(codes))


if __name__ == "__main__":
    main()
