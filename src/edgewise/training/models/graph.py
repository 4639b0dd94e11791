"""Graph networks of recipes: those of the zoo, on batches of graphs or on one graph."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import EdgewiseError
from edgewise.inputs.kinds import Input, ragged, rows
from edgewise.language import Program, R
from edgewise.module import Data, Model
from edgewise.training.data.batches import Batch
from edgewise.training.schema import Mistakes, number, one_of
from edgewise.zoo.graph_models import GRAPH_MODELS
from edgewise.zoo.network import ACTIVATIONS, NORMS, READOUTS

MOST_GROUNDED = 2048  # batches that stay grounded
SIZES = ("inputs", "edges", "positions", "outputs")  # what a network reads of a corpus
TYPED = "rgcn"  # reads edge(i, t, j): the type is the largest feature of an edge
LEVELS = {0: "node", 1: "edge", 2: "graph"}  # `sizes` of a run are integers
OF_SOME = ("heads", "attention_dropout", "aggregation", "bases", "steps", "teleport", "kernels")


@dataclass(frozen=True, kw_only=True)
class GraphNetwork:
    """A network of `edgewise.zoo.graph_models`, with the sizes around its layers.

    What only some networks have, such as `heads`, is an error for the others.
    """

    layer: str = one_of("gcn", *GRAPH_MODELS)
    layers: int = number(2, least=1)
    hidden: int = number(64, least=1)
    dropout: float = number(0.0, least=0.0, below=1.0)
    norm: str = one_of("none", *NORMS)
    activation: str = one_of("relu", *ACTIVATIONS)
    residual: bool = False
    encode: bool = False
    readout: str = one_of("sum", *READOUTS)
    head: int = number(0, least=0)
    jump: bool = False
    heads: int | None = number(None, least=1)
    attention_dropout: float | None = number(None, least=0.0, below=1.0)
    aggregation: str | None = None
    bases: int | None = number(None, least=1)
    steps: int | None = number(None, least=1)
    teleport: float | None = number(None, least=0.0, below=1.0)
    kernels: int | None = number(None, least=1)

    def check(self) -> Mistakes:
        known = {f.name for f in fields(GRAPH_MODELS[self.layer].Network)}
        wrong = [n for n in OF_SOME if getattr(self, n, None) is not None and n not in known]
        for name in wrong:
            others = [k for k, m in GRAPH_MODELS.items() if name in _fields(m.Network)]
            yield name, f"`{self.layer}` has no `{name}`", f"only {', '.join(others)} have it"
        if wrong:
            return
        try:
            self._program({"task": "graph" if self.jump else "edge", "outputs": 2, "edges": 1})
        except EdgewiseError as error:
            named = [f.name for f in fields(self) if f"`{f.name}" in error.message]
            yield named[0] if named else "layer", error.message, error.help

    def _program(self, sizes: dict[str, Any]) -> Program:
        module = GRAPH_MODELS[self.layer]
        chosen = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "layer"}
        chosen = {name: value for name, value in chosen.items() if value is not None}
        if self.layer == TYPED:
            chosen["types"] = sizes["edges"] or 1
        found: Program = module.network(module.Network(**chosen, **sizes))
        return found

    def build(self, words: int, corpus: Any, seed: int) -> GraphModel:
        sizes = {name: getattr(corpus, name) for name in SIZES}
        program = self._program(sizes | {"task": LEVELS[corpus.level]})
        return self.module(program.compile(R.logits, seed=seed), words, corpus)

    def module(self, program: Model, words: int, corpus: Any) -> GraphModel:
        """The module around a compiled program."""
        typed = self.layer == TYPED
        return GraphModel(program, LEVELS[corpus.level], corpus.outputs, typed=typed)


def _fields(kind: Any) -> set[str]:
    return {f.name for f in fields(kind)}


class GraphModel(nn.Module):
    """The compiled program: a batch of graphs → logits (examples, outputs).

    A batch that comes again, by its key, is not grounded again.
    """

    def __init__(self, program: Model, task: str, outputs: int, *, typed: bool = False) -> None:
        super().__init__()
        self.typed = typed
        self.program, self.task, self.outputs = program, task, outputs
        self._grounded: OrderedDict[bytes, Data] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_grounded": OrderedDict()}

    def forward(self, batch: Batch) -> Tensor:
        found: Any = self.program(self.grounded(batch))
        out: Tensor = found if isinstance(found, Tensor) else found.data
        out = out.reshape(-1, self.outputs)
        return out[batch["index"]] if self.task == "node" else out

    def grounded(self, batch: Batch) -> Data:
        """The data of a batch: grounded when it first comes."""
        key = batch["key"].numpy().tobytes()
        data = self._grounded.get(key)
        if data is None:
            read: Any = self.inputs(batch)
            data = self._grounded[key] = self.program.ground(**read)
            if len(self._grounded) > MOST_GROUNDED:
                self._grounded.popitem(last=False)
        return data

    def inputs(self, batch: Batch) -> dict[str, Input]:
        """The relations of a batch: one graph, or a sample for each."""
        device = next(self.program.parameters()).device
        found = relations(
            with_types(batch) if self.typed else batch, device, one=self.task != "graph"
        )
        return {name: item for name, item in found.items() if name in self.program.inputs}


def with_types(batch: Batch) -> Batch:
    """Edges (i, t, j): the type of an edge is the place of its largest feature."""
    i, j = batch["edge"]
    kind = batch["edge_x"].argmax(1) if "edge_x" in batch else torch.zeros_like(i)
    return {n: t for n, t in batch.items() if n != "edge_x"} | {"edge": torch.stack([i, kind, j])}


def relations(batch: Batch, device: torch.device, *, one: bool) -> dict[str, Input]:
    """x(i), edge(i, j), position(i) and pair(q, i, j) of a batch."""
    nodes, edges = batch["nodes"].tolist(), batch["edges"].tolist()
    keys = batch["edge"].split(edges, 1)
    values: Any = (
        batch["edge_x"].to(device).split(edges) if "edge_x" in batch else (None,) * len(keys)
    )
    found: dict[str, list[Any]] = {
        "edge": [rows(k, v) for k, v in zip(keys, values, strict=True)],
        "x": list(batch["x"].to(device).split(nodes)),
    }
    if "position" in batch:
        found["position"] = list(batch["position"].to(device).split(nodes))
    if "pair" in batch:
        numbered = torch.arange(batch["pair"].shape[1])
        found["pair"] = [rows(torch.cat([numbered[None], batch["pair"]]))]
    return {name: parts[0] if one else ragged(parts) for name, parts in found.items()}
