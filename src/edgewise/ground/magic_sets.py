"""Magic sets: the rows of data that wanted atoms may read, found backwards through the rules.

A demand is a relation with keys at some of its places, such as `path(3, ·)`. It goes from rule
heads to bodies: atoms of data are looked up, derived atoms that others bind are taken to hold, and
are demanded in turn. So more may be found than is read, never less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from edgewise.ground.ground_rule import normalised
from edgewise.ground.grounder import Grounder
from edgewise.ground.index import Grid, Index, Keys, distinct_rows, locate, rows_of
from edgewise.ground.joins.body import SAMPLE, SAMPLES, Body, terms_of
from edgewise.ground.joins.groups import Lookups
from edgewise.ground.joins.join import Bindings, Budget, OverBudget, join
from edgewise.language import nodes
from edgewise.language.defaults import Domain
from edgewise.language.dependencies import components, needs, reachable
from edgewise.language.terms import variables

SMALL = 1 << 16  # rows of a relation that are indexed at once
SCANS = 4  # of all rows of a larger one, before an index is worth its time
SPARSE = 4  # times as many keys as rows, above which no table of keys is made
LOOK_UP = 16  # rows for each that is looked up: beyond, a search is faster than a table
LAST = (9,)  # the rank of a literal that needs no join
Places = tuple[int, ...]


class Unrestricted(Exception):
    """Internal: why wanted atoms may read any row."""


@dataclass(frozen=True, eq=False)
class Needed:
    """The rows of data that are read, ascending, None for all; and the atoms that are derived for
    it, by some of their places."""

    rows: dict[str, Tensor | None]
    heads: dict[str, dict[Places, Keys]]
    in_full: frozenset[str]  # derived relations of which any atom may be read

    def holds(self, relation: str, keys: Tensor) -> Tensor:
        """Which atoms of a derived relation are demanded."""
        found = torch.zeros(len(keys), dtype=torch.bool)
        for places, known in self.heads.get(relation, {}).items():
            found |= rows_of(known, keys[:, list(places)]) >= 0
        return found

    @property
    def derived(self) -> frozenset[str]:
        return self.in_full.union(self.heads)

    @property
    def count(self) -> int:
        return sum(len(rows) for rows in self.rows.values() if rows is not None)


@dataclass(frozen=True, eq=False)
class MagicSets:
    """Rules over data, whose rows are found by some of their keys."""

    rules: tuple[nodes.Rule, ...]
    grounder: Grounder  # its relations are those of data
    in_batch: frozenset[str] = frozenset()  # relations whose first key is the sample
    _scans: dict[tuple[str, Places], int] = field(default_factory=dict)

    @cached_property
    def bodies(self) -> dict[str, list[Body]]:
        found: dict[str, list[Body]] = {}
        domains: Mapping[str, Domain] = self.grounder.domains
        for rule in self.rules:
            found.setdefault(rule.head.relation, []).append(Body(rule, domains))
        return found

    @cached_property
    def order(self) -> dict[str, int]:
        """The place of each derived relation: after those that it needs, but for recursion."""
        parts = components(needs(self.rules))
        return {name: at for at, part in enumerate(parts) for name in part}

    @cached_property
    def graph(self) -> dict[str, set[str]]:
        return needs(self.rules)

    @cached_property
    def in_full(self) -> frozenset[str]:
        """Relations of which more is read than keys say, and what those need: an atom that does not
        hold is known when all are, and a pattern is as long as the relations around it."""
        found: set[str] = set()
        for body in (body for bodies in self.bodies.values() for body in bodies):
            every = [a for a in body.literals if isinstance(a, nodes.Atom)]
            if any(isinstance(literal, nodes.PatternAtom) for literal in body.literals):
                found |= {atom.relation for atom in every}
            found |= {atom.relation for atom in every if atom.negated}
        return frozenset(reachable(self.graph, found))

    @cached_property
    def restricts(self) -> bool:
        """Whether anything is read in part: data outside of what is needed in full, or samples."""
        read = reachable(self.graph, self.bodies)
        own = [name for name in self.grounder.relations if name in read]
        return any(name not in self.in_full or name in self.in_batch for name in own)

    @property
    def total(self) -> int:
        return sum(index.rows for index in self.grounder.relations.values())

    def needed(self, demands: Iterable[tuple[str, Places, Tensor]]) -> Needed:
        """What some atoms need: relation, places, and the keys there; `Unrestricted` if most."""
        search = _Demands(self, Budget(8 * (self.total + SMALL)))
        for relation, places, keys in demands:
            search.add(relation, places, keys)
        try:
            search.run()
        except OverBudget as error:
            raise Unrestricted("more groundings would be looked at than there are rows") from error
        return search.found()

    def matches(self, at: int, atom: nodes.Atom, bindings: Bindings, budget: Budget) -> Bindings:
        """Bindings extended by an atom of data, with its rows."""
        index = self.grounder.index(atom.relation, len(atom.terms))
        terms = self.grounder.coded(atom.terms)
        known = [p for p, t in enumerate(atom.terms) if _is_known(t, bindings)]
        if isinstance(index, Grid) or index.rows <= SMALL or not known:
            return join(bindings, at, terms, index, budget, self.grounder.lookups)
        scanned = self._scans.get((atom.relation, tuple(known)), 0)
        if scanned >= SCANS:
            return join(bindings, at, terms, index, budget, self.grounder.lookups)
        self._scans[atom.relation, tuple(known)] = scanned + 1
        columns = [self.grounder.column(atom.terms[p], bindings) for p in known]
        rows = rows_among(index, known, columns)
        some = index.take(rows)
        found = join(bindings, at, terms, some, budget, Lookups())
        own = rows.index_select(0, found.rows[at])
        return replace(found, rows=found.rows | {at: own})


class _Demands:
    """The demands of one call."""

    def __init__(self, sets: MagicSets, budget: Budget) -> None:
        self.sets = sets
        self.grounder = sets.grounder
        self.budget = budget
        self.rows: dict[str, list[Tensor]] = {}
        self.seen: dict[str, dict[Places, Keys]] = {}
        self.waiting: dict[str, dict[Places, list[Tensor]]] = {}
        self.samples: dict[str, list[Tensor] | None] = {}  # in full: all rows, or some samples'
        self.active: list[str] = []

    def add(self, relation: str, places: Places, keys: Tensor) -> None:
        """Demand atoms that have keys (rows, places) at some places."""
        if relation in self.sets.in_full:
            own = keys[:, places.index(0)] if 0 in places else None
            self.add_all(relation, own if relation in self.sets.in_batch else None)
            return
        self.waiting.setdefault(relation, {}).setdefault(places, []).append(keys)

    def add_all(self, relation: str, samples: Tensor | None) -> None:
        """Demand a relation and what it needs: of some samples, where it differs between them."""
        for name in reachable(self.sets.graph, [relation]):
            known = self.samples.setdefault(name, [])
            if samples is None or name not in self.sets.in_batch:
                self.samples[name] = None
            elif known is not None:
                known.append(samples.unique())

    def run(self) -> None:
        order = self.sets.order
        while self.waiting:
            name = max(self.waiting, key=lambda name: order.get(name, -1))
            for places, parts in self.waiting.pop(name).items():
                new = self._new(name, places, torch.cat(parts))
                if not len(new):
                    continue
                self._read(name, places, new)
                for body in self.sets.bodies.get(name, ()):
                    self._follow(body, places, new)

    def _new(self, relation: str, places: Places, keys: Tensor) -> Tensor:
        """The keys that were not demanded before."""
        seen, keys = self.seen.setdefault(relation, {}), distinct_rows(keys)
        if places in seen:
            keys = keys[rows_of(seen[places], keys) < 0]
            both = torch.cat([seen[places].keys, keys])
            seen[places] = Keys(distinct_rows(both)) if len(keys) else seen[places]
        else:
            seen[places] = Keys(keys)
        return keys

    def _read(self, relation: str, places: Places, keys: Tensor) -> None:
        """Note the rows of data that agree with a demand."""
        if relation in self.grounder.relations:
            self._note(relation, self._facts(relation, places, keys).rows[0])

    def _facts(self, relation: str, places: Places, keys: Tensor) -> Bindings:
        """The rows of data that have some keys at some places."""
        arity = self.grounder.relations[relation].arity
        every = [nodes.Variable(f"{p}") for p in range(arity)]
        columns = {f"{p}": keys[:, n] for n, p in enumerate(places)}
        bindings = Bindings(len(keys), columns)
        return self.sets.matches(0, nodes.Atom(relation, tuple(every)), bindings, self.budget)

    def _note(self, relation: str, rows: Tensor) -> None:
        self.rows.setdefault(relation, []).append(rows)

    def _follow(self, body: Body, places: Places, keys: Tensor) -> None:
        """Demand what the groundings of some rule heads read."""
        bindings = self._bindings(body, places, keys)
        if not bindings.count:
            return
        for at, literal in enumerate(body.literals):
            if not isinstance(literal, nodes.Atom):
                continue
            if literal.negated or literal.relation in self.sets.in_full:
                self.add_all(literal.relation, bindings.columns.get(SAMPLE.name))
            elif literal.relation in self.sets.bodies:
                every = tuple(range(len(literal.terms)))
                self.add(literal.relation, every, self.grounder.keys(literal, bindings))
            else:
                self._note(literal.relation, bindings.rows[at])

    def _bindings(self, body: Body, places: Places, keys: Tensor) -> Bindings:
        """The groundings of rule heads with some keys, if derived atoms hold. Rule heads that a
        softmax normalises together are demanded together."""
        head, free = body.rule.head, set(normalised(body.rule) or ())
        fixed = [
            n
            for n, p in enumerate(places)
            if not (isinstance(t := head.terms[p], nodes.Variable) and t.name in free)
        ]
        terms = self.grounder.coded(tuple(head.terms[places[n]] for n in fixed))
        start = Keys(distinct_rows(keys[:, fixed]))
        bindings = join(Bindings(), -1, terms, start, self.budget, Lookups()).without_rows(-1)
        waiting = list(range(len(body.literals)))
        while waiting:
            at = min(waiting, key=lambda at: self._rank(body, at, bindings))
            if self._rank(body, at, bindings) == LAST:
                break
            waiting.remove(at)
            bindings = self._extended(body, at, bindings)
        needed = {v.name for a in body.positive.values() for v in variables(a.terms)}
        needed |= {v.name for v in variables(head.terms)}
        if not needed <= bindings.columns.keys():
            raise Unrestricted(f"nothing binds all variables of a rule of `{head.relation}`")
        return bindings

    def _rank(self, body: Body, at: int, bindings: Bindings) -> tuple[float, ...]:
        """How early a literal is joined: conditions at once, then atoms with most keys known."""
        literal, known = body.literals[at], set(bindings.columns)
        free = {v.name for v in variables(terms_of(literal))} - known
        match literal:
            case nodes.Atom(negated=False):
                derived = literal.relation in self.sets.bodies
                if not free:
                    return LAST if derived else (0,)
                bound = sum(_is_known(t, bindings) for t in literal.terms)
                index = self.grounder.index(literal.relation, len(literal.terms))
                return (2, -bound, derived, index.rows, at)
            case nodes.SpecialAtom(function=None):
                kind, _ = body.cost(at, known)
                return LAST if kind == 5 else (kind, at)
            case nodes.Weight():  # an unknown key is refused where groundings are known to hold
                return (4, at) if free else LAST
        return LAST

    def _extended(self, body: Body, at: int, bindings: Bindings) -> Bindings:
        literal = body.literals[at]
        match literal:
            case nodes.Atom() if literal.relation in self.sets.bodies:
                index = self._derived(literal, bindings)
                terms = self.grounder.coded(literal.terms)
                return join(bindings, at, terms, index, self.budget, Lookups()).without_rows(at)
            case nodes.Atom():
                return self.sets.matches(at, literal, bindings, self.budget)
            case nodes.Weight():
                members, terms = self.grounder.domain(literal), self.grounder.coded(literal.keys)
                return join(bindings, at, terms, members, self.budget, Lookups()).without_rows(at)
        return self.grounder.extended(body, at, bindings, self.budget)

    def _derived(self, atom: nodes.Atom, bindings: Bindings) -> Keys:
        """The atoms of a derived relation that may hold and agree with bindings."""
        relation = atom.relation
        if relation in self.active:
            raise Unrestricted(f"`{relation}` needs itself before its keys are known")
        places = tuple(p for p, t in enumerate(atom.terms) if _is_known(t, bindings))
        columns = [self.grounder.column(atom.terms[p], bindings) for p in places]
        keys = torch.stack(columns, 1) if columns else torch.zeros(1, 0, dtype=torch.int64)
        keys = distinct_rows(keys)
        self.active.append(relation)
        found = [
            self.grounder.keys(body.rule.head, self._bindings(body, places, keys))
            for body in self.sets.bodies[relation]
        ]
        self.active.pop()
        if relation in self.grounder.relations:
            facts = self._facts(relation, places, keys).columns
            found.append(torch.stack([facts[f"{p}"] for p in range(len(atom.terms))], 1))
        return Keys(distinct_rows(torch.cat(found)))

    def found(self) -> Needed:
        rows: dict[str, Tensor | None] = {}
        for name, index in self.grounder.relations.items():
            if name == SAMPLES:
                rows[name] = None  # how many there are
            elif name in self.samples:
                rows[name] = self._of_samples(index, self.samples[name])
            elif name in self.rows:
                rows[name] = distinct_below(self.rows[name], index.rows)
        heads = {n: keys for n, keys in self.seen.items() if n in self.sets.bodies}
        every = frozenset(self.samples).intersection(self.sets.bodies)
        return Needed(rows, heads, every)

    def _of_samples(self, index: Index, samples: Sequence[Tensor] | None) -> Tensor | None:
        if samples is None:
            return None
        chosen = Keys(torch.cat([*samples]).unique().unsqueeze(1))
        return (locate(chosen, [index.column(0)]) >= 0).nonzero()[:, 0]


def distinct_below(rows: Sequence[Tensor], size: int) -> Tensor:
    """Different rows of a relation with `size` of them, ascending."""
    if not rows:
        return torch.zeros(0, dtype=torch.int64)
    if sum(map(len, rows)) * LOOK_UP < size:
        return torch.cat([*rows]).unique()
    held = torch.zeros(size, dtype=torch.bool)
    for some in rows:
        held[some] = True
    return held.nonzero()[:, 0]


def rows_among(index: Keys, places: Sequence[int], columns: Sequence[Tensor]) -> Tensor:
    """The rows that may agree with columns at some places, by a scan: all others do not."""
    holds: Tensor | None = None
    for place, column in zip(places, columns, strict=True):
        wanted = column.unique()
        if len(wanted) * SPARSE > index.rows:
            continue
        some = _among(index.column(place), wanted, index.ends[place])
        holds = some if holds is None else holds & some
    return torch.arange(index.rows) if holds is None else holds.nonzero()[:, 0]


def _among(column: Tensor, wanted: Tensor, ends: tuple[int, int]) -> Tensor:
    """Which keys of a column are wanted."""
    low, high = ends
    if len(wanted) == 1:
        return column == wanted
    if high - low >= SPARSE * len(column):
        return torch.isin(column, wanted)
    inside = wanted[(wanted >= low) & (wanted <= high)]
    table = torch.zeros(high - low + 1, dtype=torch.bool)
    table[inside - low] = True
    return table[column - low]


def _is_known(term: nodes.Term, bindings: Bindings) -> bool:
    return not isinstance(term, nodes.Variable) or term.name in bindings.columns
