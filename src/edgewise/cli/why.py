"""`edgewise why`: what a value of a run on graphs follows from, or a text without a part of it."""

from typing import Annotated

import typer

from edgewise.cli.checkpoint import Json, json_line, opened
from edgewise.cli.predict import Data, Run
from edgewise.cli.rules import NotAnAtom, atom_of


def why(
    run: Run,
    atom: Annotated[
        str,
        typer.Argument(
            help='such as "logits(3)" or "layer.0.out(3)"; with --without, the text of a checkpoint'
        ),
    ],
    data: Data = None,
    graph: Annotated[
        int, typer.Option(help="the number of the graph, of many; or of the query")
    ] = 0,
    without: Annotated[
        str | None,
        typer.Option(help="token:3, edge:0,5,2 (layer, query, key) or head:0,7 (layer, head)"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the groundings behind an atom of a run on graphs, or what a text changes without."""
    if without is not None:
        from edgewise.attention_graphs import without as left_out

        found = left_out(opened(str(run)), atom, without)
        typer.echo(json_line(**found.json()) if as_json else repr(found))
        return
    from edgewise.training import why as explained

    try:
        wanted = atom_of(atom)
    except NotAnAtom as problem:
        problem.help = f"{problem.help}; of a text, say what is left out: --without token:0"
        raise
    typer.echo(str(explained(run, wanted, data=data, graph=graph)))
