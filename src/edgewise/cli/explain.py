"""`edgewise explain`: what a program is compiled to, for facts."""

from typing import Annotated

import typer

from edgewise.cli.rules import Facts, File, facts_of, outputs_of, program_of


def explain(
    file: File,
    relations: Annotated[
        list[str] | None,
        typer.Argument(help="outputs, such as `attention`; what no other rule reads if none"),
    ] = None,
    facts: Facts = None,
    stage: Annotated[
        str | None, typer.Option(help="rules, plan, passes or kernels; all if none")
    ] = None,
) -> None:
    """Compile a program for some outputs and print every stage: rules, plan, passes, kernels."""
    from edgewise.language import R

    program = program_of(file)
    outputs = [R[name] for name in relations or outputs_of(program, file)]
    model = program.compile(outputs if len(outputs) > 1 else outputs[0])
    data = model.ground(facts=facts_of(facts)) if facts else None
    print(model.explain(data, stage=stage))
