"""`edgewise export`: a model in the formats of others."""

from pathlib import Path
from typing import Annotated

import typer

SUFFIXES = {"gguf": ".gguf", "onnx": ".onnx"}


def export(
    model: Annotated[Path, typer.Argument(help="the folder of a run or of a checkpoint")],
    to: Annotated[
        str,
        typer.Option(
            help="hf: a folder for transformers; safetensors: weights, rules and tokenizer; "
            "gguf; onnx"
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="where to write it; by default beside the model")
    ] = None,
) -> None:
    """Write a model for transformers, llama.cpp or ONNX, or as safetensors with its rules."""
    from edgewise.training.runs.exporting import export as write

    base = model.absolute()
    place = out or base.with_name(base.name + SUFFIXES.get(to, f"-{to}"))
    typer.echo(f"{place}: {write(model, to, place)}")
