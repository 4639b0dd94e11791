"""Sparsity that values decide: blocks of keys chosen in the forward pass, on the device of the
queries, without waiting for it.

As in MoBA (Lu et al. 2025, arXiv 2502.13189) and NSA (Yuan et al. 2025, arXiv 2502.11089): a block
of queries attends to the blocks of keys whose means are most like its own. Only those are computed.
"""

import math

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import integer
from edgewise.kernels.attention.calls.arguments import check_flag, check_scale, check_tensors
from edgewise.kernels.attention.contract import default_scale
from edgewise.kernels.attention.errors import AttentionShape, BadOption, UnsupportedDtype
from edgewise.kernels.attention.flash import fused

NUMBERS = 1 << 24  # of keys that are gathered at a time
KINDS = (torch.int64, torch.int32)


def select_blocks(
    q: Tensor, k: Tensor, top: int, *, block: int = 64, causal: bool = False
) -> Tensor:
    """The `top` blocks of keys for each block of queries, (..., heads, ⌈n / block⌉, top).

    Blocks are ranked by the dot product of their means; -1 where there are fewer. If causal, a
    block of queries takes its own block first, and none after it. No gradient passes through it.

    >>> import torch
    >>> x = torch.arange(4.0, 0.0, -1.0).repeat_interleave(2)[:, None]
    >>> select_blocks(x[None], x[None], 2, block=2, causal=True).tolist()
    [[[0, -1], [1, 0], [2, 0], [3, 0]]]
    """
    check_tensors(q, k, k)
    integer(top, "top", 1)
    integer(block, "block", 1)
    check_flag(causal, "causal")
    with torch.no_grad():
        rows, keys = _means(q.detach(), block), _means(k.detach(), block)
        shared = q.shape[-3] // max(k.shape[-3], 1) if q.ndim > 2 else 1
        if shared > 1:
            keys = keys.repeat_interleave(shared, -3)
        score = rows @ keys.mT
        if causal:
            i = torch.arange(score.shape[-2], device=q.device)[:, None]
            j = torch.arange(score.shape[-1], device=q.device)
            score = score.masked_fill(j == i, torch.inf).masked_fill(j > i, -torch.inf)
        found = score.topk(min(top, score.shape[-1]), -1)
        return torch.where(found.values == -torch.inf, -1, found.indices)


def selected_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    selected: Tensor,
    *,
    block: int = 64,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Attention of each block of queries to the blocks of keys in `selected`, a set; -1 is none.

    out_i = Σ_j p_ij v_j, p_ij ∝ exp(scale · q_i·k_j) for ⌊j / block⌋ ∈ selected[⌊i / block⌋], and
    if causal j ≤ i. `selected` broadcasts to (..., heads, ⌈n / block⌉, any number).

    >>> import torch
    >>> x = torch.arange(4.0)[None, :, None]
    >>> selected = torch.tensor([[[0], [0]]])
    >>> selected_attention(torch.zeros_like(x), x, x, selected, block=2).flatten().tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    check_tensors(q, k, v)
    integer(block, "block", 1)
    check_flag(causal, "causal")
    check_scale(scale)
    scale = default_scale(q.shape[-1]) if scale is None else float(scale)
    if q.ndim == 2:
        q, k, v = q[None], k[None], v[None]
        return _attended(q, k, v, selected, block, causal, scale)[0]
    return _attended(q, k, v, selected, block, causal, scale)


