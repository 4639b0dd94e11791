"""`edgewise generate`: the continuation of a prompt."""

from typing import Annotated

import typer

from edgewise.cli.checkpoint import opened


def generate(
    model: Annotated[
        str, typer.Argument(help="a folder, a GGUF file, or a name that `edgewise models` lists")
    ],
    prompt: Annotated[str, typer.Argument(help="the prompt")],
    most: Annotated[int, typer.Option(help="maximum number of new tokens")] = 100,
    temperature: Annotated[
        float | None, typer.Option(help="sampling temperature; greedy decoding by default")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="sample from the k most likely tokens")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="sample from the smallest set of tokens of this total probability"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="seed of sampling")] = None,
) -> None:
    """Continue a text with a decoder, token after token."""
    found = opened(model)
    begun = [prompt]  # printed with the first token, since errors come before it

    def show(piece: str) -> None:
        typer.echo("".join(begun) + piece, nl=False)
        begun.clear()

    found.generate(
        prompt, most=most, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, each=show
    )
    typer.echo("".join(begun))
