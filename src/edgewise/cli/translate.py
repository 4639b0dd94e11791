"""`edgewise translate`: one text becomes another."""

from typing import Annotated

import typer

from edgewise.cli.checkpoint import opened


def translate(
    model: Annotated[str, typer.Argument(help="the folder of an encoder–decoder, such as T5")],
    texts: Annotated[list[str], typer.Argument(help="what to translate")],
    most: Annotated[int, typer.Option(help="how many tokens at most")] = 128,
    beams: Annotated[int, typer.Option(help="how many rows are followed side by side")] = 4,
) -> None:
    """Translate texts with an encoder–decoder, by beam search."""
    for line in opened(model).translate(texts, most=most, beams=beams):
        typer.echo(line)
