"""Block-sparse attention with scores written out, a few block rows at a time: on any device."""

from collections.abc import Iterator

import torch
from torch import Tensor

from edgewise.kernels.attention import explicit
from edgewise.kernels.attention.contract import Case, Grads, Saved, Terms, wide
from edgewise.kernels.attention.function import row_dots
from edgewise.kernels.attention.terms import TermGrads, Tile, numbers
from edgewise.kernels.attention.tiles import Group, Tiles, blocked
from edgewise.layouts.tiling import FULL


def forward(
    case: Case, plan: Tiles, tensors: tuple[Tensor, Tensor, Tensor], terms: Terms
) -> tuple[Tensor, Tensor]:
    q, k, v = (blocked(x, plan.block) for x in tensors)
    out = torch.zeros(*q.shape[:-1], case.dv, dtype=wide(q.dtype), device=q.device)
    lse = torch.full(q.shape[:-1], -torch.inf, dtype=wide(q.dtype), device=q.device)
    for rows, keys, tile in _parts(case, plan, terms, q.device):
        taken = (q[:, :, rows], _keys(k, keys), _keys(v, keys))
        out[:, :, rows], lse[:, :, rows] = explicit.forward(case, terms, taken, tile)
    out, lse = out.flatten(2, 3)[:, :, : case.n], lse.flatten(2, 3)[:, :, : case.n]
    return out.to(q.dtype), lse.contiguous()


def backward(case: Case, plan: Tiles, saved: Saved, dout: Tensor) -> Grads:
    total, kind = TermGrads(case, saved.terms), wide(saved.q.dtype)
    delta = blocked(row_dots(dout, saved.out)[..., None], plan.block)[..., 0]
    lse = blocked(saved.lse[..., None], plan.block, torch.inf)[..., 0]
    q, k, v, g = (blocked(x, plan.block) for x in (saved.q, saved.k, saved.v, dout))
    dq, dk, dv = (torch.zeros(x.shape, dtype=kind, device=x.device) for x in (q, k, v))
    for rows, keys, tile in _parts(case, plan, saved.terms, q.device):
        taken = (q[:, :, rows], _keys(k, keys), _keys(v, keys))
        of_rows = (g[:, :, rows], delta[:, :, rows], lse[:, :, rows])
        dq[:, :, rows], *parts = explicit.backward(case, saved.terms, taken, of_rows, tile, total)
        for sum_, part in zip((dk, dv), parts, strict=True):
            _add(sum_, keys, part.unflatten(2, (keys.shape[1], plan.block)))
    dq = dq.flatten(2, 3)[:, :, : case.n].to(saved.q.dtype)
    dk, dv = (x.flatten(1, 2)[:, : case.m].to(saved.q.dtype) for x in (dk, dv))
    return Grads(dq, dk, dv, total.terms())


def _keys(x: Tensor, keys: Tensor) -> Tensor:
    """(b, rows, slots · block, d)."""
    return x[:, keys].flatten(2, 3)


def _add(total: Tensor, keys: Tensor, part: Tensor) -> None:
    """Key blocks of one slot are different, so sums come in one order on any device."""
    for slot in range(keys.shape[1]):
        some = keys[:, slot]
        if len(some.unique()) == len(some):
            total[:, some] += part[:, :, slot]
        else:
            for row, key in enumerate(some.tolist()):
                total[:, key] += part[:, row, slot]


def _parts(
    case: Case, plan: Tiles, terms: Terms, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, Tile]]:
    """Some block rows, their key blocks, and their pairs."""
    for group in plan.groups:
        rows, slots = group.keys.shape
        size = case.b * case.g * plan.block**2 * slots
        step = max(explicit.NUMBERS // max(size, 1), 1)
        for at in range(0, rows, step):
            part = slice(at, at + step)
            tile = _tile(case, plan, group, group.rows[part], group.keys[part])
            edge = None
            if terms.edge_bias is not None or terms.edge_scale is not None:
                edge = numbers(case.graph, case.n, case.m, tile.i, tile.j).to(device)
            allowed = None if tile.allowed is None else tile.allowed.to(device)
            moved = Tile(tile.i.to(device), tile.j.to(device), edge, allowed)
            yield group.rows[part].to(device), group.keys[part].to(device), moved


def _tile(case: Case, plan: Tiles, group: Group, rows: Tensor, keys: Tensor) -> Tile:
    inside = torch.arange(plan.block)
    i = (rows[:, None] * plan.block + inside)[..., None]
    j = (keys[..., None] * plan.block + inside).flatten(1)[:, None]
    allowed = None
    if group.masked:
        masks = plan.masks[group.kinds.clamp(min=0)]
        masks[group.kinds == FULL] = True
        allowed = masks.transpose(0, 1).flatten(1, 2)[None]
    if int(i.max()) >= case.n or int(j.max()) >= case.m:
        border = (i < case.n) & (j < case.m)
        allowed = border if allowed is None else allowed & border
    return Tile(i.clamp(max=case.n - 1), j.clamp(max=case.m - 1), None, allowed)
