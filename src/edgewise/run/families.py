"""Families of weights: one member for each value of a key, met by the rows of atoms."""

from __future__ import annotations

import torch
from torch import Tensor

from edgewise.ground.rules import GroundRule
from edgewise.kernels.aggregate import Gather, gather
from edgewise.language import nodes
from edgewise.language.statements import atoms
from edgewise.layouts.segments import segments
from edgewise.run.body import place
from edgewise.run.column import Column, Gathered, column

# groundings by the members of a family, the way back, how many each member has
ByMember = tuple[Tensor, Tensor | Gather, list[int]]


def members(tensor: Tensor, keys: int) -> Tensor:
    """The members of a family as (member, value...)."""
    return tensor.flatten(0, keys - 1) if keys > 1 else tensor


def layouts_of(ground: GroundRule) -> dict[int, str]:
    """Atoms with a family weight whose groundings are members × rows, and in which order."""
    found = {}
    for atom in atoms(ground.rule.body):
        if isinstance(atom, nodes.Atom) and atom.weight is not None and atom.weight.keys:
            family = ground.rows.get(place(ground, atom.weight))
            rows = ground.rows.get(place(ground, atom))
            layout = _product_layout(family, rows, ground.count)
            if layout:
                found[place(ground, atom)] = layout
    return found


def _product_layout(family: Tensor | None, rows: Tensor | None, count: int) -> str | None:
    """How the groundings of members × rows are ordered, if they are all of them."""
    if family is None or rows is None or not count:
        return None
    high, wide = int(family.max()) + 1, int(rows.max()) + 1
    if high * wide != count:
        return None
    here = torch.arange(count, device=family.device)
    if bool((family == here // wide).all()) and bool((rows == here % wide).all()):
        return "members first"
    if bool((rows == here // high).all()) and bool((family == here % high).all()):
        return "rows first"
    return None


def laid_out(projected: Tensor, size: int, layout: str, count: int) -> Column | None:
    """Every member times every row, as groundings; None if those are not of all members."""
    high = projected.shape[2] // size
    if high * projected.shape[1] != count:
        return None
    split = projected.reshape(*projected.shape[:2], high, size)
    outer = split.transpose(1, 2) if layout == "members first" else split
    return column(outer.reshape(split.shape[0], -1, size))


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
            order = rows.argsort(stable=True)
            back = order.argsort()
            parts = ground.segments
            way = gather(back, parts.ids, parts.count, len(back)) if sums_rows else back
            found[at] = order, way, torch.bincount(rows).tolist()
    return found


def times_in_chunks(family: Tensor, full: Tensor, chunk: int) -> Column:
    """(batch, member, place, value) times a matrix for each member."""
    each = full.reshape(full.shape[0], -1, chunk, full.shape[-1])
    return column((each @ family[: each.shape[1]].mT).reshape(*full.shape[:2], -1))


def times_by_member(family: Tensor, full: Tensor, groundings: ByMember) -> Column:
    """A matrix times a vector in each grounding, one product for each member."""
    order, inverse, sizes = groundings
    each = full.index_select(1, order).split(sizes, 1)
    parts = [torch.nn.functional.linear(x, w) for x, w in zip(each, family, strict=False)]
    listed = torch.cat(parts, 1)
    if isinstance(inverse, Gather) and listed.shape[2] > 1:
        return Gathered(listed, inverse)
    return column(listed).take(inverse.rows if isinstance(inverse, Gather) else inverse)
