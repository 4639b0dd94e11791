"""The groundings of a rule: assignments of its variables under which every body atom holds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from edgewise.errors import EdgewiseError
from edgewise.language import nodes
from edgewise.language.program import Domain
from edgewise.language.specials import SPECIALS
from edgewise.language.statements import atoms, weights
from edgewise.language.terms import order, variables
from edgewise.reference.arithmetic import computed, evaluated, holds
from edgewise.reference.relations import Database, Key

Assignment = dict[str, nodes.Constant]
Literal = nodes.Atom | nodes.SpecialAtom | nodes.PatternAtom | nodes.Weight


class OutOfDomain(EdgewiseError):
    """A weight family has one weight for each value of its domain, and none for any other."""

    code = "out-of-domain"
    example = "Program([R.h(V.T) <= R.a(V.T)[W.e(V.T)[2,]]], domains={V.T: 3}).solve([R.a(5)[1.0]])"
    instead = "Program([R.h(V.T) <= R.a(V.T)[W.e(V.T)[2,]]], domains={V.T: 6}).solve([R.a(5)[1.0]])"


@dataclass(frozen=True)
class Body:
    """The body of one rule, in the order in which its literals are tried."""

    rule: nodes.Rule
    domains: Mapping[str, Domain]

    @cached_property
    def literals(self) -> tuple[Literal, ...]:
        families = (weight for weight in weights(self.rule) if weight.keys)
        return (*atoms(self.rule), *families)

    @cached_property
    def visible(self) -> tuple[str, ...]:
        """The variables a grounding assigns: the head's, then those that carry values."""
        carrying = [
            t
            for literal in self.literals
            if isinstance(literal, nodes.Weight) or literal.carries_value
            for t in (literal.keys if isinstance(literal, nodes.Weight) else literal.terms)
        ]
        names = [v.name for v in variables([*self.rule.head.terms, *carrying])]
        return tuple(dict.fromkeys(names))

    @cached_property
    def recursive_places(self) -> tuple[int, ...]:
        return tuple(
            at
            for at, literal in enumerate(self.literals)
            if isinstance(literal, nodes.Atom) and not literal.negated
        )

    def groundings(self, database: Database) -> list[Assignment]:
        """Every grounding once, in key order; what only conditions mention is existential."""
        found: dict[Key, Assignment] = {}
        for assignment in self.matches(database):
            key = tuple(assignment[name] for name in self.visible)
            found.setdefault(key, {name: assignment[name] for name in self.visible})
        return [found[key] for key in sorted(found, key=order)]

    def matches(
        self, database: Database, first: int | None = None, new: Sequence[Key] = ()
    ) -> Iterator[Assignment]:
        """Assignments of all variables; with `first`, that atom holds by one of the `new` keys."""
        steps = self.steps(first)
        if first is None:
            yield from self._search(steps, {}, database)
            return
        atom = self.literals[first]
        assert isinstance(atom, nodes.Atom)
        for bound in _unify(atom, {}, new):
            yield from self._search(steps[1:], bound, database)

    def _search(
        self, steps: Sequence[int], bound: Assignment, database: Database
    ) -> Iterator[Assignment]:
        if not steps:
            yield bound
            return
        for extended in self._extensions(self.literals[steps[0]], bound, database):
            yield from self._search(steps[1:], extended, database)

    def _extensions(
        self, literal: Literal, bound: Assignment, database: Database
    ) -> Iterator[Assignment]:
        match literal:
            case nodes.Atom(negated=True):
                if _ground(literal.terms, bound) not in database[literal.relation]:
                    yield bound
            case nodes.Atom():
                yield from _scan(literal, bound, database)
            case nodes.SpecialAtom():
                yield from _special(literal, bound)
            case nodes.PatternAtom():
                if self._in_pattern(literal, bound, database) != literal.negated:
                    yield bound
            case nodes.Weight():
                yield from self._members(literal, bound)

    def _members(self, family: nodes.Weight, bound: Assignment) -> Iterator[Assignment]:
        """A family holds over its domain; a key bound outside it has no weight."""
        free = [v for v in variables(family.keys) if v.name not in bound]
        for variable in variables(family.keys):
            if variable.name in bound and bound[variable.name] not in members(
                self.domains[variable.name]
            ):
                raise OutOfDomain(
                    f"`{variable.name}` = {bound[variable.name]!r} has no weight in "
                    f"`{family.name}`: it is not in the domain of `{variable.name}`",
                    family.place or self.rule.place,
                    f"declare it: `Program(..., domains={{V.{variable.name}: ...}})`",
                )
        if not free:
            yield bound
            return
        for value in members(self.domains[free[0].name]):
            yield from self._members(family, bound | {free[0].name: value})

    def _in_pattern(
        self, literal: nodes.PatternAtom, bound: Assignment, database: Database
    ) -> bool:
        i, j = _ground(literal.terms, bound)
        if isinstance(i, str) or isinstance(j, str) or i < 0 or j < 0:
            return False
        n, m = (self._length(term, database) for term in literal.terms)
        return bool(literal.pattern.contains(i, j, max(n, i + 1), max(m, j + 1)))

    def _length(self, term: nodes.Term, database: Database) -> int:
        """The axis a pattern's term ranges over: the shortest among the atoms that hold it."""
        lengths = [
            database[literal.relation].length(position)
            for literal in self.literals
            if isinstance(literal, nodes.Atom) and not literal.negated
            for position, t in enumerate(literal.terms)
            if t == term and isinstance(t, nodes.Variable)
        ]
        return min(lengths, default=0)

    def steps(self, first: int | None, listed: frozenset[int] = frozenset()) -> list[int]:
        """An order in which every literal finds what it needs bound.

        `listed` are patterns that bind their variables, as atoms do.
        """
        waiting = [at for at in range(len(self.literals)) if at != first]
        steps = [] if first is None else [first]
        known = {v.name for at in steps for v in variables(_terms(self.literals[at]))}
        while waiting:
            at = min(
                waiting, key=lambda at: (self.cost(self.literals[at], known, at in listed), at)
            )
            waiting.remove(at)
            steps.append(at)
            known |= {v.name for v in variables(_terms(self.literals[at]))}
        return steps

    def cost(self, literal: Literal, known: set[str], listed: bool = False) -> tuple[int, int]:
        """How early a literal can come once `known` is bound: (kind, detail), least first."""
        free = {v.name for v in variables(_terms(literal))} - known
        match literal:
            case nodes.Weight():
                return (4, len(free))  # last: the other literals decide what it ranges over
            case nodes.PatternAtom() if listed and free:
                return (1, len(free))
            case nodes.Atom(negated=False):
                fixed = len(literal.terms) - len(free)
                return (0, 0) if not free else (2, -fixed)
            case nodes.SpecialAtom(negated=False) if len(free) == 1:
                computes = SPECIALS[literal.name].computes
                positions = [p for p, t in enumerate(literal.terms) if _is(t, free)]
                able = len(positions) == 1 and (
                    positions[0] in computes or positions[0] - len(literal.terms) in computes
                )
                # a factor of 0 leaves the other one open, so `mul` lets atoms bind it first
                return (1 if literal.name != "mul" else 3, 0) if able else (5, len(free))
        return (0, 1) if not free else (5, len(free))


