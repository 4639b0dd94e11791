"""Results derived from a graph, cached with it: its rows, its blocks, the lists of kernels.

A cache lives as long as its graph. Small graphs, such as `window(3)`, are often rebuilt at every
call: the caches of the most recent ones stay, up to `BUDGET` bytes. Equal graphs share a cache.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from copy import copy
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakValueDictionary, ref

import numpy as np
from torch import Tensor

BUDGET = 256 << 20  # bytes, for the caches of recent graphs and for that of any one graph
GRAPHS, SIZES = 256, 1024  # recent graphs, and sizes of one graph
SMALL = 1 << 16  # bytes: a larger graph is not among the recent ones
Function = TypeVar("Function", bound=Callable[..., Any])


class Cached:
    """A value with a cache, which is neither copied nor pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_cache"}


class GraphCache:
    """Results derived from one graph, for its most recent sizes.

    `graph` is a copy that results may refer to without keeping the user's graph alive.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.sizes: OrderedDict[tuple[int, int], dict[Hashable, Any]] = OrderedDict()
        self.bytes: dict[tuple[int, int], int] = {}
        self.total = 0
        object.__setattr__(graph, "_cache", ref(self))

    def at(self, n: int, m: int) -> dict[Hashable, Any]:
        """Everything for n queries and m keys."""
        found = self.sizes.get((n, m))
        if found is None:
            found = self.sizes[n, m] = {}
            self.bytes[n, m] = 0
        else:
            self.sizes.move_to_end((n, m))
        return found

    def add(self, n: int, m: int, key: Hashable, value: Any) -> None:
        self.at(n, m)[key] = value
        size = nbytes(value)
        self.bytes[n, m] += size
        self.total += size
        while len(self.sizes) > 1 and (self.total > BUDGET or len(self.sizes) > SIZES):
            oldest, _ = self.sizes.popitem(last=False)
            self.total -= self.bytes.pop(oldest)
        _trim()


class GraphKey:
    """A graph as a key whose hash is computed once: that of a deep expression is recursive, and an
    entry is also removed while such an expression is deallocated."""

    __slots__ = ("graph", "hash")

    def __init__(self, graph: Any) -> None:
        self.graph, self.hash = graph, hash(graph)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraphKey) and bool(self.graph == other.graph)


_LIVE: "WeakValueDictionary[GraphKey, GraphCache]" = WeakValueDictionary()
_RECENT: OrderedDict[GraphCache, None] = OrderedDict()  # of small graphs
_LOCK = threading.RLock()


def cache_of(graph: Any) -> GraphCache:
    """The cache of a graph, shared with all equal graphs."""
    found: Any = graph.__dict__.get("_cache")
    if type(found) is ref:
        found = found()
    return _adopt(graph) if found is None else found


def _adopt(graph: Any) -> GraphCache:
    with _LOCK:
        found = _LIVE.get(GraphKey(graph))
        if found is None:
            own = graph if "_cache" in vars(graph) else copy(graph)
            found = _LIVE[GraphKey(own)] = GraphCache(own)
        if graph is not found.graph:
            object.__setattr__(graph, "_cache", found)
        if found in _RECENT or nbytes(graph, graphs=True) <= SMALL:
            _RECENT[found] = None
            _RECENT.move_to_end(found)
    return found


def _trim() -> None:
    with _LOCK:
        total = sum([cache.total for cache in _RECENT])
        while len(_RECENT) > 1 and (total > BUDGET or len(_RECENT) > GRAPHS):
            oldest, _ = _RECENT.popitem(last=False)
            total -= oldest.total


def clear() -> None:
    """Clear the caches of all graphs."""
    with _LOCK:
        _RECENT.clear()
        for cache in list(_LIVE.values()):
            cache.sizes.clear()
            cache.bytes.clear()
            cache.total = 0


def cached(function: Function) -> Function:
    """`function(graph, n, m, ...)`, once for each graph and size."""

    @wraps(function)
    def call(graph: Any, n: int, m: int, *rest: Any) -> Any:
        cache = cache_of(graph)
        entries, key = cache.at(n, m), (function, *rest)
        if key not in entries:
            cache.add(n, m, key, function(cache.graph, n, m, *rest))
            return cache.at(n, m)[key]
        return entries[key]

    return call  # type: ignore[return-value]


def nbytes(value: Any, *, graphs: bool = False) -> int:
    """The bytes of arrays and tensors in a value, without those of graphs unless `graphs`."""
    total, todo, seen = 0, [value], set()
    while todo:
        x = todo.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        match x:
            case Tensor():
                total += 0 if x.is_meta else x.untyped_storage().nbytes()
            case np.ndarray():
                total += x.nbytes
            case tuple() | list():
                total += 8 * len(x)
                todo += [part for part in x if not isinstance(part, int | float | str)]
            case dict():
                todo += x.values()
            case Cached() if graphs:
                todo += x.__getstate__().values()
            case Cached() | GraphCache() | ref() | type():
                pass
            case _ if type(x).__module__.startswith("edgewise"):
                slots = getattr(type(x), "__slots__", ())
                todo += [getattr(x, name) for name in slots if hasattr(x, name)]
                todo += getattr(x, "__dict__", {}).values()
    return total
