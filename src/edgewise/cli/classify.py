"""`edgewise classify`: the classes of texts."""

from typing import Annotated, Any

import typer

from edgewise.cli.checkpoint import (
    Batch,
    Device,
    File,
    Json,
    Model,
    Truncate,
    json_line,
    note_unknown,
    opened,
    read_texts,
)


def classify(
    model: Model,
    texts: Annotated[
        list[str] | None, typer.Argument(help="texts; a pair of texts has a tab between them")
    ] = None,
    file: File = None,
    top: Annotated[int, typer.Option(help="how many classes to show")] = 1,
    batch: Batch = 32,
    truncate: Truncate = False,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Print the most likely class of each text and its probability."""
    from edgewise.graphs.checks import integer

    count = integer(top, "top", 1)
    every = read_texts(texts or [], file)
    found = opened(model, device)
    pairs, is_run = found.table.get("texts") == 2, hasattr(found, "task")
    rows: list[Any] = [
        tuple(text.split("\t")) if pairs or ("\t" in text and not is_run) else text
        for text in every
    ]
    for text, shares in zip(
        every, found.classify(rows, batch=batch, truncate=truncate), strict=True
    ):
        if as_json:
            typer.echo(json_line(text=text, label=next(iter(shares)), probabilities=shares))
        else:
            best = list(shares.items())[:count]
            typer.echo("  ".join([*(f"{label} {share:.3f}" for label, share in best), text]))
    note_unknown(found, every)
