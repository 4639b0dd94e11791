"""`edgewise.attention` on DTensors: every rank has complete sequences of some samples or heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from edgewise.distributed.errors import NotDistributed
from edgewise.errors import caller
from edgewise.graphs.families import per_head, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import attention
from edgewise.kernels.attention.calls.term_arguments import scores_of
from edgewise.scores.nodes import Call, H, Number, replaced
from edgewise.scores.score import Score

# terms of a call, and how many axes theirs has from that of the heads on
AXES = {"bias": 3, "edge_bias": 2, "edge_scale": 2, "edge_key": 3, "edge_value": 3, "lengths": 0}
OF_KEYS = ("edge_key", "edge_value")
Span = tuple[int, int]  # first and number


@dataclass(frozen=True)
class _LocalSpans:
    """Which heads (axis 0) and samples (1, 2, ...: axes of the batch, the last first) are here."""

    q: DTensor
    queries: Mapping[int, Span]
    keys: Mapping[int, Span]

    def of(self, x: Any, axes: int, spans: Mapping[int, Span]) -> Any:
        """The part of a term that all ranks have, with heads on the `axes`-th axis from behind."""
        for number, (first, count) in spans.items():
            axis = axes + number
            if axis and x.ndim >= axis and x.shape[-axis] > 1:
                x = x.narrow(-axis, first, count)
        return x


def attention_on_dtensors(
    tensors: tuple[Tensor, Tensor, Tensor], graph: Any, **options: Any
) -> Any:
    """The same call on what this rank has of q, k and v, which are sharded alike, by samples or
    heads; so is the result."""
    q, k, v = (_checked(x, name) for x, name in zip(tensors, "qkv", strict=True))
    _check_alike(q, k, v)
    part = _LocalSpans(q, _spans(q), _spans(k))
    if options["dropout"]:
        raise _refusal("dropout draws other pairs on every rank", "use `dropout=0.0`, or `mesh=`")
    bias, score = scores_of(options["bias"], options["score"])
    options |= {"bias": bias, "score": _placed(score, part)}
    for name, axes in AXES.items():
        options[name] = _term(options[name], name, axes, part)
    of_q, of_k, of_v = (x.to_local() for x in (q, k, v))
    found: Any = attention(of_q, of_k, of_v, _graph(graph, part), **options)
    if isinstance(found, tuple):
        return tuple([_shared(x, q) for x in found])
    return _shared(found, q)


def _refusal(what: str, help: str) -> NotDistributed:
    return NotDistributed(f"attention on DTensors: {what}", caller(), help)


def _checked(x: Any, name: str) -> DTensor:
    """A DTensor that is sharded by samples or heads alone."""
    if not isinstance(x, DTensor):
        raise _refusal(f"`{name}` is not one", "give q, k and v as DTensors, sharded alike")
    for place in x.placements:
        if isinstance(place, Replicate):
            continue
        if type(place) is not Shard:
            raise _refusal(
                f"`{name}` is {place}",
                "redistribute it to `Shard(0)` for samples, or `Replicate()`",
            )
        if place.dim % x.ndim >= x.ndim - 2:
            raise _refusal(
                f"`{name}` is sharded along axis {place.dim}: a rank would not have all keys",
                "shard samples or heads; for tokens call `attention(x.to_local(), ..., mesh=mesh)`",
            )
    return x


def _check_alike(q: DTensor, k: DTensor, v: DTensor) -> None:
    if not (q.device_mesh == k.device_mesh == v.device_mesh and q.ndim == k.ndim == v.ndim):
        raise _refusal("q, k and v are on different meshes", "give them on one mesh, sharded alike")
    places = [
        [p.dim % x.ndim if isinstance(p, Shard) else None for p in x.placements] for x in (q, k, v)
    ]
    if not places[0] == places[1] == places[2]:
        shown = ", ".join(str(x.placements) for x in (q, k, v))
        raise _refusal(f"q, k and v are sharded as {shown}", "shard all three alike")
    parts = 1
    for number, dim in enumerate(places[0]):
        parts *= q.device_mesh.size(number) if dim == q.ndim - 3 else 1
    if parts > 1 and k.shape[-3] % parts:
        raise _refusal(
            f"{k.shape[-3]} heads of keys on {parts} ranks",
            f"give a number of heads of keys that {parts} divides, or shard samples",
        )


def _spans(x: DTensor) -> dict[int, Span]:
    """The sharded axes, counted from that of the heads forwards: what of them is here."""
    sizes, first = compute_local_shape_and_global_offset(x.shape, x.device_mesh, x.placements)
    axes = {p.dim % x.ndim for p in x.placements if isinstance(p, Shard)}
    return {x.ndim - 3 - axis: (int(first[axis]), int(sizes[axis])) for axis in sorted(axes)}


def _placed(score: Score, part: _LocalSpans) -> Score:
    """The score of the heads that are here."""
    tables = tuple([_term(x, "table of the score", 2, part) for x in score.tables])
    first = part.queries.get(0, (0, 0))[0]
    node = replaced(score.node, {H: Call("add", (H, Number(first)))}) if first else score.node
    return Score(node, tables)


def _term(x: Any, name: str, axes: int, part: _LocalSpans) -> Any:
    if x is None:
        return None
    if not isinstance(x, Tensor):
        raise _refusal(f"`{name}` is a list", "give heads and samples one graph")
    if isinstance(x, DTensor):
        x = _complete(x, name, part.q)
    elif x.requires_grad:
        raise _refusal(
            f"`{name}` needs a gradient, which would be of this rank's part",
            "give it as a DTensor: `distribute_tensor(x, mesh, [Replicate()])`",
        )
    return part.of(x, axes, part.keys if name in OF_KEYS else part.queries)


def _complete(x: DTensor, name: str, q: DTensor) -> Tensor:
    """A term that all ranks have; its gradients of all samples and heads are added up."""
    if x.device_mesh != q.device_mesh or not all(isinstance(p, Replicate) for p in x.placements):
        raise _refusal(
            f"`{name}` is {', '.join(map(str, x.placements))} on {x.device_mesh}",
            "give it complete on the mesh of q: `distribute_tensor(x, mesh, [Replicate()])`",
        )
    of_part = [Partial() if isinstance(p, Shard) else p for p in q.placements]
    return x.redistribute(x.device_mesh, x.placements).to_local(grad_placements=of_part)


def _graph(graph: Any, part: _LocalSpans) -> Any:
    """The graphs of the heads or samples that are here."""
    if graph is None or isinstance(graph, Pattern):
        return graph
    if isinstance(graph, per_sample):
        first, count = part.queries.get(1, (0, len(graph)))
        return per_sample(*(_graph(one, part) for one in graph.patterns[first : first + count]))
    if isinstance(graph, per_head):
        first, count = part.queries.get(0, (0, len(graph)))
        return per_head(*graph.patterns[first : first + count])
    return graph


def _shared(local: Tensor, q: DTensor) -> DTensor:
    """The result of this rank as a DTensor that is sharded as the queries are."""
    places = [Shard(p.dim % q.ndim) if isinstance(p, Shard) else p for p in q.placements]
    lead = q.ndim - 2
    shape = torch.Size((*q.shape[:lead], *local.shape[lead:]))
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        local, q.device_mesh, places, run_check=False, shape=shape, stride=stride
    )
