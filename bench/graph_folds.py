"""The ten folds of a recipe on graphs; their mean accuracy goes to `results/training.json`.

PYTHONPATH=src:bench python3 bench/graph_folds.py mutag-gin --data DATA --out RUNS

The fold is the validation part, of which nothing is chosen: the figure is that of the last step.
Folds that ended are not run again.
"""

import argparse
import json
import pathlib

from measure import commit, machine
from training import RECIPES, store

from edgewise import training

FOLDS = range(1, 11)


def accuracy(name, fold, data, out):
    """The accuracy on a fold after the last step, in percent."""
    if not (out / "summary.json").is_file():
        recipe = training.load(RECIPES / f"{name}.toml", [f"data.fold={fold}"])
        for event in training.train(recipe, out, data=data):
            if event.kind == "end":
                print(name, fold, event.values["test accuracy"], flush=True)
    summary = json.loads((out / "summary.json").read_text())
    return 100 * summary["test accuracy"], summary


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs"))
    chosen = parser.parse_args()
    found = [
        accuracy(chosen.recipe, fold, chosen.data, chosen.out / f"{chosen.recipe}-{fold}")
        for fold in FOLDS
    ]
    each, where, summary = [value for value, _ in found], machine(), found[0][1]
    store([{
        "recipe": chosen.recipe,
        "seed": 1,
        "weights": summary["parameters"],
        "metric": "accuracy, mean of ten folds at the last step, %",
        "value": round(sum(each) / len(each), 1),
        "each": [round(value, 1) for value in each],
        "published": None,
        "hardware": where["hardware"],
        "torch": str(where["torch"]).partition("+")[0],
        "commit": commit(),
        "command": f"python3 bench/graph_folds.py {chosen.recipe} --data DATA --out RUNS  # "
        f"recipes/{chosen.recipe}.toml",
        "steps": summary["steps"],
    }])  # fmt: skip


if __name__ == "__main__":
    main()
