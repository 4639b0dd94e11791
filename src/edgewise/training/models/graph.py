"""Graph networks of recipes: those of the zoo, on batches of graphs or on one graph."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import EdgewiseError
from edgewise.inputs.kinds import Input, ragged, rows
from edgewise.language import Program, R
from edgewise.module import Data, Model
from edgewise.training.data.batches import Batch
from edgewise.training.schema import Mistakes, number, one_of
from edgewise.zoo import graphormer
from edgewise.zoo import network as networks
from edgewise.zoo.graph_models import GRAPH_MODELS
from edgewise.zoo.graph_readouts import ACTIVATIONS, PAIRS
from edgewise.zoo.network import NORMS

MOST_GROUNDED = 2048  # batches that stay grounded
SIZES = ("inputs", "edges", "positions", "outputs")  # what a network reads of a corpus
TYPED = "rgcn"  # reads edge(i, t, j): the type is the largest feature of an edge
Facts = Callable[[Tensor, int], dict[str, rows]]  # from edges and the number of nodes
LEVELS = {0: "node", 1: "edge", 2: "graph"}  # `sizes` of a run are integers


@dataclass(frozen=True, kw_only=True)
class GraphNetwork:
    """A network of `edgewise.zoo.graph_models`, with the sizes around its layers.

    What is left out is as in the network. What only some networks have, such as `heads`, is an
    error for the others.
    """

    layer: str = one_of("gcn", *GRAPH_MODELS)
    layers: int | None = number(None, least=1)
    hidden: int | None = number(None, least=1)
    dropout: float | None = number(None, least=0.0, below=1.0)
    norm: str | None = one_of(None, *NORMS)
    activation: str | None = one_of(None, *ACTIVATIONS)
    residual: bool | None = None
    encode: bool | None = None
    readout: str | None = one_of(None, *graphormer.Network.readouts)
    pairs: str | None = one_of(None, *PAIRS)
    head: int | None = number(None, least=0)
    jump: bool | None = None
    heads: int | None = number(None, least=1)
    attention_dropout: float | None = number(None, least=0.0, below=1.0)
    aggregation: str | None = None
    bases: int | None = number(None, least=1)
    steps: int | None = number(None, least=1)
    teleport: float | None = number(None, least=0.0, below=1.0)
    kernels: int | None = number(None, least=1)
    degree: int | None = number(None, least=2)
    virtual: int | None = number(None, least=1)
    farthest: int | None = number(None, least=1)
    degrees: int | None = number(None, least=1)

    def check(self) -> Mistakes:
        known = _fields(GRAPH_MODELS[self.layer].Network)
        wrong = [n for n in self._chosen() if n not in known]
        for name in wrong:
            others = [k for k, m in GRAPH_MODELS.items() if name in _fields(m.Network)]
            yield name, f"`{self.layer}` has no `{name}`", f"only {', '.join(others)} have it"
        if wrong:
            return
        try:
            self._network({"task": "graph", "outputs": 2, "edges": 1})
        except EdgewiseError as error:
            named = [f.name for f in fields(self) if f"`{f.name}" in error.message]
            yield named[0] if named else "layer", error.message, error.help

    def _chosen(self) -> dict[str, Any]:
        every = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "layer"}
        return {name: value for name, value in every.items() if value is not None}

    def _network(self, sizes: dict[str, Any]) -> tuple[networks.Network, Program]:
        module, chosen = GRAPH_MODELS[self.layer], self._chosen()
        if self.layer == TYPED:
            chosen["types"] = sizes["edges"] or 1
        if sizes["task"] != "graph":
            chosen.setdefault("jump", False)  # GIN's own default is for graphs
        config: networks.Network = module.Network(**chosen, **sizes)
        return config, module.network(config)

    def _sizes(self, corpus: Any) -> dict[str, Any]:
        return {name: getattr(corpus, name) for name in SIZES} | {"task": LEVELS[corpus.level]}

    def build(self, words: int, corpus: Any, seed: int) -> GraphModel:
        program = self._network(self._sizes(corpus))[1]
        return self.module(program.compile(R.logits, seed=seed), words, corpus)

    def module(self, program: Model, words: int, corpus: Any) -> GraphModel:
        """The module around a compiled program."""
        more: Facts | None = None
        if hasattr(GRAPH_MODELS[self.layer], "facts"):
            config = self._network(self._sizes(corpus))[0]
            more = partial(GRAPH_MODELS[self.layer].facts, config)
        typed = self.layer == TYPED
        return GraphModel(program, LEVELS[corpus.level], corpus.outputs, typed=typed, facts=more)


def _fields(kind: Any) -> set[str]:
    return {f.name for f in fields(kind)}


class GraphModel(nn.Module):
    """The compiled program: a batch of graphs → logits (examples, outputs).

    A batch that comes again, by its key, is not grounded again.
    """

    def __init__(
        self,
        program: Model,
        task: str,
        outputs: int,
        *,
        typed: bool = False,
        facts: Facts | None = None,
    ) -> None:
        super().__init__()
        self.typed, self.facts = typed, facts
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
        """The data of a batch: grounded when it first comes; one without a key comes once."""
        key = batch["key"].numpy().tobytes()
        if not key:
            once: Any = self.inputs(batch)
            return self.program.ground(**once)
        data = self._grounded.get(key)
        if data is None:
            read: Any = self.inputs(batch)
            data = self._grounded[key] = self.program.ground(**read)
            if len(self._grounded) > MOST_GROUNDED:
                self._grounded.popitem(last=False)
        return data

    def inputs(self, batch: Batch) -> dict[str, Input]:
        """The relations of a batch: one graph, or a sample for each."""
        like = next(self.program.parameters())
        read = with_types(batch) if self.typed else batch
        found = relations(read, like, one=self.task != "graph", facts=self.facts)
        return {name: item for name, item in found.items() if name in self.program.inputs}


def with_types(batch: Batch) -> Batch:
    """Edges (i, t, j): the type of an edge is the place of its largest feature."""
    i, j = batch["edge"]
    kind = batch["edge_x"].argmax(1) if "edge_x" in batch else torch.zeros_like(i)
    return {n: t for n, t in batch.items() if n != "edge_x"} | {"edge": torch.stack([i, kind, j])}


def relations(
    batch: Batch, like: Tensor, *, one: bool, facts: Facts | None = None
) -> dict[str, Input]:
    """x(i), edge(i, j), position(i) and pair(q, i, j) of a batch, and what `facts` computes.

    Values have the device and the dtype of the tensor `like`.
    """
    nodes, edges = batch["nodes"].tolist(), batch["edges"].tolist()
    keys = batch["edge"].split(edges, 1)
    values: Any = (
        batch["edge_x"].to(like).split(edges) if "edge_x" in batch else (None,) * len(keys)
    )
    found: dict[str, list[Any]] = {
        "edge": [rows(k, v) for k, v in zip(keys, values, strict=True)],
        "x": list(batch["x"].to(like).split(nodes)),
    }
    if "position" in batch:
        found["position"] = list(batch["position"].to(like).split(nodes))
    if "pair" in batch:
        numbered = torch.arange(batch["pair"].shape[1])
        found["pair"] = [rows(torch.cat([numbered[None], batch["pair"]]))]
    for edge, count in zip(keys, nodes, strict=True):
        for name, more in facts(edge, count).items() if facts else ():
            found.setdefault(name, []).append(more)
    return {name: parts[0] if one else ragged(parts) for name, parts in found.items()}
