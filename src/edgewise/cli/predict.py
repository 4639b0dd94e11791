"""`edgewise predict`: what a run on graphs or triples predicts."""

from pathlib import Path
from typing import Annotated

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
    part: Annotated[str, typer.Option(help="train, validation, test or all")] = "test",
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Print the prediction of a run for every example of a part of its data."""
    from edgewise.training import predict as predictions

    check_device(device)
    for row in predictions(run, data=data, part=part, device=device or "cpu"):
        if as_json:
            typer.echo(json_line(**row))
        elif "rank" in row:
            query = f"{row['head']}  {row['relation']}  {row['answer']}"
            best, share = next(iter(row["best"].items()))
            typer.echo(f"{row['example']}  {query}  rank {row['rank']:g}  best {best} {share:.3f}")
        elif "values" in row:
            typer.echo("  ".join([f"{row['example']}", *(f"{v:.4f}" for v in row["values"])]))
        elif isinstance(row["label"], list):
            typer.echo("  ".join([f"{row['example']}", ", ".join(row["label"]) or "-"]))
        else:
            share = row["probabilities"][row["label"]]
            typer.echo(f"{row['example']}  {row['label']}  {share:.3f}")
