"""`edgewise compare`: runs side by side."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.checkpoint import note
from edgewise.cli.files import check_out, put_file
from edgewise.cli.train import amount

if TYPE_CHECKING:
    from rich.table import Table

PICTURES = (".png", ".svg")
# settings that change what a loss measures
MEASURED = {
    *("data.kind", "data.path", "data.tokenizer", "objective.kind", "objective.smoothing"),
}


class By(StrEnum):
    steps = "steps"
    flops = "flops"


def compare(
    runs: Annotated[list[Path], typer.Argument(help="folders of runs")],
    by: Annotated[
        By, typer.Option(help="compare losses at equal steps, or equal FLOPs")
    ] = By.steps,
    plot: Annotated[
        Path | None, typer.Option(help="write the loss curves to this PNG or SVG file")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Compare runs: settings that differ, losses, measures and cost."""
    from rich.console import Console

    from edgewise.graphs.drawing import require_package
    from edgewise.training.comparison import compared, differing, picture, read_record

    if plot is not None:
        require_package("matplotlib")
        check_out(plot, PICTURES)
    records = [read_record(path) for path in runs]
    rows, names = compared(records, by.value), differing(records)
    if other := [f"`{name}`" for name in names if name in MEASURED]:
        note(f"the runs differ in {', '.join(other)}: their losses may not be comparable")
    if plot is not None:
        put_file(plot, picture(records, by.value, plot.suffix[1:]))
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    console = Console(highlight=False)
    console.print(table_of(rows, names, by.value))
    if plot is not None:
        console.print(f"the loss curves are in {plot}", soft_wrap=True)


def table_of(rows: list[dict[str, Any]], settings: list[str], by: str) -> "Table":
    """A column for each run, so that many settings and measures fit."""
    from rich.table import Table

    at = f"validation loss at {by}"
    end = rows[0][at]
    table = Table(title=f"losses at {_shown(by, end)} {'steps' if by == 'steps' else 'FLOPs'}")
    table.add_column("")
    for row in rows:
        table.add_column(Path(row["run"]).name, justify="right", overflow="fold")
    names = dict.fromkeys(name for row in rows for name in row if name not in ("run", at))
    for name in names:
        style = "bold" if name in settings else None
        cells = [_shown(name, row.get(name)) for row in rows]
        table.add_row(name, *cells, style=style)
    return table


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name in ("FLOPs", "flops"):
        return amount(value).strip()
    if isinstance(value, float):
        return f"{value:.4g}" if name != "seconds" else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
