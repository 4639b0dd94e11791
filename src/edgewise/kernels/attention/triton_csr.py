"""Arbitrary edges on a GPU: one program per node and few heads, hubs split."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.cache import cached
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.contract import EDGE_TERMS, Case, Grads, Saved, Terms
from edgewise.kernels.attention.edges import Edges, edges
from edgewise.kernels.attention.items import Items, items_of
from edgewise.kernels.attention.terms import off_edges, on_edges
from edgewise.kernels.attention.triton_blocks import padded
from edgewise.kernels.attention.triton_passes import width
from edgewise.kernels.attention.triton_score import Packed, functions, unit_of
from edgewise.kernels.availability import no_triton
from edgewise.kernels.programs import merged, room, share, units
from edgewise.scores.nodes import S

name = "triton_csr"
PAIR = 40.0  # the time of one edge in pairs of a dense product in bf16
LEAST = 512  # edges that one program takes without splitting its row


def refuses(case: Case) -> str | None:
    if reason := no_triton(case.device):
        return reason
    if not case.work:
        return "there are no pairs"
    if case.dtype == torch.float64:
        return "it does not compute in float64"
    if max(case.d, case.dv) > 256:
        return f"{max(case.d, case.dv)} features are more than 256"
    return case.lacks(*EDGE_TERMS)


def cost(case: Case) -> float:
    slow = 1e3 if case.device == "cpu" else 1.0
    return slow * case.b * case.g * PAIR * (case.pairs + case.n)


@dataclass(frozen=True, eq=False)
class Plan:
    edges: Edges
    rows: Items
    columns: Items


@cached
def plan(graph: Pattern, n: int, m: int, device: str) -> Plan:
    found = edges(graph, n, m, device)
    lists = (items_of(ptr, found.count, LEAST) for ptr in (found.ptr, found.col_ptr))
    return Plan(found, *lists)


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    from edgewise.kernels.attention import triton_csr_kernels, triton_parts_kernels

    graph, terms = plan(case.graph, case.n, case.m, case.device), on_edges(case, terms)
    q, k, v = padded(q.flatten(0, 1)), padded(k), padded(v)
    heads, dv, slots = len(q), v.shape[-1], graph.rows.slots
    out, meta = room(q, case.n, dv), _meta(case, terms, heads, backward=False)
    lse = q.new_empty(heads, case.n, dtype=torch.float32)
    part = q.new_empty(heads * slots, dv, dtype=torch.float32)
    part_lse = q.new_empty(heads * slots, dtype=torch.float32)
    numbers = (case.scale, case.n, graph.edges.count, heads, case.g, slots, *_drop(terms))
    triton_csr_kernels.forward[(len(graph.rows.row) * heads // meta["H"],)](
        q, k, v, *_extra(case, terms, q), out, lse, part, part_lse,
        *_work(graph.rows), graph.edges.index, *numbers, *units(out), *_strides(q, k, v), **meta
    )  # fmt: skip
    if slots:
        triton_parts_kernels.merge[len(graph.rows.split), heads](
            out, lse, part, part_lse, graph.rows.split, graph.rows.split_ptr,
            case.n, slots, *merged(out), BLOCK=1, DV=dv, num_warps=1
        )  # fmt: skip
    shape = (case.b, case.g)
    return out[..., : case.dv].unflatten(0, shape), lse.unflatten(0, shape)


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    graph = plan(case.graph, case.n, case.m, case.device)
    q, out, g = (padded(x.flatten(0, 1)) for x in (saved.q, saved.out, dout))
    k, v, lse = padded(saved.k), padded(saved.v), saved.lse.flatten(0, 1).contiguous()
    terms = on_edges(case, saved.terms)
    stats = lse.new_empty(case.n, len(q), 2)
    inputs = (q, k, v, *_extra(case, terms, q), g)
    dq, of_rows = _rows(case, graph, inputs, (out, lse, stats), terms)
    (dk, dv), of_columns = _columns(case, graph, inputs, stats, terms)
    dq = dq[..., : case.d].unflatten(0, (case.b, case.g))
    found = Terms.of([None, *of_rows.tensors[1:3], *of_columns.tensors[3:5], *of_rows.tables])
    grads = (dq, dk[..., : case.d], dv[..., : case.dv])
    return Grads(*grads, off_edges(case, saved.terms, found))


def _rows(
    case: Case,
    graph: Plan,
    inputs: tuple[Tensor, ...],
    state: tuple[Tensor, Tensor, Tensor],
    terms: Terms,
) -> tuple[Tensor, Terms]:
    """dq, and the gradients of what edges multiply and add, and of tables."""
    from edgewise.kernels.attention import triton_csr_kernels, triton_parts_kernels

    q, k, v, g = *inputs[:3], inputs[9]
    rows, d, heads = graph.rows, q.shape[-1], len(q)
    dq, meta = room(q, case.n, d), _meta(case, terms, heads)
    dbias, dfactor = (None if x is None else x.new_empty(x.shape) for x in terms.tensors[1:3])
    packed = Packed.of(terms.tables, q.device)
    dtables = torch.zeros(packed.tables.shape, dtype=torch.int64, device=q.device)
    learns = case.learns and bool(terms.tables)
    unit = unit_of(g, v, heads * case.n) if learns else packed.tables
    part = q.new_empty(heads * rows.slots, d, dtype=torch.float32)
    into = (dq, *(dq if x is None else x for x in (dbias, dfactor)), dtables, unit, part)
    numbers = (case.scale, case.n, graph.edges.count, heads, case.g, rows.slots, *_drop(terms))
    strides = _strides(q, k, v, g, state[0])
    triton_csr_kernels.backward_rows[(len(rows.row) * heads // meta["H"],)](
        *inputs, *state, *into, *_work(rows), graph.edges.index,
        *numbers, *units(dq), *strides, **meta
    )  # fmt: skip
    if rows.slots:
        triton_parts_kernels.add_up[len(rows.split), heads](
            dq, part, rows.split, rows.split_ptr, case.n, rows.slots, *merged(dq),
            BLOCK=1, D=d, num_warps=1
        )  # fmt: skip
    tables = (
        packed.split(dtables / unit if learns else dtables, terms.tables) if terms.tables else ()
    )
    return dq, Terms.of([None, dbias, dfactor, None, None, *tables])


def _columns(
    case: Case, graph: Plan, inputs: tuple[Tensor, ...], stats: Tensor, terms: Terms
) -> tuple[tuple[Tensor, Tensor], Terms]:
    """dk and dv, and the gradients of keys and values of edges."""
    from edgewise.kernels.attention import triton_csr_kernels, triton_parts_kernels

    q, k, v, g = *inputs[:3], inputs[9]
    columns, keys, meta = graph.columns, len(k), _meta(case, terms, len(k))
    grads = [room(x, case.m, x.shape[-1]) for x in (k, v)]
    given = (terms.edge_key, terms.edge_value)
    of_edges = [
        None if x is None else q.new_empty(keys, graph.edges.count, wide, dtype=torch.float32)
        for x, wide in zip(given, (k.shape[-1], v.shape[-1]), strict=True)
    ]
    parts = [x.new_empty(keys * columns.slots, x.shape[-1], dtype=torch.float32) for x in (k, v)]
    into = (*grads, *(grads[0] if x is None else x for x in of_edges), *parts)
    numbers = (case.scale, case.m, graph.edges.count, keys, case.g, columns.slots, *_drop(terms))
    triton_csr_kernels.backward_columns[(len(columns.row) * keys // meta["H"],)](
        *inputs, stats, *into, *_work(columns), graph.edges.col_row, graph.edges.edge,
        *numbers, *units(grads[0]), *units(grads[1]), *_strides(q, k, v, g), **meta
    )  # fmt: skip
    if columns.slots:
        for grad, part in zip(grads, parts, strict=True):
            triton_parts_kernels.add_up[len(columns.split), keys](
                grad, part, columns.split, columns.split_ptr, case.m, columns.slots,
                *merged(grad), BLOCK=1, D=part.shape[-1], num_warps=1
            )  # fmt: skip
    found = [
        None if grad is None or term is None else grad[..., : term.shape[-1]].to(term.dtype)
        for grad, term in zip(of_edges, given, strict=True)
    ]
    return (grads[0], grads[1]), Terms.of([None, None, None, *found])


def _strides(*tensors: Tensor) -> list[int]:
    return [step for x in tensors for step in x.stride()[:2]]


def _work(work: Items) -> tuple[Tensor, ...]:
    return work.row, work.low, work.high, work.slot


def _extra(case: Case, terms: Terms, q: Tensor) -> tuple[Tensor, ...]:
    """Bias, factor, key and value of edges, and tables; q stands for what is not there."""
    scalars, vectors = terms.tensors[1:3], terms.tensors[3:5]
    given = (*scalars, *(None if x is None else padded(x) for x in vectors))
    packed = Packed.of(terms.tables, q.device, case.score)
    read = (q if x is None else x.contiguous() for x in given)
    return (*read, packed.tables, packed.sizes)


def _drop(terms: Terms) -> tuple[int, int, float]:
    drop = terms.drop
    return (0, 0, 1.0) if drop is None else (drop.seed, drop.least, 1 / (1 - drop.chance))


def _meta(case: Case, terms: Terms, heads: int, backward: bool = True) -> dict[str, Any]:
    compiled, (d, dv) = functions(case.score), (width(case.d), width(case.dv))
    part = share(heads, max(d, dv), case.dtype.itemsize, backward=backward)
    return {
        "VALUE": compiled.value,
        "SLOPE": compiled.slope,
        "SPREAD": compiled.spread if case.learns else None,
        "SCORE": case.score != S,
        "BIAS": terms.edge_bias is not None,
        "FACTOR": terms.edge_scale is not None,
        "DROP": terms.drop is not None,
        "EDGE_KEY": terms.edge_key is not None,
        "EDGE_VALUE": terms.edge_value is not None,
        "E": part.edges,
        "H": part.heads,
        "D": d,
        "DV": dv,
        "num_warps": 1,
    }
