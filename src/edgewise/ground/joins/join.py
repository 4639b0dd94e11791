"""Joins on columns of keys: partial groundings extended by one atom, never a loop over rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import EdgewiseError
from edgewise.ground.index import (
    WIDEST,
    Grid,
    Index,
    Keys,
    ascending,
    encode,
    ends_of,
    locate,
    ranked,
    run_starts,
    stable_order,
)
from edgewise.ground.joins.groups import Lookups
from edgewise.language import nodes
from edgewise.layouts.recorded import integer, one_call

MARKED = 32  # codes for each grounding, up to which marking those that occur beats sorting


@dataclass(frozen=True)
class Bindings:
    """Partial groundings: a column per variable, and the row of each atom joined so far."""

    count: int = 1
    columns: dict[str, Tensor] = field(default_factory=dict)
    rows: dict[int, Tensor] = field(default_factory=dict)

    def take(self, chosen: Tensor) -> Bindings:
        return Bindings(
            chosen.shape[0],
            {name: column.index_select(0, chosen) for name, column in self.columns.items()},
            {at: rows.index_select(0, chosen) for at, rows in self.rows.items()},
        )

    def between(self, low: int, high: int) -> Bindings:
        """A slice, without a copy."""
        return Bindings(
            high - low,
            {name: column[low:high] for name, column in self.columns.items()},
            {at: rows[low:high] for at, rows in self.rows.items()},
        )

    def without_rows(self, at: int) -> Bindings:
        return replace(self, rows={a: rows for a, rows in self.rows.items() if a != at})

    def only(self, names: Collection[str]) -> Bindings:
        """Without other columns."""
        return replace(self, columns={n: c for n, c in self.columns.items() if n in names})

    def where(self, mask: Tensor) -> Bindings:
        return self if bool(mask.all()) else self.take(mask.nonzero()[:, 0])

    def bind(self, name: str, column: Tensor) -> Bindings:
        return replace(self, columns=self.columns | {name: column})


def join(
    bindings: Bindings,
    at: int,
    terms: tuple[nodes.Term | int, ...],
    index: Index,
    budget: Budget,
    lookups: Lookups,
) -> Bindings:
    """Extend bindings by the atom `at`; its constants are codes already."""
    known = [p for p, t in enumerate(terms) if not _free(t, bindings)]
    if len(known) == len(terms) and terms:
        columns = [column_of(terms[p], bindings) for p in known]
        likely = lookups.may_hold(index, columns)
        if likely is not None:
            bindings = bindings.where(likely)
            columns = [column_of(terms[p], bindings) for p in known]
        rows = locate(index, columns)
        found = replace(bindings, rows=bindings.rows | {at: rows})
        return found.where(rows >= 0)
    if isinstance(index, Grid):
        expanded, rows = _expand_grid(bindings, terms, index, known, budget)
    else:
        expanded, rows = _expand_keys(bindings, terms, index, known, budget, lookups)
    expanded = replace(expanded, rows=expanded.rows | {at: rows})
    every = isinstance(index, Keys) and not known and not bindings.columns and bindings.count == 1
    return _bind_new(expanded, terms, index, rows, every)


class Budget:
    """The bytes that the groundings of a rule may take; refuses before they are allocated.

    Each has a key of 8 bytes in each of `columns`. `at` is the literal that is joined.
    """

    def __init__(self, limit: int, columns: int = 1) -> None:
        self.limit = limit
        self.each = 8 * columns
        self.at: int | None = None
        self.refused = 0

    def check(self, count: int) -> None:
        if self.each * count > self.limit:
            self.refused = count
            raise OverBudget(count)


class PlanTooLarge(EdgewiseError):
    """A join that would not fit is refused before it allocates anything."""

    code = "plan-too-large"
    example = (
        "Program([R.h(V.X, V.Y) <= (R.a(V.X), R.a(V.Y))]).compile(R.h, limit=100)"
        ".ground(facts=[R.a(i)[1.0] for i in range(4)])"
    )
    instead = (
        "Program([R.h(V.X, V.Y) <= (R.a(V.X), R.a(V.Y))]).compile(R.h, limit=1 << 20)"
        ".ground(facts=[R.a(i)[1.0] for i in range(4)])"
    )


def in_bytes(count: int) -> str:
    """
    >>> in_bytes(512), in_bytes(3 << 29)
    ('512 B', '1.5 GiB')
    """
    for unit, size in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << size:
            return f"{count / (1 << size):,.1f} {unit}"
    return f"{count} B"


def over_limit(rule: nodes.Rule, count: int, needed: int, limit: int, atom: str) -> PlanTooLarge:
    """The error for a rule that takes more memory than `compile(..., limit=...)` allows."""
    where = f" at `{atom}`" if atom else ""
    return PlanTooLarge(
        f"the rule for `{rule.head.relation}` has about {count:,} groundings{where}, which take "
        f"{in_bytes(needed)}, more than the limit of {in_bytes(limit)}",
        rule.place,
        "add a condition that joins its atoms, or raise `compile(..., limit=...)`, in bytes",
    )


def too_many_bytes(rule: nodes.Rule, count: int, what: str, needed: int) -> PlanTooLarge:
    """The error for a rule that takes more memory than there is."""
    return PlanTooLarge(
        f"the rule for `{rule.head.relation}` has about {count:,} {what}, which take "
        f"{in_bytes(needed)}, more than there is memory",
        rule.place,
        "add a condition that joins its atoms, or give fewer rows, samples or features at a time",
    )


class OverBudget(Exception):
    """Internal: the number of groundings a join would have."""


def _free(term: nodes.Term | int, bindings: Bindings) -> bool:
    return isinstance(term, nodes.Variable) and term.name not in bindings.columns


def column_of(term: nodes.Term | int, bindings: Bindings) -> Tensor:
    if isinstance(term, nodes.Variable):
        return bindings.columns[term.name]
    return torch.full((bindings.count,), int(term), dtype=torch.int64)


def _expand_grid(
    bindings: Bindings,
    terms: tuple[nodes.Term | int, ...],
    index: Grid,
    known: list[int],
    budget: Budget,
) -> tuple[Bindings, Tensor]:
    """Known positions are looked up, the others run over all of their axis."""
    inside = torch.ones(bindings.count, dtype=torch.bool)
    base = torch.zeros(bindings.count, dtype=torch.int64)
    strides = [math.prod(index.sizes[p + 1 :]) for p in range(index.arity)]
    for p in known:
        column = column_of(terms[p], bindings)
        inside &= (column >= 0) & (column < index.sizes[p])
        base = base + column * strides[p]
    found = bindings if bool(inside.all()) else bindings.take(inside.nonzero()[:, 0])
    base = base if found is bindings else base[inside]
    open_sizes = tuple(size for p, size in enumerate(index.sizes) if p not in known)
    width = math.prod(open_sizes)
    budget.check(found.count * width)
    offsets = torch.zeros(width, dtype=torch.int64)
    inner = Grid(open_sizes)
    for at, p in enumerate(p for p in range(index.arity) if p not in known):
        offsets = offsets + inner.column(at) * strides[p]
    repeated = torch.arange(found.count).repeat_interleave(width)
    rows = base.repeat_interleave(width) + offsets.repeat(found.count)
    return (found.take(repeated) if width != 1 else found), rows


def _expand_keys(
    bindings: Bindings,
    terms: tuple[nodes.Term | int, ...],
    index: Keys,
    known: list[int],
    budget: Budget,
    lookups: Lookups,
) -> tuple[Bindings, Tensor]:
    if not known:
        budget.check(bindings.count * index.rows)
        if bindings.count == 1 and not bindings.columns:
            return replace(
                bindings,
                count=index.rows,
                rows={k: v.expand(index.rows) for k, v in bindings.rows.items()},
            ), torch.arange(index.rows)
        left = torch.arange(bindings.count).repeat_interleave(index.rows)
        return bindings.take(left), torch.arange(index.rows).repeat(bindings.count)
    wanted = [column_of(terms[p], bindings) for p in known]
    first, counts, groups = lookups.matches(index, tuple(known), wanted)
    total = integer(counts.sum())
    budget.check(total)
    left, places = expansion(first, counts, total)
    rows = places if groups.order is None else groups.order.index_select(0, places)
    return bindings.take(left), rows


def expansion(first: Tensor, counts: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """For each k the places `first[k]`, ..., `first[k] + counts[k] − 1`, and k itself, end to end.

    >>> expansion(torch.tensor([5, 0]), torch.tensor([1, 2]), 3)
    (tensor([0, 1, 1]), tensor([5, 0, 1]))
    """
    left = torch.arange(counts.shape[0]).repeat_interleave(counts, output_size=total)
    shift = first - counts.cumsum(0).sub_(counts)
    return left, shift.index_select(0, left).add_(torch.arange(total))


def _bind_new(
    bindings: Bindings,
    terms: tuple[nodes.Term | int, ...],
    index: Index,
    rows: Tensor,
    every: bool,
) -> Bindings:
    """The columns of `rows`, which are `every` row of the index, in order."""
    for p, term in enumerate(terms):
        if not isinstance(term, nodes.Variable):
            continue
        column = index.column(p).contiguous() if every else index.column(p)[rows]
        if term.name in bindings.columns:  # a variable that the atom repeats
            same = bindings.columns[term.name] == column
            if not bool(same.all()):
                chosen, every = same.nonzero()[:, 0], False
                bindings, rows = bindings.take(chosen), rows[chosen]
        else:
            bindings = bindings.bind(term.name, column)
    return bindings


def distinct(bindings: Bindings, names: Sequence[str]) -> Bindings:
    """One grounding for each assignment of `names`, in key order."""
    if not names:
        return bindings.take(torch.zeros(min(bindings.count, 1), dtype=torch.int64))
    chosen, columns = _distinct([bindings.columns[name] for name in names], bool(bindings.rows))
    if columns is not None:
        return Bindings(columns[0].shape[0], dict(zip(names, columns, strict=True)))
    return bindings if chosen is None else bindings.take(chosen)


@one_call
def _distinct(
    columns: Sequence[Tensor], chosen: bool
) -> tuple[Tensor | None, tuple[Tensor, ...] | None]:
    """The first of equal rows, in key order, and if they need not be `chosen` perhaps themselves;
    both None where all rows are different and in order."""
    ends = ends_of([columns])
    size = math.prod(high - low + 1 for low, high in ends)
    wide = size >= WIDEST
    codes = ranked([columns])[0] if wide else encode(columns, ends)
    if ascending(codes):
        return None, None
    if not (wide or chosen) and size <= MARKED * len(codes):
        return None, _marked(codes, size, ends)
    order = stable_order(codes, size)
    return order[run_starts(codes.index_select(0, order))], None


def _marked(codes: Tensor, size: int, ends: Sequence[tuple[int, int]]) -> tuple[Tensor, ...]:
    """The different codes, in order, by a mark for each code that occurs; as columns again."""
    table = np.zeros(size, dtype=bool)
    table[codes.numpy()] = True
    left = np.flatnonzero(table)
    columns: list[Tensor] = []
    for low, high in ends[:0:-1]:
        above = left // (high - low + 1)
        columns.insert(0, torch.from_numpy(left - (above * (high - low + 1) - low)))
        left = above
    return torch.from_numpy(left + ends[0][0] if ends[0][0] else left), *columns
