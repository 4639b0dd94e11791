"""`edgewise push`: a folder for the hub, with a card."""

from pathlib import Path
from typing import Annotated

import typer


def push(
    run: Annotated[Path, typer.Argument(help="the folder of a run")],
    to: Annotated[Path, typer.Option(help="the folder to write")],
    name: Annotated[
        str | None, typer.Option(help="the name on the hub, such as user/model, for the card")
    ] = None,
) -> None:
    """Prepare a folder for the hub: the model, its card and what was measured; nothing is sent."""
    from edgewise.training.runs.exporting import push as prepare

    typer.echo(f"{to}: {prepare(run, to, name=name)}")
    typer.echo(f"upload it: hf upload {name or 'USER/MODEL'} {to}")
