"""Relations that are read but never defined, and defined but never read."""

from __future__ import annotations

from collections.abc import Iterator

from edgewise.errors import EdgewiseWarning, Place, nearest
from edgewise.language import Program, nodes
from edgewise.language.statements import atoms


class UnknownRelation(EdgewiseWarning):
    """A relation with neither facts nor rules never holds, so its rule derives nothing."""

    code = "unknown-relation"
    example = "Program([R.h(V.X) <= R.node(V.X)]).check([R.nodes(1)[1.0]])"
    instead = "Program([R.h(V.X) <= R.nodes(V.X)]).check([R.nodes(1)[1.0]])"


class UnusedRelation(EdgewiseWarning):
    """Facts that no rule reads change nothing."""

    code = "unused-relation"
    example = "Program([R.h(V.X) <= R.a(V.X)]).check([R.a(1)[1.0], R.label(1)[2.0]])"
    instead = "Program([R.h(V.X) <= R.a(V.X)]).check([R.a(1)[1.0]])"


def unknown_relations(program: Program, facts: tuple[nodes.Atom, ...]) -> Iterator[UnknownRelation]:
    for name, (atom, near) in _missing(program, facts).items():
        if near or not atom.negated:
            yield UnknownRelation(
                f"`{name}` has no facts and no rules, so it never holds",
                atom.place,
                f"did you mean `{near}`?"
                if near
                else f"give facts for it, such as `{_fact(atom)}`",
            )
    heads = {rule.head.relation for rule in program.rules}
    for line in program.lines:
        if line.relation not in heads and program.rules:
            near = nearest(line.relation, sorted(heads))
            yield UnknownRelation(
                f"the line of `{line.relation}` applies to no rule",
                line.place,
                f"did you mean `{near}`?" if near else "remove it, or write a rule for it",
            )


def _fact(atom: nodes.Atom) -> str:
    return f"R.{atom.relation}({', '.join('1' for _ in atom.terms)})"


def _missing(
    program: Program, facts: tuple[nodes.Atom, ...]
) -> dict[str, tuple[nodes.Atom, str | None]]:
    """The relations that are read but not defined, each with the name it may have meant."""
    if not facts:
        return {}
    known = {rule.head.relation for rule in program.rules} | set(_stated(program, facts))
    read = [a for rule in program.rules for a in atoms(rule) if isinstance(a, nodes.Atom)]
    missing = {atom.relation: atom for atom in reversed(read) if atom.relation not in known}
    return {name: (missing[name], nearest(name, sorted(known))) for name in reversed(missing)}


def unused_relations(program: Program, facts: tuple[nodes.Atom, ...]) -> Iterator[UnusedRelation]:
    if not program.rules:
        return
    read = {a.relation for r in program.rules for a in atoms(r) if isinstance(a, nodes.Atom)}
    heads = {rule.head.relation for rule in program.rules}
    meant = {near for _, near in _missing(program, facts).values()}
    for name, place in _stated(program, facts).items():
        if name not in read | heads | meant:
            near = nearest(name, sorted(read))
            yield UnusedRelation(
                f"no rule reads `{name}`",
                place,
                f"did you mean `{near}`?" if near else "leave its facts out, or write a rule",
            )


def _stated(program: Program, facts: tuple[nodes.Atom, ...]) -> dict[str, Place | None]:
    stated: dict[str, Place | None] = {}
    for atom in (*(fact.atom for fact in program.facts), *facts):
        stated.setdefault(atom.relation, atom.place)
    return stated
