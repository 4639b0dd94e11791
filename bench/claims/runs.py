"""Runs of recipes for claims: training, sweeps over variants and seeds, a text for each size."""

import atexit
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from claims.claim import ROOT, Row

from edgewise import training
from edgewise.training.errors import Diverged
from edgewise.training.recipe import Recipe

RECIPES = ROOT / "recipes"
SHARE = 300_000  # characters of the text of small runs


def data_folder() -> Path:
    """Where the data sets are: `--data`, or EDGEWISE_DATA."""
    found = os.environ.get("EDGEWISE_DATA")
    if not found:
        raise SystemExit("give the folder of the data sets: --data DATA")
    return Path(found)


def made_folder(files: dict[str, bytes]) -> Path:
    """A folder with these files, which is removed at the end."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def text_folder(size: str) -> Path:
    """A folder with `tinyshakespeare.txt`: all of it, its beginning, or for tests made-up lines."""
    name = "tinyshakespeare.txt"
    if size == "full":
        return data_folder() / "text"
    if size == "small":
        return made_folder({name: (data_folder() / "text" / name).read_bytes()[:SHARE]})
    words, draws = ["to be", "or not", "the king", "my lord", "speaks"], random.Random(0)
    return made_folder({name: " ".join(draws.choice(words) for _ in range(600)).encode()})


def trained(
    recipe: str | Recipe,
    settings: Sequence[str] = (),
    *,
    data: Path | None = None,
    finish: bool = False,
    use: Callable[[Path], Row] | None = None,
    seen: Callable[[Row], None] | None = None,
) -> Row:
    """Train a recipe, by its name, with settings: its summary, or that of its last evaluation.

    `curve` has the losses of all evaluations, `pairs` those that attend in one text. A run whose
    loss is not finite has `diverged` and no loss. With `finish` the test part is measured too;
    `use` is called with the folder of the run, before it is removed, `seen` with each evaluation.
    """
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    if isinstance(recipe, str):
        recipe = training.load(RECIPES / f"{recipe}.toml", settings)
    found: Row = {"diverged": False, "curve": []}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        try:
            for event in training.train(recipe, out, data=data or data_folder()):
                last = event.step == recipe.training.steps
                if event.kind == "evaluate":
                    found |= event.values
                    found["curve"].append((event.step, event.values["validation loss"]))
                    if seen:
                        seen({"step": event.step, **event.values})
                if event.kind == "end" or (event.kind == "checkpoint" and last and not finish):
                    found |= event.values
                    break
        except Diverged:
            found["diverged"] = True
        found |= json.loads((out / "cost.json").read_text())
        found |= use(out) if use else {}
    return found


def sweep(
    variants: dict[str, Sequence[str]],
    recipe: str,
    settings: Sequence[str],
    seeds: Sequence[int],
    data: Path,
) -> list[Row]:
    """A row for each variant of a recipe and each seed: its last validation loss and its curve."""
    rows = []
    for name, changed in variants.items():
        for seed in seeds:
            run = trained(recipe, [*settings, *changed, f"training.seed={seed}"], data=data)
            kept = {"variant": name, "seed": seed, "diverged": run["diverged"]}
            kept |= {key: run[key] for key in ("parameters", "pairs")}
            kept |= {k.removeprefix("validation "): v for k, v in run.items() if "validation" in k}
            rows.append(kept | {"curve": run["curve"]})
            print(f"{name}, seed {seed}: {kept}", flush=True)
    return rows


def short(steps: int, warmup: int = 0) -> list[str]:
    """Settings of a run that is measured once, at its end."""
    often = [f"training.{key}={steps}" for key in ("steps", "evaluate", "checkpoint")]
    return [*often, f"training.warmup={warmup}"]
