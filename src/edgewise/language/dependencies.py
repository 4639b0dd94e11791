"""Which relations need which, and in what order they can be computed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

from edgewise.language import nodes
from edgewise.language.statements import atoms, remembered

Node = TypeVar("Node")


def needs(rules: Iterable[nodes.Rule], values_only: bool = False) -> dict[str, set[str]]:
    """Head relation → body relations; with `values_only`, the occurrences that carry values."""
    found: dict[str, set[str]] = defaultdict(set)
    for rule in rules:
        found[rule.head.relation].update(remembered(rule, _valued if values_only else _read))
    return dict(found)


def _read(rule: nodes.Rule) -> set[str]:
    return {atom.relation for atom in atoms(rule) if isinstance(atom, nodes.Atom)}


def _valued(rule: nodes.Rule) -> set[str]:
    found = (atom for atom in atoms(rule) if isinstance(atom, nodes.Atom))
    return {atom.relation for atom in found if atom.carries_value}


def reachable(graph: Mapping[Node, Iterable[Node]], starts: Iterable[Node]) -> set[Node]:
    """What the starts need, themselves included."""
    found: set[Node] = set()
    waiting = list(starts)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += graph.get(node, ())
    return found


def components(graph: Mapping[Node, Iterable[Node]]) -> list[set[Node]]:
    """The strongly connected components, each after those it needs (Tarjan, without recursion).

    >>> [sorted(part) for part in components({"a": ["b"], "b": ["a", "c"], "c": []})]
    [['c'], ['a', 'b']]
    """
    number: dict[Node, int] = {}
    low: dict[Node, int] = {}
    path: list[Node] = []
    on_path: set[Node] = set()
    found: list[set[Node]] = []
    for root in graph:
        if root in number:
            continue
        work = [(root, iter(graph[root]))]
        number[root] = low[root] = len(number)
        path.append(root)
        on_path.add(root)
        while work:
            node, rest = work[-1]
            for target in rest:
                if target not in graph:
                    continue
                if target not in number:
                    number[target] = low[target] = len(number)
                    path.append(target)
                    on_path.add(target)
                    work.append((target, iter(graph[target])))
                    break
                if target in on_path:
                    low[node] = min(low[node], number[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    part: set[Node] = set()
                    while node not in part:
                        part.add(path.pop())
                    on_path -= part
                    found.append(part)
    return found
