"""The groundings of a rule: assignments of its variables under which every body atom holds."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from edgewise.checks.evaluation import OutOfDomain
from edgewise.language import nodes
from edgewise.language.defaults import Domain, members
from edgewise.language.specials import computes
from edgewise.language.statements import assigned_variables, atoms, weights
from edgewise.language.terms import order, variables
from edgewise.reference.arithmetic import computed, evaluated, holds

Key = tuple[nodes.Constant, ...]
Assignment = dict[str, nodes.Constant]
Literal = nodes.Atom | nodes.SpecialAtom | nodes.PatternAtom | nodes.Weight


class KeySet:
    """A growing set of keys, indexed by whichever positions a join has bound."""

    def __init__(self) -> None:
        self.keys: dict[Key, None] = {}  # a set that remembers its order
        self._indices: dict[tuple[int, ...], dict[Key, list[Key]]] = {}

    def add(self, key: Key) -> bool:
        """Whether the key is new."""
        if key in self.keys:
            return False
        self.keys[key] = None
        for positions, index in self._indices.items():
            index[tuple(key[p] for p in positions)].append(key)
        return True

    def remove(self, key: Key) -> None:
        self.keys.pop(key, None)
        self._indices.clear()

    def find(self, positions: Sequence[int], values: Key) -> Iterable[Key]:
        """The keys with these values at these positions."""
        if not positions:
            return list(self.keys)
        where = tuple(positions)
        if where not in self._indices:
            index: dict[Key, list[Key]] = defaultdict(list)
            for key in self.keys:
                index[tuple(key[p] for p in where)].append(key)
            self._indices[where] = index
        return list(self._indices[where].get(values, ()))

    def length(self, position: int) -> int:
        """One more than the largest integer at a position: the length of that axis."""
        return max((k[position] + 1 for k in self.keys if isinstance(k[position], int)), default=0)  # type: ignore[operator]

    def __contains__(self, key: Key) -> bool:
        return key in self.keys

    def __iter__(self) -> Iterator[Key]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)


Database = defaultdict[str, KeySet]


@dataclass(frozen=True)
class Matcher:
    """Finds the groundings of one rule, literal by literal."""

    rule: nodes.Rule
    domains: Mapping[str, Domain]

    @cached_property
    def literals(self) -> tuple[Literal, ...]:
        families = (weight for weight in weights(self.rule) if weight.keys)
        return (*atoms(self.rule), *families)

    @cached_property
    def visible(self) -> tuple[str, ...]:
        """The variables a grounding assigns, in the order that groundings are sorted by."""
        return assigned_variables(self.rule)

    @cached_property
    def recursive_places(self) -> tuple[int, ...]:
        return tuple(
            at
            for at, literal in enumerate(self.literals)
            if isinstance(literal, nodes.Atom) and not literal.negated
        )

    def groundings(self, database: Database) -> list[tuple[Assignment, Assignment]]:
        """Every grounding once, in key order; variables only conditions mention are existential.

        Each is an assignment, and one of all variables, which says how conditions hold.
        """
        found: dict[Key, Assignment] = {}
        for assignment in self.matches(database):
            key = tuple(assignment[name] for name in self.visible)
            found.setdefault(key, assignment)
        every = (found[key] for key in sorted(found, key=order))
        return [({name: bound[name] for name in self.visible}, bound) for bound in every]

    def matches(
        self, database: Database, first: int | None = None, new: Sequence[Key] = ()
    ) -> Iterator[Assignment]:
        """Assignments of all variables; with `first`, that atom holds by one of the `new` keys."""
        if first is None:
            yield from self._search(self._ordered(self.literals, set()), {}, database)
            return
        atom = self.literals[first]
        assert isinstance(atom, nodes.Atom)
        others = [literal for at, literal in enumerate(self.literals) if at != first]
        others = self._ordered(others, {v.name for v in variables(atom.terms)})
        for bound in _unify(atom, {}, new):
            yield from self._search(others, bound, database)

    def _search(
        self, literals: Sequence[Literal], bound: Assignment, database: Database
    ) -> Iterator[Assignment]:
        if not literals:
            yield bound
            return
        for extended in self._extensions(literals[0], bound, database):
            yield from self._search(literals[1:], extended, database)

    def _ordered(self, literals: Sequence[Literal], bound: set[str]) -> list[Literal]:
        """The literals in an order in which each finds what it needs bound."""
        waiting, ordered, bound = list(literals), [], set(bound)
        while waiting:
            at = min(range(len(waiting)), key=lambda at: _delay(waiting[at], bound))
            literal = waiting.pop(at)
            ordered.append(literal)
            bound |= {v.name for v in variables(_terms(literal))}
        return ordered

    def _extensions(
        self, literal: Literal, bound: Assignment, database: Database
    ) -> Iterator[Assignment]:
        match literal:
            case nodes.Atom(negated=True):
                if ground(literal.terms, bound) not in database[literal.relation]:
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
        i, j = ground(literal.terms, bound)
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


def _delay(literal: Literal, bound: set[str]) -> tuple[int, int]:
    """How late a literal comes once `bound` is: tests, then what computes a key, then atoms by the
    keys that are left to find, then families, which hold over all of their domains."""
    free = [p for p, t in enumerate(_terms(literal)) if _is_free(t, bound)]
    if isinstance(literal, nodes.Weight):
        return (4, len(free))
    if not free:
        return (0, 0)
    if isinstance(literal, nodes.Atom) and not literal.negated:
        return (2, len(free) - len(literal.terms))
    can = isinstance(literal, nodes.SpecialAtom) and not literal.negated and len(free) == 1
    if can and free[0] in computes(literal):  # type: ignore[arg-type]
        # a factor of 0 leaves the other one open, so `mul` lets atoms bind it first
        return (3 if literal.name == "mul" else 1, 0)  # type: ignore[union-attr]
    return (5, len(free))


def _is_free(term: nodes.Term, bound: set[str]) -> bool:
    return isinstance(term, nodes.Variable) and term.name not in bound


def _terms(literal: Literal) -> tuple[nodes.Term, ...]:
    return literal.keys if isinstance(literal, nodes.Weight) else literal.terms


def ground(terms: Sequence[nodes.Term], bound: Assignment) -> Key:
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