def members(domain: Domain) -> Sequence[nodes.Constant]:
    return range(domain) if isinstance(domain, int) else domain


def _is(term: nodes.Term, names: set[str]) -> bool:
    return isinstance(term, nodes.Variable) and term.name in names


def _terms(literal: Literal) -> tuple[nodes.Term, ...]:
    return literal.keys if isinstance(literal, nodes.Weight) else literal.terms


def _ground(terms: Sequence[nodes.Term], bound: Assignment) -> Key:
    return tuple(bound[t.name] if isinstance(t, nodes.Variable) else t for t in terms)


def _scan(atom: nodes.Atom, bound: Assignment, database: Database) -> Iterator[Assignment]:
    values = [bound.get(t.name) if isinstance(t, nodes.Variable) else t for t in atom.terms]
    positions = [p for p, value in enumerate(values) if value is not None]
    wanted = tuple(values[p] for p in positions)
    keys = database[atom.relation].find(positions, wanted)  # type: ignore[arg-type]
    return _unify(atom, bound, keys)


def _unify(atom: nodes.Atom, bound: Assignment, keys: Iterable[Key]) -> Iterator[Assignment]:
    for key in keys:
        extended = dict(bound)
        if all(
            extended.setdefault(t.name, k) == k if isinstance(t, nodes.Variable) else t == k
            for t, k in zip(atom.terms, key, strict=True)
        ):
            yield extended


def _special(atom: nodes.SpecialAtom, bound: Assignment) -> Iterator[Assignment]:
    keys = [bound.get(t.name) if isinstance(t, nodes.Variable) else t for t in atom.terms]
    missing = [p for p, key in enumerate(keys) if key is None]
    if not missing:
        if atom.carries_value:
            true = evaluated(atom.name, keys) is not None  # type: ignore[arg-type]
        else:
            true = holds(atom, keys) != atom.negated  # type: ignore[arg-type]
        if true:
            yield bound
        return
    value = computed(atom, keys)
    if value is not None:
        variable = atom.terms[missing[0]]
        assert isinstance(variable, nodes.Variable)
        yield bound | {variable.name: value}
