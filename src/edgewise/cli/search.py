"""`edgewise search`: the texts of a file nearest in meaning to a query."""

import json
from pathlib import Path
from typing import Annotated

import typer

from edgewise.cli.checkpoint import Device, Model, Truncate, opened, read_texts


def search(
    model: Model,
    query: Annotated[str, typer.Argument(help="what to look for")],
    file: Annotated[Path, typer.Option(help="a file with one text per line")],
    top: Annotated[int, typer.Option(help="how many to show")] = 5,
    truncate: Truncate = False,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Find the lines of a file nearest in meaning to a query, with their cosine similarity."""
    from edgewise.graphs.checks import integer

    count = integer(top, "top", 1)
    texts = read_texts([], file)
    vectors = opened(model, device).embed([query, *texts], truncate=truncate)
    near = vectors[1:] @ vectors[0]
    best = near.topk(min(count, len(texts)))
    pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    found = [{"cosine": round(value, 4), "text": texts[k]} for value, k in pairs]
    if as_json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    for one in found:
        print(f"{one['cosine']:.3f}  {one['text']}")
