"""`edgewise why`: what a value of a run on graphs follows from."""

from typing import Annotated

import typer

from edgewise.cli.predict import Data, Run
from edgewise.cli.rules import atom_of


def why(
    run: Run,
    atom: Annotated[str, typer.Argument(help='such as "logits(3)" or "layer.0.out(3)"')],
    data: Data = None,
    graph: Annotated[
        int, typer.Option(help="the number of the graph, of many; or of the query")
    ] = 0,
) -> None:
    """Print the groundings behind an atom of a run on graphs, with their shares."""
    from edgewise.training import why as explained

    typer.echo(str(explained(run, atom_of(atom), data=data, graph=graph)))
