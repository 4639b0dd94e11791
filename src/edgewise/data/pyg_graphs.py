"""Graphs of PyG: `Data`, `HeteroData`, and lists or datasets of `Data`.

edge(I, J)    node I receives from node J: PyG's `edge_index` has J first
x(I)          features of nodes; of a node type `paper` of `HeteroData`: paper(I)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.data.dataset import Dataset, Labels
from edgewise.data.errors import BadGraph
from edgewise.errors import caller, safe_repr
from edgewise.inputs.kinds import Input, ragged, rows

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

SPLITS = ("train", "val", "test")


def from_pyg(graph: Data | HeteroData | Sequence[Data]) -> Dataset:
    """A PyG graph, or the graphs of a list or dataset as a batch of samples.

    `edge_attr` are the values of edges, `y` the labels of nodes or of graphs, and `train_mask`,
    `val_mask` and `test_mask` the splits. Graphs of a list without a `y` have no label; labels of
    their nodes have the number of the graph as first key.

    >>> import torch
    >>> from torch_geometric.data import Data
    >>> graph = Data(x=torch.randn(3, 4), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> sorted(from_pyg(graph).inputs)
    ['edge', 'x']
    """
    if hasattr(graph, "node_types") and hasattr(graph, "edge_types"):
        return _hetero(graph)
    if hasattr(graph, "edge_index"):
        return _single(graph)
    samples = list(graph) if isinstance(graph, Sequence) or hasattr(graph, "__getitem__") else []
    if not samples or not all(hasattr(sample, "edge_index") for sample in samples):
        raise BadGraph(
            f"{safe_repr(graph)} is not a graph of PyG",
            caller(),
            "give a `Data`, a `HeteroData`, or a list of `Data`",
        )
    return _batch(samples)


def _single(graph: Any) -> Dataset:
    inputs = _inputs(graph)
    labels = {}
    y = graph.get("y")
    if y is not None and _of_nodes(graph, y):
        labels["x"] = Labels(torch.arange(graph.num_nodes)[None], _target(y))
    elif y is not None and _of_graph(y):
        labels["graph"] = Labels(torch.zeros(0, 1, dtype=torch.int64), _target(_row(y)))
    elif y is not None:
        raise _other_labels("", graph, y)
    masks = {name: graph.get(f"{name}_mask") for name in SPLITS}
    splits = {name: mask.nonzero()[:, 0] for name, mask in masks.items() if _is_mask(mask)}
    return Dataset(inputs, labels=labels, splits=splits)


def _inputs(graph: Any) -> dict[str, Input]:
    if graph.edge_index is None:
        raise BadGraph("a graph has no `edge_index`", caller(), "set `data.edge_index`")
    attributes = graph.get("edge_attr")
    _check_ends(graph.edge_index, (_count(graph), _count(graph)))
    found: dict[str, Input] = {"edge": _edges(graph.edge_index, attributes)}
    if graph.get("x") is not None:
        found["x"] = _features(graph.x)
    return found


def _edges(index: Tensor, attributes: Tensor | None) -> rows:
    return rows(index.flip(0), None if attributes is None else _features(attributes))


def _features(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def _target(y: Tensor) -> Tensor:
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


def _of_nodes(graph: Any, y: Tensor) -> bool:
    return y.ndim > 0 and y.shape[0] == graph.num_nodes


def _of_graph(y: Tensor) -> bool:
    return y.numel() == 1 or (y.ndim > 0 and len(y) == 1)


def _row(y: Tensor) -> Tensor:
    """The label of a graph, as a row."""
    return y.reshape(1) if y.numel() == 1 else y


def _other_labels(of: str, graph: Any, y: Tensor) -> BadGraph:
    return BadGraph(
        f"`y` {of}has the shape {tuple(y.shape)}, of {graph.num_nodes} nodes",
        caller(),
        "give a row for each node, or one for the graph; pass other labels beside the graph",
    )


def _is_mask(mask: Any) -> bool:
    return isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.ndim == 1


def _hetero(graph: Any) -> Dataset:
    """A relation for each node type with features, and for each edge type, named by its verb."""
    verbs = [verb for _, verb, _ in graph.edge_types]
    inputs: dict[str, Input] = {}
    labels: dict[str, Labels] = {}
    splits: dict[str, Tensor] = {}
    for kind in graph.node_types:
        store = graph[kind]
        if store.get("x") is not None:
            inputs[kind] = _features(store.x)
        elif store.num_nodes is not None:
            inputs[kind] = rows(torch.arange(store.num_nodes)[None])
        if store.get("y") is not None:
            labels[kind] = Labels(torch.arange(store.num_nodes)[None], _target(store.y))
        masks = {name: store.get(f"{name}_mask") for name in SPLITS}
        found = {name: mask.nonzero()[:, 0] for name, mask in masks.items() if _is_mask(mask)}
        if twice := found.keys() & splits.keys():
            what = f"`{kind}` is not the only kind with a `{min(twice)}_mask`"
            raise BadGraph(
                what, caller(), "use `typed_graph`, where nodes have numbers of their own"
            )
        splits |= found
    counts = {kind: _count(graph[kind]) for kind in graph.node_types}
    for a, verb, b in graph.edge_types:
        store = graph[a, verb, b]
        name = verb if verbs.count(verb) == 1 and verb not in inputs else f"{a}_{verb}_{b}"
        _check_ends(store.edge_index, (counts.get(a), counts.get(b)), f"of `{name}` ")
        inputs[name] = _edges(store.edge_index, store.get("edge_attr"))
    return Dataset(inputs, labels=labels, splits=splits)


def typed_graph(graph: HeteroData) -> Dataset:
    """A `HeteroData` whose nodes are numbered together, one kind after another.

    kind(I, K)       node I is of kind K; paper(I) are the features of nodes of the kind `paper`
    edge(I, T, J)    node I receives from node J along an edge of type T

    Kinds and types are numbers; `names` has those behind them, such as `author_writes_paper`.
    Labels and splits have the numbers of nodes. See `edgewise.zoo.hetero`.

    >>> import torch
    >>> from torch_geometric.data import HeteroData
    >>> graph = HeteroData()
    >>> graph["paper"].x, graph["author"].x = torch.randn(2, 4), torch.randn(3, 4)
    >>> graph["author", "writes", "paper"].edge_index = torch.tensor([[0, 2], [0, 1]])
    >>> sorted(typed_graph(graph).inputs)
    ['author', 'edge', 'kind', 'paper']
    """
    if not (hasattr(graph, "node_types") and hasattr(graph, "edge_types")):
        what = f"{safe_repr(graph)} is not a `HeteroData`"
        raise BadGraph(what, caller(), "of a `Data`, use `from_pyg`")
    inputs: dict[str, Input] = {}
    labels: dict[str, Labels] = {}
    splits: dict[str, list[Tensor]] = {}
    here = _numbered_together(graph)
    for kind, nodes in here.items():
        store = graph[kind]
        features = None if store.get("x") is None else _features(store.x)
        inputs[kind] = rows(nodes[None], features)
        if store.get("y") is not None:
            labels[kind] = Labels(nodes[None], _target(store.y))
        for name in SPLITS:
            if _is_mask(mask := store.get(f"{name}_mask")):
                splits.setdefault(name, []).append(nodes[mask])
    kinds = [torch.full_like(nodes, at) for at, nodes in enumerate(here.values())]
    inputs["kind"] = rows(torch.stack([torch.cat([*here.values()]), torch.cat(kinds)]))
    inputs["edge"] = rows(_typed_edges(graph, here))
    names = {"kind": tuple(here), "type": tuple("_".join(kind) for kind in graph.edge_types)}
    return Dataset(inputs, names, labels, {n: torch.cat(part) for n, part in splits.items()})


def _numbered_together(graph: Any) -> dict[str, Tensor]:
    """Kind → the numbers of its nodes."""
    found, count = {}, 0
    ends = [kind for a, _, b in graph.edge_types for kind in (a, b)]
    for kind in dict.fromkeys([*graph.node_types, *ends]):
        size = graph[kind].num_nodes if kind in graph.node_types else None
        if size is None:
            what = f"the number of nodes of `{kind}` is not known"
            raise BadGraph(what, caller(), f'set `data["{kind}"].num_nodes`')
        if kind in ("kind", "edge"):
            raise BadGraph(f"a kind of nodes is called `{kind}`", caller(), "rename it")
        found[kind] = torch.arange(count, count + size)
        count += size
    if not count:
        raise BadGraph("the graph has no nodes", caller(), "give some")
    return found


def _typed_edges(graph: Any, here: dict[str, Tensor]) -> Tensor:
    """Columns (receiver, type, sender), each once."""
    found = [torch.zeros(3, 0, dtype=torch.int64)]
    for at, (a, verb, b) in enumerate(graph.edge_types):
        index = graph[a, verb, b].edge_index
        _check_ends(index, (len(here[a]), len(here[b])), f"of `{a}_{verb}_{b}` ")
        i, j = here[b][index[1]], here[a][index[0]]
        found.append(torch.stack([i, torch.full_like(i, at), j]))
    every = torch.cat(found, 1)
    return every.unique(dim=1) if every.numel() else every


def _check_ends(index: Tensor, sizes: tuple[int | None, int | None], of: str = "") -> None:
    """Refuse edges from or to nodes that are not there; None: nodes that nobody counted."""
    if index.dim() != 2 or len(index) != 2:
        return  # `rows` says what is wrong
    for place, (ends, size) in enumerate(zip(index, sizes, strict=True)):
        wrong = ends[(ends < 0) | (ends >= size)] if size is not None else ends[ends < 0]
        if len(wrong):
            what = f"an edge {of}is {('from', 'to')[place]} node {int(wrong[0])}"
            raise BadGraph(what, caller(), f"there are {size or 0:,} nodes, numbered from 0")


def _count(store: Any) -> int | None:
    """PyG guesses the number of nodes without features, from their edges."""
    return None if store.get("x") is None else len(store.x)


def _batch(samples: list[Any]) -> Dataset:
    found = [_inputs(sample) for sample in samples]
    for at, one in enumerate(found):
        if set(one) != set(found[0]):
            raise BadGraph(
                f"graph {at} has {sorted(one)}, graph 0 has {sorted(found[0])}",
                caller(),
                "give every graph the same attributes",
            )
    inputs: dict[str, Input] = {name: ragged([one[name] for one in found]) for name in found[0]}
    return Dataset(inputs, labels=_batch_labels(samples))


def _batch_labels(samples: list[Any]) -> dict[str, Labels]:
    """Those of the graphs that have some: one of each graph, or one of each node."""
    found = {at: y for at, one in enumerate(samples) if (y := one.get("y")) is not None}
    if all(map(_of_graph, found.values())):
        keys, relation = torch.tensor([[*found]]), "graph"
        parts = [_row(y) for y in found.values()]
    else:
        other = next((at for at, y in found.items() if not _of_nodes(samples[at], y)), None)
        if other is not None:
            raise _other_labels(f"of graph {other} ", samples[other], found[other])
        nodes = [torch.arange(len(y)) for y in found.values()]
        graphs = [torch.full_like(n, at) for n, at in zip(nodes, found, strict=True)]
        keys, relation = torch.stack([torch.cat(graphs), torch.cat(nodes)]), "x"
        parts = [*found.values()]
    if not parts:
        return {}
    shapes = {at: y.shape[1:] for at, y in zip(found, parts, strict=True)}
    other = next((at for at, shape in shapes.items() if shape != parts[0].shape[1:]), None)
    if other is not None:
        first = next(iter(found))
        what = f"rows of `y` have the shapes {tuple(shapes[first])} in graph {first}"
        what += f" and {tuple(shapes[other])} in graph {other}"
        raise BadGraph(what, caller(), "give all graphs the same labels")
    return {relation: Labels(keys, _target(torch.cat(parts)))}
