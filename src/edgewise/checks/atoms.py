"""Atoms: one arity for each relation, and facts that are ground and stated once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from edgewise.checks import wording
from edgewise.errors import EdgewiseError, Place, caller, iterates, safe_repr
from edgewise.language import Program, nodes, terms
from edgewise.language.specials import SPECIALS
from edgewise.language.statements import atoms


class ArityMismatch(EdgewiseError):
    """A relation is a set of tuples of one length; atoms of two lengths could never match."""

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
            case nodes.SpecialAtom(formula=None):
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


class BadFact(EdgewiseError):
    """A fact says that one ground atom holds, and gives its value."""

    code = "bad-fact"
    example = "Program([R.h(V.X) <= R.a(V.X)]).check([R.a(V.X)[1.0]])"
    instead = "Program([R.h(V.X) <= R.a(V.X)]).check([R.a(1)[1.0]])"


class DuplicateFact(EdgewiseError):
    """An atom has one value: of two facts for it, one would be lost."""

    code = "duplicate-fact"
    example = "Program([R.h(V.X) <= R.a(V.X)]).check([R.a(1)[1.0], R.a(1)[2.0]])"
    instead = "Program([R.h(V.X) <= R.a(V.X)]).check([R.a(1)[1.0], R.a(2)[2.0]])"


def data_atoms(facts: Iterable[Any]) -> tuple[nodes.Atom, ...]:
    """The facts given as data, as atoms; an error if one is something else."""
    return tuple(map(plain_atom, listed(facts)))


def listed(facts: Any) -> Iterable[Any]:
    """Facts as they come; an error if they are not a list of something."""
    if isinstance(facts, nodes.Atom | nodes.Fact):
        return [facts]
    if isinstance(facts, str | bytes | dict) or not iterates(facts):
        raise BadFact(
            f"facts are a list of atoms, got {type(facts).__name__}",
            caller(),
            "write `[R.a(1)[0.5], R.e(1, 2)]`",
        )
    return facts


def plain_atom(item: Any) -> nodes.Atom:
    """A fact as an atom; an error if it is something else."""
    if isinstance(item, nodes.Fact):
        return item.atom
    if isinstance(item, nodes.Atom) and not item.negated:
        return item
    if isinstance(item, nodes.Rule):
        what, step = f"`{item!r}` is a rule", "rules go into the program"
    elif isinstance(item, nodes.Expression):
        what, step = f"`{item!r}` is not a plain atom", "write what holds: `R.a(1)[0.5]`"
    elif isinstance(item, list | tuple):
        what, step = "a list among the facts", "unpack it with `*`: `[*facts, R.a(1)]`"
    else:
        what, step = f"`{safe_repr(item)}` is not an atom", "write a fact as `R.a(1)[0.5]`"
    place = getattr(item, "place", None)
    raise BadFact(what, place or caller(), step)


def bad_facts(program: Program, facts: tuple[nodes.Atom, ...]) -> Iterator[EdgewiseError]:
    yield from _repeated([fact.atom for fact in program.facts], "the program")
    yield from _repeated(facts, "the data")
    for atom in facts:
        if atom.weight is not None or any(isinstance(t, nodes.Variable) for t in atom.terms):
            yield from _not_data(atom)


def _repeated(found: Iterable[nodes.Atom], where: str) -> Iterator[EdgewiseError]:
    seen: dict[tuple[str, tuple[nodes.Term, ...]], nodes.Atom] = {}
    for atom in found:
        key = (atom.relation, atom.terms)
        first = seen.get(key)
        if first is None:
            seen[key] = atom
        else:
            shown = atom.relation + (f"({', '.join(map(repr, atom.terms))})" if atom.terms else "")
            yield DuplicateFact(
                f"`{shown}` is stated twice in {where}{wording.elsewhere(first.place, atom.place)}",
                atom.place,
                "keep one; several values for one atom are rules: `h <= a`, `h <= b`",
            )


def _not_data(atom: nodes.Atom) -> Iterator[EdgewiseError]:
    for variable in terms.variables(atom.terms):
        yield BadFact(
            f"the fact `{atom.relation}` holds the variable `{variable.name}`",
            variable.place or atom.place,
            f"write a constant: an integer, a string or `C.{variable.name.lower()}`",
        )
    if atom.weight is not None and (atom.weight.value is None or atom.weight.keys):
        yield BadFact(
            f"the fact `{atom.relation}` is given as data, but has a weight instead of a value",
            atom.place,
            "give numbers or a tensor, `R.a(1)[[0.5, 2.0]]`; learnable facts go into the program",
        )
