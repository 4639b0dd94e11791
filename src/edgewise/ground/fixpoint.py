"""Which atoms hold where relations need one another: the least fixpoint of their rules.

`h(T) <= x(T), h(S), next(S, T)` has at most one grounding for each `x(T)`. Such candidates are
joined once, without `h`; what remains is which of them are reached, a walk over integers. All other
recursion is evaluated semi-naively, round by round.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from edgewise.checks.evaluation import ROUNDS, OutOfDomain, endless
from edgewise.ground.grounder import Grounder
from edgewise.ground.index import (
    STRINGS,
    Grid,
    Index,
    Keys,
    distinct_rows,
    index_of,
    locate,
    offsets_of,
)
from edgewise.ground.joins.body import Body, Literal
from edgewise.ground.joins.join import Bindings, Budget, OverBudget
from edgewise.ground.key_runs import KeyRuns
from edgewise.language import nodes
from edgewise.language.terms import variables
from edgewise.layouts.ragged import pointer, ranges

WINDOW = 1_000  # rounds
LINEAR = {"leq", "lt", "geq", "gt", "eq", "neq", "in", "alldiff", "add", "sub", "next"}
THIN_ROUNDS, THIN = 32, 64  # frontiers of fewer atoms than that are walked atom by atom
MAX_CANDIDATES = 1 << 20  # beyond, rounds that join only what is new may do with fewer


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Groundings that hold if their recursive atoms do: keys of the rule head and of those."""

    relation: str
    head: Tensor
    premises: tuple[tuple[str, Tensor], ...]


def extend(grounder: Grounder, relation: str, parts: Iterable[Index]) -> None:
    """Add keys to a relation."""
    old = grounder.relations.get(relation)
    found = [*([old] if old is not None else []), *parts]
    if len(found) == 1 or all(index == found[0] for index in found):
        grounder.relations[relation] = found[0]
        return
    table = torch.cat([index.keys for index in found])
    grounder.relations[relation] = index_of(distinct_rows(table))


def least_fixpoint(grounder: Grounder, bodies: Sequence[Body], part: set[str]) -> None:
    """Derive the relations of `part`, which need one another, until nothing is new."""
    if grounder.recorded is None:
        _derive_all(grounder, bodies, part)
    else:
        derived = partial(_derive_all, grounder, bodies, part)
        grounder.recorded.fixpoint(grounder, bodies, part, derived)


def _derive_all(grounder: Grounder, bodies: Sequence[Body], part: set[str]) -> None:
    found = _reachable(grounder, bodies, part)
    if found is not None:
        grounder.relations.update(found)
        return
    growth = _Growth(grounder, bodies)
    held = {body.rule.head.relation: KeyRuns(None) for body in bodies}
    held |= {name: KeyRuns(grounder.relations.get(name)) for name in part}
    reads_all = any(_reads_all(body, part) for body in bodies)
    new: dict[str, Tensor] = {}
    for body in bodies:
        _derive(grounder, body, None, held, new)
    for at in range(ROUNDS):
        _accept(grounder, held, new, reads_all or not new)
        if not new:
            return
        if at > WINDOW and growth.is_endless(new):
            break
        last, new = {name: index_of(keys) for name, keys in new.items()}, {}
        for body in bodies:
            for at, atom in body.positive.items():
                if atom.relation in part and atom.relation in last:
                    _derive(grounder, body, (at, last[atom.relation]), held, new)
    raise endless(bodies[0].rule)


def _reads_all(body: Body, part: set[str]) -> bool:
    """Whether a round reads atoms of the recursion that are not new: beside another one, or where
    a pattern is as long as they are."""
    recursive = [atom for atom in body.positive.values() if atom.relation in part]
    patterns = any(isinstance(literal, nodes.PatternAtom) for literal in body.literals)
    return len(recursive) > 1 or (patterns and bool(recursive))


