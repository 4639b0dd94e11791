"""`edgewise check`: the errors and warnings of a program."""

from edgewise.cli.rules import Facts, File, facts_of, program_of
from edgewise.errors import counted


def check(file: File, facts: Facts = None) -> None:
    """Print all errors and warnings of a program that can be found before it is evaluated."""
    program = program_of(file)
    more = facts_of(facts)
    for warning in program.check(more):
        print(f"{warning}\n")
    derived = ", ".join(dict.fromkeys(rule.head.relation for rule in program.rules))
    rules, own = (
        counted(len(program.rules), "rule"),
        counted(len(program.facts) + len(more), "fact"),
    )
    print(f"{file}: {rules}, {own}" + (f"; derives {derived}" if derived else ""))
