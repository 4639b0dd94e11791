"""Attention along the pairs of a graph: `attention`, its kernels, and the choice among them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_variadic

from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import sliced
from edgewise.kernels.attention.autocast import in_autocast, without_autocast
from edgewise.kernels.attention.calls import arguments, term_arguments, traced
from edgewise.kernels.attention.calls import operator as operator
from edgewise.kernels.attention.calls.arguments import warn_counted_once
from edgewise.kernels.attention.calls.cached import key_of, key_with_terms, recall, remember
from edgewise.kernels.attention.calls.prepared import Prepared, prepare_call
from edgewise.kernels.attention.calls.split import Graph
from edgewise.kernels.attention.calls.trace_names import is_traced
from edgewise.kernels.attention.calls.unknown_options import unknown_option
from edgewise.kernels.attention.contract import (
    NO_INPUTS,
    Case,
    EdgeTerm,
    Options,
    TermInputs,
    default_scale,
)
from edgewise.kernels.attention.errors import is_dtensor, refuse_context_parallel
from edgewise.kernels.attention.registry import IMPLEMENTATIONS, Choice, choose
from edgewise.kernels.attention.selected import select_blocks, selected_attention
from edgewise.scores.score import Score

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from edgewise.distributed import Shards

__all__ = [
    "IMPLEMENTATIONS", "Case", "Choice", "Prepared", "attention", "case_of", "choose", "prepare",
    "select_blocks", "selected_attention",
]  # fmt: skip


class AttentionOptions(TypedDict, total=False):
    """What `attention` takes by name, but for `return_lse` and `return_weights`."""

    scale: float | None
    bias: Tensor | Score | None
    score: Score | None
    edge_bias: EdgeTerm | None
    edge_scale: EdgeTerm | None
    edge_key: EdgeTerm | None
    edge_value: EdgeTerm | None
    dropout: float
    lengths: Tensor | None
    offset: int
    kernel: str | None
    mesh: "DeviceMesh | None"
    shards: "Shards | None"


OPTIONS = ("graph", *AttentionOptions.__annotations__, "return_lse", "return_weights")


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: Graph | None = None,
    *,
    return_lse: Literal[False] = False,
    return_weights: Literal[False] = False,
    **options: Unpack[AttentionOptions],
) -> Tensor: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: Graph | None = None,
    *,
    return_lse: bool = False,
    return_weights: bool = False,
    **options: Unpack[AttentionOptions],
) -> tuple[Any, ...]: ...
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: Graph | None = None,
    *positional: object,
    scale: float | None = None,
    bias: Tensor | Score | None = None,
    score: Score | None = None,
    edge_bias: EdgeTerm | None = None,
    edge_scale: EdgeTerm | None = None,
    edge_key: EdgeTerm | None = None,
    edge_value: EdgeTerm | None = None,
    dropout: float = 0.0,
    lengths: Tensor | None = None,
    offset: int = 0,
    return_lse: bool = False,
    return_weights: bool = False,
    kernel: str | None = None,
    mesh: "DeviceMesh | None" = None,
    shards: "Shards | None" = None,
    **unknown: object,
) -> Tensor | tuple[Tensor, ...]:
    """The values of the keys that each query attends to in `graph`, weighted by a softmax.

    out_i = Σ_j p_ij v_j,  p_ij ∝ exp(scale · q_i·k_j + bias_ij) for (i, j) ∈ graph; 0 where i
    attends to none. Shapes as in `scaled_dot_product_attention`: q (..., heads, n, d), k and v
    (..., key heads, m, d) with heads a multiple of key heads.

    >>> import torch
    >>> from edgewise.graphs import window
    >>> x = torch.arange(5.0)[:, None]
    >>> attention(torch.zeros(5, 1), torch.zeros(5, 1), x, window(1)).flatten().tolist()
    [0.5, 1.0, 2.0, 3.0, 3.5]

    - graph: `per_head(...)` and `per_sample(...)` give heads and samples graphs of their own; the
      edge terms are then lists with one for each, without that axis, and so are the weights.
    - bias: broadcasts to (..., heads, n, m), of which only the pairs of the graph are read; or a
      score of `edgewise.scores` that is added, such as `alibi(8)` or `relative(table)`.
    - score: a function applied to the scaled dot product before biases, such as `softcap(50.0)`.
    - edge_bias, edge_scale: (..., heads, e), added to the score and multiplied with the dot
      product; e counts the pairs in the order of `graph.edges(n, m)`.
    - edge_key, edge_value: (..., key heads, e, d), added to the key and the value of each pair.
    - dropout: the chance that a weight is 0; which, follows from torch's seed.
    - lengths: (...,) numbers of keys; those from lengths[b] on do not exist for element b.
    - offset: query i stands at position i + offset, as after `offset` tokens in a cache.
    - return_lse: also the log-sum-exp of each row's scores, -∞ where there are none.
    - return_weights: also p_ij of every pair, (..., heads, e), before dropout; never n×m.
    - kernel: the name of one of `IMPLEMENTATIONS`; it runs or raises, it never falls back.
    - mesh: one axis of a `DeviceMesh`: q, k and v are then the rows of this rank, and so is the
      result. All ranks make the same call; keys of others come as the graph needs them.
    - shards: which tokens each rank of the mesh has, `edgewise.distributed.Shards`; without it all
      have as many, one after another.
    """
    if positional or unknown:
        raise unknown_option(positional, unknown, OPTIONS)
    # a `TorchFunctionMode` is active, such as that of `attention_graph`; a trace lowers symbols
    if has_torch_function_variadic(q, k, v) and not torch.compiler.is_compiling():
        every: dict[str, Any] = {"scale": scale, "bias": bias, "score": score, "mesh": mesh}
        every |= {"edge_bias": edge_bias, "edge_scale": edge_scale, "edge_key": edge_key}
        every |= {"edge_value": edge_value, "dropout": dropout, "lengths": lengths}
        every |= {"offset": offset, "kernel": kernel, "shards": shards}
        every |= {"return_lse": return_lse, "return_weights": return_weights}
        function: Any = attention
        return handle_torch_function(function, (q, k, v), q, k, v, graph, **every)
    q, k, v = in_autocast(q, k, v)
    options = (scale, dropout, offset, return_lse, return_weights, kernel)
    bare = bias is score is edge_bias is edge_scale is edge_key is edge_value is lengths is None
    if mesh is not None or shards is not None:
        others = (bias, score, edge_bias, edge_scale, edge_key, edge_value)
        on_ranks = import_module("edgewise.distributed.attention").on_mesh
        return on_ranks((q, k, v), graph, (mesh, shards), options, others, lengths)
    if bare and (key := key_of(q, k, v, graph, options)) is not None:
        if offset and q.shape[-2] == 1 and (runs := _runs(k, v, graph, options)) is not None:
            return _along_runs(q, k, v, runs, options)
        prepared = recall(graph, key)
        if prepared is not None and not prepared.warns:
            return prepared.call(q, k, v, NO_INPUTS)
    edges = (edge_bias, edge_scale, edge_key, edge_value)
    if is_dtensor(q) or is_dtensor(k) or is_dtensor(v):
        return _on_dtensors((q, k, v), graph, options, bias, score, edges, lengths)
    bias, combined = term_arguments.scores_of(bias, score)
    return _with_terms(q, k, v, graph, options, combined, (bias, *edges, lengths))


def _with_terms(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: Graph | None,
    options: tuple[Any, ...],
    score: Score,
    terms: tuple[Any, ...],
) -> Any:
    """A call that is looked up by all that decides it, or checked and prepared."""
    key = key_with_terms(q, k, v, graph, options, score, terms)
    prepared = None if key is None else recall(graph, key)
    if prepared is None:
        if is_traced(q, k, v):
            return _in_trace(q, k, v, graph, score, terms, options)
        prepared = _prepared(q, k, v, graph, score, terms, options)
        if key is not None:
            remember(graph, key, prepared)
    _, edge_bias, *_, lengths = terms
    if prepared.warns:
        warn_counted_once(prepared.graph, edge_bias)
    if lengths is not None:
        terms = (*terms[:5], term_arguments.check_lengths(lengths, q, k))
    tables = term_arguments.constants_at(score.tables, q.device)
    return prepared.call(q, k, v, TermInputs._make((*terms, tables)))


def _on_dtensors(
    tensors: tuple[Tensor, Tensor, Tensor],
    graph: Graph | None,
    options: tuple[Any, ...],
    bias: Tensor | Score | None,
    score: Score | None,
    edges: tuple[EdgeTerm | None, ...],
    lengths: Tensor | None,
) -> Any:
    on_dtensors = import_module("edgewise.distributed.sharded_tensors").attention_on_dtensors
    names = ("scale", "dropout", "offset", "return_lse", "return_weights", "kernel")
    of_edges = ("edge_bias", "edge_scale", "edge_key", "edge_value")
    named = dict(zip((*names, *of_edges), (*options, *edges), strict=True))
    return on_dtensors(tensors, graph, bias=bias, score=score, lengths=lengths, **named)


def _along_runs(
    q: Tensor, k: Tensor, v: Tensor, runs: list[slice], options: tuple[Any, ...]
) -> Any:
    """One query that attends to few runs of keys: all of what they are."""
    k, v = sliced.joined(k, runs), sliced.joined(v, runs)
    if (out := sliced.one_query(q, k, v, options)) is not None:
        return out
    scale, _, _, lse, weights, _ = options
    return attention(q, k, v, scale=scale, return_lse=lse, return_weights=weights)


def _runs(k: Tensor, v: Tensor, graph: object, options: tuple[Any, ...]) -> list[slice] | None:
    """The keys of one query after `offset` tokens in a cache, where they are few slices of it:
    another step is then a call like the last one."""
    _, dropout, offset, _, weights, kernel = options
    if dropout or kernel is not None or offset < 0 or k.shape[-2] != v.shape[-2]:
        return None
    found = sliced.runs_at(graph, offset, k.shape[-2])
    return None if weights and found and len(found) > 1 else found  # they are in order of keys


def prepare(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: Graph | None = None,
    *,
    scale: float | None = None,
    bias: Tensor | Score | None = None,
    score: Score | None = None,
    edge_bias: EdgeTerm | None = None,
    edge_scale: EdgeTerm | None = None,
    edge_key: EdgeTerm | None = None,
    edge_value: EdgeTerm | None = None,
    dropout: float = 0.0,
    lengths: Tensor | None = None,
    offset: int = 0,
    return_lse: bool = False,
    return_weights: bool = False,
    kernel: str | None = None,
    device: torch.device | str | None = None,
) -> Prepared:
    """The call `attention(q, k, v, graph, ...)`, checked and decided, to be made many times.

    Only shapes, dtypes and the device of tensors are read, so they may be meta tensors, with
    `device` for where the call will run. `prepared(q, k, v, bias, edge_bias, edge_scale, edge_key,
    edge_value, lengths, tables)` then takes the numbers; `tables` are those of the score, and of a
    bias that is a score.

    >>> import torch
    >>> from edgewise.graphs import window
    >>> x = torch.empty(1, 2, 9, 4, device="meta")
    >>> call = prepare(x, x, x, window(1), device="cpu", kernel="csr")
    >>> call.choice.name, call.work.pairs, call(*torch.randn(3, 1, 2, 9, 4)).shape
    ('csr', 50, torch.Size([1, 2, 9, 4]))
    """
    bias, combined = term_arguments.scores_of(bias, score)
    terms = (bias, edge_bias, edge_scale, edge_key, edge_value, lengths)
    options = (scale, dropout, offset, return_lse, return_weights, kernel)
    place = None if device is None else torch.device(device)
    prepared = _prepared(q, k, v, graph, combined, terms, options, place)
    return prepared if graph is None else prepared.holding(graph)


def _prepared(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: object,
    score: Score,
    terms: tuple[Any, ...],
    options: tuple[Any, ...],
    device: torch.device | None = None,
) -> Prepared:
    """With every check there is."""
    device = arguments.check_tensors(q, k, v, device)
    pattern, chosen = arguments.check_graph(graph), _checked_options(options, score, q)
    term_arguments.check_terms(pattern, terms[:5], q, device)
    term_arguments.check_learned(score.tables, q, device)
    if terms[5] is not None:
        term_arguments.check_lengths(terms[5], q, k)
    return prepare_call(q, k, v, pattern, chosen, TermInputs._make((*terms, score.tables)), device)


def _checked_options(options: tuple[Any, ...], score: Score, q: Tensor) -> Options:
    scale, dropout, offset, lse, weights, kernel = options
    arguments.check_scale(scale)
    arguments.check_kernel(kernel)
    arguments.check_flag(lse, "return_lse")
    arguments.check_flag(weights, "return_weights")
    chance = arguments.check_dropout(dropout)
    scale = default_scale(q.shape[-1]) if scale is None else float(scale)
    return Options(scale, score.node, chance, offset, lse, weights, kernel)


def _in_trace(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: object,
    score: Score,
    terms: tuple[Any, ...],
    options: tuple[Any, ...],
) -> Any:
    """Checked as far as a trace can, as plain operations around one operator."""
    refuse_context_parallel()
    arguments.check_tensors(q, k, v)
    pattern, chosen = arguments.check_graph(graph), _checked_options(options, score, q)
    if chosen.weights:
        arguments.refuse_weights()
    term_arguments.check_learned(score.tables, q, q.device)
    tables = tuple([table.to(q.device) for table in score.tables])
    with without_autocast(q):
        return traced.call(q, k, v, pattern, chosen, TermInputs._make((*terms, tables)))


def case_of(q: Tensor, k: Tensor, v: Tensor, graph: Pattern | None = None) -> Case:
    """The case that `attention(q, k, v, graph)` is, for `choose`.

    >>> import torch
    >>> x = torch.zeros(1, 2, 5, 4)
    >>> choose(case_of(x, x, x)).name
    'dense'
    """
    arguments.check_tensors(q, k, v)
    pattern = arguments.check_graph(graph)
    assert isinstance(pattern, Pattern)
    scale = default_scale(q.shape[-1])
    return arguments.build_case(arguments.grouped(q, k, v), pattern, scale, q.device.type)
