"""What a run logs: `metrics.jsonl` and `metrics.csv`, the loss curve, events of TensorBoard."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from edgewise.graphs.drawing import require_package
from edgewise.save.archive import write
from edgewise.training.runs.folder import Metrics, plot, rows

LINES, TABLE, EVENTS = "metrics.jsonl", "metrics.csv", "tensorboard"


class Logs:
    """Rows of numbers with a step each; a run resumed at `step` drops later ones."""

    def __init__(self, out: Path, step: int, *, tensorboard: bool) -> None:
        self.out, self.metrics = out, Metrics(out / LINES, step)
        self._board: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(out / EVENTS), purge_step=step + 1)

    def add(self, step: int, values: dict[str, float]) -> None:
        self.metrics.add(step=step, **values)
        for name, value in values.items() if self._board else ():
            self._board.add_scalar(name.replace(" ", "/"), value, step)

    def rows(self) -> list[dict[str, Any]]:
        return rows(self.metrics.path)

    def sync(self) -> None:
        """What was logged is on the disk after this."""
        self.metrics.sync()
        if self._board:
            self._board.flush()

    def tables(self, title: str) -> None:
        """Write the table and the loss curve."""
        found = self.rows()
        write(self.out / TABLE, _csv(found))
        for kind in ("png", "svg"):
            write(self.out / f"loss.{kind}", plot(found, title, kind))

    def close(self) -> None:
        self.metrics.close()
        if self._board:
            self._board.close()


def require(tensorboard: bool) -> None:
    """Refuse a run whose logs cannot be written, before it starts."""
    require_package("matplotlib")
    if tensorboard:
        require_package("tensorboard")


def _csv(found: list[dict[str, Any]]) -> bytes:
    """A line for each step; a field is empty where nothing was measured."""
    steps: dict[int, dict[str, Any]] = {}
    for row in found:
        steps.setdefault(row["step"], {}).update(row)
    names = list(dict.fromkeys(name for row in found for name in row))
    file = io.StringIO()
    table = csv.DictWriter(file, names, lineterminator="\n")
    table.writeheader()
    table.writerows(steps.values())
    return file.getvalue().encode()
