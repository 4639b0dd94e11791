"""`edgewise draw`: a program, or the network behind an atom, as an SVG picture."""

from pathlib import Path
from typing import Annotated

import typer

from edgewise.cli.files import written
from edgewise.cli.rules import Facts, File, Seed, atom_of, facts_of, program_of


def draw(
    file: File,
    atoms: Annotated[
        list[str] | None, typer.Argument(help="atoms whose network is drawn; the rules if none")
    ] = None,
    out: Annotated[Path, typer.Option(help="the SVG file to write")] = Path("program.svg"),
    facts: Facts = None,
    seed: Seed = 0,
) -> None:
    """Draw the rules of a program, or the network of groundings behind atoms, as SVG."""
    program = program_of(file)
    if atoms:
        solution = program.solve(facts_of(facts), seed=seed)
        picture = solution.draw(*(atom_of(text) for text in atoms))
    else:
        picture = program.draw()
    written(out, picture.save)
    print(out)
