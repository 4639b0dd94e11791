"""Joins on columns of keys: CSR by sorting, expansion by counts, never a loop over rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError
from edgewise.ground.index import TABLE, Grid, Index, ascending, locate, pack, run_starts
from edgewise.language import nodes


@dataclass(frozen=True)
class Bindings:
    """Partial groundings: a column per variable, and the row of each atom joined so far."""

    count: int = 1
    columns: dict[str, Tensor] = field(default_factory=dict)
    rows: dict[int, Tensor] = field(default_factory=dict)

    def take(self, chosen: Tensor) -> Bindings:
        return Bindings(
            len(chosen),
            {name: column[chosen] for name, column in self.columns.items()},
            {at: rows[chosen] for at, rows in self.rows.items()},
        )

    def where(self, mask: Tensor) -> Bindings:
        return self if bool(mask.all()) else self.take(mask.nonzero()[:, 0])

    def bind(self, name: str, column: Tensor) -> Bindings:
        return replace(self, columns=self.columns | {name: column})


def join(
    bindings: Bindings, at: int, terms: tuple[nodes.Term | int, ...], index: Index, budget: Budget
) -> Bindings:
    """Extend bindings by the atom `at`; its constants are codes already."""
    known = [p for p, t in enumerate(terms) if not _free(t, bindings)]
    if len(known) == len(terms) and terms:
        columns = [_column(terms[p], bindings) for p in known]
        rows = locate(index, columns)
        found = replace(bindings, rows=bindings.rows | {at: rows})
        return found.where(rows >= 0)
    if isinstance(index, Grid):
        expanded, rows = _expand_grid(bindings, terms, index, known, budget)
    else:
        expanded, rows = _expand_keys(bindings, terms, index, known, budget)
    expanded = replace(expanded, rows=expanded.rows | {at: rows})
    return _bind_new(expanded, terms, index, rows)


class Budget:
    """How many groundings a rule may have; refuses before anything is allocated.

    Each has a key in each of `columns`, and all keys have to fit into `memory`.
    """

    def __init__(self, limit: int, columns: int = 1, memory: int | None = None) -> None:
        self.limit = limit
        self.each = 8 * columns
        self.memory = memory
        self.refused = 0

    def check(self, count: int) -> None:
        full = self.memory is not None and self.each * count > self.memory
        if count > self.limit or full:
            self.refused = count
            raise OverBudget(count)


class PlanTooLarge(EdgewiseError):
    """A join that would not fit is refused before it allocates anything."""

    code = "plan-too-large"
    example = (
        "Program([R.h(V.X, V.Y) <= (R.a(V.X), R.a(V.Y))]).compile(R.h, limit=10)"
        ".ground(facts=[R.a(i)[1.0] for i in range(4)])"
    )
    instead = (
        "Program([R.h(V.X, V.Y) <= (R.a(V.X), R.a(V.Y))]).compile(R.h, limit=100)"
        ".ground(facts=[R.a(i)[1.0] for i in range(4)])"
    )


def too_many_bytes(rule: nodes.Rule, count: int, what: str, needed: int) -> PlanTooLarge:
    """The error for a rule that takes more memory than there is."""
    return PlanTooLarge(
        f"the rule for `{rule.head.relation}` has about {count:,} {what}, which take "
        f"{needed / 2**30:,.1f} GiB, more than there is memory",
        rule.place,
        "add a condition that joins its atoms, or give fewer rows, samples or features at a time",
    )


class OverBudget(Exception):
    """Internal: the number of groundings a join would have."""


def _free(term: nodes.Term | int, bindings: Bindings) -> bool:
    return isinstance(term, nodes.Variable) and term.name not in bindings.columns


def _column(term: nodes.Term | int, bindings: Bindings) -> Tensor:
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
        column = _column(terms[p], bindings)
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
    index: Index,
    known: list[int],
    budget: Budget,
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
    want, have = pack(
        [_column(terms[p], bindings) for p in known], [index.column(p) for p in known]
    )
    ordered, order = have.sort(stable=True)
    first, counts = _matches(ordered, want)
    total = int(counts.sum())
    budget.check(total)
    left = torch.arange(bindings.count).repeat_interleave(counts)
    starts = (counts.cumsum(0) - counts).repeat_interleave(counts)
    rows = order[torch.arange(total) - starts + first.repeat_interleave(counts)]
    return bindings.take(left), rows


def _matches(ordered: Tensor, want: Tensor) -> tuple[Tensor, Tensor]:
    """The place of the first of `ordered` that equals each of `want`, and how many do."""
    size = 1 + int(max((codes.max() for codes in (ordered, want) if len(codes)), default=-1))
    if size > TABLE * (len(ordered) + len(want)):
        first = torch.searchsorted(ordered, want)
        return first, torch.searchsorted(ordered, want, right=True) - first
    counts = torch.bincount(ordered, minlength=size)
    return (counts.cumsum(0) - counts)[want], counts[want]


def _bind_new(
    bindings: Bindings, terms: tuple[nodes.Term | int, ...], index: Index, rows: Tensor
) -> Bindings:
    for p, term in enumerate(terms):
        if not isinstance(term, nodes.Variable):
            continue
        column = index.column(p)[rows]
        if term.name in bindings.columns:  # a variable that the atom repeats
            same = bindings.columns[term.name] == column
            if not bool(same.all()):
                chosen = same.nonzero()[:, 0]
                bindings, rows = bindings.take(chosen), rows[chosen]
        else:
            bindings = bindings.bind(term.name, column)
    return bindings


def distinct(bindings: Bindings, names: Iterable[str]) -> Bindings:
    """One grounding for each assignment of `names`, in key order."""
    wanted = [bindings.columns[name] for name in names]
    if not wanted:
        return bindings.take(torch.zeros(min(bindings.count, 1), dtype=torch.int64))
    (codes,) = pack(wanted)
    if ascending(codes):
        return bindings
    ordered, order = codes.sort(stable=True)
    return bindings.take(order[run_starts(ordered)])
