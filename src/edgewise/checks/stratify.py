"""Negation is stratified: what is denied is complete before it is denied."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from edgewise.errors import EdgewiseError
from edgewise.language import Program, nodes
from edgewise.language.statements import atoms


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
    program: Program, given: tuple[nodes.Atom, ...]
) -> Iterator[EdgewiseError]:
    reads = dependencies(program.rules)
    group = {name: i for i, part in enumerate(components(reads)) for name in part}
    for rule in program.rules:
        head = rule.head.relation
        for atom in atoms(rule):
            if not isinstance(atom, nodes.Atom) or not atom.negated:
                continue
            if group[atom.relation] != group[head]:
                continue
            cycle = [head, *_path(reads, atom.relation, head)]
            yield NotStratified(
                f"`{head}` depends on its own absence: {_arrows(cycle)}",
                atom.place or rule.place,
                f"let the rules of `{atom.relation}` not depend on `{head}`, "
                "or write soft negation `-b`, which is 1 − b",
            )


def _arrows(cycle: list[str]) -> str:
    return f"`{cycle[0]}` needs not `{cycle[1]}`" + "".join(
        f", which needs `{name}`" for name in cycle[2:]
    )


def dependencies(rules: Sequence[nodes.Rule]) -> dict[str, list[str]]:
    """For each relation, those that its rules read."""
    reads: dict[str, dict[str, None]] = {}
    for rule in rules:
        mine = reads.setdefault(rule.head.relation, {})
        for atom in atoms(rule):
            if isinstance(atom, nodes.Atom):
                mine[atom.relation] = None
                reads.setdefault(atom.relation, {})
    return {name: list(found) for name, found in reads.items()}


def _path(reads: Mapping[str, Sequence[str]], start: str, end: str) -> list[str]:
    """A shortest way from `start` to `end`."""
    before = {start: start}
    queue = deque([start])
    while queue and end not in before:
        name = queue.popleft()
        for following in reads[name]:
            if following not in before:
                before[following] = name
                queue.append(following)
    way = [end]
    while way[-1] != start:
        way.append(before[way[-1]])
    return way[::-1]


def components(reads: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The strongly connected parts, each after all that it reads (Tarjan 1972, without recursion).

    >>> components({"a": ["b"], "b": ["a", "c"], "c": []})
    [['c'], ['b', 'a']]
    """
    found: list[list[str]] = []
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    done: set[str] = set()
    for root in reads:
        work = [(root, iter(reads[root]))] if root not in order else []
        while work:
            name, rest = work[-1]
            if name not in order:
                order[name] = low[name] = len(order)
                stack.append(name)
            following = next(rest, None)
            if following is not None:
                if following not in order:
                    work.append((following, iter(reads[following])))
                elif following not in done:
                    low[name] = min(low[name], order[following])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[name])
            if low[name] == order[name]:
                part = [stack.pop()]
                while part[-1] != name:
                    part.append(stack.pop())
                found.append(part)
                done |= set(part)
    return found
