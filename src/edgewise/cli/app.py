"""All verbs of the command."""

import typer

from edgewise.cli.embed import embed
from edgewise.cli.generate import generate
from edgewise.cli.graph import graph
from edgewise.cli.models import models
from edgewise.cli.search import search
from edgewise.cli.train import train
from edgewise.cli.translate import translate

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True,
    help="Networks over structured data as a few weighted rules.",
)  # fmt: skip
app.command()(graph)
app.command()(models)
app.command()(embed)
app.command()(search)
app.command()(generate)
app.command()(translate)
app.command()(train)


@app.callback()
def verbs() -> None:
    """Networks over structured data as a few weighted rules."""
