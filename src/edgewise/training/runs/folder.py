"""The folder of a run: one run and one process at a time, its metrics and its loss curve.

A run is a model. Its folder holds, each file written atomically:

- `recipe.toml`: the recipe with all its defaults, so that `edgewise train RUN/recipe.toml
  --data FOLDER` repeats the run;
- `config.json`: `model_type` "edgewise"; `task`, the verb that fits (generate, translate, classify,
  embed); the sections `model` and `objective` of the recipe; `sizes`, what `build` reads of a
  corpus; `tokens`, special token ids by name; `texts`, 2 for pairs of texts; `labels` of classes;
  `program`, the options that the rules were compiled with; `files`, the hashes of the next two;
- `rules.txt`: the program in its text form; it defines the model;
- `tokenizer.json`: of the package `tokenizers`; absent where the data is not text;
- `model.safetensors`: the weights to use by their names in the rules, the best ones or the last,
  with their step and their hash in the header; written with the first checkpoint and again
  whenever there are better or later ones;
- `README.md`: the model card;
- `best.safetensors`: the best weights, where `model.safetensors` has the last ones;
- `cost.json`: weights, FLOPs of a step and pairs of attention, which `edgewise compare` reads;
- `metrics.jsonl`, `metrics.csv`, `loss.png`, `loss.svg`, `tensorboard/`, `summary.json`: what was
  measured;
- `local.json`: the folder of the data on this machine, so that `edgewise evaluate RUN` finds it;
- `checkpoints/`: what resuming needs; nothing else reads it.

The first two groups are written by `training/runs/model_files.py`, before the first step.
`edgewise.load(RUN)` and `zoo.from_pretrained(RUN)` read `config.json`, `rules.txt`,
`tokenizer.json` and `model.safetensors` only, so a folder of these four can be shared.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from edgewise.errors import Span
from edgewise.save.archive import write
from edgewise.training.errors import BadRun, RunExists

try:
    import fcntl
except ImportError:  # a system without it
    fcntl = None  # type: ignore[assignment]

RECIPE, LOCAL = "recipe.toml", "local.json"


def check(folder: Path, resume: bool) -> None:
    """Refuse a folder with other files, and one with a run unless it is resumed."""
    if not folder.is_dir() or all(p.name.startswith(".") for p in folder.iterdir()):
        return
    if not (folder / RECIPE).is_file():
        raise _exists("the folder holds files of something else", folder, "choose another")
    if not resume:
        raise _exists(
            "the folder is not empty", folder, "choose another, or leave out `--no-resume`"
        )


def data_folder(recipe: Path, chosen: str | Path | None) -> Path:
    """The folder that the data of a recipe is in.

    The one that is chosen (`--data`); else, for the recipe in the folder of a run, the one that the
    run was trained with; else that of the recipe.
    """
    if chosen is not None:
        return Path(chosen)
    try:
        return Path(json.loads((recipe.parent / LOCAL).read_text(encoding="utf-8"))["data"])
    except FileNotFoundError:
        return recipe.parent
    except (OSError, ValueError, KeyError, TypeError):
        what = f"`{LOCAL}` does not say where the data is: truncated or corrupt"
        raise BadRun(what, Span.of("<run>", recipe.parent), "give `--data FOLDER`") from None


def write_data_folder(out: Path, data: Path) -> None:
    write(out / LOCAL, (json.dumps({"data": str(data.absolute())}) + "\n").encode())


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; a killed process releases it."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _exists("another run is writing here", folder, "wait until it ends") from None
        yield
    finally:
        os.close(handle)


def _exists(what: str, folder: Path, help: str) -> RunExists:
    return RunExists(what, Span.of("<out>", folder), help)


class Metrics:
    """`metrics.jsonl` of a run; a run resumed at `step` drops later lines."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        earlier = [row for row in rows(path) if row["step"] <= step]
        write(path, "".join(json.dumps(row) + "\n" for row in earlier).encode())
        self._file: TextIO = path.open("a", encoding="utf-8")

    def add(self, **row: Any) -> None:
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def rows(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a file; a killed run can leave the last one truncated."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            break
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            break
        found.append(row)
    return found


Points = list[tuple[float, float]]


def plot(found: list[dict[str, Any]], title: str, kind: str = "png") -> bytes:
    """The loss over the steps, in training and validation, as a PNG or an SVG."""
    names = {"training": "loss", "validation": "validation loss"}
    curves = [
        (label, [(row["step"], row[name]) for row in found if name in row])
        for label, name in names.items()
    ]
    return plot_curves(curves, kind, plain=("training",), ylabel="loss", xlabel="step", title=title)


def plot_curves(
    curves: Iterable[tuple[str, Points]], kind: str, *, plain: Sequence[str] = (), **labels: str
) -> bytes:
    """Curves by their names in a legend, as a PNG or an SVG; `plain` ones are without markers."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, points in curves:
        if points:
            style: Any = {"alpha": 0.7} if name in plain else {"marker": "o", "markersize": 3}
            axes.plot(*zip(*points, strict=True), label=name, **style)
    axes.set(**labels)
    if axes.lines:
        axes.legend()
    axes.grid(alpha=0.3)
    data = io.BytesIO()
    figure.savefig(data, format=kind)
    return data.getvalue()
