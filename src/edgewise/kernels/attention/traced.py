"""A call of attention as a trace sees it: plain operations around one operator."""

import torch
from torch import Tensor

from edgewise.graphs.families import per_head, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import arguments
from edgewise.kernels.attention.kept import name_of
from edgewise.kernels.attention.options import EdgeTerm, Options
from edgewise.kernels.attention.several import Graph, split


def call(q: Tensor, k: Tensor, v: Tensor, graph: Graph, options: Options) -> tuple[Tensor, Tensor]:
    """What `call.call` gives."""
    if not isinstance(graph, Pattern):
        return _in_parts(q, k, v, graph, options)
    scale = options.scale
    if scale <= 0:
        q, scale = (-q, -scale) if scale else (q * 0, 1.0)
    heads = q.shape[:-2] if q.ndim > 2 else (1,)
    shared = k.shape[:-2] if k.ndim > 2 else (1,)
    grouped = arguments.grouped(q, k, v)
    rows, keys = grouped[0].shape[:2], grouped[1].shape[:1]
    seed = torch.randint(1 << 31, ()) if options.dropout else None
    out, lse = torch.ops.edgewise.attend(
        *grouped,
        _shaped(_bias(q, k, options), heads, rows, 2, q),
        _shaped(options.edge_bias, heads, rows, 1, q),
        _shaped(options.edge_scale, heads, rows, 1, q),
        _shaped(options.edge_key, shared, keys, 2, q),
        _shaped(options.edge_value, shared, keys, 2, q),
        [arguments.table_for(table, q) for table in options.tables],
        None if seed is None else seed + options.seed,
        name_of(graph),
        name_of(options.score),
        scale,
        options.offset,
        options.dropout,
        options.kernel,
        options.lse,
    )
    return out.reshape(*q.shape[:-1], v.shape[-1]), lse.reshape(q.shape[:-1])


def _bias(q: Tensor, k: Tensor, options: Options) -> Tensor | None:
    """The bias, with -∞ for keys that do not exist."""
    bias = options.bias
    if bias is not None and bias.dtype == torch.bool:
        bias = torch.where(bias, 0.0, -torch.inf)
    if options.lengths is None:
        return bias
    lengths = torch.as_tensor(options.lengths, device=q.device)
    late = torch.arange(k.shape[-2], device=q.device) >= lengths[..., None]
    late = late[..., None, None, :] if k.ndim > 2 else late[..., None, :]
    mask = torch.where(late, -torch.inf, 0.0).to(q.dtype)
    return mask if bias is None else bias + mask


def _shaped(
    term: EdgeTerm | None, lead: tuple[int, ...], rows: tuple[int, ...], axes: int, q: Tensor
) -> Tensor | None:
    """A term with the rows that kernels see, its last axes as they are."""
    if term is None:
        return None
    assert isinstance(term, Tensor)  # of one graph
    term = term.reshape(*(1,) * (len(lead) + axes - term.ndim), *term.shape).to(q.dtype)
    rest = term.shape[term.ndim - axes :]
    return term.expand(*lead, *rest).reshape(*rows, *rest)


def _in_parts(
    q: Tensor, k: Tensor, v: Tensor, graphs: per_head | per_sample, options: Options
) -> tuple[Tensor, Tensor]:
    """One head or sample after another: a trace does not know which graphs are equal."""
    axis = 4 if isinstance(graphs, per_sample) else 3
    parts = split(q, k, v, graphs, options, alone=True)
    found = [call(*part.tensors, part.graph, part.options) for part in parts]
    return torch.cat([out for out, _ in found], -axis), torch.cat([x for _, x in found], 1 - axis)
