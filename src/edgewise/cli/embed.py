"""`edgewise embed`: texts as vectors, by a checkpoint."""

import json
from io import BytesIO
from pathlib import Path
from typing import Annotated

import typer

from edgewise.cli.checkpoint import (
    Batch,
    Device,
    File,
    Json,
    Model,
    Texts,
    Truncate,
    opened,
    read_texts,
)
from edgewise.cli.files import check_out, put_file

FORMATS = (".json", ".npy")


def embed(
    model: Model,
    texts: Texts = None,
    file: File = None,
    out: Annotated[Path | None, typer.Option(help="write the vectors: .json or .npy")] = None,
    batch: Batch = 32,
    truncate: Truncate = False,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Embed texts as vectors of unit length: JSON, one object per line, or a file."""
    if out is not None:
        check_out(out, FORMATS)
    rows = read_texts(texts or [], file)
    vectors = opened(model, device).embed(rows, batch=batch, truncate=truncate)
    if out is not None and out.suffix == ".npy":
        import numpy as np

        data = BytesIO()
        np.save(data, vectors.numpy())
        put_file(out, data.getvalue())
        return
    shown = [
        {"text": text, "vector": [round(x, 6) for x in v.tolist()]}
        for text, v in zip(rows, vectors, strict=True)
    ]
    lines = "\n".join(json.dumps(one, ensure_ascii=False) for one in shown)
    if out is None:
        print(lines)
    else:
        put_file(out, (lines + "\n").encode())
