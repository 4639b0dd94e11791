"""Which rows the rule heads of a rank may read, found before any rule is joined.

A rank has some nodes. From those of its rule heads the keys of a body are followed atom by atom:
relations that all ranks were given are looked up, keys of derived ones are sought of the ranks that
have them. So more may be found than is read, never less, and no rank joins what others need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from edgewise.distributed.collectives import Ranks
from edgewise.ground.index import Constants, distinct_rows
from edgewise.ground.joins.reduce import among
from edgewise.language import nodes
from edgewise.language.statements import atoms
from edgewise.layouts.ragged import ranges

KeysOf = Callable[[str], Tensor]  # (rows, arity) of a relation that all ranks have


@dataclass(frozen=True, eq=False)
class CutRelation:
    """A relation each rank has some rows of: those whose key at one place is a node of its own.

    Rows are numbered over all ranks: those of the first rank, then those of the next.
    """

    ranks: Ranks
    keys: Tensor  # (rows, arity) of this rank, ascending
    place: int  # of the node among the keys
    ends: np.ndarray = field(init=False)  # of the numbers of each rank

    def __post_init__(self) -> None:
        counts = self.ranks.gather(self.ranks.integers([len(self.keys)]))[:, 0]
        object.__setattr__(self, "ends", counts.cumsum(0).cpu().numpy())

    @property
    def first(self) -> int:
        """The number of the first row of this rank."""
        return int(self.ends[self.ranks.rank]) - len(self.keys)

    def at(self, nodes: Tensor, partition: Tensor) -> tuple[Tensor, Tensor]:
        """The keys of the rows of some nodes, ascending, and their numbers; on all ranks."""
        wanted = nodes.numpy()
        owner = partition.numpy()[wanted]
        _, _, sent, sought = self.ranks.request(wanted, owner)
        order = self.keys[:, self.place].argsort(stable=True).numpy()
        held = self.keys[:, self.place].numpy()[order]
        start = np.searchsorted(held, sought)
        count = np.searchsorted(held, sought, side="right") - start
        rows = order[ranges(start, count)]
        told = np.concatenate([rows[:, None] + self.first, self.keys.numpy()[rows]], 1)
        asker = np.repeat(np.arange(self.ranks.count), sent)
        counts = np.bincount(np.repeat(asker, count), minlength=self.ranks.count).tolist()
        once = [1] * self.ranks.count
        got = self.ranks.exchange(self.ranks.integers(counts), once, once, "plan")().tolist()
        found = self.ranks.exchange(self.ranks.integers(told), counts, got, "plan")().cpu()
        order = np.lexsort(found[:, 1:].T.flip(0).numpy()) if len(found) else []
        found = found[torch.as_tensor(order, dtype=torch.int64)]
        return found[:, 1:], found[:, 0].contiguous()


@dataclass(eq=False)
class SemiJoins:
    """What the rules of one relation may read, for rule heads of some nodes.

    `rows` are those of relations that all ranks have, `found` those of cut ones.
    """

    constants: Constants
    keys_of: KeysOf
    cut: Mapping[str, CutRelation]
    partition: Tensor
    rows: dict[str, Tensor] = field(default_factory=dict)  # which, one by one
    found: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)  # keys and numbers

    def follow(self, rule: nodes.Rule, place: int | None, own: Tensor) -> None:
        """Note what a rule reads for own nodes at a place of its head; all ranks follow the same
        atoms in the same order."""
        body = list(atoms(rule.body))
        in_full = any(
            isinstance(one, nodes.PatternAtom) for one in body
        )  # as long as what it joins
        head = None if place is None or in_full else rule.head.terms[place]
        known = {head.name: own} if isinstance(head, nodes.Variable) else {}
        waiting = [one for one in body if isinstance(one, nodes.Atom)]
        while waiting:
            atom = min(waiting, key=lambda one: self._rank(one, known))
            waiting.remove(atom)
            if atom.relation in self.cut:
                self._cut(atom, known, in_full)
            else:
                self._listed(atom, known, in_full)

    def _rank(self, atom: nodes.Atom, known: Mapping[str, Tensor]) -> tuple[bool, ...]:
        """Atoms that something binds come first, those that bind nothing last; the rules alone
        decide, so that ranks agree."""
        at = atom.terms
        if atom.relation in self.cut:
            at = (at[self.cut[atom.relation].place],)
        bound = any(not isinstance(t, nodes.Variable) or t.name in known for t in at)
        return (atom.negated, not bound, atom.relation in self.cut)

    def _listed(self, atom: nodes.Atom, known: dict[str, Tensor], in_full: bool) -> None:
        keys = self.keys_of(atom.relation)
        held = self._agreeing(atom, keys, known)
        before = self.rows.get(atom.relation)
        every = torch.ones_like(held) if in_full else held
        self.rows[atom.relation] = every if before is None else before | every
        self._learn(atom, keys[held], known, in_full)

    def _cut(self, atom: nodes.Atom, known: dict[str, Tensor], in_full: bool) -> None:
        relation = self.cut[atom.relation]
        term = atom.terms[relation.place]
        if isinstance(term, nodes.Variable):
            wanted = known.get(term.name, torch.arange(len(self.partition)))
        else:
            wanted = torch.tensor([self.constants.code(term)])
        wanted = wanted[(wanted >= 0) & (wanted < len(self.partition))]
        keys, numbers = relation.at(wanted, self.partition)
        before = self.found.get(atom.relation)
        if before is not None:
            every = torch.cat([torch.cat([k, n[:, None]], 1) for k, n in (before, (keys, numbers))])
            every = distinct_rows(every)
            self.found[atom.relation] = every[:, :-1], every[:, -1].contiguous()
        else:
            self.found[atom.relation] = keys, numbers
        self._learn(atom, keys[self._agreeing(atom, keys, known)], known, in_full)

    def _agreeing(self, atom: nodes.Atom, keys: Tensor, known: Mapping[str, Tensor]) -> Tensor:
        """Which rows have keys that are possible so far."""
        held = torch.ones(len(keys), dtype=torch.bool)
        for place, term in enumerate(atom.terms):
            if not isinstance(term, nodes.Variable):
                held &= keys[:, place] == self.constants.code(term)
            elif term.name in known:
                held &= among(keys[:, place], known[term.name])
        return held

    def _learn(
        self, atom: nodes.Atom, keys: Tensor, known: dict[str, Tensor], in_full: bool
    ) -> None:
        """The keys that variables may have, by an atom that binds them."""
        if atom.negated or in_full:
            return
        for place, term in enumerate(atom.terms):
            if isinstance(term, nodes.Variable):
                known[term.name] = keys[:, place].unique()
