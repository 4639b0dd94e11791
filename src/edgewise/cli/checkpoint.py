"""What the verbs that run a checkpoint share: opening it, and reading texts."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from edgewise.errors import EdgewiseError, Span, caller
from edgewise.zoo.pretrained import Pretrained, cached, from_pretrained
from edgewise.zoo.pretrained.fetch import SOURCES, fetch


class NoTexts(EdgewiseError):
    """A command that reads texts needs one: as an argument, or in a file, one per line."""

    code = "no-texts"
    example = """\
from edgewise.cli.checkpoint import read_texts
read_texts([], None)"""
    instead = """\
from edgewise.cli.checkpoint import read_texts
read_texts(["a text"], None)"""


Model = Annotated[str, typer.Argument(help="a folder, or a name that `edgewise models` lists")]
File = Annotated[Path | None, typer.Option(help="a file with one text per line")]
Truncate = Annotated[bool, typer.Option("--truncate", help="truncate texts that are too long")]


def opened(model: str) -> Pretrained:
    """The model of a folder or file, or of a known name, which is downloaded once."""
    if Path(model).exists() or model not in SOURCES:
        return from_pretrained(Path(model))
    if cached(model) is None:
        size = SOURCES[model].megabytes
        with Console(stderr=True).status(f"fetching {model}, {size} MB"):
            fetch(model)
    return from_pretrained(fetch(model))


def read_texts(texts: list[str], file: Path | None) -> list[str]:
    """The texts of the command line and of a file, one per line."""
    found = list(texts)
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
            raise NoTexts(
                f"cannot read the file: {reason}",
                Span.of("<file>", file),
                "give a text file with one text per line",
            ) from None
        found += [line for line in lines if line.strip()]
    if not found:
        raise NoTexts("no texts", caller(), 'write one: "a text", or --file FILE')
    return found
