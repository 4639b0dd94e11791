"""`edgewise generate`: the continuation of a prompt."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.checkpoint import (
    Device,
    File,
    Json,
    Model,
    NoTexts,
    json_line,
    note_unknown,
    opened,
    read_texts,
)
from edgewise.errors import caller

if TYPE_CHECKING:
    from edgewise.zoo.pretrained import Pretrained

BEGINS = ("bos_token_id", "eos_token_id")  # what a text begins with, or follows


def generate(
    model: Model,
    prompts: Annotated[
        list[str] | None, typer.Argument(help="prompts; without one, the beginning of a text")
    ] = None,
    file: File = None,
    most: Annotated[int, typer.Option(help="maximum number of new tokens")] = 100,
    temperature: Annotated[
        float | None, typer.Option(help="sampling temperature; greedy decoding by default and at 0")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="sample from the k most likely tokens")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="sample from the smallest set of tokens of this total probability"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="seed of sampling")] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Continue texts with a decoder, token after token."""
    texts = read_texts(prompts or [], file) if prompts or file else []
    found = opened(model, device)
    how: dict[str, Any] = {"most": most, "temperature": temperature, "seed": seed}
    how |= {"top_k": top_k, "top_p": top_p}
    for prompt, shown in [(text, text) for text in texts] or [(_start(found), "")]:
        if as_json:
            typer.echo(json_line(prompt=shown, text=found.generate(prompt, **how)))
        else:
            _stream(found, prompt, shown, how)
    note_unknown(found, texts)


def _stream(model: "Pretrained", prompt: str, shown: str, how: dict[str, Any]) -> None:
    begun = [shown]  # printed with the first token, since errors come before it

    def show(piece: str) -> None:
        typer.echo("".join(begun) + piece, nl=False)
        begun.clear()

    model.generate(prompt, **how, each=show)
    typer.echo("".join(begun))


def _start(model: "Pretrained") -> str:
    """What the tokenizer reads as the beginning of a text: a special token, or a line break."""
    if model.tokenizer is not None:
        for name in BEGINS:
            token = model.table.get(name)
            text = model.tokenizer.id_to_token(token) if isinstance(token, int) else None
            if text is not None and model.tokenizer.encode(text).ids[-1:] == [token]:
                return str(text)
        if model.tokenizer.token_to_id("\n") is not None:
            return "\n"
    raise NoTexts("no prompt", caller(), 'write one: "a text", or --file FILE')
