"""A model of recipes that learns one step of an algorithm, and repeats it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.inputs.kinds import rows
from edgewise.language import R
from edgewise.module import Data, Model
from edgewise.training.data.algorithms import FIXED, edge_rows, picked_rows
from edgewise.training.data.batches import Batch
from edgewise.training.schema import number
from edgewise.zoo import clrs

MOST_GROUNDED = 512  # groups of graphs that stay grounded


@dataclass(frozen=True, kw_only=True)
class AlgorithmStep:
    """`zoo.clrs` with vectors of `size`."""

    size: int = number(32, least=1)

    def build(self, words: int, corpus: Any, seed: int) -> StepModel:
        names = ("inputs", "edges", "outputs", "chooses")
        nodes, edges, outputs, chooses = (getattr(corpus, name) for name in names)
        config = clrs.Config(nodes, edges, outputs, self.size, bool(chooses))
        output = [R.out, R.share, *([R.choose] if chooses else [])]
        program = clrs.program(config).compile(output, seed=seed, dense=False)
        return self.module(program, words, corpus)

    def module(self, program: Model, words: int, corpus: Any) -> StepModel:
        """The module around a compiled program."""
        return StepModel(program, bool(corpus.chooses))


class StepModel(nn.Module):
    """Hints before a step → hints after it, and whole runs of steps.

    Graphs of a batch are one graph without edges between them; a batch that comes again, by its
    key, is not grounded again: the features of its edges are written in place.
    """

    def __init__(self, program: Model, chooses: bool) -> None:
        super().__init__()
        self.program, self.chooses = program, chooses
        self._grounded: OrderedDict[bytes, tuple[Tensor, Data]] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_grounded": OrderedDict()}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """`out` (nodes, hints), `share` (edges,) and, if a node is chosen, `choose` (graphs, n)."""
        found: Any = self.program(self.grounded(batch), **self.inputs(batch))
        graphs, n = batch["graphs"].tolist()
        shaped = {"out": (graphs * n, -1), "share": (-1,), "choose": (graphs, n)}
        return {name: part.data.reshape(shaped[name]) for name, part in found.items()}

    def grounded(self, batch: Batch) -> Data:
        """The edges of a batch, with the features of this step."""
        key = batch["key"].numpy().tobytes()
        if key not in self._grounded:
            values = batch["edge"].to(self._dtype, copy=True)
            data = self.program.ground(edge=rows(batch["keys"], values))
            self._grounded[key] = values, data
            if len(self._grounded) > MOST_GROUNDED:
                self._grounded.popitem(last=False)
        values, data = self._grounded[key]
        values.copy_(batch["edge"])
        return data

    def inputs(self, batch: Batch) -> dict[str, Any]:
        """What changes from step to step."""
        names = ("x", "picked") if self.chooses else ("x",)
        return {name: batch[name].to(self._dtype) for name in names}

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.program.parameters()).dtype

    @torch.no_grad()
    def pointers(self, batch: Batch) -> Tensor:
        """The pointers (graphs, n) after all steps, each on the hints of the one before."""
        (count, n), lengths = batch["graphs"].tolist(), batch["lengths"][:, None]
        inputs, weight = batch["first_x"].reshape(count, n, -1), batch["edge"][:, 0].clone()
        pointer, masks = batch["first_pointer"], batch["is_mask"]
        for step in range(1, int(lengths.max())):
            edge = edge_rows(batch["keys"], weight, pointer)
            now = batch | {"x": inputs.flatten(0, 1), "edge": edge}
            found, picked = self._step(now, (count, n))
            new = found["out"].reshape(count, n, -1)
            new = torch.where(masks, (new > 0).to(new.dtype), new)
            new = new if picked is None else torch.cat([new, picked[..., None]], -1)
            new = torch.cat([inputs[..., :FIXED], new], -1)
            inputs = torch.where((step < lengths)[..., None], new, inputs)
            best = _largest(found["share"], batch["keys"], count * n).reshape(count, n) % n
            pointer = torch.where(step < lengths, best, pointer)
        return pointer

    def predictions(self, batch: Batch) -> Iterator[dict[str, Any]]:
        """The pointers of each graph."""
        for example, row in zip(batch["example"].tolist(), self.pointers(batch), strict=True):
            yield {"example": example, "name": str(example), "values": row.tolist()}

    def _step(
        self, batch: Batch, shape: tuple[int, int]
    ) -> tuple[dict[str, Tensor], Tensor | None]:
        """One step; where a node is chosen, that with the largest score."""
        if not self.chooses:
            return self(batch), None
        scores = self(batch | {"picked": torch.zeros(shape[0] * shape[1], 1)})["choose"]
        picked = picked_rows(scores)
        return self(batch | {"picked": picked.reshape(-1, 1)}), picked


def _largest(share: Tensor, keys: Tensor, rows: int) -> Tensor:
    """For each i the j with the largest share; edges are sorted by i."""
    top = share.new_full((rows,), -torch.inf).scatter_reduce(0, keys[0], share, "amax")
    found = torch.where(share == top[keys[0]], keys[1], torch.iinfo(torch.int64).max)
    start = torch.full((rows,), torch.iinfo(torch.int64).max)
    return start.scatter_reduce(0, keys[0], found, "amin")
