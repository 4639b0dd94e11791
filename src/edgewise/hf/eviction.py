"""Which keys of a cache later tokens can attend to; the others are evicted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import caller
from edgewise.graphs import blocks, dilated, global_tokens, per_head, window
from edgewise.graphs.algebra import Derived, difference, intersection, restricted, union
from edgewise.graphs.pattern import Pattern
from edgewise.hf.errors import EvictedKeys
from edgewise.hf.masks import ModelMask

Graph = Pattern | per_head


@dataclass(frozen=True)
class Retained:
    """Positions j < t that queries from t on may attend to: j ≥ t - radius, or j ∈ tokens.

    `radius` is None where all are needed.
    """

    radius: int | None
    tokens: frozenset[int] = frozenset()


ALL = Retained(None)
FAR = 1 << 40  # beyond all global tokens


@lru_cache(maxsize=4096)
def retained(graph: Graph, t: int) -> Retained:
    """A superset of the keys before t that any query from t on attends to.

    >>> from edgewise.graphs import causal
    >>> retained(causal() & (window(4) | global_tokens(1)), 100)
    Retained(radius=4, tokens=frozenset({0}))
    """
    match graph:
        case per_head():
            return _union([retained(one, t) for one in graph])
        case union():
            return _union([retained(one, t) for one in graph.members])
        case intersection():
            return _intersection([retained(one, t) for one in graph.members])
        case difference():
            return retained(graph.left, t)
        case restricted():
            return retained(graph.pattern, t)
        case Derived():
            return retained(graph.definition(), t)
        case window():
            return Retained(graph.radius)
        case dilated():
            return Retained(graph.radius * graph.step)
        case blocks():
            return Retained(t % graph.size)
        case global_tokens():
            tokens = range(graph.tokens) if isinstance(graph.tokens, int) else graph.tokens
            return Retained(0, frozenset(tokens)) if t > max(tokens, default=-1) else ALL
        case _:
            return ALL


def _union(parts: list[Retained]) -> Retained:
    radii = [part.radius for part in parts]
    if None in radii:
        return ALL
    tokens = frozenset[int]().union(*(part.tokens for part in parts))
    return Retained(max(radius for radius in radii if radius is not None), tokens)


def _intersection(parts: list[Retained]) -> Retained:
    """(near r ∪ T) ∩ (near s ∪ U) ⊆ near min(r, s) ∪ T ∪ U."""
    limited = [part for part in parts if part.radius is not None]
    if not limited:
        return ALL
    tokens = frozenset[int]().union(*(part.tokens for part in limited))
    return Retained(min(part.radius for part in limited if part.radius is not None), tokens)


@lru_cache(maxsize=64)  # the layers of a step
def retained_positions(graph: Graph, t: int, starts: frozenset[int]) -> Tensor | None:
    """The positions before t that a cache retains, sorted; None if all.

    Rows count from `starts`, the positions of their first tokens: their union is retained.
    """
    first, tokens = t, set()
    for start in starts:
        own = retained(graph, max(t - start, 0))
        if own.radius is None:
            return None
        first = min(first, t - own.radius)
        tokens |= {start + token for token in own.tokens}
    first = max(first, 0)
    early = sorted(token for token in tokens if token < first)
    if len(early) == first:
        return None
    return torch.cat([torch.tensor(early, dtype=torch.long), torch.arange(first, t)])


def evicts(graph: object) -> bool:
    """True if a cache along the graph needs fewer keys than all, from some length on."""
    known = isinstance(graph, Pattern | per_head)
    return known and retained(graph, FAR).radius is not None


def layer_class() -> type[Any]:
    """The class of cache layers that evict; transformers is imported at the first use."""
    from edgewise.hf.evicting_layer import EvictingLayer

    return EvictingLayer


@torch.compiler.disable
def install(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, sliding: bool = False
) -> None:
    """A pre-hook of an attention module: an empty layer of a growing cache becomes one that evicts.

    The hook sees the cache wherever the model creates it. `sliding`: all modules evict, so that
    layers of sliding windows, which retain less than the window where the graph does, may be
    replaced too; masks count the keys of one layer for all of its kind.
    """
    from transformers.cache_utils import Cache, EncoderDecoderCache

    own, at = getattr(module, "_edgewise", None), getattr(module, "layer_idx", None)
    found = [one for one in (*args, *kwargs.values()) if isinstance(one, Cache)]
    masks = [one for one in (*args, *kwargs.values()) if isinstance(one, ModelMask)]
    if own is None or not found or not masks or not isinstance(at, int):
        return
    held = found[0].self_attention_cache if isinstance(found[0], EncoderDecoderCache) else found[0]
    while held.layer_class_to_replicate is not None and len(held.layers) <= at:
        held.layers.append(held.layer_class_to_replicate())
    _replace_layers(held, sliding)
    layer: Any = held.layers[at] if at < len(held.layers) else None
    if not isinstance(layer, layer_class()):
        return
    graph, starts = masks[0].restricted(own.graph), masks[0].distinct_starts
    if not layer.is_initialized:
        layer.graph, layer.starts = graph, starts
    elif (graph, starts) != (layer.graph, layer.starts) and len(layer.positions) < layer.seen:
        raise other_graph(layer.graph)
    layer.expected = True


def other_graph(graph: Graph) -> EvictedKeys:
    return EvictedKeys(
        f"the cache has only the keys that `{graph!r}` needs",
        caller(),
        "start with a new cache after `hf.use`, and give every call the same mask",
    )


def _replace_layers(cache: Any, sliding: bool = False) -> None:
    """Empty layers that grow become layers that evict, of nothing until `install` sets a graph."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    growing = {DynamicLayer, DynamicSlidingWindowLayer} if sliding else {DynamicLayer}
    for at, layer in enumerate(cache.layers):
        if type(layer) in growing and not layer.is_initialized:
            cache.layers[at] = layer_class()()
            cache.layers[at].record_past = getattr(layer, "record_past", False)


def prepare_for_generation(
    model: Any, generation_config: Any, inputs: dict[str, Any], *rest: Any, **named: Any
) -> None:
    """`_prepare_cache_for_generation` with layers that evict: speculative decoding marks those
    whose tokens it takes back before any of them is called.
    """
    type(model)._prepare_cache_for_generation(model, generation_config, inputs, *rest, **named)
    cache = inputs.get("past_key_values")
    cache = getattr(cache, "self_attention_cache", cache)
    if cache is not None:
        _replace_layers(cache)
        if generation_config.is_assistant:
            cache.activate_past_recording()
