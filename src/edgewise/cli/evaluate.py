"""`edgewise evaluate`: how good a model is."""

from pathlib import Path
from typing import Annotated

import typer

from edgewise.cli.checkpoint import Device, Json, Model, json_line, opened
from edgewise.errors import Span


def evaluate(
    model: Model,
    data: Annotated[
        Path | None,
        typer.Option(help="the folder that its data is in; by default where it was in training"),
    ] = None,
    part: Annotated[str, typer.Option(help="validation or test")] = "validation",
    file: Annotated[
        Path | None,
        typer.Option(help="a file to measure on: text, JSON lines, CSV, Parquet or CoNLL-U"),
    ] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Measure a model on the data of its recipe, or on a file."""
    from edgewise.training.errors import BadRun
    from edgewise.training.evaluation import on_file, on_recipe
    from edgewise.training.runs.run import Run

    found = opened(model, device)
    if file is not None:
        means = on_file(found, file, Path(model))
    elif isinstance(found, Run):
        means = on_recipe(found, Path(model), data, part)
    else:
        raise BadRun(
            "a checkpoint has no recipe that names its data",
            Span.of("<model>", model),
            "give `--file FILE`",
        )
    if as_json:
        typer.echo(json_line(**means))
        return
    for name, value in means.items():
        typer.echo(f"{name}: {value:.4f}")
