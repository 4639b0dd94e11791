"""`edgewise predict`: what a run on graphs or triples predicts."""

from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from edgewise.cli.checkpoint import Device, Json, check_device, json_line

Run = Annotated[Path, typer.Argument(help="the folder of a run on graphs", show_default=False)]
Data = Annotated[
    Path | None,
    typer.Option(help="the folder that its data is in; by default where it was in training"),
]


def predict(
    run: Run,
    data: Data = None,
    part: Annotated[
        str, typer.Option(help="train, validation, test, unlabelled, all; of links also new")
    ] = "test",
    most: Annotated[int | None, typer.Option(min=1, help="print at most this many")] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Print the prediction of a run for every example of a part of its data."""
    from edgewise.training import predict as predictions

    check_device(device)
    found = predictions(run, data=data, part=part, device=device or "cpu")
    for row in islice(found, most):
        typer.echo(json_line(**row) if as_json else "  ".join(_shown(row)))


def _shown(row: dict[str, Any]) -> list[str]:
    """The name of an example, then what is predicted for it."""
    if "rank" in row:
        best, share = next(iter(row["best"].items()))
        query = [str(row[key]) for key in ("example", "head", "relation", "answer")]
        return [*query, f"rank {row['rank']:g}", f"best {best} {share:.3f}"]
    name = row["name"]
    names = [name] if isinstance(name, str) else list(name)
    if "values" in row:
        pointers = all(isinstance(value, int) for value in row["values"])
        return [*names, *(str(v) if pointers else f"{v:.4f}" for v in row["values"])]
    if "probability" in row:
        return [*names, f"{row['probability']:.3f}"]
    if isinstance(row["label"], list):
        return [*names, ", ".join(row["label"]) or "-"]
    return [*names, row["label"], f"{row['probabilities'][row['label']]:.3f}"]