class _Growth:
    """Whether keys outgrow all integers that data and rules name: then they count without end.

    Sums and comparisons of n integers reach n times the largest; products may reach further.
    """

    def __init__(self, grounder: Grounder, bodies: Sequence[Body]) -> None:
        self.before = list(grounder.relations.values())
        self.bodies = bodies
        self.rounds = 0  # in which keys were larger

    @cached_property
    def largest(self) -> float:
        literals = [literal for body in self.bodies for literal in body.literals]
        for literal in literals:
            if not isinstance(literal, nodes.Atom) and getattr(literal, "name", "") not in LINEAR:
                return math.inf
        heads = [body.rule.head for body in self.bodies]
        terms = [term for literal in (*heads, *literals) for term in getattr(literal, "terms", ())]
        named = [abs(term) for term in terms if isinstance(term, int)]
        return max([1, *named, *map(_largest, self.before)]) * (len(literals) + 1)

    def is_endless(self, new: Mapping[str, Tensor]) -> bool:
        """Whether keys of this round, and of many before it, are larger."""
        larger = max(_largest(Keys(keys)) for keys in new.values()) > self.largest
        self.rounds = self.rounds + 1 if larger else 0
        return self.rounds > WINDOW


def _largest(index: Index) -> int:
    """The largest integer of its keys, less the sign."""
    if isinstance(index, Grid):
        return max(index.sizes, default=0)
    integers = index.keys[index.keys < STRINGS].abs()
    return int(integers.max()) if integers.numel() else 0


def _derive(
    grounder: Grounder,
    body: Body,
    delta: tuple[int, Index] | None,
    held: Mapping[str, KeyRuns],
    new: dict[str, Tensor],
) -> None:
    """Add to `new` the atoms that one rule derives and that do not hold yet."""
    head = body.rule.head
    keys = distinct_rows(grounder.keys(head, grounder.bindings(body, *(delta or (None, None)))))
    if len(keys):
        keys = keys[~held[head.relation].knows(keys)]
    if len(keys):
        before = new.get(head.relation)
        both = keys if before is None else torch.cat([before, keys])
        grounder.check_rows(body, held[head.relation].rows + len(both))
        new[head.relation] = distinct_rows(both)


def _accept(
    grounder: Grounder, held: Mapping[str, KeyRuns], new: Mapping[str, Tensor], merge: bool
) -> None:
    for relation, keys in new.items():
        held[relation].add(keys)
    for relation, runs in held.items() if merge else ():
        merged = runs.merged()
        if merged is not None:
            grounder.relations[relation] = merged


def _reachable(
    grounder: Grounder, bodies: Sequence[Body], part: set[str]
) -> dict[str, Index] | None:
    """The atoms of relations that need one another; None where candidates are not bounded.

    Where the other literals of a rule do not bind its candidates, atoms of relations whose
    candidates are known do: `b(T) <= a(S), next(S, T)` with those of `a`.
    """
    found: dict[int, _Candidates] = {}
    atoms: dict[str, Index] = {}
    count = -1
    while len(found) + len(atoms) > count:
        count = len(found) + len(atoms)
        bounds = Grounder(
            grounder.constants, grounder.domains, {**grounder.relations, **atoms}, grounder.limit
        )
        for number, body in enumerate(bodies):
            candidates = None if number in found else _candidates(bounds, body, part, atoms)
            if candidates is not None:
                found[number] = candidates
        for relation in sorted(part - atoms.keys()):
            own = [n for n, body in enumerate(bodies) if body.rule.head.relation == relation]
            if all(number in found for number in own):
                atoms[relation] = _atoms(grounder, relation, [found[number] for number in own])
    if len(atoms) < len(part):
        return None
    true = _follow(grounder, atoms, list(found.values()))
    return {
        relation: index_of(index.keys[torch.from_numpy(true[relation])])
        for relation, index in atoms.items()
    }


def _candidates(
    grounder: Grounder, body: Body, part: set[str], known: Collection[str]
) -> _Candidates | None:
    """The groundings that may hold; `known` are relations of which the grounder has every atom
    that may hold."""
    recursive = {
        at: a
        for at, a in enumerate(body.literals)
        if isinstance(a, nodes.Atom) and not a.negated and a.relation in part
    }
    others = frozenset(at for at, a in recursive.items() if a.relation not in known)
    head, premises = body.rule.head, list(recursive.values())
    needed = {v.name for a in (head, *premises) for v in variables(a.terms)}
    for without in dict.fromkeys((frozenset(recursive), others)):
        bindings = _bindings(grounder, body, without)
        if bindings is not None and needed <= set(bindings.columns):
            return _Candidates(
                head.relation,
                grounder.keys(head, bindings),
                tuple((a.relation, grounder.keys(a, bindings)) for a in premises),
            )
    return None


