"""`edgewise translate`: texts through an encoder–decoder."""

from typing import Annotated

import typer

from edgewise.cli.checkpoint import opened


def translate(
    model: Annotated[str, typer.Argument(help="the folder of an encoder–decoder, such as T5")],
    texts: Annotated[list[str], typer.Argument(help="texts to translate")],
    most: Annotated[int, typer.Option(help="maximum number of new tokens")] = 128,
    beams: Annotated[int, typer.Option(help="beam size")] = 4,
) -> None:
    """Translate texts with an encoder–decoder, by beam search."""
    for line in opened(model).translate(texts, most=most, beams=beams):
        typer.echo(line)
