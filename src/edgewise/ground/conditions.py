"""Conditions on columns of keys, all rows at once: index arithmetic and attention patterns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from edgewise.checks.evaluation import call_raised, not_a_key
from edgewise.ground import formulas
from edgewise.ground.index import (
    STRINGS,
    Constants,
    Grid,
    Index,
    index_of,
    pack,
    stable_order,
)
from edgewise.ground.joins.body import OWN, SAMPLE, Body
from edgewise.language import nodes

FAR = 1 << 62  # a product that is no key, and might not fit into 64 bits
COMPARE = {"leq": torch.le, "lt": torch.lt, "geq": torch.ge, "gt": torch.gt}
EVALUATE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
    "mod": torch.remainder, "max": torch.maximum, "min": torch.minimum,
}  # fmt: skip


def _between(columns: Sequence[Tensor], least: int) -> Tensor:
    """Where all keys are integers from `least` on."""
    return torch.stack([(column >= least) & (column < STRINGS) for column in columns]).all(0)


def holds(atom: nodes.SpecialAtom, columns: Sequence[Tensor], constants: Constants) -> Tensor:
    """Where the predicate holds, before negation."""
    if atom.formula is not None:
        return formulas.holds(atom.formula, columns)
    match atom.name, columns:
        case "eq", (x, y):
            return x == y
        case "neq", (x, y):
            return x != y
        case "in", (x, *rest):
            return torch.stack([x == y for y in rest]).any(0)
        case "alldiff", _:
            return _different(columns) == len(columns)
        case "maxcard", (k, *rest):
            return (k < STRINGS) & (_different(rest) <= k)
        case (("leq" | "lt" | "geq" | "gt"), (x, y)):
            return _between(columns, -STRINGS) & COMPARE[atom.name](x, y)
    *known, last = columns
    values, fine = computed(atom, [*known, None], constants, len(last))
    return fine & (values == last)


def _different(columns: Sequence[Tensor]) -> Tensor:
    ordered = torch.stack(list(columns)).sort(0).values
    return 1 + (ordered[1:] != ordered[:-1]).sum(0)


def computed(
    atom: nodes.SpecialAtom, columns: Sequence[Tensor | None], constants: Constants, count: int
) -> tuple[Tensor, Tensor]:
    """The one missing column of `count` rows from the others, and where there is a value for it,
    which may be larger than a key."""
    if atom.formula is not None:
        return formulas.computed(atom.formula, columns, count)
    known = [column for column in columns if column is not None]
    if atom.name == "eq":
        return known[0], torch.ones_like(known[0], dtype=torch.bool)
    if atom.function is not None:
        return _called(atom, known, constants, count)
    fine = _between(known, 0)
    value, able = _solved(atom.name, columns)
    return value, fine & able & (value >= 0)


def _solved(name: str, columns: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
    known = [column for column in columns if column is not None]
    yes = torch.ones_like(known[0], dtype=torch.bool)
    if name in ("bucket", "bucket_before"):
        return _buckets(name, *known)
    if name in ("div", "mod"):
        i, j = known
        divisor = torch.where(j == 0, 1, j)
        return (i // divisor if name == "div" else i % divisor), j != 0
    if name == "next":  # x + 1 = z
        columns = (columns[0], torch.ones_like(known[0]), columns[1])
    *both, z = columns[::-1] if name == "sub" else columns  # x − y = z is z + y = x
    parts = [column for column in both if column is not None]
    if z is None and name == "mul":
        far = parts[0].double() * parts[1].double() >= FAR
        return torch.where(far, FAR, parts[0] * parts[1]), yes
    if z is None:
        return parts[0] + parts[1], yes
    if name != "mul":
        return z - parts[0], yes
    factor = torch.where(parts[0] == 0, 1, parts[0])
    return z // factor, (parts[0] != 0) & (z % factor == 0)


def _buckets(name: str, i: Tensor, j: Tensor, counts: Tensor, far: Tensor) -> tuple[Tensor, Tensor]:
    """T5's buckets of j − i: of every distance once, not of every pair."""
    distance = j - i if name == "bucket" else (i - j).clamp(min=0)
    if name == "bucket":
        counts = counts // 2  # the upper half is for keys after the query
    cases = torch.stack([distance.abs(), counts, far], 1)
    distinct, which = torch.unique(cases, dim=0, return_inverse=True)
    found = torch.tensor([_one_sided_bucket(*case) for case in distinct.tolist()] or [0])[which]
    first = counts * (distance > 0) if name == "bucket" else 0
    return found + first, found >= 0


def _one_sided_bucket(distance: int, count: int, far: int) -> int:
    """Half of `count` buckets hold one distance each, the rest grow as logarithms up to `far`."""
    single = count // 2
    if not 0 < single < far:
        return -1
    if distance < single:
        return distance
    grown = math.log(distance / single) / math.log(far / single) * (count - single)
    return min(single + int(grown), count - 1)


def _called(
    atom: nodes.SpecialAtom, arguments: Sequence[Tensor], constants: Constants, count: int
) -> tuple[Tensor, Tensor]:
    # a function of nothing has one value
    distinct, inverse = torch.zeros(1, 0), torch.zeros(count, dtype=torch.int64)
    if arguments:
        distinct, inverse = torch.unique(
            torch.stack(list(arguments), 1), dim=0, return_inverse=True
        )
    values, fine = [], []
    for row in distinct.tolist():
        result = _call(atom, [constants.constant(code) for code in row])
        known = result is not None and constants.knows(result)
        values.append(constants.code(result) if known else -1)  # type: ignore[arg-type]
        fine.append(known)
    codes = torch.tensor(values, dtype=torch.int64)
    return codes[inverse], torch.tensor(fine, dtype=torch.bool)[inverse]