def _bindings(grounder: Grounder, body: Body, without: frozenset[int]) -> Bindings | None:
    """The join of all literals but some; None if the others do not bind what they compare."""
    if any(isinstance(literal, nodes.PatternAtom) for literal in body.literals):
        return None  # how long its axes are, recursion decides
    bindings, waiting = Bindings(), [a for a in range(len(body.literals)) if a not in without]
    budget = Budget(min(grounder.limit, 8 * MAX_CANDIDATES))
    try:
        while waiting:
            known = set(bindings.columns)
            at = min(waiting, key=lambda at: (body.cost(at, known), at))
            if body.cost(at, known)[0] == 5:
                return None
            waiting.remove(at)
            if not _is_bound_family(body.literals[at], known):
                bindings = grounder.extended(body, at, bindings, budget)
    except (OverBudget, OutOfDomain):  # of atoms that may not hold
        return None
    return bindings


def _is_bound_family(literal: Literal, known: set[str]) -> bool:
    """A family refuses keys outside its domain, which only groundings that hold may bring."""
    if not isinstance(literal, nodes.Weight):
        return False
    return known.issuperset(v.name for v in variables(literal.keys))


def _atoms(grounder: Grounder, relation: str, found: Sequence[_Candidates]) -> Index:
    """Every atom that holds or may hold."""
    tables = [c.head for c in found if c.relation == relation]
    have = grounder.relations.get(relation)
    return Keys(distinct_rows(torch.cat([*tables, *([] if have is None else [have.keys])])))


def _rows(index: Index, keys: Tensor) -> np.ndarray:
    if not keys.shape[1]:
        return np.full(len(keys), 0 if index.rows else -1)
    return locate(index, keys.unbind(1)).numpy()


def _follow(
    grounder: Grounder, atoms: Mapping[str, Index], found: Sequence[_Candidates]
) -> dict[str, np.ndarray]:
    """Which atoms hold: those that do already, and heads of groundings whose premises hold."""
    offsets, total = offsets_of(atoms)
    heads, reads, readers, count = [], [], [], 0
    for group in found:
        size = len(group.head)
        heads.append(_rows(atoms[group.relation], group.head) + offsets[group.relation])
        for relation, keys in group.premises:
            rows = _rows(atoms[relation], keys)
            # one atom that may never hold represents all such: one beyond the last
            reads.append(np.where(rows < 0, total, rows + offsets[relation]))
            readers.append(np.arange(count, count + size))
        count += size
    held = np.zeros(total + 1, dtype=bool)
    for relation, index in atoms.items():
        have = grounder.relations.get(relation)
        if have is not None:
            held[_rows(index, have.keys) + offsets[relation]] = True
    _spread(held, np.concatenate(heads), _joined(reads), _joined(readers))
    return {r: held[offsets[r] : offsets[r] + index.rows] for r, index in atoms.items()}


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _spread(held: np.ndarray, heads: np.ndarray, reads: np.ndarray, readers: np.ndarray) -> None:
    """Mark what groundings derive as held, a frontier at a time, once all they read is held."""
    readers_of = readers[np.argsort(reads, kind="stable")]
    ptr = pointer(np.bincount(reads, minlength=len(held)))
    waiting = np.bincount(readers, minlength=len(heads))
    fresh = np.unique(np.concatenate([np.flatnonzero(held), heads[waiting == 0]]))
    rounds, seen = 0, 0
    while len(fresh):
        rounds, seen = rounds + 1, seen + len(fresh)
        if rounds > THIN_ROUNDS and seen < THIN * rounds:
            _spread_one_by_one(held, fresh, heads, readers_of, ptr, waiting)
            return
        held[fresh] = True
        done = readers_of[ranges(ptr[fresh], ptr[fresh + 1] - ptr[fresh])]
        np.subtract.at(waiting, done, 1)
        ready = heads[done[waiting[done] == 0]]
        fresh = np.unique(ready[~held[ready]])


def _spread_one_by_one(
    held: np.ndarray,
    fresh: np.ndarray,
    heads: np.ndarray,
    readers_of: np.ndarray,
    ptr: np.ndarray,
    waiting: np.ndarray,
) -> None:
    """The same from a frontier on, atom by atom: thousands of frontiers of a few atoms each."""
    known, left = held.tolist(), waiting.tolist()
    to, read, at = heads.tolist(), readers_of.tolist(), ptr.tolist()
    stack = fresh.tolist()
    for atom in stack:
        known[atom] = True
    while stack:
        atom = stack.pop()
        for grounding in read[at[atom] : at[atom + 1]]:
            left[grounding] -= 1
            head = to[grounding]
            if not left[grounding] and not known[head]:
                known[head] = True
                stack.append(head)
    held[:] = known
