"""A call of attention as a trace sees it: plain operations around one operator."""

from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.families import per_head, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.calls import arguments, term_arguments
from edgewise.kernels.attention.calls.split import (
    Graph,
    check_family,
    expand_terms,
    is_vector,
    parts_of,
)
from edgewise.kernels.attention.calls.trace_names import name_of
from edgewise.kernels.attention.contract import EdgeTerm, Options, TermInputs
from edgewise.scores.nodes import ZERO, Entry, H, Node, moved, replaced, walk


def call(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph, options: Options, inputs: TermInputs
) -> Any:
    """What `Prepared` gives."""
    score, numbers = numbered(options, len(inputs.tables), q, q.device)
    if numbers is not None:
        inputs = inputs._replace(tables=(*inputs.tables, numbers))
    if not isinstance(graph, Pattern):
        check_family(graph, q)

        def axes(term: Tensor, name: str, lead: tuple[int, ...], _: Any) -> Tensor:
            """How many edges there are, the operator counts."""
            arguments.check_strided(term, name)
            missing = max(len(lead) + 1 + is_vector(name) - term.ndim, 0)
            return term.reshape(*(1,) * missing, *term.shape)

        inputs = expand_terms(inputs, axes, graph, q, k, v)
    out, lse = _call(q, k, v, graph, options, inputs, score, 0)
    return (out, lse) if options.lse else out


def numbered(
    options: Options, tables: int, q: Tensor, device: torch.device
) -> tuple[Node, Tensor | None]:
    """The score at the positions of queries, with one more table for the numbers of heads: they
    stay the same whichever heads go together."""
    score, numbers = options.score, None
    if H in list(walk(score)):
        heads = q.shape[-3] if q.ndim > 2 else 1
        numbers = torch.arange(heads, device=device, dtype=torch.float32)[:, None]
        score = replaced(score, {H: Entry(tables, ZERO)})
    offset = options.offset
    return (moved(score, offset) if isinstance(offset, int) and offset else score), numbers


def _call(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph, options: Options, inputs: TermInputs,
    score: Node, seed: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if not isinstance(graph, Pattern):
        return _in_parts(q, k, v, graph, options, inputs, score, seed)
    scale = options.scale
    if scale <= 0:
        q, scale = (-q, -scale) if scale else (q * 0, 1.0)
    heads = q.shape[:-2] if q.ndim > 2 else (1,)
    shared = k.shape[:-2] if k.ndim > 2 else (1,)
    grouped = arguments.grouped(q, k, v)
    rows, keys = grouped[0].shape[:2], grouped[1].shape[:1]
    drawn = torch.randint(1 << 31, ()) + seed if options.dropout else None
    for table in inputs.tables:
        term_arguments.check_table(table, q)
    out, lse = torch.ops.edgewise.attend(
        *grouped,
        _shaped(_bias(q, k, inputs), heads, rows, 2, q),
        _shaped(inputs.edge_bias, heads, rows, 1, q),
        _shaped(inputs.edge_scale, heads, rows, 1, q),
        _shaped(inputs.edge_key, shared, keys, 2, q),
        _shaped(inputs.edge_value, shared, keys, 2, q),
        [term_arguments.table_rows(table, heads) for table in inputs.tables],
        drawn,
        name_of(graph),
        name_of(score),
        scale,
        options.offset,
        options.dropout,
        options.kernel,
        options.lse,
    )
    return out.reshape(*q.shape[:-1], v.shape[-1]), lse.reshape(q.shape[:-1])


def _bias(q: Tensor, k: Tensor, inputs: TermInputs) -> Tensor | None:
    """The bias, with -∞ for keys that do not exist."""
    bias = inputs.bias
    if bias is not None and bias.dtype == torch.bool:
        bias = torch.where(bias, 0.0, -torch.inf)
    if inputs.lengths is None:
        return bias
    lengths = inputs.lengths
    if not isinstance(lengths, Tensor):
        lengths = torch.as_tensor(lengths)
    lengths = lengths.to(q.device)
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
    q: Tensor, k: Tensor, v: Tensor, graphs: per_head | per_sample, options: Options,
    inputs: TermInputs, score: Node, seed: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One head or sample after another: a trace does not know which graphs are equal."""
    samples = isinstance(graphs, per_sample)
    axis = 4 if samples else 3
    if inputs.lengths is not None:
        inputs = inputs._replace(lengths=torch.as_tensor(inputs.lengths))
    found = []
    for part in parts_of(graphs, alone=True):
        a, b, c, rest = part.taken(q, k, v, inputs, samples)
        found.append(_call(a, b, c, part.graph, options, rest, score, part.seed(seed, samples)))
    return torch.cat([out for out, _ in found], -axis), torch.cat([x for _, x in found], 1 - axis)
