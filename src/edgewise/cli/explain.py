"""`edgewise explain`: what a program is compiled to, for facts."""

from typing import Annotated

import typer

from edgewise.cli.rules import Facts, File, facts_of, program_of


def explain(
    file: File,
    relation: Annotated[str, typer.Argument(help="the output, such as `attention`")],
    facts: Facts = None,
    stage: Annotated[
        str | None, typer.Option(help="rules, plan, passes or kernels; all if none")
    ] = None,
) -> None:
    """Compile a program for one relation and print every stage: rules, plan, passes, kernels."""
    from edgewise.language import R

    model = program_of(file).compile(R[relation])
    data = model.ground(facts=facts_of(facts)) if facts else None
    print(model.explain(data, stage=stage))
