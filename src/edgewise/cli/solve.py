"""`edgewise solve`: the values of atoms, by the reference evaluator."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from edgewise.cli.rules import Facts, File, Seed, atom_of, facts_of, program_of

if TYPE_CHECKING:
    from torch import Tensor

    from edgewise.language.nodes import Atom


def solve(
    file: File,
    atoms: Annotated[
        list[str] | None, typer.Argument(help='atoms, such as "h(1)" or "h(X)"; all if none')
    ] = None,
    facts: Facts = None,
    seed: Seed = 0,
    why: Annotated[bool, typer.Option("--why", help="print what each value is made of")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Evaluate a program and print its atoms with their values, or what they are made of."""
    from edgewise.language.text_form.printer import Style, expression
    from edgewise.notebook import short_value

    if why and as_json:
        raise typer.BadParameter("`--why` prints text, `--json` values: choose one")
    solution = program_of(file).solve(facts_of(facts), seed=seed)
    found: dict[Atom, Tensor] = {}
    for query in [atom_of(text) for text in atoms or []]:
        answer = solution[query]
        found |= answer if isinstance(answer, Mapping) else {query: answer}
    shown = found if atoms else dict(solution)
    values = {expression(atom, Style()): value.detach().tolist() for atom, value in shown.items()}
    if as_json:
        print(json.dumps(_in_json(values), ensure_ascii=False, indent=1, allow_nan=False))
    elif why:
        print(*(solution.why(atom) for atom in shown), sep="\n\n")
    else:
        width = max(map(len, values), default=0)
        for atom, value in values.items():
            print(f"{atom:<{width}}  {short_value(value)}")
    if not values:
        which = " or ".join(f"`{text}`" for text in atoms or [])
        none = f"no atom like {which} holds" if which else "no atom holds"
        print(f"{none}: facts come from the program or `--facts FILE`", file=sys.stderr)


def _in_json(value: object) -> object:
    """The value with "inf", "-inf" and "nan" as texts, since JSON has no such numbers."""
    if isinstance(value, dict):
        return {key: _in_json(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_in_json(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
