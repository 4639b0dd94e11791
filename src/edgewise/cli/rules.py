"""What the verbs about rules share: a program, facts and atoms from files and arguments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgewise.errors import EdgewiseError, Span, caller

if TYPE_CHECKING:
    from edgewise.language import Program
    from edgewise.language.nodes import Atom

File = Annotated[
    Path, typer.Argument(help="rules in the text form, or the folder of a run", show_default=False)
]
Facts = Annotated[
    list[Path] | None, typer.Option("--facts", help="a file of facts; may be repeated")
]
Seed = Annotated[int, typer.Option(help="draws the weights that have only a shape")]


class NotFacts(EdgewiseError):
    """Facts are data: a rule among them would change the program that they are given to."""

    code = "not-facts"
    example = """\
from pathlib import Path
from edgewise.cli.rules import facts_of
Path("data.rules").write_text("edge(a, b).  h(X) :- edge(X, Y).")
facts_of([Path("data.rules")])"""
    instead = """\
from pathlib import Path
from edgewise.cli.rules import facts_of
Path("data.rules").write_text("edge(a, b).")
facts_of([Path("data.rules")])"""


class NotRules(EdgewiseError):
    """The verbs about rules read the text form, which runs no code."""

    code = "not-rules"
    example = """\
from pathlib import Path
from edgewise.cli.rules import program_of
program_of(Path("model.py"))"""
    instead = """\
from pathlib import Path
from edgewise.cli.rules import program_of
Path("model.rules").write_text(Program([R.h(V.X) <= R.x(V.X)]).text())
program_of(Path("model.rules"))"""


class NotAnAtom(EdgewiseError):
    """The command takes atoms as the text form writes them, each as one argument."""

    code = "not-an-atom"
    example = """\
from edgewise.cli.rules import atom_of
atom_of("h(1), g(2)")"""
    instead = """\
from edgewise.cli.rules import atom_of
atom_of("h(1)")"""


RULES = "rules.txt"
TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".db", ".sqlite", ".duckdb")


def program_of(path: Path) -> Program:
    from edgewise.language import Program

    if path.suffix == ".py":
        raise NotRules(
            f"`{path}` is Python",
            caller(),
            "run it by Python; `program.text()` is what a file holds",
        )
    if path.is_dir():
        if not (path / RULES).is_file():
            raise NotRules(
                f"the folder `{path}` has no `{RULES}`",
                caller(),
                "give the folder of a run, or a file of rules; of a checkpoint, "
                "`zoo.from_pretrained(path).program` has them",
            )
        path /= RULES
    return Program.load(str(path))


def outputs_of(program: Program, path: Path) -> list[str]:
    """The relations that are derived and that no rule of another one reads; all where each is."""
    from edgewise.language.nodes import Atom
    from edgewise.language.statements import atoms
    from edgewise.plan.lower import UnknownOutput

    heads = list(dict.fromkeys(rule.head.relation for rule in program.rules))
    if not heads:
        raise UnknownOutput(f"`{path}` holds no rule", None, "write one, such as `h(X) :- a(X).`")
    read = {
        atom.relation
        for rule in program.rules
        for atom in atoms(rule)
        if isinstance(atom, Atom) and atom.relation != rule.head.relation
    }
    return [name for name in heads if name not in read] or heads


def facts_of(paths: list[Path] | None) -> list[Atom]:
    """The facts of all files."""
    found: list[Atom] = []
    for path in paths or []:
        if path.suffix.lower() in TABLES:
            raise NotFacts(
                f"`{path}` is a table", caller(),
                "write its rows as facts, `edge(a, b).`; a model in Python reads tables by "
                "`edgewise.data.read`",
            )  # fmt: skip
        program = program_of(path)
        if program.rules:
            rule = program.rules[0]
            raise NotFacts(f"`{path}` holds a rule", rule.place, "move it into the file of rules")
        found += [fact.atom for fact in program.facts]
    return found


def atom_of(text: str) -> Atom:
    """An atom of the command line, also with variables: `h(X)`."""
    from edgewise.language import Program
    from edgewise.language.nodes import Atom

    place, help, reason = Span.of("<argument>", text), 'write "h(1)" or "h(X)"', ""
    try:
        body = Program.parse(f"asks :- {text}.").rules[0].body
        if len(body) == 1 and isinstance(body[0], Atom):
            return body[0]
    except EdgewiseError as error:
        reason = f": {error.message}"
    raise NotAnAtom(f"`{text}` is not one atom{reason}", place, help)
