"""`edgewise.attention` on the rows of this rank: the result of one process, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from edgewise.distributed.agreed_calls import agreed
from edgewise.distributed.collectives import Ranks, agreeing_ranks
from edgewise.distributed.errors import BadMesh, BadShards, NotDistributed
from edgewise.distributed.local_attention import Rest, SharedCall, Tensors, TermSums
from edgewise.distributed.rank_parts import run_backward, run_parts
from edgewise.distributed.rank_plan import RankPlan, build_plan, plans_of, remember
from edgewise.distributed.shards import Shards
from edgewise.distributed.token_sets import TokenSet
from edgewise.distributed.traffic import RowSizes, added, worst
from edgewise.errors import EdgewiseError, caller
from edgewise.graphs.families import per_head, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.autocast import without_autocast
from edgewise.kernels.attention.calls import arguments, term_arguments, traced
from edgewise.kernels.attention.calls.split import GraphPart, joined, parts_of
from edgewise.kernels.attention.contract import (
    NO_INPUTS,
    Options,
    TermInputs,
    changes_scores,
    default_scale,
    wide,
)
from edgewise.kernels.attention.errors import refuse_second
from edgewise.kernels.edges.attention import Dropout
from edgewise.scores.nodes import Node, S

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

FAR = 1e30  # exp(-FAR) is 0 beside the weight of any score


class RankOptions(NamedTuple):
    """Of a call beyond its tensors and graph; `bias` has the rows of this rank's queries and a
    column for each token of all ranks, `tables` are those of the score; `absent`: the last feature
    of keys that are not there is `lowest`."""

    scale: float | None = None
    dropout: float = 0.0
    lengths: Tensor | None = None
    bias: Tensor | None = None
    score: Node = S
    tables: tuple[Tensor, ...] = ()
    absent: bool = False

    @property
    def inputs(self) -> TermInputs:
        """The tensors of the options."""
        return NO_INPUTS._replace(lengths=self.lengths, bias=self.bias, tables=self.tables)


REFUSED = ("edge_bias", "edge_scale", "edge_key", "edge_value")


def on_mesh(
    tensors: Tensors,
    graph: Any,
    place: tuple[DeviceMesh | None, Shards | None],
    options: tuple[Any, ...],
    terms: tuple[Any, ...],
    lengths: Any,
) -> Tensor:
    """`edgewise.attention` with a mesh: what ranks cannot share is refused on all of them."""
    mesh, shards = place
    if mesh is None:
        raise BadMesh("`shards` needs `mesh`", caller(), "give `mesh=` as well")
    request, failure = RankOptions(), None
    try:
        request = _request(shards, options, terms, lengths)
    except EdgewiseError as error:
        failure = error
    return attention_on_ranks(*tensors, graph, mesh, shards, request, failure)


def _request(
    shards: Shards | None, options: tuple[Any, ...], terms: tuple[Any, ...], lengths: Any
) -> RankOptions:
    scale, dropout, offset, lse, weights, kernel = options
    others = {"offset": offset, "return_lse": lse, "return_weights": weights, "kernel": kernel}
    bias, score, *of_edges = terms
    present = [name for name, term in zip(REFUSED, of_edges, strict=True) if term is not None]
    present += [name for name, value in others.items() if value]
    if present:
        raise NotDistributed(
            f"`{present[0]}` does not work with `mesh=`",
            caller(),
            "leave it out, or gather keys and values and call `attention` without a mesh",
        )
    if shards is not None and not isinstance(shards, Shards):
        raise BadShards(
            f"`shards` is {type(shards).__name__}, not `Shards`",
            caller(),
            "write `edgewise.distributed.Shards(tokens, ranks)`",
        )
    bias, combined = term_arguments.scores_of(bias, score)
    return RankOptions(scale, dropout, lengths, bias, combined.node, combined.tables)


@torch.compiler.disable
def attention_on_ranks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: Any,
    mesh: DeviceMesh,
    shards: Shards | None,
    options: RankOptions,
    failure: EdgewiseError | None = None,
) -> Tensor:
    """The rows of this rank of attention over the tokens of all ranks of a mesh; `failure` is why
    this rank cannot take part."""
    is_tensor = isinstance(q, Tensor)
    ranks, elsewhere = agreeing_ranks(
        mesh, q.device if is_tensor else torch.device(getattr(mesh, "device_type", "cpu"))
    )
    each = q.shape[-2] if is_tensor and q.ndim > 1 else 0
    home = Shards(each * ranks.count, ranks.count) if shards is None else shards
    key = agreed(ranks, (q, k, v), graph, home, options, failure or elsewhere)
    with ranks.failures.together():
        return _agreed_attention(ranks, home, key, (q, k, v), graph, options)


def _agreed_attention(
    ranks: Ranks, home: Shards, key: Any, tensors: Tensors, graph: Any, options: RankOptions
) -> Tensor:
    q, k, v = tensors
    pattern = arguments.check_graph(graph)
    seed = ranks.first(int(torch.randint(1 << 31, ()))) if options.dropout else 0
    scale = default_scale(q.shape[-1]) if options.scale is None else float(options.scale)
    if scale <= 0:  # kernels take the largest score before they scale it
        q, scale = (-q, -scale) if scale else (q * 0, 1.0)
    inputs, tables = options.inputs, term_arguments.constants_at(options.tables, q.device)
    positive = Options(scale, options.score, float(options.dropout))
    score, numbers = traced.numbered(positive, len(tables), q, q.device)
    inputs = inputs._replace(tables=tables if numbers is None else (*tables, numbers))
    with without_autocast(q):
        placed = replace(positive, score=score)
        settings = _Settings(ranks, home, placed, key, options.absent)
        return _attend(settings, (q, k, v), pattern, inputs, seed)


class _Settings(NamedTuple):
    """What the graphs of all heads and samples of a call share."""

    ranks: Ranks
    home: Shards
    options: Options
    key: Any
    absent: bool


def _attend(
    settings: _Settings, tensors: Tensors, graph: Any, inputs: TermInputs, seed: int
) -> Tensor:
    if isinstance(graph, Pattern) or _is_together(settings, tensors, graph, inputs):
        return _one_exchange(settings, tensors, graph, inputs, seed)
    samples = isinstance(graph, per_sample)
    found, order = [], []
    for part, of_part, rest in _split(tensors, graph, inputs):
        found.append(_attend(settings, of_part, part.graph, rest, part.seed(seed, samples)))
        order += part.at
    return joined(found, order, -4 if samples else -3)


def _split(
    tensors: Tensors, graph: Any, inputs: TermInputs
) -> Iterator[tuple[GraphPart, Tensors, TermInputs]]:
    """The heads or samples of each graph; keys of heads that all have one graph stay shared."""
    samples = isinstance(graph, per_sample)
    for part in parts_of(graph):
        q, k, v, rest = part.taken(*tensors, inputs, samples)
        if not samples:
            group = tensors[0].shape[-3] // max(tensors[1].shape[-3], 1)
            of_head = Counter(head // group for head in part.at)
            if set(of_head.values()) == {group}:
                k, v = (x[..., list(of_head), :, :] for x in tensors[1:])
        yield part, (q, k, v), rest


def _is_together(settings: _Settings, tensors: Tensors, graph: Any, inputs: TermInputs) -> bool:
    """Whether heads with graphs of their own send less together than graph by graph: where the
    graphs are dense, a rank computes some of the heads, or gathers the keys that heads share."""
    if not isinstance(graph, per_head) or settings.home.ranks == 1:
        return False
    if not _call_of(settings, tensors, inputs).alike:
        return False
    alone = [_plan(settings, of_part, part.graph, rest).decision.received
             for part, of_part, rest in _split(tensors, graph, inputs)]  # fmt: skip
    together = _plan(settings, tensors, graph, inputs).decision.received
    return len(alone) > 1 and worst(together) < worst(added(alone))


class _CallTerms(NamedTuple):
    """What a call adds to scores; `alike` if it is the same for all heads."""

    heads: tuple[int, ...]
    tables: tuple[Tensor, ...]
    bias: Tensor | None
    lengths: Tensor | None
    alike: bool


def _call_of(settings: _Settings, tensors: Tensors, inputs: TermInputs) -> _CallTerms:
    heads = tuple(tensors[0].shape[:-2]) if tensors[0].ndim > 2 else (1,)
    tables = tuple([term_arguments.table_rows(table, heads) for table in inputs.tables])
    bias, lengths, options = inputs.bias, inputs.lengths, settings.options
    if lengths is not None and changes_scores(options, inputs):
        bias, lengths = _masked(tensors[0], settings.home, bias, lengths), None
    alike = bias is None and all(len(table) == 1 for table in tables)
    return _CallTerms(heads, tables, bias, lengths, alike)


def _plan(
    settings: _Settings,
    tensors: Tensors,
    graph: Pattern | per_head,
    inputs: TermInputs,
    call: _CallTerms | None = None,
) -> RankPlan:
    call, ranks = call or _call_of(settings, tensors, inputs), settings.ranks
    by_heads = call.alike and not settings.options.dropout
    more, at_home = int(call.lengths is not None), inputs.bias is not None
    sizes = row_sizes(*tensors, more, by_heads=by_heads, at_home=at_home)
    key, plans = (settings.key, graph, sizes), plans_of(ranks)
    if key not in plans:
        remember(ranks, key, build_plan(ranks, graph, settings.home, sizes))
    plans.move_to_end(key)
    return plans[key]


def _one_exchange(
    settings: _Settings,
    tensors: Tensors,
    graph: Pattern | per_head,
    inputs: TermInputs,
    seed: int,
) -> Tensor:
    ranks, _, options, _, absent = settings
    terms = _call_of(settings, tensors, inputs)
    plan = _plan(settings, tensors, graph, inputs, terms)
    heads, tables, bias, lengths, _ = terms
    if lengths is not None:
        tensors, absent = _padded(tensors, lengths, plan.own, options.scale), True
    least = options.scale * lowest(tensors[0].dtype, options.scale) / 2 if absent else -torch.inf
    drop = Dropout(options.dropout, seed) if options.dropout else None
    learns = any(table.requires_grad for table in tables)
    call = SharedCall(ranks, options.scale, plan.own, drop, options.score, least, learns=learns)
    shape = (*tensors[0].shape[:-1], tensors[2].shape[-1])
    flag = torch.zeros((), requires_grad=torch.is_grad_enabled())
    grouped = arguments.grouped(*tensors)
    if bias is not None:
        bias = _of_pairs(bias, heads, tensors[0].dtype, grouped[0])
    found: Tensor = _OnRanks.apply(plan, call, flag, *grouped, bias, *tables)
    return found.reshape(shape)


def lowest(dtype: torch.dtype, scale: float = 1.0) -> float:
    """What a key that is not there adds to its scaled dot products."""
    return max(-FAR / scale, torch.finfo(dtype).min)


def _masked(q: Tensor, home: Shards, bias: Tensor | None, lengths: Tensor) -> Tensor:
    """A bias of -∞ for keys from lengths[b] on, where a score may make something of a low one."""
    late = torch.arange(home.n, device=q.device) >= lengths[..., None]
    late = late[..., None, None, :] if q.ndim > 2 else late[..., None, :]
    mask = torch.zeros(late.shape, dtype=q.dtype, device=q.device)
    mask = mask.masked_fill(late, -torch.inf)
    return mask if bias is None else mask + term_arguments.as_bias(bias, q.dtype)


def _of_pairs(bias: Tensor, heads: tuple[int, ...], dtype: torch.dtype, q: Tensor) -> Tensor:
    """A bias as kernels take it: (b, g, rows or 1, tokens or 1)."""
    bias = term_arguments.as_bias(bias, dtype)
    bias = bias.reshape(*(1,) * (len(heads) + 2 - bias.ndim), *bias.shape)
    last = bias.shape[-2:]
    return bias.expand(*heads, *last).reshape(*q.shape[:2], *last)


def _padded(tensors: Tensors, lengths: Tensor, own: TokenSet, scale: float) -> Tensors:
    """Keys from lengths[b] on are not there: one more feature of theirs makes their scores low."""
    q, k, v = tensors
    late = torch.from_numpy(own.list()).to(q.device) >= lengths[..., None]
    late = late[..., None, :, None] if k.ndim > 2 else late[..., None]
    low = torch.where(late, lowest(q.dtype, scale), 0.0).to(k.dtype)
    q = torch.cat([q, q.new_ones(*q.shape[:-1], 1)], -1)
    return q, torch.cat([k, low.expand(*k.shape[:-1], 1)], -1), v


class _OnRanks(torch.autograd.Function):
    """One node for all that is sent, so that ranks send in the same order.

    `flag` needs a gradient wherever gradients are computed: a rank whose inputs need none still
    takes part in the backward pass of the others.
    """

    @staticmethod
    def forward(
        ctx: Any, plan: RankPlan, call: SharedCall, flag: Tensor, q: Tensor, k: Tensor, v: Tensor,
        bias: Tensor | None, *tables: Tensor,
    ) -> Tensor:  # fmt: skip
        terms = call._replace(bias=bias, tables=tables)
        out, lse, states = run_parts(plan.parts, terms, (q, k, v))
        out = call.with_keys(out, lse)
        ctx.plan, ctx.call, ctx.states = plan, call, states
        ctx.save_for_backward(q, k, v, out, lse, bias, *tables)
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            refuse_second("on ranks")
        q, k, v, out, lse, bias, *tables = ctx.saved_tensors
        rest = Rest(out, lse, ctx.call.with_keys(dout, lse).contiguous())
        sums = TermSums(bias, tables)
        call = ctx.call._replace(bias=bias, tables=tuple(tables), sums=sums)
        with ctx.call.ranks.failures.together(), without_autocast(q):
            grads = run_backward(ctx.plan.parts, call, (q, k, v), ctx.states, rest)
        of_bias = None if bias is None or sums.bias is None else sums.bias.to(bias.dtype)
        of_tables = [x.to(t.dtype) for x, t in zip(sums.tables, tables, strict=True)]
        return None, None, None, *grads, of_bias, *of_tables


def row_sizes(
    q: Tensor, k: Tensor, v: Tensor, more: int = 0, *, by_heads: bool, at_home: bool = False
) -> RowSizes:
    """Of a call with tensors like these, with this many features more."""
    heads, shared = (q.shape[-3], k.shape[-3]) if q.ndim > 2 else (1, 1)
    batch = int(torch.Size(q.shape[:-3]).numel()) if q.ndim > 3 else 1
    return RowSizes(
        heads=heads,
        key_heads=shared,
        d=q.shape[-1] + more,
        dv=v.shape[-1],
        batch=batch,
        itemsize=q.element_size(),
        wide=wide(q.dtype).itemsize,
        by_heads=by_heads,
        at_home=at_home,
    )
