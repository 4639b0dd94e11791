"""Arbitrary edges in plain torch, on any device: gather and scatter.

A score per edge is stored, and copies of keys and values for some edges at a time.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from edgewise.kernels.attention.autograd import row_dots
from edgewise.kernels.attention.contract import EDGE_TERMS, Case, Grads, Saved, Terms, wide
from edgewise.kernels.attention.edges import edges
from edgewise.kernels.attention.terms import Scores, TermGrads, Tile, places

name = "gather"
PAIR = 60.0  # the time of one edge in pairs of a dense product
LIMIT = 1 << 29
CHUNK = 1 << 24  # numbers copied to edges at a time
HUB = 8e5  # on a GPU: the time of one more edge at one node, whose sums are one after another


def refuses(case: Case) -> str | None:
    if not case.work:
        return "there are no pairs"
    if case.work > LIMIT:
        return f"it would store {case.work:,} scores, more than {LIMIT:,}"
    return case.lacks(*EDGE_TERMS)


def least(case: Case) -> float:
    """What it costs at least on a GPU: with edges spread evenly."""
    if case.device == "cpu" or refuses(case) is not None:
        return 0.0
    even = 0 if _is_large(case) else -(-case.pairs // case.n) + -(-case.pairs // case.m)
    return PAIR * case.work + 1e5 + HUB * even


def cost(case: Case) -> float:
    return PAIR * case.work + 1e5 + (HUB * _longest(case) if case.device == "cuda" else 0.0)


def _longest(case: Case) -> int:
    """The most edges at one query and at one key, where edges are few enough to be listed."""
    if _is_large(case):
        return 0
    found = edges(case.graph, case.n, case.m, "cpu")
    return sum(int(ptr.diff().max()) for ptr in (found.ptr, found.col_ptr))


def _is_large(case: Case) -> bool:
    """Whether other kernels cost less whatever the hubs."""
    return case.pairs > 4 * max(case.n, case.m)


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    kind, tile = wide(q.dtype), _tile(case)
    scores = Scores(case, terms, tile, _dots(case, q, k, terms, tile))
    score = scores.values()
    none = score.new_full(q.shape[:3], -torch.inf)
    top = none.scatter_reduce(2, tile.i.expand(*score.shape[:2], -1), score, "amax")
    top = torch.where(top == -torch.inf, 0, top)
    p = torch.exp(score - top[..., tile.i])
    total = _sum(torch.zeros_like(top)[..., None], tile.i, p[..., None])[..., 0]
    keep = scores.keep()
    p = p if keep is None else p * keep
    out = torch.zeros(*q.shape[:3], case.dv, dtype=kind, device=q.device)
    for part, i, j in _parts(case, tile):
        _sum(out, i, p[..., part, None] * _values(v, terms, part, j, kind))
    out = out / torch.where(total == 0, 1, total)[..., None]
    return out.to(q.dtype), torch.log(total) + top


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    kind, terms, tile = wide(dout.dtype), saved.terms, _tile(case)
    total = TermGrads(case, terms)
    scores = Scores(case, terms, tile, _dots(case, saved.q, saved.k, terms, tile))
    p = torch.exp(scores.values() - saved.lse[..., tile.i])
    keep = scores.keep()
    kept = p if keep is None else p * keep
    dp = torch.empty_like(p)
    dv = saved.v.new_zeros(saved.v.shape, dtype=kind)
    for part, i, j in _parts(case, tile):
        g = dout[:, :, i].to(kind)
        dp[..., part] = (g * _values(saved.v, terms, part, j, kind)).sum(-1)
        each = (kept[..., part, None] * g).sum(1)
        _sum(dv[:, None], j, each[:, None])
        if total.edge_value is not None:
            total.edge_value[:, part] = each
    ds = kept * dp - p * row_dots(dout, saved.out)[..., tile.i]
    ds = scores.backward(ds, total) * case.scale
    dq, dk = (x.new_zeros(x.shape, dtype=kind) for x in (saved.q, saved.k))
    for part, i, j in _parts(case, tile):
        weight = ds[..., part, None]
        _sum(dq, i, weight * _keys(saved.k, terms, part, j, kind))
        each = (weight * saved.q[:, :, i].to(kind)).sum(1)
        _sum(dk[:, None], j, each[:, None])
        if total.edge_key is not None:
            total.edge_key[:, part] = each
    dq, dk, dv = (x.to(dout.dtype) for x in (dq, dk, dv))
    return Grads(dq, dk, dv, total.terms())


def _tile(case: Case) -> Tile:
    i, j = places(case.graph, case.n, case.m, case.device)
    return Tile(i, j, torch.arange(len(i), device=i.device))


def _parts(case: Case, tile: Tile) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Runs of edges: their place, their i and their j."""
    step = max(CHUNK // max(case.b * case.g * max(case.d, case.dv), 1), 1)
    for at in range(0, len(tile.i), step):
        part = slice(at, at + step)
        yield part, tile.i[part], tile.j[part]


def _dots(case: Case, q: Tensor, k: Tensor, terms: Terms, tile: Tile) -> Tensor:
    kind = wide(q.dtype)
    dot = torch.empty(*q.shape[:2], len(tile.i), dtype=kind, device=q.device)
    for part, i, j in _parts(case, tile):
        dot[..., part] = (q[:, :, i].to(kind) * _keys(k, terms, part, j, kind)).sum(-1)
    return dot.mul_(case.scale)


def _keys(k: Tensor, terms: Terms, part: slice, j: Tensor, kind: torch.dtype) -> Tensor:
    keys = k[:, None, j].to(kind)
    return keys if terms.edge_key is None else keys + terms.edge_key[:, None, part].to(kind)


def _values(v: Tensor, terms: Terms, part: slice, j: Tensor, kind: torch.dtype) -> Tensor:
    values = v[:, None, j].to(kind)
    return values if terms.edge_value is None else values + terms.edge_value[:, None, part].to(kind)


def _sum(total: Tensor, rows: Tensor, each: Tensor) -> Tensor:
    """total[:, :, rows] += each, in one order of sums on every run."""
    if total.is_cuda:  # sorted there; index_add_ adds in the order of arrival
        b, g = (torch.arange(size, device=total.device) for size in total.shape[:2])
        index = (b[:, None, None], g[:, None], rows)
        return total.index_put_(index, each, accumulate=True)
    return total.index_add_(2, rows, each)
