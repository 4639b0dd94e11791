"""Graphs in files: arrays of NumPy, and the text format of graph kernels' data sets.

one graph (.npz)     x (n, d) or x_indptr, x_indices, x_shape of a binary matrix; y (n,);
                     edge_index (2, e), from the first row to the second; train, val, test
graphs (.npz)        of each part train, val, test: train_num_nodes, train_num_edges, train_x,
                     train_edge_index, train_edge_type, train_y
graphs (folder)      examples.txt and queries.txt: see `edgewise.training.data.samples`
graphs (.txt)        the number of graphs; of each a line `nodes label`, and for each node a
                     line `tag neighbours j₁ j₂ ...`, then its attributes
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.data.encodings import degrees, laplacian, random_walk
from edgewise.errors import counted
from edgewise.training.data.files import bad, lines_of, text_of
from edgewise.training.data.graph_corpus import GRAPH, NODE, Graph, GraphCorpus
from edgewise.training.data.samples import is_samples, read_samples
from edgewise.training.randomness import generator
from edgewise.training.schema import Mistakes, number

PARTS = {"train": "train", "val": "validation", "test": "test"}  # names in files → of parts
Arrays = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Encodings:
    """`random_walk`, `laplacian` and `degrees`: features of `position(i)`; see `edgewise.data`.

    `partitions`: how many ways to divide graphs into batches are used in turn, each batch grounded
    once; 0: every epoch has its own.

    `neighbours`: batches of nodes read this many edges of each node, for 0, 1, ... steps from them.
    """

    random_walk: int = number(0, least=0)
    laplacian: int = number(0, least=0)
    degrees: int = number(0, least=0)
    partitions: int = number(4, least=0)
    neighbours: list = field(default_factory=list)

    def check_neighbours(self) -> Mistakes:
        if not all(type(n) is int and n > 0 for n in self.neighbours):
            what = "`neighbours` are numbers of edges, one for each layer"
            yield "neighbours", what, "write `neighbours = [10, 5]`"

    def sampled(self, corpus: GraphCorpus, path: Path) -> GraphCorpus:
        """The corpus with its ways to draw batches."""
        if self.neighbours and (corpus.level != NODE or corpus.pairs is not None):
            what = "`neighbours` are drawn around nodes, and these examples are not nodes"
            raise bad(what, path, "leave `neighbours` out")
        corpus.partitions, corpus.neighbours = self.partitions, self.neighbours
        return corpus

    def placed(self, graph: Graph) -> Graph:
        """The graph with its encodings."""
        edge, n = graph.edge, graph.nodes
        found = [random_walk(edge, n, steps=self.random_walk)] if self.random_walk else []
        found += [laplacian(edge, n, size=self.laplacian)] if self.laplacian else []
        found += [degrees(edge, n, most=self.degrees)] if self.degrees else []
        return replace(graph, position=torch.cat(found, 1)) if found else graph


@dataclass(frozen=True, kw_only=True)
class GraphData(Encodings):
    """`path` is a file of graphs; an integer feature is one-hot.

    - normalise: rows of x sum to 1
    - folds, fold: a folder of files `test_idx-1.txt`, ... and which of them is the test part; or
      a number, `"10"`, of folds with equal shares of all classes
    - held_out: the share of the rest that is the validation part; with 0 it is the test part
    """

    path: str = "."
    normalise: bool = False
    folds: str = ""
    fold: int = number(0, least=0)
    held_out: float = number(0.1, least=0.0, below=1.0)

    def check(self) -> Mistakes:
        yield from self.check_neighbours()
        if bool(self.folds) != bool(self.fold):
            yield "fold", "`folds` and `fold` go together", 'write `folds = "10fold"`, `fold = 1`'
        if self.folds.isdecimal() and not 2 <= int(self.folds) >= self.fold:
            what = f"there is no fold {self.fold} of {self.folds}"
            yield "fold", what, "number folds from 1, of two or more"

    def read(self, folder: Path, tokenizer: Any = None) -> GraphCorpus:
        path = folder / self.path
        if path.suffix == ".npz":
            arrays = _arrays(path)
            corpus = _one_graph(arrays, path) if "edge_index" in arrays else _parts(arrays, path)
        else:
            corpus = read_samples(path) if is_samples(path) else _text(path)
        if self.normalise:
            corpus.graphs = [_normalised(graph) for graph in corpus.graphs]
        if len(corpus.parts) < 2:
            corpus.parts = self._split(corpus, folder)
        corpus.graphs = [self.placed(graph) for graph in corpus.graphs]
        return self.sampled(corpus, path)

    def _split(self, corpus: GraphCorpus, folder: Path) -> dict[str, Tensor]:
        """A fold, and held-out examples of the rest."""
        count = len(corpus.target)
        test = torch.zeros(count, dtype=torch.bool)
        if self.fold and self.folds.isdecimal():
            test[self._stratified(corpus)] = True
        elif self.fold:
            file = folder / self.folds / f"test_idx-{self.fold}.txt"
            numbers = [_integer(line, file, at) for at, line in enumerate(lines_of(file), 1)]
            if not numbers or not all(0 <= n < count for n in numbers):
                raise bad(f"indices are not of {count:,} graphs", file, "number them from 0")
            test[numbers] = True
        rest = (~test).nonzero()[:, 0]
        rest = rest[torch.randperm(len(rest), generator=generator(0, "held out"))]
        held = int(len(rest) * self.held_out)
        found = {"train": rest[held:].sort().values, "test": test.nonzero()[:, 0]}
        validation = rest[:held].sort().values if held else found["test"]
        if not len(validation) or not len(found["train"]):
            what = f"of {count:,} graphs {held} are held out"
            raise bad(what, folder / self.path, "give `folds` and `fold`, or another `held_out`")
        found["validation"] = validation
        return {part: index for part, index in found.items() if len(index)}

    def _stratified(self, corpus: GraphCorpus) -> Tensor:
        """The examples of a fold: those of each class, in a drawn order, are dealt in turn."""
        order = torch.randperm(len(corpus.target), generator=generator(0, "folds"))
        if corpus.labels and corpus.target.ndim == 1:
            order = order[corpus.target[order].argsort(stable=True)]
        return order[self.fold - 1 :: int(self.folds)]


def _normalised(graph: Graph) -> Graph:
    total = graph.x.sum(1, keepdim=True)
    return replace(graph, x=graph.x / total.where(total != 0, 1.0))


def _arrays(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except OSError as problem:
        what = f"cannot read the file: {problem.strerror or problem}"
        raise bad(what, path, "check `path`, or give `--data`") from None
    except (ValueError, EOFError, KeyError):
        raise bad("not an archive of NumPy arrays", path, "write it with `numpy.savez`") from None


def _take(arrays: Arrays, name: str, path: Path) -> np.ndarray[Any, Any]:
    if name not in arrays:
        there = ", ".join(sorted(arrays)[:12])
        raise bad(f"there is no array `{name}`", path, f"there are {there}")
    found: np.ndarray[Any, Any] = arrays[name]
    return found


def _one_graph(arrays: Arrays, path: Path) -> GraphCorpus:
    """A graph with classes of nodes, and which of them are in each part."""
    x = _features(arrays, path)
    edge = torch.from_numpy(_take(arrays, "edge_index", path).astype(np.int64)).flip(0)
    _check_edges(edge, len(x), path)
    y = _take(arrays, "y", path)
    if y.shape[:1] != (len(x),):
        raise bad(f"`y` has {len(y):,} rows, `x` has {len(x):,}", path, "give one for each node")
    parts: dict[str, Tensor] = {}
    for name, part in PARTS.items():
        if name in arrays:
            index = torch.from_numpy(arrays[name])
            index = index.nonzero()[:, 0] if index.dtype == torch.bool else index.long()
            if not len(index) or int(index.min()) < 0 or int(index.max()) >= len(x):
                raise bad(f"`{name}` is empty or not of nodes", path, "give numbers of nodes")
            for other, before in parts.items():
                shared = int(torch.isin(index, before).sum())
                if shared:
                    what = f"the {part} part and the {other} part share {counted(shared, 'node')}"
                    raise bad(what, path, "give every node to one part")
            parts[part] = index
    target, labels = targets(y)
    return GraphCorpus([Graph(x, distinct(edge))], target, NODE, parts, labels)


def _features(arrays: Arrays, path: Path) -> Tensor:
    if "x" in arrays:
        return features(arrays["x"])
    names = ("x_indptr", "x_indices", "x_shape")
    ptr, columns, shape = (_take(arrays, name, path).astype(np.int64) for name in names)
    x = torch.zeros(tuple(shape.tolist()))
    count = np.diff(ptr)
    if len(count) != len(x) or (len(columns) and columns.max() >= x.shape[1]):
        raise bad(f"`x_indices` do not fit `x_shape` {tuple(x.shape)}", path, "write them again")
    x[torch.from_numpy(np.repeat(np.arange(len(x)), count)), torch.from_numpy(columns)] = 1.0
    return x


def features(x: np.ndarray[Any, Any], classes: int = 0) -> Tensor:
    """Numbers as they are; integers of one column as one-hot vectors."""
    if x.ndim == 2:
        return torch.from_numpy(x).float()
    if not np.issubdtype(x.dtype, np.integer):
        return torch.from_numpy(x).float()[:, None]
    numbers = torch.from_numpy(x.astype(np.int64))
    return torch.nn.functional.one_hot(numbers, classes or int(numbers.max()) + 1).float()


def targets(y: np.ndarray[Any, Any]) -> tuple[Tensor, list[str]]:
    """Integers are classes, and so are names; floating point numbers are values."""
    if np.issubdtype(y.dtype, np.floating):
        return torch.from_numpy(y).float(), []
    if y.ndim == 2:  # several labels, each 0 or 1
        return torch.from_numpy(y.astype(np.float32)), [str(at) for at in range(y.shape[1])]
    classes, numbers = np.unique(y, return_inverse=True)
    return torch.from_numpy(numbers.astype(np.int64)), [str(name) for name in classes]


def distinct(edge: Tensor) -> Tensor:
    """Edges without repetition: an atom holds once."""
    return edge.unique(dim=1) if edge.numel() else edge


def _check_edges(edge: Tensor, nodes: int, path: Path) -> None:
    if edge.numel() and (int(edge.min()) < 0 or int(edge.max()) >= nodes):
        raise bad(f"an edge is not between nodes 0 to {nodes - 1:,}", path, "number nodes from 0")


def _parts(arrays: Arrays, path: Path) -> GraphCorpus:
    """Graphs with values, in parts; the numbers of a graph follow those of the one before it."""
    there = {name: part for name, part in PARTS.items() if f"{name}_num_nodes" in arrays}
    if "train" not in there:
        raise bad("there is no array `edge_index` or `train_num_nodes`", path, "see the docs")
    kinds = {
        key: max(int(_take(arrays, f"{name}_{key}", path).max(initial=0)) for name in there) + 1
        for key in ("x", "edge_type")
    }
    graphs: list[Graph] = []
    parts, found = {}, []
    for name, part in there.items():
        first = len(graphs)
        graphs += _of_part(arrays, name, kinds, path)
        parts[part] = torch.arange(first, len(graphs))
        found.append(_take(arrays, f"{name}_y", path))
        if len(found[-1]) != len(graphs) - first:
            raise bad(f"`{name}_y` is not one for each graph", path, "give a label for each")
    target, labels = targets(np.concatenate(found))
    return GraphCorpus(graphs, target, GRAPH, parts, labels)


def _of_part(arrays: Arrays, name: str, kinds: dict[str, int], path: Path) -> list[Graph]:
    nodes, edges = (
        _take(arrays, f"{name}_{key}", path).astype(np.int64).tolist()
        for key in ("num_nodes", "num_edges")
    )
    x = features(arrays[f"{name}_x"], kinds["x"])
    edge_x = features(arrays[f"{name}_edge_type"], kinds["edge_type"])
    index = torch.from_numpy(_take(arrays, f"{name}_edge_index", path).astype(np.int64)).flip(0)
    if sum(nodes) != len(x) or sum(edges) != index.shape[1] or len(edge_x) != index.shape[1]:
        raise bad(f"the arrays of `{name}` have other lengths than its graphs", path, "check them")
    found = []
    for part, edge, values in zip(
        x.split(nodes), index.split(edges, 1), edge_x.split(edges), strict=True
    ):
        if not len(part):
            raise bad("a graph has no nodes", path, "leave it out")
        _check_edges(edge, len(part), path)
        found.append(Graph(part, edge, values))
    return found


def _integer(text: str, path: Path, line: int) -> int:
    try:
        return int(text)
    except ValueError:
        raise bad(f"line {line:,} is not an integer: {text[:40]!r}", path, "see the docs") from None


class _Words:
    """The words of a text file, read one after another with their lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = [line.split() for line in text_of(path).splitlines()]
        self.at = 0

    def next(self) -> list[str]:
        if self.at >= len(self.lines):
            raise bad("the file ends inside a graph", self.path, "download it again")
        self.at += 1
        return self.lines[self.at - 1]

    def integers(self, words: list[str]) -> list[int]:
        return [_integer(word, self.path, self.at) for word in words]


