"""Runs side by side: what their recipes differ in, what they reached, what it cost.

>>> at_most([(10, 3.0), (20, 2.0), (30, 2.5)], 25)
2.0
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from edgewise.training.cost import COST
from edgewise.training.recipe import load
from edgewise.training.runs import folder, model_files
from edgewise.training.runs.folder import Points, plot_curves
from edgewise.training.runs.logs import LINES

UNMEASURED = ("recipe", "step", "steps", "parameters")


@dataclass(frozen=True, eq=False)
class RunRecord:
    """What the folder of a run says, also of one that has not ended."""

    path: Path
    settings: dict[str, Any]  # by `section.key`
    rows: list[dict[str, Any]]
    cost: dict[str, Any]
    summary: dict[str, Any]

    @property
    def steps(self) -> int:
        return max((row["step"] for row in self.rows), default=0)

    @property
    def seconds(self) -> float:
        """The time of the steps that were logged, evaluation not included."""
        times = [(row["step"], row["seconds"]) for row in self.rows if "seconds" in row]
        steps = [0, *(step for step, _ in times)]
        return sum((b - a) * t for a, b, (_, t) in zip(steps, steps[1:], times, strict=False))

    @property
    def flops(self) -> float | None:
        """Of all steps so far; None in runs that did not record it."""
        each = self.cost.get("step_flops")
        return None if each is None else self.steps * each

    @cached_property
    def measures(self) -> dict[str, float]:
        """What was measured last: the test part if the run has ended, otherwise the validation."""
        found = {k: v for row in self.rows for k, v in row.items() if k.startswith("validation ")}
        found |= {k: v for k, v in self.summary.items() if k not in UNMEASURED}
        return {k: v for k, v in found.items() if isinstance(v, int | float)}

    def losses(self, by: str = "steps") -> Points:
        """The validation loss against steps or FLOPs."""
        scale = self.cost.get("step_flops") if by == "flops" else 1
        if scale is None:
            return []
        rows = [row for row in self.rows if "validation loss" in row]
        return [(row["step"] * scale, row["validation loss"]) for row in rows]


def read_record(path: str | Path) -> RunRecord:
    """The record of a run's folder."""
    path = Path(path)
    if not all((path / name).is_file() for name in (folder.RECIPE, model_files.CONFIG)):
        help = "give the folder that `edgewise train` wrote"
        raise model_files.bad(path, "this is not the folder of a run", help)
    sections = load(path / folder.RECIPE).json()
    settings = {
        f"{s}.{key}": value for s, table in sections.items() for key, value in table.items()
    }
    return RunRecord(
        path,
        settings,
        folder.rows(path / LINES),
        _json(path, COST),
        _json(path, "summary.json"),
    )


def _json(path: Path, name: str) -> dict[str, Any]:
    """The table in a file; empty if there is none yet."""
    if not (path / name).is_file():
        return {}
    try:
        return dict(json.loads((path / name).read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise model_files.bad(
            path, f"`{name}` is truncated or corrupt", model_files.AGAIN
        ) from None


def differing(runs: Sequence[RunRecord]) -> list[str]:
    """The settings in which runs differ."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [n for n in names if len({json.dumps(run.settings.get(n)) for run in runs}) > 1]


def compared(runs: Sequence[RunRecord], by: str = "steps") -> list[dict[str, Any]]:
    """A row for each run; losses are taken where the shortest run is, in steps or in FLOPs."""
    ends = [curve[-1][0] for run in runs if (curve := run.losses(by))]
    end = min(ends, default=0)
    names = differing(runs)
    return [
        {
            "run": str(run.path),
            **{name: run.settings.get(name) for name in names},
            "parameters": run.cost.get("parameters", run.summary.get("parameters")),
            "steps": run.steps,
            f"validation loss at {by}": end,
            "validation loss": at_most(run.losses(by), end),
            "best validation loss": min((loss for _, loss in run.losses()), default=None),
            **{k: v for k, v in run.measures.items() if not k.endswith("validation loss")},
            "pairs": run.cost.get("pairs"),
            "FLOPs": run.flops,
            "seconds": run.seconds,
        }
        for run in runs
    ]


def at_most(points: Points, end: float) -> float | None:
    """The value at the last point that is not beyond `end`."""
    before = [value for x, value in points if x <= end * (1 + 1e-9)]
    return before[-1] if before else None


def picture(runs: Sequence[RunRecord], by: str = "steps", kind: str = "png") -> bytes:
    """The validation losses of all runs, as a PNG or an SVG."""
    curves = [(run.path.name, run.losses(by)) for run in runs]
    across = "step" if by == "steps" else "FLOPs"
    return plot_curves(curves, kind, xlabel=across, ylabel="validation loss")
