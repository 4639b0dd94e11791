"""`edgewise generate`: a text that goes on."""

from typing import Annotated

import typer

from edgewise.cli.checkpoint import opened


def generate(
    model: Annotated[str, typer.Argument(help="a folder, a GGUF file, or a name of `models`")],
    prompt: Annotated[str, typer.Argument(help="how the text begins")],
    most: Annotated[int, typer.Option(help="how many tokens at most")] = 100,
    temperature: Annotated[float | None, typer.Option(help="draw; else the likeliest")] = None,
    top_k: Annotated[int | None, typer.Option(help="draw from the k likeliest")] = None,
    top_p: Annotated[float | None, typer.Option(help="draw from this share")] = None,
    seed: Annotated[int | None, typer.Option(help="the same draws again")] = None,
) -> None:
    """Continue a text with a decoder, token after token."""
    found = opened(model)
    begun = [prompt]  # shown with the first token: before it something may be refused

    def show(piece: str) -> None:
        typer.echo("".join(begun) + piece, nl=False)
        begun.clear()

    found.generate(
        prompt,
        most=most,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        each=show,
    )
    typer.echo("".join(begun))