def _text(path: Path) -> GraphCorpus:
    """Graphs with a class each; tags of nodes are one-hot, attributes beside them."""
    words = _Words(path)
    (count,) = words.integers(words.next()[:1] or [""])
    read = [_text_graph(words) for _ in range(count)]
    if len(read) < 2:
        raise bad("there are fewer than two graphs", path, "give more")
    tags = sorted({tag for _, own, _, _ in read for tag in own})
    known = {tag: at for at, tag in enumerate(tags)}
    graphs = []
    for _, own, edge, attributes in read:
        x = torch.eye(len(tags))[[known[tag] for tag in own]]
        graphs.append(Graph(torch.cat([x, attributes], 1), distinct(edge)))
    target, labels = targets(np.array([label for label, *_ in read]))
    return GraphCorpus(graphs, target, GRAPH, {}, labels)


def _text_graph(words: _Words) -> tuple[int, list[int], Tensor, Tensor]:
    """The label of a graph, the tags of its nodes, edges and attributes."""
    first = words.integers(words.next()[:2])
    if len(first) < 2 or first[0] < 1:
        raise bad(f"line {words.at:,} is not `nodes label`", words.path, "see the docs")
    (nodes, label), tags, pairs, rest = first, [], [], []
    for i in range(nodes):
        line = words.next()
        tag, degree = (*words.integers(line[:2]), 0)[:2]
        near = words.integers(line[2 : 2 + degree])
        if len(near) < degree or not all(0 <= j < nodes for j in near):
            what = f"line {words.at:,} does not have {degree} neighbours of {nodes} nodes"
            raise bad(what, words.path, "number nodes from 0")
        tags.append(tag)
        pairs += [(i, j) for j in near]
        rest.append([float(word) for word in line[2 + degree :]])
    edge = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    return label, tags, edge, torch.tensor(rest).reshape(nodes, -1)
