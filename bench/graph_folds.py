"""The ten folds of a recipe on graphs; their mean accuracy goes to `results/training.json`.

PYTHONPATH=src:bench python3 bench/graph_folds.py mutag-gin --data DATA --out RUNS [--seed 2]

The fold is the validation part. As in the paper of GIN, the figure is the mean over the folds at
the one evaluation, the same for all, at which it is highest; that of the last step, of which
nothing is chosen, is beside it. Folds that ended are not run again.
"""

import argparse
import json
import pathlib

from measure import commit, machine
from training import RECIPES, store

from edgewise import training

FOLDS = range(1, 11)


def accuracies(name, fold, seed, data, out):
    """The accuracy on a fold at every evaluation, in percent."""
    if not (out / "summary.json").is_file():
        settings = [f"data.fold={fold}", f"training.seed={seed}"]
        recipe = training.load(RECIPES / f"{name}.toml", settings)
        for event in training.train(recipe, out, data=data):
            if event.kind == "end":
                print(name, fold, event.values["test accuracy"], flush=True)
    summary = json.loads((out / "summary.json").read_text())
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    found = {r["step"]: 100 * r["validation accuracy"] for r in lines if "validation accuracy" in r}
    return found, summary


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs"))
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    name, seed = chosen.recipe, chosen.seed
    found = [
        accuracies(name, fold, seed, chosen.data, chosen.out / f"{name}-{seed}-{fold}")
        for fold in FOLDS
    ]
    curves, where, summary = [curve for curve, _ in found], machine(), found[0][1]
    means = {step: sum(curve[step] for curve in curves) / len(curves) for step in curves[0]}
    best = max(means, key=means.get)
    store([{
        "recipe": chosen.recipe,
        "seed": seed,
        "weights": summary["parameters"],
        "metric": "accuracy, mean of ten folds at the evaluation with the highest mean, %",
        "value": round(means[best], 1),
        "best_step": best,
        "evaluations": len(means),
        "each": [round(curve[best], 1) for curve in curves],
        "last": round(means[max(means)], 1),
        "published": None,
        "hardware": where["hardware"],
        "torch": str(where["torch"]).partition("+")[0],
        "commit": commit(),
        "command": f"python3 bench/graph_folds.py {chosen.recipe} --data DATA --out RUNS "
        + f"--seed {seed}  # recipes/{chosen.recipe}.toml",
        "steps": summary["steps"],
    }])  # fmt: skip


if __name__ == "__main__":
    main()
