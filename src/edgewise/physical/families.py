"""Families of weights: one member for each value of a key, met by the rows of atoms."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.functions import DEFINITIONS, Law
from edgewise.ground.rules import GroundRule
from edgewise.kernels.chosen import Chosen, is_watched, note
from edgewise.kernels.edges import (
    EdgeIndex,
    Grouping,
    grouped_linear,
    grouping,
    segment_index,
)
from edgewise.language import nodes
from edgewise.language.statements import atoms
from edgewise.layouts.segments import Segments, segments
from edgewise.physical.column import Column, Gathered, column, laid
from edgewise.physical.rule_body import place

DENSE = 2  # places of heads × members for each grounding, up to which products are one matrix's


@dataclass(frozen=True, eq=False)
class ByMember:
    """The groundings of a family by its members.

    `runs` are the groundings of each head, if it only sums them. `places` are those of
    groundings among heads × members, where most of these are taken.
    """

    groups: Grouping
    members: int
    heads: int
    runs: EdgeIndex | None
    places: Tensor | None


def members(tensor: Tensor, keys: int) -> Tensor:
    """The members of a family as (member, value...)."""
    return tensor.flatten(0, keys - 1) if keys > 1 else tensor


def layouts_of(ground: GroundRule) -> dict[int, int]:
    """Atoms with a family weight whose groundings are members × rows, and in which order: how many
    members stand within each row."""
    found = {}
    for atom in atoms(ground.rule):
        if isinstance(atom, nodes.Atom) and atom.weight is not None and atom.weight.keys:
            family = ground.rows.get(place(ground, atom.weight))
            at = place(ground, atom)
            layout = _product_layout(
                family, ground.rows.get(at), ground.count, ground.sizes.get(at)
            )
            if layout:
                found[at] = layout
    return found


def _product_layout(
    family: Tensor | None, rows: Tensor | None, count: int, size: int | None
) -> int | None:
    """How many members follow one another in each row, if groundings are members × rows, all
    `size` of them.

    1 where rows are within members, all of them where members are within rows, and a number
    between where the keys of a member stand on both sides.
    """
    if not count or (family is None and rows is None and count > 1):
        return None
    device = next((t.device for t in (family, rows) if t is not None), None)
    here = torch.arange(count, device=device)
    family, rows = (here if t is None else t for t in (family, rows))
    high, wide = int(family.max()) + 1, int(rows.max()) + 1
    if high * wide != count or size not in (None, wide):
        return None
    inner = high if wide == 1 else int((rows != 0).nonzero()[0])
    if not inner or high % inner or not torch.equal(rows, here // inner % wide):
        return None
    member = here // (inner * wide) * inner + here % inner
    return inner if torch.equal(family, member) else None


def laid_out(projected: Tensor, size: int, inner: int, count: int) -> Column | None:
    """Every member times every row, as groundings; None if those are not of all members."""
    batch, rows, width = projected.shape
    high = width // size
    if high * rows != count:
        return None
    if high == inner:
        return column(projected.reshape(batch, count, size))
    near = (inner,) if inner > 1 else ()
    split = projected.reshape(batch, rows, high // inner, *near, size)
    return laid(split.transpose(1, 2), axes=2 + len(near))


def chunks_of(ground: GroundRule) -> dict[int, int]:
    """Place of a family → groundings of each member, where all have as many, in order."""
    found = {}
    for at, literal in enumerate(ground.body.literals):
        rows = ground.rows.get(at)
        if isinstance(literal, nodes.Weight) and rows is not None and len(rows):
            parts = segments(rows, int(rows.max()) + 1)
            if parts.even and parts.width:
                found[at] = parts.width
    return found


def by_member_of(ground: GroundRule, sums_rows: bool) -> dict[int, ByMember]:
    """Place of a family → its groundings by member; `sums_rows` if heads only sum them."""
    found: dict[int, ByMember] = {}
    chunks = chunks_of(ground)
    for at, literal in enumerate(ground.body.literals):
        rows = ground.rows.get(at)
        if isinstance(literal, nodes.Weight) and rows is not None and at not in chunks:
            found[at] = _by_member(rows, ground.segments, sums_rows)
    return found


def _by_member(rows: Tensor, parts: Segments, sums_rows: bool) -> ByMember:
    count = int(rows.max()) + 1 if len(rows) else 0
    alone = places = None
    if sums_rows and parts.count * count <= DENSE * len(rows):
        places = parts.ids * count + rows
        if len(torch.unique(places)) < len(places):  # a head meets a member more than once
            places = None
    if sums_rows and places is None:
        alone = segment_index(parts.ids, parts.count)
    return ByMember(grouping(rows, count), count, parts.count, alone, places)


def times_in_chunks(family: Tensor, full: Tensor, chunk: int) -> Column:
    """(batch, member, place, value) times a matrix for each member."""
    each = full.unflatten(1, (full.shape[1] // chunk, chunk))
    return column((each @ family[: each.shape[1]].mT).flatten(1, 2))


def times_by_member(family: Tensor, value: Column, groundings: ByMember) -> Column:
    """A matrix times a vector in each grounding, all members at once."""
    return Grouped(family[: groundings.members], value, groundings)


_MOST = "most heads meet most members: their matrices side by side are one product"
ALL_MEMBERS = Chosen(
    "segment_sum", "one product of matrices", (("triton", _MOST), ("reference", _MOST))
)


class Grouped(Column):
    """A matrix of a family times a vector in each grounding: written out only where read."""

    def __init__(self, family: Tensor, value: Column, by: ByMember) -> None:
        object.__setattr__(self, "family", family)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "by", by)

    family: Tensor
    value: Column
    by: ByMember

    @property
    def data(self) -> Tensor:
        full = self.value.data
        if not len(full):
            return column(full.new_zeros(*full.shape[:2], self.family.shape[1])).data
        parts = [grouped_linear(x, self.family, self.by.groups) for x in full]
        return column(parts[0][None] if len(parts) == 1 else torch.stack(parts)).data

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.family.shape[1] == 1 else (self.family.shape[1],)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def rows(self) -> int:
        return self.value.rows

    def aggregates(self, name: str) -> bool:
        if self.by.places is not None:
            return DEFINITIONS[name].kernel == "sum"
        return self.by.runs is not None and Law.LINEAR in DEFINITIONS[name]

    def aggregated(self, name: str) -> Tensor:
        """The sum of each head: of W_t x over its members t, one product with (W_1, W_2, ...)."""
        if self.by.places is None:
            assert self.by.runs is not None
            return Gathered(self.data, self.by.runs).aggregated(name)
        if is_watched():
            note(ALL_MEMBERS)
        spread = self._spread()
        wide = spread.reshape(len(spread), self.by.heads, -1)
        return torch.nn.functional.linear(wide, self.family.transpose(0, 1).flatten(1))

    def _spread(self) -> Tensor:
        """The vector that each head has for each member, zeros where it has none."""
        value, places = self.value, self.by.places
        assert places is not None
        count = self.by.heads * self.by.members
        if isinstance(value, Gathered) and value.scale is None:  # from where they are read
            base = torch.cat(
                [value.base, value.base.new_zeros(len(value.base), 1, *value.shape)], 1
            )
            rows = places.new_full((count,), value.base.shape[1])
            return base.index_select(1, rows.index_copy(0, places, value.which.rows.index.long()))
        full = value.data
        return full.new_zeros(len(full), count, *value.shape).index_copy(1, places, full)
