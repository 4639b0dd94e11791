"""Block-sparse attention on a CPU: groups of like blocks, each one fused batched product.

Memory beyond the inputs is O(n·d + blocks + CHUNK), whatever the graph. Scores with terms are
materialised, some block rows at a time, on any device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from edgewise.graphs.cache import cached
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import materialised
from edgewise.kernels.attention.autograd import row_dots
from edgewise.kernels.attention.block_counts import (
    at_least,
    count_of,
    partial_of,
    tiling_of,
)
from edgewise.kernels.attention.contract import (
    PAIR_TERMS,
    Case,
    Grads,
    Saved,
    Terms,
    cached_by_case,
    wide,
)
from edgewise.kernels.attention.flash import FLASH_ON_CPU, aten, even, is_even
from edgewise.kernels.attention.terms import TermGrads, Tile, numbers
from edgewise.layouts.bitmap import BitTiling
from edgewise.layouts.ragged import Ints, pointer, ranges, starts_of_runs
from edgewise.layouts.tiling import FULL

name = "blocks"
SIZES = {32: 1.15, 64: 1.1, 128: 1.0, 256: 1.0}  # relative time of a pair, by block size
CHUNK = 1 << 23  # numbers in one gathered batch of keys
MASKS = 1 << 28  # numbers in all masks together
STORED = 1 << 22  # numbers of masks that are stored as they are added to scores


def refuses(case: Case) -> str | None:
    if case.device != "cpu" and not case.written_out:
        return f"it runs on a CPU, not on {case.device}"
    if not case.work:
        return "there are no pairs"
    if reason := case.scattered(32):
        return reason
    block = block_size(case)
    many = count_of(case.graph, case.n, case.m, block) * block * block > MASKS
    if many and case.graph.bitmap is None:
        some = partial_of(case.graph, case.n, case.m, block)
        if some * block * block > MASKS and _kinds(case, block) * block * block > MASKS:
            return f"its {some:,} partial blocks of {block} are too different from one another"
    return case.lacks(*PAIR_TERMS)


def _kinds(case: Case, block: int) -> int:
    masks = block_groups(case.graph, case.n, case.m, block).masks
    return len(masks) if isinstance(masks, Tensor) else 0


def least(case: Case) -> float:
    """What it costs at least: one block of 64, known on a GPU, is at least one of 32."""
    slow = materialised.PAIR[case.device] if case.written_out else 1.0
    if case.device != "cpu" and case.written_out and case.scattered(64) is None:
        found = at_least(case.graph, case.n, case.m, 64)
        return slow * case.b * case.g * found * SIZES[32] * 32 * 48
    return slow * case.b * case.g * (case.pairs + 2e4)


def cost(case: Case) -> float:
    slow = materialised.PAIR[case.device] if case.written_out else 1.0
    return slow * case.b * case.g * _cost(case, block_size(case))


@cached_by_case
def block_size(case: Case) -> int:
    return min(SIZES, key=lambda block: _cost(case, block))


def _cost(case: Case, block: int) -> float:
    count = count_of(case.graph, case.n, case.m, block)
    return SIZES[block] * count * block * (block + 16) + 2e4


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    plan, chunks = _plan(case)
    if chunks is None:
        return _materialised(case, plan, (q, k, v), terms)
    if not is_even(q, k, v):
        q, k, v = even(q, k, v)
    q, k, v = blocked(plan.block, q, k, v)
    out = q.new_zeros(*q.shape[:-1], case.dv)
    lse = torch.full(q.shape[:-1], -torch.inf, dtype=case.wide)
    shape = (case.b, case.g, plan.block)
    for chunk in chunks:
        mask, (queries, keys, values) = chunk.read((q,), (k, v))
        part, sums = FLASH_ON_CPU(queries, keys, values, attn_mask=mask, scale=case.scale)
        rows = (part.shape[0], *shape)
        out[:, :, chunk.rows] = part[..., : case.dv].reshape(*rows, case.dv).movedim(0, 2)
        lse[:, :, chunk.rows] = sums.reshape(rows).movedim(0, 2)
    out, lse = out.flatten(2, 3)[:, :, : case.n], lse.flatten(2, 3)[:, :, : case.n]
    return out, lse if case.facts.no_empty_row else lse.masked_fill(~plan.nonempty, -torch.inf)


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    plan, chunks = _plan(case)
    if chunks is None:
        return _materialised_backward(case, plan, saved, dout)
    q, k, v, out, block = saved.q, saved.k, saved.v, saved.out, plan.block
    if not is_even(q, k, v) or not is_even(q, out, out):
        q, k, v, out, dout = even(q, k, v, out, dout)
    q, k, v, out, dout = blocked(block, q, k, v, out, dout)
    (lse,) = blocked(block, saved.lse[..., None], value=torch.inf)
    dq, kind = torch.zeros_like(q), wide(q.dtype)
    dk, dv = torch.zeros(k.shape, dtype=kind), torch.zeros(v.shape, dtype=kind)
    for chunk in chunks:
        mask, tensors = chunk.read((dout, q, out, lse), (k, v))
        g, queries, rows, sums, keys, values = tensors
        (g,) = even(g)  # a gradient that is one number for all would be copied as a whole
        state = (queries, keys, values, rows, sums[..., 0].contiguous())
        parts = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            g, *state, 0.0, False, attn_mask=mask, scale=case.scale
        )
        shape = (g.shape[0], case.b, case.g, block, -1)
        dq[:, :, chunk.rows] = parts[0].reshape(shape).movedim(0, 2)
        chunk.add((dk, parts[1]), (dv, parts[2]))
    dq = dq.flatten(2, 3)[:, :, : case.n, : case.d]
    dk, dv = dk.flatten(1, 2)[:, : case.m, : case.d], dv.flatten(1, 2)[:, : case.m, : case.dv]
    return Grads(dq, dk.to(q.dtype), dv.to(q.dtype))


@dataclass(frozen=True, eq=False)
class Chunk:
    """Block rows of a group whose keys fit into one batch: one fused call, with one mask."""

    block: int
    rows: slice | Tensor
    keys: Tensor
    first: int | None  # where each row has the key blocks of the last one moved on by one
    stored: Tensor | None
    make: Callable[[], Tensor] | None  # where masks are too large to be stored

    def read(
        self, queries: Sequence[Tensor], keys: Sequence[Tensor]
    ) -> tuple[Tensor | None, list[Tensor]]:
        """Its mask, and its part of each (b, g, blocks, block, d), then of each (b, blocks, block,
        d), as (rows, b, tokens, d): a block row is an element of a batch, b a head."""
        found, first, (rows, slots) = [], self.first, self.keys.shape
        for x in queries:
            found.append(x[:, :, self.rows].permute(2, 0, 1, 3, 4).flatten(2, 3))
        width = slots * self.block
        for x in keys:
            if first is None:
                near = x[:, self.keys.flatten()].view(x.shape[0], rows, width, x.shape[-1])
                found.append(near.transpose(0, 1))
            else:
                near = x[:, first : first + rows - 1 + slots].flatten(1, 2)
                found.append(near.unfold(1, width, self.block).permute(1, 0, 3, 2))
        return self.stored if self.make is None else self.make(), found

    def add(self, *pairs: tuple[Tensor, Tensor]) -> None:
        """(rows, b, slots·block, d) added to its keys of (b, blocks, block, d)."""
        rows, slots = self.keys.shape
        for total, part in pairs:
            part = part.reshape(rows, len(total), slots, self.block, -1).transpose(0, 1)
            if self.first is None or rows == 1:
                total.index_add_(1, self.keys.flatten(), part.flatten(1, 2).to(total.dtype))
                continue
            for slot in range(slots):
                total[:, self.first + slot : self.first + slot + rows] += part[:, :, slot]


@cached_by_case
def _plan(case: Case) -> tuple[BlockGroups, tuple[Chunk, ...] | None]:
    """The groups, and their chunks where products are fused."""
    groups = block_groups(case.graph, case.n, case.m, block_size(case))
    return groups, None if case.written_out else _chunks(case, groups)


def _chunks(case: Case, plan: BlockGroups) -> tuple[Chunk, ...]:
    """The groups, cut so that no batch of keys is larger than CHUNK."""
    out = []
    store = sum(group.keys.shape[1] for group in plan.groups) * case.g * plan.block**2 <= STORED
    for group in plan.groups:
        numbers = group.keys.shape[1] * plan.block * max(case.d, case.dv) * case.b
        step = max(CHUNK // numbers, 1)
        mask = partial(_mask, plan.masks, group.kinds, case.g, case.dtype) if group.masked else None
        stored = mask() if mask is not None and store else None
        for at in range(0, len(group.rows), step):
            rows, keys = group.rows[at : at + step], group.keys[at : at + step]
            view = group.slides or (len(rows) == 1 and _neighbours(keys[0]))
            first = int(keys[0, 0]) if view else None
            made = None if store else mask
            out.append(Chunk(plan.block, _slice(rows), keys, first, stored, made))
    return tuple(out)


def _slice(rows: Tensor) -> slice | Tensor:
    return slice(int(rows[0]), int(rows[-1]) + 1) if _neighbours(rows) else rows


def _neighbours(places: Tensor) -> bool:
    return bool((places.diff() == 1).all())


def _masks_of(masks: Tensor | BitTiling, kinds: Tensor) -> Tensor:
    """(slots, block, block)."""
    if isinstance(masks, BitTiling):
        return masks.masks_of(kinds)
    allowed = masks[kinds.clamp(min=0)]
    allowed[kinds == FULL] = True
    return allowed


def _mask(masks: Tensor | BitTiling, kinds: Tensor, g: int, dtype: torch.dtype) -> Tensor:
    """0 and -∞ for the queries of g heads and the keys of all slots."""
    allowed = _masks_of(masks, kinds).transpose(0, 1).flatten(1, 2).repeat(g, 1)
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, -torch.inf)[None, None]


@dataclass(frozen=True, eq=False)
class Group:
    """Block rows with as many key blocks each, alike in place: one mask serves all.

    `kinds[c]` is the mask of slot c, or FULL. Where `slides`, row r + 1 has the key blocks of row
    r moved on by one, all of them neighbours: keys can be views instead of copies.
    """

    rows: Tensor
    keys: Tensor
    kinds: Tensor
    slides: bool

    @property
    def masked(self) -> bool:
        return bool((self.kinds != FULL).any())


@dataclass(frozen=True, eq=False)
class BlockGroups:
    """The groups, the masks (u, block, block) or their bits, and which rows have a key."""

    block: int
    shape: tuple[int, int]
    groups: tuple[Group, ...]
    masks: Tensor | BitTiling
    nonempty: Tensor


@cached
def block_groups(graph: Pattern, n: int, m: int, block: int) -> BlockGroups:
    found = tiling_of(graph, n, m, block)
    row, index, kinds = found.listed()
    order = np.lexsort((index, row))
    groups = _groups(np.bincount(row, minlength=found.shape[0]), index[order], kinds[order])
    nonempty = graph.degrees(n, m) > 0
    masks = found if isinstance(found, BitTiling) else torch.from_numpy(found.masks)
    return BlockGroups(block, found.shape, groups, masks, nonempty)


def _groups(count: Ints, index: Ints, kinds: Ints) -> tuple[Group, ...]:
    ptr, out = pointer(count), []
    for size in np.unique(count[count > 0]):
        rows = np.flatnonzero(count == size)
        at = ranges(ptr[rows], count[rows])
        key, kind = index[at].reshape(-1, size), kinds[at].reshape(-1, size)
        _, back = np.unique(kind, axis=0, return_inverse=True)
        order = np.argsort(back.ravel(), kind="stable")
        ends = np.append(starts_of_runs(back.ravel()[order]), len(order))
        for a, b in pairwise(ends):
            chosen = order[a:b]
            out.append(_group(rows[chosen], key[chosen], kind[chosen[0]]))
    return tuple(out)


def _group(rows: Ints, keys: Ints, kinds: Ints) -> Group:
    along = (np.diff(rows) == 1).all() and (np.diff(keys, axis=0) == 1).all()
    slides = bool(along and (np.diff(keys, axis=1) == 1).all())
    arrays = (np.ascontiguousarray(part, np.int64) for part in (rows, keys, kinds))
    rows_, keys_, kinds_ = map(torch.from_numpy, arrays)
    return Group(rows_, keys_, kinds_, slides)


def blocked(block: int, *tensors: Tensor, value: float = 0.0) -> list[Tensor]:
    """Each (..., n, d) as (..., blocks, block, d)."""
    found = []
    for x in tensors:
        missing = -x.shape[-2] % block
        x = pad(x, (0, 0, 0, missing), value=value) if missing else x
        *lead, n, d = x.shape
        found.append(x.view(*lead, n // block, block, d))
    return found


def _materialised(
    case: Case, plan: BlockGroups, tensors: tuple[Tensor, Tensor, Tensor], terms: Terms
) -> tuple[Tensor, Tensor]:
    q, k, v = blocked(plan.block, *tensors)
    out = torch.zeros(*q.shape[:-1], case.dv, dtype=wide(q.dtype), device=q.device)
    lse = torch.full(q.shape[:-1], -torch.inf, dtype=wide(q.dtype), device=q.device)
    for rows, keys, tile in _parts(case, plan, terms, q.device):
        taken = (q[:, :, rows], _key_blocks(k, keys), _key_blocks(v, keys))
        out[:, :, rows], lse[:, :, rows] = materialised.forward(case, terms, taken, tile)
    out, lse = out.flatten(2, 3)[:, :, : case.n], lse.flatten(2, 3)[:, :, : case.n]
    return out.to(q.dtype), lse.contiguous()


def _materialised_backward(case: Case, plan: BlockGroups, saved: Saved, dout: Tensor) -> Grads:
    total, kind = TermGrads(case, saved.terms), wide(saved.q.dtype)
    delta = blocked(plan.block, row_dots(dout, saved.out)[..., None])[0][..., 0]
    lse = blocked(plan.block, saved.lse[..., None], value=torch.inf)[0][..., 0]
    q, k, v, g = blocked(plan.block, saved.q, saved.k, saved.v, dout)
    dq, dk, dv = (torch.zeros(x.shape, dtype=kind, device=x.device) for x in (q, k, v))
    for rows, keys, tile in _parts(case, plan, saved.terms, q.device):
        taken = (q[:, :, rows], _key_blocks(k, keys), _key_blocks(v, keys))
        of_rows = (g[:, :, rows], delta[:, :, rows], lse[:, :, rows])
        dq[:, :, rows], *parts = materialised.backward(
            case, saved.terms, taken, of_rows, tile, total
        )
        for sum_, part in zip((dk, dv), parts, strict=True):
            _add_blocks(sum_, keys, part.unflatten(2, (keys.shape[1], plan.block)))
    dq = dq.flatten(2, 3)[:, :, : case.n].to(saved.q.dtype)
    dk, dv = (x.flatten(1, 2)[:, : case.m].to(saved.q.dtype) for x in (dk, dv))
    return Grads(dq, dk, dv, total.terms())


def _key_blocks(x: Tensor, keys: Tensor) -> Tensor:
    """(b, rows, slots · block, d)."""
    return x[:, keys].flatten(2, 3)


def _add_blocks(total: Tensor, keys: Tensor, part: Tensor) -> None:
    """Key blocks of one slot are different, so sums come in one order on any device."""
    for slot in range(keys.shape[1]):
        some = keys[:, slot]
        if len(some.unique()) == len(some):
            total[:, some] += part[:, :, slot]
        else:
            for row, key in enumerate(some.tolist()):
                total[:, key] += part[:, row, slot]


def _parts(
    case: Case, plan: BlockGroups, terms: Terms, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, Tile]]:
    """Some block rows, their key blocks, and their pairs."""
    for group in plan.groups:
        rows, slots = group.keys.shape
        size = case.b * case.g * plan.block**2 * slots
        step = max(materialised.NUMBERS // max(size, 1), 1)
        for at in range(0, rows, step):
            part = slice(at, at + step)
            tile = _tile(case, plan, group, group.rows[part], group.keys[part])
            edge = None
            if terms.edge_bias is not None or terms.edge_scale is not None:
                edge = numbers(case.graph, case.n, case.m, tile.i, tile.j).to(device)
            allowed = None if tile.allowed is None else tile.allowed.to(device)
            moved = Tile(tile.i.to(device), tile.j.to(device), edge, allowed)
            yield group.rows[part].to(device), group.keys[part].to(device), moved


def _tile(case: Case, plan: BlockGroups, group: Group, rows: Tensor, keys: Tensor) -> Tile:
    inside = torch.arange(plan.block)
    i = (rows[:, None] * plan.block + inside)[..., None]
    j = (keys[..., None] * plan.block + inside).flatten(1)[:, None]
    allowed = None
    if group.masked:
        masks = _masks_of(plan.masks, group.kinds)
        allowed = masks.transpose(0, 1).flatten(1, 2)[None]
    if int(i.max()) >= case.n or int(j.max()) >= case.m:
        border = (i < case.n) & (j < case.m)
        allowed = border if allowed is None else allowed & border
    return Tile(i.clamp(max=case.n - 1), j.clamp(max=case.m - 1), None, allowed)
