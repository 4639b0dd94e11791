"""The attention calls of a model while it runs: from the plan of a compiled model, and from the
attention modules of a Hugging Face model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.fx.node import map_arg

from edgewise.attention_graphs.calls import AttentionCall
from edgewise.attention_graphs.errors import NoAttention
from edgewise.errors import caller
from edgewise.graphs import causal, documents, from_edges, full, per_head, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.hf.recording import ModuleCall, run_recorded
from edgewise.kernels.attention.calls.term_arguments import table_rows
from edgewise.kernels.attention.flash import fused
from edgewise.kernels.edges import EdgeIndex
from edgewise.language import nodes
from edgewise.language.text_form.printer import NoTextForm, Style, statement
from edgewise.module import Model
from edgewise.passes.fuse_attention import refusals
from edgewise.physical.attention.nodes import ATTEND, ATTEND_ALONG, ATTEND_PRESENT
from edgewise.physical.attention.step import AttentionStep
from edgewise.physical.plan import PhysicalPlan, run_node
from edgewise.plan.show import show_step
from edgewise.scores import S, softcap
from edgewise.scores.nodes import Node as ScoreNode


def calls_of_model(
    model: Model, inputs: Mapping[str, Any], sample: int = 0, data: Any = None
) -> list[AttentionCall]:
    """The calls of a compiled model, in the order in which it makes them."""
    training = model.training
    try:
        model.eval()
        step, values = model._resolved(data, inputs)
        plan = model._plan(step, values)
        tensors = [*values.values(), *model._weights().values()]
        with torch.no_grad():
            found = _PlanRecorder(plan, sample).run(tensors)
    finally:
        model.train(training)
    if not found:
        raise _not_fused(model)
    return found


def _not_fused(model: Model) -> NoAttention:
    plan = [model.stages["plan"], *(after for _, after in model.stages["passes"])][-1]
    against = "; ".join(f"`{name}`: {reason}" for name, reason in refusals(plan).items())
    if against:
        return NoAttention(
            f"no attention of the model is fused: {against}",
            caller(),
            "let one rule alone read the softmax, and derive a weighted sum that other rules read",
        )
    return NoAttention(
        "the model has no attention node",
        caller(),
        "write a softmax over keys, as `explain()` shows it: `attention from I over J`",
    )


class _PlanRecorder:
    """Runs the graph of a plan node by node, and keeps what attention nodes read."""

    def __init__(self, plan: PhysicalPlan, sample: int) -> None:
        self.plan, self.sample = plan, sample
        self.values: dict[Node, Any] = {}
        self.calls: list[AttentionCall] = []

    def run(self, tensors: list[Tensor]) -> list[AttentionCall]:
        nodes = list(self.plan.graph.nodes)
        self.values.update(zip((n for n in nodes if n.op == "placeholder"), tensors, strict=True))
        last = {arg: node for node in nodes for arg in node.all_input_nodes}
        for node in nodes:
            if node.op == "get_attr":
                self.values[node] = self.plan.constants[str(node.target)]
            elif node.op.startswith("call"):
                args, kwargs = map_arg((node.args, node.kwargs), self.values.__getitem__)
                self._look(node, args, kwargs)
                self.values[node] = run_node(node, args, kwargs)
            for arg in node.all_input_nodes:
                if last[arg] is node:
                    self.values.pop(arg, None)
        return self.calls

    def _look(self, node: Node, args: Any, kwargs: Any) -> None:
        work = node.meta.get("of")
        step = None if work is None else work.step
        if work is None or not isinstance(step, AttentionStep):
            return
        read = READERS.get(node.target) if callable(node.target) else None
        if read is not None:
            call = read(work.relation, self.sample, *args, **kwargs)
            self.calls.append(_cut(call, step, self.sample))


def _cut(call: AttentionCall, step: AttentionStep, sample: int) -> AttentionCall:
    """Without the padding of a ragged sample, and with the order of sorted tokens."""
    rule = "\n".join(_text(one) for one in step.node.replaces)
    rule, plan = (_unscoped(text, call.name) for text in (rule, show_step(step.node)))
    call = replace(call, rule=rule, plan=plan)
    if step.order is not None:
        return replace(call, query_order=step.order.query.cpu(), key_order=step.order.key.cpu())
    if step.lengths is None and step.query_lengths is None:
        return call
    n = call.n if step.query_lengths is None else int(step.query_lengths[sample])
    m = call.m if step.lengths is None else int(step.lengths[sample])
    bias = None if call.bias is None else _cut_bias(call.bias, slice(n), slice(m))
    return replace(call, q=call.q[:, :n], k=call.k[:, :m], bias=bias)


def _cut_bias(bias: Tensor, queries: slice, keys: slice) -> Tensor:
    """A bias (heads, n or 1, m or 1) of some queries and keys."""
    bias = bias if bias.shape[1] == 1 else bias[:, queries]
    return bias if bias.shape[2] == 1 else bias[..., keys]


def _text(rule: nodes.Rule) -> str:
    """A rule in the text form, or as Python where it has none."""
    try:
        return statement(rule, Style())
    except NoTextForm:
        return repr(rule)


def _unscoped(text: str, name: str) -> str:
    """Without the name of the layer, which all its relations begin with."""
    scope = name.rpartition(".")[0]
    return PLAIN.sub(r"R.\1", text.replace(f"{scope}.", "") if scope else text)


def of_sample(x: Tensor, sample: int) -> Tensor:
    """One sample of (batch, ...)."""
    if not -len(x) <= sample < max(len(x), 1):
        raise NoAttention(
            f"there is no sample {sample}, the batch has {len(x)}", caller(), "samples count from 0"
        )
    return x[sample].detach().cpu()


def _one(q: Tensor, k: Tensor, bias: Tensor | None, sample: int) -> dict[str, Any]:
    """q, k and bias of one sample, keys repeated for the heads that share them, on one axis of
    heads."""
    own_q, own_k = of_sample(q, sample), of_sample(k, sample)
    if own_q.ndim == 3:
        own_k = own_k.repeat_interleave(len(own_q) // len(own_k), 0)
    if bias is not None:
        bias = _term_of(bias, q.ndim, sample)
        if own_q.ndim > 3:
            bias = bias.expand(*own_q.shape[:-2], *bias.shape[-2:]).flatten(0, -3)
    return {"q": own_q.flatten(0, -3), "k": own_k.flatten(0, -3), "bias": bias}


def _term_of(term: Tensor, ndim: int, sample: int) -> Tensor:
    """One sample of a term that broadcasts to (batch, ...), of `ndim` axes."""
    term = term[(None,) * (ndim - term.ndim)]
    return of_sample(term, 0 if len(term) == 1 else sample)


def _from_fused(
    name: str, sample: int, q: Tensor, k: Tensor, v: Tensor, scale: float, **options: Any
) -> AttentionCall:
    graph = causal() if options.get("causal") else full()
    found = _one(q, k, options.get("mask"), sample)
    return AttentionCall(name, graph=graph, scale=scale, **found)


def _from_prepared(
    name: str, sample: int, q: Tensor, k: Tensor, v: Tensor, prepared: Any, *terms: Any
) -> AttentionCall:
    bias, edge_bias, edge_scale, _, tables = terms
    options = prepared.options
    edges = edge_bias, edge_scale
    how = options.scale, options.score
    return call_along(name, sample, q, k, prepared.graph, how, bias, edges, tables)


def call_along(
    name: str,
    sample: int,
    q: Tensor,
    k: Tensor,
    graph: Pattern | per_head,
    how: tuple[float, ScoreNode],
    bias: Tensor | None,
    edges: tuple[Tensor | None, Tensor | None],
    tables: Sequence[Tensor],
) -> AttentionCall:
    """One sample of a call with q (batch, heads..., n, d): `how` is its scale and score, `edges`
    its bias and scale of edges."""
    shape = tuple(q.shape[1:-2])
    if isinstance(graph, per_head) and any(term is not None for term in edges):
        raise NoAttention(
            f"`{name}` has scores of edges that differ from head to head",
            caller(),
            "look at another layer, or give the heads one graph",
        )
    edge_bias, edge_scale = (
        None if term is None else _edge_rows(term, sample, shape) for term in edges
    )
    lead = tuple(q.shape[:-2])
    heads = math.prod(shape)
    own = tuple(_table_of(table_rows(t, lead), sample, heads, len(q)) for t in tables)
    scale, score = how
    return AttentionCall(
        name,
        graph=graph,
        scale=scale,
        score=score,
        tables=own,
        edge_bias=edge_bias,
        edge_scale=edge_scale,
        **_one(q, k, bias, sample),
    )


def _edge_rows(term: Tensor, sample: int, shape: tuple[int, ...]) -> Tensor:
    """(heads, e) of (batch, heads..., e)."""
    return _term_of(term, len(shape) + 2, sample).expand(*shape, -1).flatten(0, -2)


def _table_of(rows: Tensor, sample: int, heads: int, batch: int) -> Tensor:
    """The rows of a table that one sample reads: row h mod rows."""
    rows = rows.detach().cpu()
    return rows if len(rows) < heads * batch or batch == 1 else rows[sample * heads :][:heads]


def _from_present(
    name: str, sample: int, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, *rest: Any
) -> AttentionCall:
    _, bias, graph, _ = rest
    there = keys[:, None, None]
    total = there if bias is None else bias + there
    found = _one(q, k, total if bool((total != 0).any()) else None, sample)
    return AttentionCall(name, graph=full() if graph is None else graph, **found)


def _from_additive(
    name: str, sample: int, q: Tensor, k: Tensor, v: Tensor, which: EdgeIndex, *rest: Any
) -> AttentionCall:
    """s_e = Σ vector ⊙ f(q_i + k_j) as scores of edges."""
    vector, slope, _ = rest
    i = torch.repeat_interleave(torch.arange(which.rows.segments), which.rows.ptr.diff().cpu())
    j = which.rows.index.long().cpu()
    q, k = q.detach().cpu(), k.detach().cpu()
    z = torch.nn.functional.leaky_relu(q[:, i] + k[:, j], slope)
    scores = (z if vector is None else z * vector.detach().cpu()).sum(-1)
    n, m = which.rows.segments, k.shape[1]
    order = (i * m + j).argsort()
    graph = from_edges(torch.stack([i, j])[:, order], shape=(n, m))
    zeros = q.new_zeros(len(q), n, 1), q.new_zeros(len(q), m, 1)
    return AttentionCall(name, *zeros, graph, edge_bias=scores[:, order])


PLAIN = re.compile(r'R\["([A-Za-z]\w*)"\]')
RULE = """\
weights(H, I, J) :- <{scale:.6g}> k(H, J).T, q(H, I){pairs}. [product, softmax_agg(J)]
context(H, I) :- weights(H, I, J), v(H, J). [product]"""
READERS: dict[Any, Any] = {
    fused: _from_fused,
    ATTEND: _from_prepared,
    ATTEND_PRESENT: _from_present,
    ATTEND_ALONG: _from_additive,
}


def calls_of_modules(
    model: nn.Module, inputs: Mapping[str, Any], sample: int = 0
) -> list[AttentionCall]:
    """The calls of a Hugging Face model, whether `hf.use` was called on it or not."""
    found = [call for call in run_recorded(model, inputs) if not call.is_cross]
    batch = max((len(x) for x in inputs.values() if isinstance(x, Tensor) and x.ndim), default=1)
    for call in found:
        if len(call.q) > batch:
            raise NoAttention(
                f"`{call.name}` attends inside {len(call.q)} windows of {batch} samples",
                caller(),
                "give their weights, (heads, n, n), from `output_attentions=True`",
            )
    return [_from_module(call, sample) for call in found]


def _from_module(call: ModuleCall, sample: int) -> AttentionCall:
    options, mask = call.options, call.mask
    graph = tuple(call.graph)[sample] if isinstance(call.graph, per_sample) else call.graph
    found = _one(call.q, call.k, options.bias, sample)
    graph = mask.restricted(graph)
    if mask.documents is not None:
        graph = graph & documents(of_sample(mask.documents, sample))
    if mask.real is not None:
        found |= _without_padding(of_sample(mask.real, sample), **found)
    score = S if options.softcap is None else softcap(options.softcap)
    scale = call.q.shape[-1] ** -0.5 if options.scale is None else float(options.scale)
    sinks = None if options.sinks is None else options.sinks.detach().cpu()
    found |= {"score": score.node, "tables": score.tables, "sinks": sinks}
    return described(AttentionCall(call.name, graph=graph, scale=scale, **found))


def described(call: AttentionCall) -> AttentionCall:
    """With the rule and the plan that a module's attention is."""
    pairs = "" if call.graph == full() else f", @({call.graph!r})(I, J)"
    plan = f"{call.name}: attention from I over J\n    pairs = {call.graph!r}\n    for each H"
    return replace(call, rule=RULE.format(pairs=pairs, scale=call.scale), plan=plan)


def _without_padding(real: Tensor, q: Tensor, k: Tensor, bias: Tensor | None) -> dict[str, Any]:
    """From the first real token to the last: there positions count from 0, as `hf.use` counts."""
    places = real.nonzero().flatten()
    first, last = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
    if bias is not None:
        bias = _cut_bias(bias, slice(first, last), slice(first, last))
    holes = ~real[first:last]
    if bool(holes.any()):
        low = torch.zeros(len(holes)).masked_fill(holes, -torch.inf)[None, None]
        bias = low if bias is None else bias + low
    order = torch.arange(first, last)
    q, k = q[:, first:last], k[:, first:last]
    return {"q": q, "k": k, "bias": bias, "query_order": order, "key_order": order}
