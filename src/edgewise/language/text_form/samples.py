"""Samples in NeuraLogic's text format are not a program: each line is data of its own."""

from __future__ import annotations

from collections.abc import Sequence

from edgewise.errors import EdgewiseError
from edgewise.language import nodes, statements


class SamplesNotProgram(EdgewiseError):
    """A text that lists the facts of several samples, which one program would merge."""

    code = "samples-not-program"
    example = 'Program.parse("bond(a, b), c(a).\\nbond(a, b), o(a).")'
    instead = 'Program.parse("bond(a, b). c(a). o(a).")'


def refuse_lists(
    program: Sequence[nodes.Statement], groups: Sequence[Sequence[nodes.Atom]]
) -> None:
    """Raise for lists of facts without a rule; `groups` are the facts of each statement.

    Facts that hold together are one list, or each a statement of its own.
    """
    if all(isinstance(s, nodes.Fact) for s in program):
        second = _second_sample(groups)
        if second is not None:
            raise _refused(second, f"{len(groups)} statements list facts, and there is no rule")


def refuse_targets(program: Sequence[nodes.Statement]) -> None:
    """Raise for a file of `1.0 predict :- bond(a, b), c(a).`: targets, and facts of samples."""
    rules = [s for s in program if isinstance(s, nodes.Rule) and _is_sample(s)]
    names = {rule.head.relation for rule in rules}
    if len(rules) > 1 and len(rules) == len(program) and len(names) == 1:
        raise _refused(rules[1].head, f"{len(rules)} rules without a variable list facts")


def _second_sample(groups: Sequence[Sequence[nodes.Atom]]) -> nodes.Atom | None:
    """The first atom that shows that statements are samples: a second list, or a fact again."""
    lists = [group for group in groups if len(group) > 1]
    if len(lists) > 1:
        return lists[1][0]
    seen: dict[tuple[object, ...], int] = {}
    for at, group in enumerate(groups):
        for atom in group:
            if seen.setdefault((atom.relation, atom.terms), at) != at and lists:
                return atom
    return None


def _is_sample(rule: nodes.Rule) -> bool:
    """`1.0 predict :- bond(a, b), c(a).`: a target, and the facts of a sample."""
    value = None if rule.head.weight is None else rule.head.weight.value
    items = list(statements.atoms(rule))
    ground = not any(isinstance(t, nodes.Variable) for a in (rule.head, *items) for t in a.terms)
    plain = all(isinstance(i, nodes.Atom) and i.weight is None and i.terms for i in rule.body)
    return value is not None and ground and plain and len(items) > 1 and not rule.functions


def _refused(atom: nodes.Atom, what: str) -> SamplesNotProgram:
    return SamplesNotProgram(
        f"{what}: each is a sample, and one program would merge them",
        atom.place,
        "read samples with `edgewise.data.neuralogic(examples, queries)`; facts that hold together "
        "are statements of their own: `a(1). b(1).`",
    )
