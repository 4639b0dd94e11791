"""Recipes trained side by side on one machine; a row of each run goes to `results/training.json`.

PYTHONPATH=src:bench python3 bench/training.py --data DATA [--out RUNS] [recipe:seed,seed ...]

Without arguments, Multi30k: three seeds of the Transformer, two of each recurrent model. After
`--minutes` all are interrupted, which saves them; the same command continues. Only runs that ended
give a row. `--steps` makes them shorter, for a try; then no row is written.

For a machine on which nothing can be installed, `--data DATA --pack FOLDER` copies the data and
what computes BLEU to a folder. There it is `--data FOLDER`, OUT names the folder for
`training.json`, which here `--store FILE` adds to the results. Without matplotlib, runs have no
picture of the loss.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import replace
from importlib.util import find_spec

from measure import RESULTS, commit, machine

from edgewise import training
from edgewise.training.runs import logs

RECIPES = pathlib.Path(__file__).resolve().parents[1] / "recipes"
USUAL = ("multi30k:1,2,3", "multi30k-rnn:1,2", "multi30k-rnn-luong:1,2")
PACKED = ("sacrebleu", "portalocker", "colorama", "tabulate")  # of Python alone
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
    sys.path.append(f"{data}/site")  # after what is installed
    if find_spec("matplotlib") is None:
        logs.require, logs.plot = lambda tensorboard: None, lambda *of: b""
    recipe, stop = training.load(RECIPES / f"{name}.toml"), threading.Event()
    how = replace(recipe.training, seed=seed, steps=steps or recipe.training.steps)
    signal.signal(signal.SIGINT, lambda number, frame: stop.set())
    for event in training.train(replace(recipe, training=how), out, data=data, stop=stop):
        if event.kind in ("start", "evaluate", "end", "interrupted"):
            numbers = {k: v for k, v in event.values.items() if isinstance(v, int | float)}
            print(f"{name}-{seed} {event.kind} {event.step}: {numbers}", flush=True)


def pack(data, folder):
    """The data, and packages without which there is no BLEU, in one folder."""
    for file in pathlib.Path(data).iterdir():
        if file.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, folder)
    for name in PACKED:
        found = pathlib.Path(find_spec(name).origin).parent
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(found, folder / "site" / name, ignore=without, dirs_exist_ok=True)
    (folder / "site" / "lxml").mkdir(exist_ok=True)
    for file in ("__init__", "etree"):  # sacrebleu imports it for files that are not read here
        (folder / "site" / "lxml" / f"{file}.py").touch()


def measures(out):
    """The rows of `metrics.jsonl`."""
    path = out / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def row(name, seed, out):
    summary, lines = json.loads((out / "summary.json").read_text()), measures(out)
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
        "ms_per_step": round(
            1e3 * statistics.median(r["seconds"] for r in lines if "rate" in r), 1
        ),
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


def write(runs, rows):
    """All that came of the runs, into a folder from which files are taken."""
    about = {}
    for name, seed, out in runs:
        texts = out / "translations.txt"
        about[f"{name}-{seed}"] = {
            "metrics": measures(out),
            "translations": texts.read_text().splitlines() if texts.exists() else [],
        }
    found = {"machine": machine(), "commit": commit(), "results": rows, "runs": about}
    pathlib.Path(os.environ["OUT"], "training.json").write_text(json.dumps(found, indent=1) + "\n")


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="*", default=USUAL)
    parser.add_argument("--data")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs"))
    parser.add_argument("--minutes", type=float, default=9.3)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--pack", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--store", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--run", help="used by the script itself")
    chosen = parser.parse_args()
    if not chosen.data and not chosen.store:
        parser.error("--data is missing")
    return chosen


def main():
    chosen = options()
    if chosen.run:
        name, seed = chosen.run.split(":")
        one(name, int(seed), chosen.data, chosen.out, chosen.steps)
    elif chosen.pack:
        pack(chosen.data, chosen.pack)
    elif chosen.store:
        store(json.loads(chosen.store.read_text())["results"])
    else:
        sys.exit(side_by_side(chosen))


def side_by_side(chosen):
    """A process for each run; whether one of them failed."""
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
        if time.monotonic() - began > 60 * chosen.minutes:
            for process in processes.values():
                process.send_signal(signal.SIGINT)
            break
    codes = [process.wait() for process in processes.values()]
    rows = [row(*key) for key in processes if (key[2] / "summary.json").exists()]
    print(json.dumps(rows, indent=1))
    print(f"{len(rows)} of {len(processes)} runs ended in {time.monotonic() - began:.0f} s")
    if "OUT" in os.environ:
        write(processes, rows)
    elif rows and not chosen.steps:
        store(rows)
    return any(codes)


if __name__ == "__main__":
    main()
