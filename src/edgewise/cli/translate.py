"""`edgewise translate`: texts through an encoder–decoder."""

from typing import Annotated, Any

import typer

from edgewise.cli.checkpoint import (
    Device,
    File,
    Json,
    Model,
    Texts,
    Truncate,
    json_line,
    note_unknown,
    opened,
    read_texts,
)


def translate(
    model: Model,
    texts: Texts = None,
    file: File = None,
    most: Annotated[int | None, typer.Option(help="maximum number of new tokens")] = None,
    beams: Annotated[
        int | None, typer.Option(help="beam size; by default that of the recipe, or 4")
    ] = None,
    truncate: Truncate = False,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Translate texts with an encoder–decoder, by beam search; blank lines stay blank."""
    every = read_texts(texts or [], file, blank=True)
    found = opened(model, device)
    options = {"most": most, "beams": beams}
    how: Any = {name: value for name, value in options.items() if value is not None}
    texts = [text for text in every if text.strip()]
    written = iter(found.translate(texts, truncate=truncate, **how))
    for text in every:
        line = next(written) if text.strip() else ""
        typer.echo(json_line(text=text, translation=line) if as_json else line)
    note_unknown(found, every)
