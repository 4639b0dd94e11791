"""One name, one arity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from edgewise.checks import wording
from edgewise.errors import EdgewiseError, Place
from edgewise.language import Program, nodes
from edgewise.language.specials import SPECIALS
from edgewise.language.statements import atoms


class ArityMismatch(EdgewiseError):
    """A relation is a set of tuples of one length; atoms of two lengths could never meet."""

    code = "arity-mismatch"
    example = "Program([R.h(V.X) <= (R.a(V.Y), R._e(V.X, V.Y)), R.g <= R._e(V.X)]).check()"
    instead = "Program([R.h(V.X) <= (R.a(V.Y), R._e(V.X, V.Y)), R.g <= R._e(V.X, V.Y)]).check()"


class TwoLines(EdgewiseError):
    """A relation has one line: of two, the order of application would be undefined."""

    code = "two-lines"
    example = "Program([R.h <= R.a, R.h/0 | [F.tanh], R.h/0 | [F.max]]).check()"
    instead = "Program([R.h <= R.a, R.h/0 | [F.max, F.tanh]]).check()"


def mismatched_arities(program: Program, facts: tuple[nodes.Atom, ...]) -> Iterator[EdgewiseError]:
    known: dict[str, tuple[int, Place | None]] = {}
    for relation, arity, place in (*_uses(program), *_lengths(facts)):
        expected, first = known.setdefault(relation, (arity, place))
        if arity != expected:
            yield ArityMismatch(
                f"`{relation}` has {wording.terms(arity)} here and "
                f"{wording.terms(expected)} before{wording.elsewhere(first, place)}",
                place,
                f"give `{relation}` {wording.terms(expected)} everywhere, or use two names",
            )
    yield from _specials(program)
    yield from _lines(program)


def _uses(program: Program) -> Iterator[tuple[str, int, Place | None]]:
    for statement in program.flat:
        if isinstance(statement, nodes.Rule):
            yield from _lengths((statement.head,))
            yield from _lengths(a for a in atoms(statement) if isinstance(a, nodes.Atom))
        elif isinstance(statement, nodes.Fact):
            yield from _lengths((statement.atom,))
    for line in program.lines:  # the atoms say what the arity is, a line repeats it
        yield line.relation, line.arity, line.place


def _lengths(found: Iterable[nodes.Atom]) -> Iterator[tuple[str, int, Place | None]]:
    return ((atom.relation, len(atom.terms), atom.place) for atom in found)


def _specials(program: Program) -> Iterator[EdgewiseError]:
    for atom in (a for rule in program.rules for a in atoms(rule)):
        got = len(getattr(atom, "terms", ()))
        match atom:
            case nodes.SpecialAtom():
                least, most = SPECIALS[atom.name].least, SPECIALS[atom.name].most
            case nodes.PatternAtom():
                least, most = 2, 2
            case _:
                continue
        if got < least or (most is not None and got > most):
            takes = f"at least {least}" if most is None else str(least)
            yield ArityMismatch(
                f"`{wording.name(atom)}` takes {takes} terms, got {got}",
                atom.place,
                "give it one variable or constant for each term",
            )


def _lines(program: Program) -> Iterator[EdgewiseError]:
    seen: dict[str, nodes.Line] = {}
    for line in program.lines:
        first = seen.setdefault(line.relation, line)
        if first is not line:
            yield TwoLines(
                f"`{line.relation}/{line.arity}` has two lines"
                + wording.elsewhere(first.place, line.place),
                line.place,
                "write all functions into one list",
            )
