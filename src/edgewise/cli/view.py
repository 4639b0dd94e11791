"""`edgewise view`: attention of a model, or a pattern, as a page for a browser."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgewise.cli.checkpoint import Truncate, opened

if TYPE_CHECKING:
    from edgewise.graphs import Pattern
    from edgewise.zoo.pretrained import Pretrained


def view(
    model: Annotated[
        str,
        typer.Argument(
            help="the folder of a run or of a checkpoint, a GGUF file, a name that `edgewise "
            'models` lists, or a pattern, such as "window(3)"'
        ),
    ],
    text: Annotated[str | None, typer.Argument(help="the text that the model reads")] = None,
    beside: Annotated[
        str | None, typer.Option(help="another model or pattern, for the same text")
    ] = None,
    n: Annotated[int, typer.Option(help="number of tokens of a pattern")] = 64,
    out: Annotated[Path, typer.Option(help="the HTML file to write")] = Path("attention.html"),
    truncate: Truncate = False,
) -> None:
    """Write a page that shows attention as a graph: one HTML file, which opens offline."""
    from edgewise.viewer import view as page_of

    other = None if beside is None else _shown(beside)
    shown = f"{model}: {text}" if text is not None else model
    page = page_of(_shown(model), text, beside=other, n=n, title=shown[:80], truncate=truncate)
    print(page.save(out))


def _shown(name: str) -> "Pattern | Pretrained":
    """A pattern where the text is a call, otherwise a model."""
    if "(" not in name or Path(name).exists():
        return opened(name)
    from edgewise.cli.graph import one_pattern

    return one_pattern(name)
