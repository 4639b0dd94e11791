"""Runs of algorithms on graphs with hints, as the CLRS benchmark has them: steps as examples.

Arrays of NumPy, `ALGORITHM_train.npz`, `_val.npz` and `_test.npz`; B graphs of n nodes, T steps:

    in:pos:node:scalar, in:s:node:mask_one (B, n)   inputs of nodes
    in:A:edge:scalar, in:adj:edge:mask (B, n, n)    weights of edges, and which there are
    hint:NAME:node:KIND (T, B, n)                   mask, scalar, mask_one or pointer
    out:NAME:node:pointer (B, n), lengths (B,)      what is asked for, and the steps of each graph
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from edgewise.training.data.batches import Batch
from edgewise.training.data.files import bad
from edgewise.training.randomness import generator

PARTS = {"train": "train", "validation": "val", "test": "test"}
INPUTS = ("in:pos:node:scalar", "in:s:node:mask_one", "in:A:edge:scalar", "in:adj:edge:mask")
FIXED = 2  # features of nodes that are inputs, before those that are hints
EDGE_FEATURES = 3  # weight, whether it is the pointer, whether it is a loop


@dataclass(frozen=True, kw_only=True)
class AlgorithmData:
    """`path` is a folder of arrays, `algorithm` the beginning of their names."""

    path: str = "."
    algorithm: str = "bfs"

    def read(self, folder: Path, tokenizer: Any = None) -> AlgorithmCorpus:
        found = {}
        for part, name in PARTS.items():
            path = folder / self.path / f"{self.algorithm}_{name}.npz"
            if part == "train" or path.is_file():
                found[part] = _run(path)
        if "validation" not in found:
            path = folder / self.path / f"{self.algorithm}_val.npz"
            raise bad("there is no such file", path, "give graphs for validation")
        first = found["train"]
        for part, run in found.items():
            if run.hints != first.hints:
                where = folder / self.path / f"{self.algorithm}_{PARTS[part]}.npz"
                raise bad("its hints are not those of the training part", where, "write it again")
        return AlgorithmCorpus(found)


@dataclass(frozen=True)
class Hints:
    """Names of hints by their kind: numbers of nodes, a node that is chosen, and the pointers."""

    nodes: tuple[str, ...]
    is_mask: tuple[bool, ...]
    chosen: str
    pointer: str


@dataclass(frozen=True, eq=False)
class AlgorithmRuns:
    """The arrays of a part."""

    arrays: Mapping[str, Tensor]
    hints: Hints
    answer: str

    @property
    def lengths(self) -> Tensor:
        return self.arrays["lengths"].long()

    @property
    def nodes(self) -> int:
        return self.arrays[INPUTS[0]].shape[1]

    def __len__(self) -> int:
        return len(self.arrays["lengths"])

    def hint(self, name: str, step: Tensor, graphs: Tensor) -> Tensor:
        return self.arrays[name][step, graphs]


def _run(path: Path) -> AlgorithmRuns:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: torch.from_numpy(file[name].astype(np.float32)) for name in file.files}
    except OSError as problem:
        what = f"cannot read the file: {problem.strerror or problem}"
        raise bad(what, path, "check `path` and `algorithm`, or give `--data`") from None
    except (ValueError, EOFError, KeyError):
        raise bad("not an archive of NumPy arrays", path, "write it with `numpy.savez`") from None
    for name in (*INPUTS, "lengths"):
        if name not in arrays:
            raise bad(f"there is no array `{name}`", path, "only algorithms on graphs are read")
    found = AlgorithmRuns(arrays, _hints(list(arrays), path), _answer(list(arrays), path))
    _check(found, path)
    return found


def _hints(names: Sequence[str], path: Path) -> Hints:
    by_kind: dict[str, list[str]] = {}
    for name in names:
        if name.startswith("hint:"):
            _, _, where, kind = name.split(":")
            by_kind.setdefault(kind if where == "node" else where, []).append(name)
    known = {"mask", "scalar", "mask_one", "pointer"}
    pointers, chosen = by_kind.get("pointer", []), by_kind.get("mask_one", [])
    if set(by_kind) - known or len(pointers) != 1 or len(chosen) > 1:
        what = f"its hints are {', '.join(n for n in names if n.startswith('hint:'))}"[:200]
        raise bad(
            what, path, "only masks and numbers of nodes, one choice and one pointer are read"
        )
    nodes = [
        name for name in names if name in (*by_kind.get("mask", ()), *by_kind.get("scalar", ()))
    ]
    is_mask = tuple(name in by_kind.get("mask", ()) for name in nodes)
    return Hints(tuple(nodes), is_mask, chosen[0] if chosen else "", pointers[0])


def _answer(names: Sequence[str], path: Path) -> str:
    found = [name for name in names if name.startswith("out:")]
    if len(found) != 1 or not found[0].endswith(":node:pointer"):
        raise bad(f"its output is {', '.join(found)}", path, "only pointers of nodes are read")
    return found[0]


def _check(run: AlgorithmRuns, path: Path) -> None:
    """Shapes fit, pointers are along edges, and there is a first step."""
    arrays, (graphs, n) = run.arrays, run.arrays[INPUTS[0]].shape
    steps = arrays[run.hints.pointer].shape[0]
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(
        (*run.hints.nodes, run.hints.pointer), (steps, graphs, n)
    )
    shapes |= {INPUTS[1]: (graphs, n), run.answer: (graphs, n), "lengths": (graphs,)}
    shapes |= dict.fromkeys(INPUTS[2:], (graphs, n, n))
    for name, shape in shapes.items():
        if tuple(arrays[name].shape) != shape:
            what = f"`{name}` has the shape {tuple(arrays[name].shape)}, not {shape}"
            raise bad(what, path, "write it again")
    if not graphs or not n or int(run.lengths.min()) < 1 or int(run.lengths.max()) > steps:
        raise bad(f"`lengths` are not between 1 and {steps}", path, "write the steps of each graph")
    pointer = arrays[run.hints.pointer].long()
    if int(pointer.min()) < 0 or int(pointer.max()) >= n:
        raise bad(f"a pointer is not a node from 0 to {n - 1}", path, "number nodes from 0")
    edges = arrays["in:adj:edge:mask"].bool()[None].expand(steps, -1, -1, -1)
    taken = torch.arange(steps)[:, None] < run.lengths
    if not edges.gather(3, pointer[..., None])[..., 0][taken].all():
        raise bad("a pointer is not along an edge", path, "give `in:adj:edge:mask` its loops too")


@dataclass(eq=False)
class AlgorithmCorpus:
    """Examples are graphs, numbered over all parts; a training batch has one step of each."""

    runs: Mapping[str, AlgorithmRuns]
    labels: Sequence[str] = ()
    tokenizer: Any = None
    tokens: dict[str, int] = field(default_factory=dict)
    words: int = 0
    moved: ClassVar = ("x", "edge", "picked", "target", "row", "chosen")

    def __post_init__(self) -> None:
        self.first_of, count = {}, 0
        for part, run in self.runs.items():
            self.first_of[part] = count
            count += len(run)
        self.examples = count

    @property
    def parts(self) -> dict[str, Tensor]:
        return {p: self.first_of[p] + torch.arange(len(r)) for p, r in self.runs.items()}

    @property
    def fingerprint(self) -> str:
        found = hashlib.sha256()
        for run in self.runs.values():
            for name, tensor in sorted(run.arrays.items()):
                found.update(f"{name} {tuple(tensor.shape)}".encode())
                found.update(tensor.numpy().tobytes())
        return found.hexdigest()

    @property
    def sizes(self) -> dict[str, int]:
        hints = self.runs["train"].hints
        return {
            "words": 0,
            "inputs": FIXED + len(hints.nodes) + bool(hints.chosen),
            "edges": EDGE_FEATURES,
            "outputs": len(hints.nodes),
            "chooses": int(bool(hints.chosen)),
        }

    def __getattr__(self, name: str) -> int:
        if name in ("inputs", "edges", "outputs", "chooses"):
            return self.sizes[name]
        raise AttributeError(name)

    def batch(self, size: int, seed: int, step: int) -> Batch:
        """Graphs that come together in every epoch, so that they are grounded once."""
        count = len(self.runs["train"])
        groups = torch.randperm(count, generator=generator(seed, "groups")).split(size)
        epoch, at = divmod(step, len(groups))
        turn = torch.randperm(len(groups), generator=generator(seed, "turn", epoch))[at]
        return self.of_steps("train", groups[int(turn)], generator(seed, "steps", step))

    def validation(self, size: int, part: str = "validation") -> Iterator[Batch]:
        for chosen in self.parts[part].split(size):
            yield self.of_examples(chosen)

    def count(self, batch: Batch) -> int:
        """How many graphs a batch has."""
        return len(batch["example"])

    def part(self, batch: Batch, first: int, last: int) -> Batch:
        """Some graphs of a batch, one after another."""
        n = int(batch["graphs"][1])
        nodes, of_edge = slice(first * n, last * n), batch["keys"][0] // n
        edges = ((of_edge >= first) & (of_edge < last)).nonzero()[:, 0]
        found = batch | {name: batch[name][first:last] for name in ("example", "key")}
        found |= {name: batch[name][nodes] for name in ("x", "target")}
        found |= {
            "keys": batch["keys"][:, edges] - first * n,
            "edge": batch["edge"][edges],
            "row": batch["row"][nodes] - int((of_edge < first).sum()),
            "graphs": torch.tensor([last - first, n]),
        }
        if "chosen" in batch:
            found |= {"picked": batch["picked"][nodes], "chosen": batch["chosen"][first:last]}
        return found

    def first(self, batch: Batch) -> Batch:
        return self.of_steps("train", batch["example"][:2], generator(0, "first"))

    def of_examples(self, chosen: Tensor) -> Batch:
        """A drawn step of each graph of one part, always the same; and how its run begins."""
        part = next(p for p, first in reversed(self.first_of.items()) if int(chosen[0]) >= first)
        run, graphs = self.runs[part], chosen - self.first_of[part]
        begins = self.at(run, graphs, torch.zeros(len(graphs), dtype=torch.int64))
        return self.of_steps(part, graphs, generator(0, "measured")) | {
            "first_x": begins["x"],
            "first_pointer": run.arrays[run.hints.pointer][0, graphs].long(),
            "lengths": run.lengths[graphs],
            "answer": run.arrays[run.answer][graphs].long(),
        }

    def of_steps(self, part: str, graphs: Tensor, draws: torch.Generator) -> Batch:
        """Inputs and hints before a drawn step of each graph, and the hints after it."""
        run, hints = self.runs[part], self.runs[part].hints
        step = (torch.rand(len(graphs), generator=draws) * (run.lengths[graphs] - 1)).long()
        found = self.at(run, graphs, step)
        later = torch.minimum(step + 1, run.lengths[graphs] - 1)  # a run of one step stays
        after = {name: run.hint(name, later, graphs) for name in (*hints.nodes, hints.pointer)}
        n, keys = run.nodes, found["keys"]
        pointer = pointer_rows(after[hints.pointer].long())
        total = n * len(graphs)
        row = torch.searchsorted(keys[0] * total + keys[1], torch.arange(total) * total + pointer)
        found |= {
            "example": graphs + self.first_of[part],
            "key": graphs + self.first_of[part],
            "target": torch.stack([after[name] for name in hints.nodes], -1).flatten(0, 1),
            "row": row,
            "is_mask": torch.tensor(hints.is_mask),
        }
        if hints.chosen:
            picked = run.hint(hints.chosen, later, graphs)
            found |= {"picked": picked.reshape(-1, 1), "chosen": picked.argmax(1)}
        return found

    def at(self, run: AlgorithmRuns, graphs: Tensor, step: Tensor) -> Batch:
        """What a model reads of graphs before their steps."""
        names = (*run.hints.nodes, *((run.hints.chosen,) if run.hints.chosen else ()))
        hints = [run.hint(name, step, graphs) for name in names]
        graph, i, j = run.arrays["in:adj:edge:mask"][graphs].nonzero(as_tuple=True)
        keys = torch.stack([graph * run.nodes + i, graph * run.nodes + j])
        weight = run.arrays["in:A:edge:scalar"][graphs][graph, i, j]
        pointer = run.hint(run.hints.pointer, step, graphs).long()
        return {
            "example": graphs,
            "x": node_rows([run.arrays[name][graphs] for name in INPUTS[:FIXED]] + hints),
            "keys": keys,
            "edge": edge_rows(keys, weight, pointer),
            "graphs": torch.tensor([len(graphs), run.nodes]),
        }


def node_rows(columns: Sequence[Tensor]) -> Tensor:
    """Features (graphs · n, columns) of columns (graphs, n)."""
    return torch.stack(list(columns), -1).flatten(0, 1)


def pointer_rows(pointer: Tensor) -> Tensor:
    """Pointers (graphs, n) as rows of a batch, in which graphs follow one another."""
    graphs, n = pointer.shape
    return (pointer + n * torch.arange(graphs, device=pointer.device)[:, None]).flatten()


def edge_rows(keys: Tensor, weight: Tensor, pointer: Tensor) -> Tensor:
    """Features of edges: the weight, whether j is the pointer of i, whether i is j."""
    i, j = keys
    to = pointer_rows(pointer)
    return torch.stack([weight, (to[i] == j).float(), (i == j).float()], 1)


def picked_rows(scores: Tensor) -> Tensor:
    """1 for the node with the largest score (graphs, n), else 0."""
    return one_hot(scores.argmax(1), scores.shape[1]).to(scores.dtype)
