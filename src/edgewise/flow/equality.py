"""Programs that are equal but for names and order.

Variables, weights and relations that a program derives or states may have other names; rules, facts
and conditions another order. Values keep theirs: a matrix product depends on it. Relations
that only data states keep their names, and so do those that no rule reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.language.statements import atoms, name_weights

TURNED = {"geq": "leq", "gt": "lt"}


@dataclass(frozen=True)
class Renaming:
    """Pairs of names so far, each way, by kind; `variables` are those of one rule."""

    pairs: dict[tuple[str, str], str] = field(default_factory=dict)
    back: dict[tuple[str, str], str] = field(default_factory=dict)

    def with_pair(self, kind: str, one: str, other: str) -> Renaming | None:
        """With one more pair; None where either has another partner."""
        if self.pairs.get((kind, one), other) != other or self.back.get((kind, other), one) != one:
            return None
        if (kind, one) in self.pairs:
            return self
        return Renaming(self.pairs | {(kind, one): other}, self.back | {(kind, other): one})

    def without_variables(self) -> Renaming:
        return Renaming(
            {pair: name for pair, name in self.pairs.items() if pair[0] != "variable"},
            {pair: name for pair, name in self.back.items() if pair[0] != "variable"},
        )


class _Side:
    """One of two programs: its statements by relation, and which relations keep their names."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.domains = dict(program.domains)
        self.statements: dict[str, list[Any]] = {}
        self.lines: dict[str, nodes.Line] = {}
        for statement in name_weights(program):
            match statement:
                case nodes.Rule(head=head, body=body):
                    turned = replace(statement, body=tuple(map(_turned, body)))
                    self.statements.setdefault(head.relation, []).append(turned)
                case nodes.Fact(atom=atom):
                    self.statements.setdefault(atom.relation, []).append(statement)
                case nodes.Line(relation=relation):
                    self.lines[relation] = statement
        found = (a for rule in program.rules for a in atoms(rule) if isinstance(a, nodes.Atom))
        read = {atom.relation for atom in found}
        self.ends = sorted(self.statements.keys() - read)

    def functions(self, relation: str) -> tuple[nodes.Function, ...] | None:
        """How the rules of a relation are combined, where a line says it."""
        line = self.lines.get(relation)
        return None if line is None else line.functions

    def defaults(self) -> tuple[Any, ...]:
        return self.program.aggregation, self.program.rounds


def _turned(item: nodes.Expression) -> nodes.Expression:
    """`x >= y` is `y <= x`."""
    if isinstance(item, nodes.SpecialAtom) and item.name in TURNED:
        return replace(item, name=TURNED[item.name], terms=item.terms[::-1])
    return item


def equals(program: Program, other: Any) -> bool:
    """Whether two programs are equal but for names and order."""
    if not isinstance(other, Program):
        return False
    one, two = _Side(program), _Side(other)
    if one.defaults() != two.defaults() or one.ends != two.ends:
        return False
    if len(one.statements) != len(two.statements):
        return False
    return _Search(one, two).found()


Task = tuple[tuple[Any, ...], tuple[Any, ...]]  # statements that are left to pair


