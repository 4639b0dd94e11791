"""Block-sparse attention on a CPU: groups of like blocks, each one fused batched product.

Memory beyond the inputs is O(n·d + blocks + CHUNK), whatever the graph.
"""

import torch
from torch import Tensor

from edgewise.kernels.attention import blocks_explicit, explicit
from edgewise.kernels.attention.contract import (
    PAIR_TERMS,
    Case,
    Grads,
    Saved,
    Terms,
    cached_by_case,
    wide,
)
from edgewise.kernels.attention.flash import flash, flash_backward
from edgewise.kernels.attention.tiles import (
    Group,
    Tiles,
    at_least,
    blocked,
    blocks_of,
    count_of,
    tiles,
)
from edgewise.layouts.tiling import FULL

name = "blocks"
SIZES = {32: 1.15, 64: 1.1, 128: 1.0, 256: 1.0}  # relative time of a pair, by block size
CHUNK = 1 << 23  # numbers in one gathered batch of keys
MASKS = 1 << 28  # numbers in all masks together


def refuses(case: Case) -> str | None:
    if case.device != "cpu" and not case.written_out:
        return f"it runs on a CPU, not on {case.device}"
    if not case.work:
        return "there are no pairs"
    if reason := case.scattered(32):
        return reason
    block = block_size(case)
    if count_of(case.graph, case.n, case.m, block) * block * block > MASKS:
        partial = int((~blocks_of(case.graph, case.n, case.m, block).full).sum())
        if partial * block * block > MASKS and _kinds(case, block) * block * block > MASKS:
            return f"its {partial:,} partial blocks of {block} are too different from one another"
    return case.lacks(*PAIR_TERMS)


def _kinds(case: Case, block: int) -> int:
    return len(tiles(case.graph, case.n, case.m, block).masks)


def least(case: Case) -> float:
    """What it costs at least: one block of 64, known on a GPU, is at least one of 32."""
    slow = explicit.PAIR[case.device] if case.written_out else 1.0
    if case.device != "cpu" and case.written_out and case.scattered(64) is None:
        found = at_least(case.graph, case.n, case.m, 64)
        return slow * case.b * case.g * found * SIZES[32] * 32 * 48
    return slow * case.b * case.g * (case.pairs + 2e4)


def cost(case: Case) -> float:
    slow = explicit.PAIR[case.device] if case.written_out else 1.0
    return slow * case.b * case.g * _cost(case, block_size(case))


@cached_by_case
def block_size(case: Case) -> int:
    return min(SIZES, key=lambda block: _cost(case, block))


def _cost(case: Case, block: int) -> float:
    count = count_of(case.graph, case.n, case.m, block)
    return SIZES[block] * count * block * (block + 16) + 2e4


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    plan = tiles(case.graph, case.n, case.m, block_size(case))
    if case.written_out:
        return blocks_explicit.forward(case, plan, (q, k, v), terms)
    q, k, v = (blocked(x, plan.block) for x in (q, k, v))
    out = q.new_zeros(*q.shape[:-1], case.dv)
    lse = torch.full(q.shape[:-1], -torch.inf, dtype=wide(q.dtype))
    for group in chunks(plan, case):
        mask = _mask(plan, group, case, q.dtype)
        part, sums = flash(*_taken(group, q, k, v), case.scale, mask=mask)
        out[:, :, group.rows] = _returned(part, case.g)
        lse[:, :, group.rows] = _returned(sums, case.g)
    out, lse = out.flatten(2, 3)[:, :, : case.n], lse.flatten(2, 3)[:, :, : case.n]
    return out, lse.masked_fill(~plan.heard, -torch.inf)


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    plan = tiles(case.graph, case.n, case.m, block_size(case))
    if case.written_out:
        return blocks_explicit.backward(case, plan, saved, dout)
    q, k, v = (blocked(x, plan.block) for x in (saved.q, saved.k, saved.v))
    out, dout = blocked(saved.out, plan.block), blocked(dout, plan.block)
    lse = blocked(saved.lse[..., None], plan.block, torch.inf)
    dq = torch.zeros_like(q)
    dk, dv = (torch.zeros(x.shape, dtype=wide(x.dtype)) for x in (k, v))
    for group in chunks(plan, case):
        mask = _mask(plan, group, case, q.dtype)
        queries, keys, values = _taken(group, q, k, v)
        state = (queries, keys, values, _rows(out, group), _rows(lse, group)[..., 0])
        parts = flash_backward(_rows(dout, group), state, case.scale, mask=mask)
        dq[:, :, group.rows] = _returned(parts[0], case.g)
        _add(dk, parts[1], group, plan.block)
        _add(dv, parts[2], group, plan.block)
    dq = dq.flatten(2, 3)[:, :, : case.n]
    dk, dv = (x.flatten(1, 2)[:, : case.m].to(q.dtype) for x in (dk, dv))
    return Grads(dq, dk, dv)


def chunks(plan: Tiles, case: Case) -> list[Group]:
    """The groups, cut so that no batch of keys is larger than CHUNK."""
    out = []
    for group in plan.groups:
        numbers = group.keys.shape[1] * plan.block * max(case.d, case.dv) * case.b
        step = max(CHUNK // numbers, 1)
        for at in range(0, len(group.rows), step):
            part = slice(at, at + step)
            out.append(Group(group.rows[part], group.keys[part], group.kinds, group.slides))
    return out


def _taken(group: Group, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(rows, b, tokens, features): each block row is an element of a batch, each b a head."""
    return _rows(q, group), _keys(k, group), _keys(v, group)


def _rows(x: Tensor, group: Group) -> Tensor:
    first = int(group.rows[0])
    if group.slides and x.shape[1] == 1:
        return x[:, 0, first : first + len(group.rows)].transpose(0, 1)
    return x[:, :, group.rows].permute(2, 0, 1, 3, 4).flatten(2, 3)


def _keys(x: Tensor, group: Group) -> Tensor:
    rows, slots = group.keys.shape
    if group.slides or (rows == 1 and _neighbours(group.keys[0])):
        first = int(group.keys[0, 0])
        x = x[:, first : first + rows - 1 + slots].flatten(1, 2)
        block = x.shape[1] // (rows - 1 + slots)
        return x.unfold(1, slots * block, block).permute(1, 0, 3, 2)
    return x[:, group.keys.flatten()].unflatten(1, (rows, slots)).flatten(2, 3).transpose(0, 1)


def _neighbours(keys: Tensor) -> bool:
    return bool((keys.diff() == 1).all())


def _returned(x: Tensor, g: int) -> Tensor:
    """(rows, b, g·block, ...) as (b, g, rows, block, ...)."""
    return x.unflatten(2, (g, -1)).transpose(0, 1).transpose(1, 2)


def _add(total: Tensor, part: Tensor, group: Group, block: int) -> None:
    rows, slots = group.keys.shape
    part = part.unflatten(2, (slots, block)).transpose(0, 1)
    if group.slides:
        first = int(group.keys[0, 0])
        for slot in range(slots):
            total[:, first + slot : first + slot + rows] += part[:, :, slot]
    else:
        total.index_add_(1, group.keys.flatten(), part.flatten(1, 2).to(total.dtype))


def _mask(plan: Tiles, group: Group, case: Case, dtype: torch.dtype) -> Tensor | None:
    if not group.masked:
        return None
    allowed = plan.masks[group.kinds.clamp(min=0)]
    allowed[group.kinds == FULL] = True
    allowed = allowed.transpose(0, 1).flatten(1, 2).repeat(case.g, 1)
    mask = torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, -torch.inf)
    return mask.expand(len(group.rows), 1, *mask.shape)
