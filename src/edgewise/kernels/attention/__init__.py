"""Attention along the pairs of a graph: `attention`, its kernels, and the choice among them."""

from typing import Any, Literal, overload

import torch
from torch import Tensor

from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import arguments, traced
from edgewise.kernels.attention import operator as operator
from edgewise.kernels.attention.autocast import in_autocast, without_autocast
from edgewise.kernels.attention.call import call, numbered, scale_of
from edgewise.kernels.attention.contract import Case
from edgewise.kernels.attention.counted import warn_counted_once
from edgewise.kernels.attention.kept import is_traced
from edgewise.kernels.attention.options import EdgeTerm, Options
from edgewise.kernels.attention.planner import Choice
from edgewise.kernels.attention.registry import IMPLEMENTATIONS, choose
from edgewise.kernels.attention.repeated import again, decide, key_of
from edgewise.kernels.attention.several import Graph, check_family, edge_terms
from edgewise.kernels.attention.weights import check_room, weights_of
from edgewise.scores.nodes import moved
from edgewise.scores.score import Score

__all__ = ["IMPLEMENTATIONS", "Case", "Choice", "attention", "case_of", "choose"]


@overload
def attention(
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
    return_lse: Literal[False] = False,
    return_weights: Literal[False] = False,
    kernel: str | None = None,
) -> Tensor: ...
@overload
def attention(
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
) -> tuple[Any, ...]: ...
def attention(
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
) -> Tensor | tuple[Any, ...]:
    """The values of the keys that each query hears in `graph`, weighted by a softmax.

    out_i = Σ_j p_ij v_j,  p_ij ∝ exp(scale · q_i·k_j + bias_ij) for (i, j) ∈ graph; 0 where i
    hears nobody. Shapes as in `scaled_dot_product_attention`: q (..., heads, n, d), k and v
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
    - score: what is made of the scaled dot product before biases, such as `softcap(50.0)`.
    - edge_bias, edge_scale: (..., heads, e), added to the score and multiplied with the dot
      product; e counts the pairs in the order of `graph.edges(n, m)`.
    - edge_key, edge_value: (..., key heads, e, d), added to the key and the value of each pair.
    - dropout: the chance that a weight is 0; which, follows from torch's seed.
    - lengths: (...,) numbers of keys; those from lengths[b] on do not exist for element b.
    - offset: query i stands at position i + offset, as after `offset` tokens in a cache.
    - return_lse: also the log-sum-exp of each row's scores, -∞ where there are none.
    - return_weights: also p_ij of every pair, (..., heads, e), before dropout; never n×m.
    - kernel: the name of one of `IMPLEMENTATIONS`; it runs or raises, it never falls back.
    """
    q, k, v = in_autocast(q, k, v)
    bare = bias is score is edge_bias is edge_scale is edge_key is edge_value is lengths is None
    bare = bare and type(dropout) in (float, int) and type(offset) is int
    bare = bare and not dropout and not offset and return_lse is return_weights is False
    key = key_of(q, k, v, graph, scale, kernel) if bare else None
    if key is not None and (out := again(key, q, k, v)) is not None:
        return out
    arguments.check_tensors(q, k, v)
    pattern = arguments.check_graph(graph)
    if not isinstance(pattern, Pattern):
        check_family(pattern, q)
    tracing = is_traced(q, k, v)
    if not tracing:
        warn_counted_once(pattern, edge_bias)
    arguments.check_scale(scale)
    arguments.check_kernel(kernel)
    arguments.check_flag(return_lse, "return_lse")
    arguments.check_flag(return_weights, "return_weights")
    plain, whole = arguments.scores_of(bias, score)
    chance = arguments.check_dropout(dropout)
    per_edge: dict[str, Any] = {
        "edge_bias": edge_bias,
        "edge_scale": edge_scale,
        "edge_key": edge_key,
        "edge_value": edge_value,
    }
    per_edge = edge_terms(q, k, v, pattern, per_edge, offset)
    node, tables = numbered(q, whole)
    node = moved(node, offset) if isinstance(offset, int) and offset else node
    options = Options(
        scale_of(q, scale),
        node,
        plain,
        **per_edge,
        tables=tables,
        dropout=chance,
        seed=0 if tracing or not chance else int(torch.randint(1 << 31, ())),
        lengths=lengths,
        offset=offset,
        lse=return_lse,
        kernel=kernel,
    )
    if tracing:
        if return_weights:
            arguments.refuse_weights()
        with without_autocast(q):
            out, lse = traced.call(q, k, v, pattern, options)
        return (out, lse) if return_lse else out
    if key is not None and isinstance(pattern, Pattern):
        decide(key, q, k, v, pattern)
        if (out := again(key, q, k, v)) is not None:
            return out
    return _computed(q, k, v, pattern, options, return_weights)


def _computed(
    q: Tensor, k: Tensor, v: Tensor, graph: Graph, options: Options, return_weights: bool
) -> Tensor | tuple[Any, ...]:
    if return_weights:
        check_room(q, k, v, graph, options)
    with without_autocast(q):
        out, lse = call(q, k, v, graph, options)
        found = [out, lse] if options.lse else [out]
        if return_weights:
            found.append(weights_of(q, k, v, graph, options))
    return tuple(found) if len(found) > 1 else out


def case_of(q: Tensor, k: Tensor, v: Tensor, graph: Pattern | None = None) -> Case:
    """The case that `attention(q, k, v, graph)` is, to ask `choose` about.

    >>> import torch
    >>> x = torch.zeros(1, 2, 5, 4)
    >>> choose(case_of(x, x, x)).name
    'dense'
    """
    arguments.check_tensors(q, k, v)
    pattern = arguments.check_graph(graph)
    assert isinstance(pattern, Pattern)
    return arguments.build_case(arguments.grouped(q, k, v), pattern, scale_of(q, None), 0)