def _call(atom: nodes.SpecialAtom, keys: Sequence[nodes.Constant]) -> nodes.Constant | None:
    """The key that the caller's function gives for these keys; None where it does not hold."""
    assert atom.function is not None
    try:
        result = atom.function.thing(*keys)
    except Exception as problem:
        raise call_raised(atom, keys, problem) from problem
    if hasattr(result, "item") and isinstance(result.item(), int):
        return int(result)
    if result is None or isinstance(result, str):
        return result
    if isinstance(result, Integral):
        return int(result)
    raise not_a_key(atom, keys, result)


def evaluated(name: str, columns: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The numbers that `*_eval` contributes, and where it holds."""
    fine = _between(columns, -STRINGS)
    x, y = (column.double() for column in columns)
    kind = name.removesuffix("_eval")
    if kind in ("div", "mod"):
        fine = fine & (y != 0)
        y = torch.where(y == 0, 1.0, y)
    return EVALUATE[kind](x, y), fine


@dataclass(frozen=True, eq=False)
class PatternAxes:
    """The lengths of a pattern's two axes: one pair (samples is None), or one for each sample.

    `held` says whether atoms hold both terms; then no pair lies outside.
    """

    lengths: Tensor  # (2, 1) or (2, samples)
    in_samples: bool
    held: bool

    def pairs(self) -> Iterator[tuple[int, int, Tensor]]:
        """Every different pair of lengths, with the samples that have it."""
        yield from _by_lengths(self.lengths)


def pattern_axes(
    body: Body, literal: nodes.PatternAtom, index: Callable[[nodes.Atom], Index], samples: int
) -> PatternAxes:
    """For each term the shortest axis among the positive atoms that hold it."""
    in_samples = literal.terms[0] == SAMPLE
    positive = [atom for atom in body.positive.values() if atom.relation != OWN]
    found, held = [], True
    for term in literal.terms[-2:]:
        ends = [
            _lengths(index(atom), p, samples if atom.terms[0] == SAMPLE else None)
            for atom in positive
            for p, t in enumerate(atom.terms)
            if t == term and isinstance(t, nodes.Variable)
        ]
        held &= bool(ends)
        shortest = torch.zeros(1, dtype=torch.int64) if not ends else ends[0]
        for end in ends[1:]:
            shortest = torch.minimum(shortest, end)
        found.append(shortest.expand(samples if in_samples else 1))
    return PatternAxes(torch.stack(found), in_samples, held)


def _lengths(index: Index, position: int, samples: int | None) -> Tensor:
    """One more than the largest integer of a column: in all, or in each sample (column 0)."""
    if samples is None:
        return torch.tensor([index.length(position)])
    if isinstance(index, Grid):
        inside = torch.arange(samples) < index.sizes[0]
        return torch.where(inside, index.sizes[position], 0)
    column = index.column(position)
    known = column < STRINGS
    start = torch.zeros(samples, dtype=torch.int64)
    return start.scatter_reduce(0, index.column(0)[known], column[known] + 1, "amax")


def pair_count(pattern: Any, found: PatternAxes) -> int:
    """How many pairs there are, over all samples."""
    return sum(pattern.count(n, m) * len(samples) for n, m, samples in found.pairs() if n and m)


def pairs_index(pattern: Any, found: PatternAxes) -> Index:
    """The pairs as keys (i, j), or (sample, i, j)."""
    tables = [torch.zeros(0, 3, dtype=torch.int64)]
    for n, m, samples in found.pairs():
        if n and m:
            pairs = pattern.edges(n, m).T
            first = samples.repeat_interleave(len(pairs)).unsqueeze(1)
            tables.append(torch.cat([first, pairs.repeat(len(samples), 1)], 1))
    table = torch.cat(tables)
    if not found.in_samples:
        return index_of(table[:, 1:].contiguous())
    return index_of(table[table[:, 0].argsort(stable=True)])


def contains_pairs(pattern: Any, found: PatternAxes, columns: list[Tensor]) -> Tensor:
    """Whether each pair is in the pattern; a key outside of its axis makes the axis longer."""
    *sample, i, j = columns
    own = found.lengths[:, sample[0]] if sample else found.lengths
    holds = (i >= 0) & (j >= 0) & (i < STRINGS) & (j < STRINGS)
    inside = holds & (i < own[0]) & (j < own[1])
    if not sample and bool(inside.all()):
        n, m = found.lengths[:, 0].tolist()
        return pattern.contains(i, j, n, m) if n and m else inside
    lengths = torch.where(holds, torch.maximum(own, torch.stack([i, j]) + 1), 0)
    for n, m, here in _by_lengths(lengths):
        if n and m:
            holds[here] &= pattern.contains(i[here], j[here], n, m)
    return holds


def _by_lengths(lengths: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """Every different pair of lengths, with the columns that have it."""
    (codes,) = pack(lengths.unbind(0))
    different, which = torch.unique(codes, return_inverse=True)
    order = stable_order(which, len(different))
    for here in order.split(torch.bincount(which, minlength=len(different)).tolist()):
        n, m = lengths[:, here[0]].tolist()
        yield n, m, here
