"""`edgewise graph`: draw and measure an attention pattern."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgewise.errors import EdgewiseError, Span

if TYPE_CHECKING:
    from edgewise.graphs import Pattern

FORMATS = (".png", ".svg", ".pdf")


class CannotWrite(EdgewiseError):
    """A figure is written to a PNG, SVG or PDF file in a folder that exists."""

    code = "cannot-write"
    example = """\
from pathlib import Path
from edgewise.cli.graph import graph
graph("window(3)", png=Path("no/such/folder/out.png"))"""
    instead = """\
from pathlib import Path
from edgewise.cli.graph import graph
graph("window(3)", png=Path("out.png"))"""


class SeveralGraphs(EdgewiseError):
    """The command takes one graph, not one per head, sample or layer."""

    code = "several-graphs"
    example = """\
from edgewise.cli.graph import graph
graph("per_head(window(1), window(2))")"""
    instead = """\
from edgewise.cli.graph import graph
graph("window(1)")"""


def graph(
    pattern: Annotated[
        str, typer.Argument(help='a pattern, such as "window(3) | global_tokens(1)"')
    ],
    n: Annotated[int, typer.Option(help="number of tokens")] = 64,
    stats: Annotated[bool, typer.Option("--stats", help="print its measures")] = False,
    png: Annotated[Path | None, typer.Option(help="write a figure to this file")] = None,
    kind: Annotated[str, typer.Option(help="kind of figure: matrix, ring or force")] = "matrix",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, with the measures")] = False,
) -> None:
    """Draw an attention pattern, print its measures, or write a figure of it."""
    from edgewise.graphs import Pattern, parse
    from edgewise.graphs.checks import integer

    found = parse(pattern)
    if not isinstance(found, Pattern):
        raise SeveralGraphs(
            f"expected one graph, got {len(found)}",
            Span.of("<pattern>", pattern),
            "give the pattern of one head or layer",
        )
    n = integer(n, "n", 1)
    if png is not None:
        _write(found, n, png, kind)
    if as_json:
        print(json.dumps(found.stats(n).json(), indent=1, ensure_ascii=False))
    elif stats:
        print(found.stats(n))
    elif png is None:
        print(f"{found!r}, {n:,} tokens, {found.count(n):,} edges\n{found.draw(n)}")


def _write(pattern: "Pattern", n: int, path: Path, kind: str) -> None:
    place = Span.of("<png>", path)
    if path.suffix.lower() not in FORMATS:
        raise CannotWrite("unknown file format", place, f"end the name in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise CannotWrite("no such folder", place, f"make it: mkdir -p {path.parent}")
    figure = pattern.plot(n, kind=kind)
    try:
        figure.savefig(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CannotWrite(f"cannot write the file: {reason}", place, "choose another") from None
