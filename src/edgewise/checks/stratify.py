"""Negation is stratified: a relation is complete before it is negated."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from edgewise.errors import EdgewiseError
from edgewise.language import Program, nodes
from edgewise.language.dependencies import components, needs
from edgewise.language.statements import atoms, is_selection, written_for


class NotStratified(EdgewiseError):
    """A relation that depends on its own absence has no meaning: it holds if it does not."""

    code = "not-stratified"
    example = """\
Program([
    R.win(V.X) <= (R._move(V.X, V.Y), ~R.lose(V.Y)),
    R.lose(V.X) <= (R._node(V.X), ~R.win(V.X)),
]).check()"""
    instead = """\
Program([
    R.open(V.X) <= R._move(V.X, V.Y),
    R.lose(V.X) <= (R._node(V.X), ~R.open(V.X)),
]).check()"""


def unstratified_negations(
    program: Program, facts: tuple[nodes.Atom, ...]
) -> Iterator[EdgewiseError]:
    reads = {name: sorted(read) for name, read in needs(program.rules).items()}
    group = {name: i for i, part in enumerate(components(reads)) for name in part}
    negated = [
        (rule, atom)
        for rule in program.rules
        for atom in atoms(rule)
        if isinstance(atom, nodes.Atom) and (atom.negated or is_selection(atom.relation))
    ]
    links = {(rule.head.relation, atom.relation) for rule, atom in negated}
    reported: set[int] = set()
    for rule, atom in negated:
        head = rule.head.relation
        if group.get(atom.relation) != group[head] or group[head] in reported:
            continue
        reported.add(group[head])  # one cycle for each part is enough
        cycle = [head, *_path(reads, atom.relation, head)]
        if is_selection(atom.relation):
            yield _decided_by_itself(rule, atom, cycle)
            continue
        yield NotStratified(
            f"`{head}` depends on its own absence: {_described(cycle, links)}",
            atom.place or rule.place,
            f"remove the dependency of `{atom.relation}` on `{head}`, "
            "or use soft negation `-b`, which is 1 − b",
        )


def _decided_by_itself(rule: nodes.Rule, atom: nodes.Atom, cycle: list[str]) -> NotStratified:
    head = written_for(rule.head.relation)
    through = dict.fromkeys(map(written_for, cycle[1:-1]))
    names = [f"`{name}`" for name in through if name != head]
    return NotStratified(
        f"which atoms of `{head}` hold depends on its own values"
        + (f", through {' and '.join(names)}" if names else ""),
        atom.place or rule.place,
        f"compare values that are computed before `{head}`",
    )


def _described(cycle: list[str], negated: set[tuple[str, str]]) -> str:
    steps = [f"{'negates' if step in negated else 'reads'} `{step[1]}`" for step in pairwise(cycle)]
    return f"`{cycle[0]}` " + ", which ".join(steps)


def _path(reads: Mapping[str, Sequence[str]], start: str, end: str) -> list[str]:
    """A shortest way from `start` to `end`."""
    before = {start: start}
    queue = deque([start])
    while queue and end not in before:
        name = queue.popleft()
        for following in reads.get(name, ()):
            if following not in before:
                before[following] = name
                queue.append(following)
    way = [end]
    while way[-1] != start:
        way.append(before[way[-1]])
    return way[::-1]
