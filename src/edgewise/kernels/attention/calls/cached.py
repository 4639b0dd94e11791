"""Prepared calls that are cached: a call like an earlier one is looked up, and nothing is checked.

Checks, the case and the choice take longer than the launch of a kernel, and a training step makes
the same call every time.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import has_torch_function_variadic

from edgewise.graphs.cache import cache_of
from edgewise.graphs.families import per_head, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.full import full
from edgewise.kernels.attention.calls.prepared import Prepared
from edgewise.kernels.attention.calls.split import Graph
from edgewise.kernels.attention.contract import allows_tf32
from edgewise.scores.score import S, Score

FULL = full()
PLAIN, NUMBERS = (Tensor, Parameter), (float, int)
GRAPHS = (Pattern, per_head, per_sample)
STRIDED = (torch.strided,) * 3
Key = tuple[Any, ...]


def key_of(q: Tensor, k: Tensor, v: Tensor, graph: object, options: tuple[Any, ...]) -> Key | None:
    """All that decides a call; None where there is more to look at: traces, and what may be a
    mistake."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return None
    if torch._C._are_functorch_transforms_active() or has_torch_function_variadic(q, k, v):
        return None
    if not (type(q) in PLAIN and type(k) in PLAIN and type(v) in PLAIN):
        return None
    scale, dropout, offset, lse, weights, kernel = options
    known = (scale is None or type(scale) is float) and (kernel is None or type(kernel) is str)
    known = known and type(dropout) in NUMBERS and type(offset) is int
    known = known and type(lse) is type(weights) is bool
    if not known or not (graph is None or isinstance(graph, GRAPHS)):
        return None
    if q.is_nested or k.is_nested or v.is_nested:  # they have no shape
        return None
    shapes = (q.shape, k.shape, v.shape)
    if len(shapes[0]) < 2 or len(shapes[1]) < 2:
        return None
    if (q.layout, k.layout, v.layout) != STRIDED:
        return None
    rounded = allows_tf32(q.dtype, q.device.type)
    return shapes, q.dtype, k.dtype, v.dtype, q.device, k.device, v.device, options, rounded


def key_with_terms(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: object,
    options: tuple[Any, ...],
    score: Score,
    terms: tuple[Any, ...],
) -> Key | None:
    key = key_of(q, k, v, graph, options)
    if key is None or (score is S and not any([x is not None for x in terms])):
        return key
    extra = _extra(score, terms)
    return None if extra is UNKNOWN else (*key, extra)


UNKNOWN: Any = object()


def _extra(score: Score, terms: tuple[Any, ...]) -> Any:
    specs = tuple([_spec(term) for term in (*terms[:5], *score.tables)])
    return UNKNOWN if UNKNOWN in specs else (score.node, terms[5] is not None, specs)


def _spec(x: Any) -> Any:
    """What a call is decided by of a tensor, or of those of several graphs."""
    if x is None:
        return None
    if type(x) in (list, tuple):
        specs = tuple([_spec(part) for part in x])
        return UNKNOWN if UNKNOWN in specs else specs
    if type(x) not in PLAIN or x.layout is not torch.strided or x.is_nested:
        return UNKNOWN
    return (x.shape, x.dtype, x.device, x.requires_grad)


def recall(graph: Graph | None, key: Key) -> Prepared | None:
    cache = cache_of(FULL if graph is None else graph)
    return cache.at(key[0][0][-2], key[0][1][-2]).get(key)


def remember(graph: Graph | None, key: Key, prepared: Prepared) -> None:
    cache = cache_of(FULL if graph is None else graph)
    cache.add(key[0][0][-2], key[0][1][-2], key, prepared)
