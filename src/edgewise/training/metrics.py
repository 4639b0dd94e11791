"""Measures of a run, a line of JSON each, and the curve that they draw."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any, TextIO

from edgewise.save.archive import write


class Metrics:
    """`metrics.jsonl` of a run. A run that goes on after `step` forgets what came later."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        kept = [row for row in rows(path) if row["step"] <= step]
        write(path, "".join(json.dumps(row) + "\n" for row in kept).encode())
        self._file: TextIO = path.open("a", encoding="utf-8")

    def add(self, **row: Any) -> None:
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def rows(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file; a kill can leave half of the last one."""
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


def plot(found: list[dict[str, Any]], title: str) -> bytes:
    """The loss over the steps, in training and validation, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, label in (("loss", "training"), ("validation loss", "validation")):
        points = [(row["step"], row[name]) for row in found if name in row]
        if points:
            marked = {"marker": "o", "markersize": 3} if label == "validation" else {"alpha": 0.7}
            axes.plot(*zip(*points, strict=True), label=label, **marked)
    axes.set(xlabel="step", ylabel="loss", title=title)
    axes.legend()
    axes.grid(alpha=0.3)
    data = io.BytesIO()
    figure.savefig(data, format="png")
    return data.getvalue()
