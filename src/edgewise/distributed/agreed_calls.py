"""What a call of attention on ranks must be: the same on all of them, of shapes that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.distributed.collectives import Ranks
from edgewise.distributed.errors import BadShards
from edgewise.distributed.local_attention import Tensors
from edgewise.distributed.shards import Shards
from edgewise.errors import EdgewiseError, caller
from edgewise.graphs.families import Family
from edgewise.kernels.attention import arguments, term_arguments
from edgewise.kernels.attention.calls.split import check_family
from edgewise.kernels.attention.errors import AttentionShape, BadOption

if TYPE_CHECKING:
    from edgewise.distributed.attention import RankOptions


def _key(q: Tensor, k: Tensor, v: Tensor, graph: Any, home: Shards, options: RankOptions) -> Any:
    lengths = None if options.lengths is None else tuple(options.lengths.shape)
    heads = (tuple(q.shape[:-2]), tuple(k.shape[:-2]), q.shape[-1], v.shape[-1])
    dtypes = (q.dtype, k.dtype, v.dtype)
    bias = options.bias
    term = None if bias is None else (tuple(bias.shape[:-2]), bias.shape[-1:], bias.dtype)
    tables = tuple([(tuple(table.shape), table.dtype) for table in options.tables])
    others = (options.scale, options.dropout, lengths, term, options.score, tables, options.absent)
    return (graph, home, heads, dtypes, *others)


def agreed(
    ranks: Ranks,
    tensors: Tensors,
    graph: Any,
    home: Shards,
    options: RankOptions,
    failure: EdgewiseError | None,
) -> Any:
    """The key of a call that all ranks make; what is wrong on one of them is an error on all, and
    none waits for another."""
    key = lengths = None
    try:
        if failure is None:
            _check(ranks, *tensors, graph, home, options)
            key = _key(*tensors, graph, home, options)
            lengths = None if options.lengths is None else tuple(options.lengths.tolist())
    except EdgewiseError as error:
        failure = error
    # a rank that computes no gradients has no backward pass to take part in
    call = (key, lengths, torch.is_grad_enabled())
    ranks.agree("graph, shapes, options or gradient mode", call, failure)
    return key


def _check(
    ranks: Ranks, q: Tensor, k: Tensor, v: Tensor, graph: Any, home: Shards, options: RankOptions
) -> None:
    arguments.check_tensors(q, k, v)
    pattern = arguments.check_graph(graph)
    if isinstance(pattern, Family):
        check_family(pattern, q)
    arguments.check_scale(options.scale)
    arguments.check_dropout(options.dropout)
    if home.ranks != ranks.count:
        raise BadShards(
            f"the shards are for {home.ranks} ranks, the mesh has {ranks.count}",
            caller(),
            f"write `Shards({home.n}, {ranks.count})`",
        )
    mine = home.count(ranks.rank)
    for name, x in (("q", q), ("k", k)):
        if x.shape[-2] != mine:
            raise AttentionShape(
                f"`{name}` has {x.shape[-2]} tokens, rank {ranks.rank} of {home} has {mine}",
                caller(),
                "give the rows of this rank: `shards.take(x, rank)`; `shards=` if not all ranks "
                "have as many",
            )
    _check_lengths(options.lengths, q, home)
    for table in options.tables:
        term_arguments.check_table(table, q)
    term_arguments.check_learned(options.tables, q, q.device)
    if options.bias is not None:
        term_arguments.check_term(options.bias, "bias", q, q.device)
        lead = tuple(q.shape[:-2]) if q.ndim > 2 else ()
        term_arguments.check_broadcast(options.bias, "bias", (*lead, mine, home.n))


def _check_lengths(lengths: Tensor | None, q: Tensor, home: Shards) -> None:
    if lengths is None:
        return
    fits = isinstance(lengths, Tensor) and lengths.shape == q.shape[:-3]
    if not fits or lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise AttentionShape(
            f"`lengths` must be integers, one for each of the batch {tuple(q.shape[:-3])}",
            caller(),
            "give the number of keys of each element of the batch, over all ranks",
        )
    if lengths.numel() and (int(lengths.min()) < 0 or int(lengths.max()) > home.n):
        raise BadOption(
            f"`lengths` must be from 0 to {home.n}, got {lengths.tolist()}",
            caller(),
            "count the keys of each element of the batch, over all ranks",
        )
