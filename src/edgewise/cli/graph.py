"""`edgewise graph`: draw and measure an attention pattern."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgewise.cli.files import check_out, written
from edgewise.errors import EdgewiseError, Span

if TYPE_CHECKING:
    from edgewise.graphs import Pattern

FORMATS = (".png", ".svg", ".pdf")


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
    from edgewise.graphs.checks import integer

    found, n = one_pattern(pattern), integer(n, "n", 1)
    if png is not None:
        check_out(png, FORMATS, "<png>")
        written(png, found.plot(n, kind=kind).savefig, "<png>")
    if as_json:
        print(json.dumps(found.stats(n).json(), indent=1, ensure_ascii=False))
    elif stats:
        print(found.stats(n))
    elif png is None:
        print(f"{found!r}, {n:,} tokens, {found.count(n):,} edges\n{found.draw(n)}")


def one_pattern(text: str) -> "Pattern":
    """The pattern of a text; those of several heads, samples or layers are refused."""
    from edgewise.graphs import Pattern, parse

    found = parse(text)
    if not isinstance(found, Pattern):
        raise SeveralGraphs(
            f"expected one graph, got {len(found)}",
            Span.of("<pattern>", text),
            "give the pattern of one head or layer",
        )
    return found
