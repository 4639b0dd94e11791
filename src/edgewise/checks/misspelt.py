"""A relation that nothing defines, beside one of almost the same name that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator

from edgewise.errors import EdgewiseError
from edgewise.language import Program, nodes
from edgewise.language.dependencies import needs, reachable
from edgewise.language.statements import atoms

DIGITS = "_0123456789"


class MisspeltRelation(EdgewiseError):
    """A relation that no rule derives is an input; beside an unread `norm1`, `norm` is a misprint.

    The other relation differs in its last digits alone, has as many terms, is read by no rule and
    does not depend on the one that is missing.
    """

    code = "misspelt-relation"
    example = """\
Program([
    R.norm1(V.I) <= R.x(V.I)[4, 4],
    R.out(V.I) <= R.norm(V.I)[4, 4],
    R.norm2(V.I) <= R.out(V.I)[4, 4],
]).check()"""
    instead = """\
Program([
    R.norm1(V.I) <= R.x(V.I)[4, 4],
    R.out(V.I) <= R.norm1(V.I)[4, 4],
    R.norm2(V.I) <= R.out(V.I)[4, 4],
]).check()"""


def misspelt_relations(
    program: Program, facts: tuple[nodes.Atom, ...]
) -> Iterator[MisspeltRelation]:
    rules = program.rules
    heads = {rule.head.relation: len(rule.head.terms) for rule in rules}
    stated = {fact.atom.relation for fact in program.facts} | {atom.relation for atom in facts}
    graph = needs(rules)
    read: dict[str, nodes.Atom] = {}
    for atom in (atom for rule in rules for atom in atoms(rule)):
        if isinstance(atom, nodes.Atom):
            read.setdefault(atom.relation, atom)
    unread = [name for name in heads if name not in read]
    for name, atom in read.items():
        if name in heads or name in stated:
            continue
        for other in unread:
            alike = other.rstrip(DIGITS) == name.rstrip(DIGITS) and heads[other] == len(atom.terms)
            if alike and name not in reachable(graph, [other]):
                yield MisspeltRelation(
                    f"no rule derives `{name}`, and no rule reads `{other}`",
                    atom.place,
                    f"did you mean `{nodes.Atom(other)!r}`? An input needs another name",
                )
                break