def _attended(
    q: Tensor, k: Tensor, v: Tensor, selected: Tensor, block: int, causal: bool, scale: float
) -> Tensor:
    *lead, heads, n, _ = q.shape
    m, dv, rows = k.shape[-2], v.shape[-1], -(-n // block)
    chosen = _checked(selected, (*lead, heads, rows), -(-m // block))
    if not q.numel() or not k.numel() or not chosen.numel():
        return (q.sum() + k.sum() + v.sum()) * 0 + q.new_zeros(*lead, heads, n, dv)
    chosen = chosen.reshape(-1, rows, chosen.shape[-1])
    q, k, v = (_blocked(x, block) for x in (q, k, v))  # (heads, blocks, block, d)
    shared = len(q) // len(k)
    owner = torch.arange(len(q), device=q.device) // shared * k.shape[1]
    flat_k, flat_v = k.flatten(0, 1), v.flatten(0, 1)
    each = len(q) * chosen.shape[-1] * block * (q.shape[-1] + dv)
    step, out = max(NUMBERS // each, 1), []
    for at in range(0, rows, step):
        part = chosen[:, at : at + step]
        place = (owner[:, None, None] + part.clamp(min=0)).flatten()
        keys, values = (
            x.index_select(0, place).view(len(q), part.shape[1], -1, x.shape[-1])
            for x in (flat_k, flat_v)
        )
        allowed = _allowed(part, at, block, m, causal)
        out.append(_masked(q[:, at : at + step], keys, values, allowed, scale))
    return torch.cat(out, 1).flatten(1, 2)[:, :n].reshape(*lead, heads, n, dv)


def _masked(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, scale: float) -> Tensor:
    """Blocks as heads of one call; rows without a key are 0."""
    q, sign = (q, scale) if scale > 0 else (-q, -scale) if scale else (q * 0, 1.0)
    out = fused(q, k, v, sign, mask=allowed)
    return torch.where(allowed.any(-1, keepdim=True), out, 0.0)


def _allowed(part: Tensor, first: int, block: int, m: int, causal: bool) -> Tensor:
    """(heads, block rows, block or 1, keys): each of its blocks once, and keys that exist."""
    again = (part[..., None, :] == part[..., :, None]).tril(-1).any(-1)
    inside = torch.arange(block, device=part.device)
    j = (part[..., None] * block + inside).flatten(-2)[:, :, None]
    found = (((part >= 0) & ~again)[..., None].expand(*part.shape, block)).flatten(-2)[:, :, None]
    found = found & (j < m)
    if causal:
        top = (first + torch.arange(part.shape[1], device=part.device)) * block
        return found & (j <= (top[:, None] + inside)[None, :, :, None])
    return found.expand(-1, -1, block, -1)


def _blocked(x: Tensor, block: int) -> Tensor:
    """(..., heads, tokens, d) as (heads, blocks, block, d), filled up with zeros."""
    x = x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
    blocks = -(-x.shape[1] // block)
    x = torch.nn.functional.pad(x, (0, 0, 0, blocks * block - x.shape[1]))
    return x.unflatten(1, (blocks, block))


def _means(x: Tensor, block: int) -> Tensor:
    """(..., blocks, d): the mean of the tokens of each block."""
    tokens, d = x.shape[-2:]
    sums = _blocked(x.float(), block).sum(2)
    count = (tokens - torch.arange(sums.shape[1], device=x.device) * block).clamp(max=block)
    return (sums / count[:, None]).reshape(*x.shape[:-2], sums.shape[1], d)


def _checked(selected: Tensor, lead: tuple[int, ...], blocks: int) -> Tensor:
    """(*lead, chosen) as int64; on a GPU numbers are not looked at, which would wait for it."""
    if not isinstance(selected, Tensor) or selected.dtype not in KINDS:
        kind = selected.dtype if isinstance(selected, Tensor) else type(selected).__name__
        raise UnsupportedDtype(f"`selected` is {kind}", caller(), "give a tensor of integers")
    wanted = (*lead, selected.shape[-1] if selected.ndim else 0)
    try:
        fits = torch.broadcast_shapes(selected.shape, wanted) == wanted
    except RuntimeError:
        fits = False
    if not fits or not selected.ndim:
        raise AttentionShape(
            f"`selected` has shape {tuple(selected.shape)}, which does not broadcast to "
            f"{(*lead, 'any number')}",
            caller(),
            "give the blocks of keys of each block of queries, as `select_blocks` does",
        )
    if selected.device.type == "cpu" and selected.numel():
        low, high = int(selected.min()), int(selected.max())
        if low < -1 or high >= blocks:
            raise BadOption(
                f"`selected` has blocks from {low} to {high}, there are {blocks}",
                caller(),
                f"give numbers from 0 to {blocks - 1}, or -1 for none",
            )
    return selected.long().expand(wanted)


def selected_pairs(selected: Tensor, n: int, m: int, *, block: int = 64) -> int:
    """How many pairs are computed for these blocks, of n·m; for looking: it reads all numbers.

    >>> import torch
    >>> selected_pairs(torch.tensor([[0, 1], [1, -1]]), 4, 4, block=2)
    12
    """
    ordered = selected.sort(-1).values
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    width = (m - ordered * block).clamp(max=block) * (new & (ordered >= 0))
    rows = torch.arange(math.ceil(n / block), device=selected.device)
    height = (n - rows * block).clamp(max=block)
    return int((width.sum(-1) * height).sum())