class _Search:
    """Pairs statements, relation by relation from the outputs on, and goes back where it fails."""

    def __init__(self, one: _Side, two: _Side) -> None:
        self.one = one
        self.two = two

    def found(self) -> bool:
        start: Renaming | None = Renaming()
        tasks: list[Task] = []
        for name in self.one.ends:
            start = None if start is None else self._relation(name, name, start, tasks)
        waiting = [] if start is None else [(start, tuple(tasks))]
        while waiting:
            names, left = waiting.pop()
            if not left:
                alone = [n for n in self.one.statements if ("relation", n) not in names.pairs]
                if not alone:
                    return True
                tasks = []
                # relations that only each other read lead to no output: they keep their names
                found = self._relation(alone[0], alone[0], names, tasks)
                waiting += [] if found is None else [(found, tuple(tasks))]
                continue
            ((mine, theirs), *rest) = left
            if not mine:
                waiting.append((names, tuple(rest)))
                continue
            for at, statement in enumerate(theirs):
                for more, tasks in self._statements(mine[0], statement, names):
                    others = (mine[1:], theirs[:at] + theirs[at + 1 :])
                    waiting.append((more, (others, *rest, *tasks)))
        return False

    def _relation(self, a: str, b: str, names: Renaming, tasks: list[Task]) -> Renaming | None:
        """Pair two relations; what defines them is paired later."""
        known = ("relation", a) in names.pairs
        mine, theirs = self.one.statements.get(a), self.two.statements.get(b)
        if mine is None or theirs is None:  # data
            return names.with_pair("relation", a, b) if mine is theirs and a == b else None
        if self.one.functions(a) != self.two.functions(b):
            return None
        if len(mine) != len(theirs) or ((a in self.one.ends or b in self.two.ends) and a != b):
            return None
        found = names.with_pair("relation", a, b)
        if found is not None and not known:
            tasks.append((tuple(mine), tuple(theirs)))
        return found

    def _statements(self, a: Any, b: Any, names: Renaming) -> Iterator[tuple[Renaming, list[Task]]]:
        """The ways to pair two rules or facts."""
        names = names.without_variables()
        if type(a) is not type(b):
            return
        if isinstance(a, nodes.Fact):
            tasks: list[Task] = []
            found = self._unified(a.atom, b.atom, names, tasks)
            if found is not None:
                yield found, tasks
            return
        parts = [[i for i in rule.body if i.carries_value] for rule in (a, b)]
        others = [[i for i in rule.body if not i.carries_value] for rule in (a, b)]
        if len(others[0]) != len(others[1]):
            return
        tasks = []
        start = self._unified((a.head, *parts[0]), (b.head, *parts[1]), names, tasks)
        if start is None:
            return
        for found, more in self._conditions(others[0], others[1], start, tasks):
            last = list(more)
            done = self._unified(a.functions, b.functions, found, last)
            if done is not None:
                yield done, last

    def _conditions(
        self, mine: Sequence[Any], theirs: Sequence[Any], names: Renaming, tasks: list[Task]
    ) -> Iterator[tuple[Renaming, list[Task]]]:
        """Conditions in any order."""
        if not mine:
            yield names, tasks
            return
        for at, item in enumerate(theirs):
            more = list(tasks)
            found = self._unified(mine[0], item, names, more)
            if found is not None:
                yield from self._conditions(
                    mine[1:], [*theirs[:at], *theirs[at + 1 :]], found, more
                )

    def _unified(self, a: Any, b: Any, names: Renaming, tasks: list[Task]) -> Renaming | None:
        """The names under which two things are equal; None if there are none."""
        match a, b:
            case nodes.Variable(), nodes.Variable():
                if self.one.domains.get(a.name) != self.two.domains.get(b.name):
                    return None
                return names.with_pair("variable", a.name, b.name)
            case nodes.Atom(), nodes.Atom():
                found = self._relation(a.relation, b.relation, names, tasks)
                flags = (a.hidden, a.negated) == (b.hidden, b.negated)
                if found is None or not flags:
                    return None
                return self._unified((a.terms, a.weight), (b.terms, b.weight), found, tasks)
            case nodes.Weight(), nodes.Weight():
                found = names.with_pair("weight", str(a.name), str(b.name))
                if found is None:
                    return None
                plain = [replace(w, name=None) for w in (a, b)]
                return self._fields(plain[0], plain[1], found, tasks)
            case nodes.Function(), nodes.Function():
                return self._functions(a, b, names)
            case nodes.Expression(), nodes.Expression() if type(a) is type(b):
                return self._fields(a, b, names, tasks)
            case tuple(), tuple() if len(a) == len(b):
                found = names
                for one, other in zip(a, b, strict=True):
                    next_names = self._unified(one, other, found, tasks)
                    if next_names is None:
                        return None
                    found = next_names
                return found
        return names if type(a) is type(b) and a == b else None

    def _fields(self, a: Any, b: Any, names: Renaming, tasks: list[Task]) -> Renaming | None:
        listed = [f.name for f in fields(a) if f.compare]
        ours, theirs = (tuple(getattr(x, name) for name in listed) for x in (a, b))
        return self._unified(ours, theirs, names, tasks)

    def _functions(self, a: nodes.Function, b: nodes.Function, names: Renaming) -> Renaming | None:
        if a.name != b.name:
            return None
        ours, theirs = dict(a.arguments), dict(b.arguments)
        grouped, other = ours.pop("agg_terms", ()), theirs.pop("agg_terms", ())
        named = [names.pairs.get(("variable", name)) for name in grouped or ()]
        return names if ours == theirs and sorted(map(str, named)) == sorted(other or ()) else None
