"""Models of knowledge graphs in recipes: vectors of entities and relations."""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import EdgewiseError
from edgewise.inputs.kinds import numbers
from edgewise.language import R
from edgewise.module import Model
from edgewise.training.data.batches import Batch
from edgewise.training.schema import Mistakes, number, one_of
from edgewise.zoo import complex as complex_model
from edgewise.zoo import distmult, rotate

SCORES: dict[str, ModuleType] = {
    "distmult": distmult,
    "complex": complex_model,
    "rotate": rotate,
}


@dataclass(frozen=True, kw_only=True)
class TripleEmbeddings:
    """A vector for every entity and relation, and a score of the zoo; `margin` is of `rotate`."""

    score: str = one_of("complex", *SCORES)
    size: int = number(64, least=1)
    dropout: float = number(0.0, least=0.0, below=1.0)
    margin: float | None = number(None, least=0.0)

    def check(self) -> Mistakes:
        if self.margin is not None and self.score != "rotate":
            yield "margin", f"`{self.score}` has no `margin`", "only rotate has it"
            return
        try:
            self._config({"entities": 2, "relations": 2})
        except EdgewiseError as error:
            yield "size", error.message, error.help

    def _config(self, sizes: dict[str, int]) -> Any:
        kind = SCORES[self.score].Config
        known = {f.name for f in fields(kind)}
        chosen = {f.name: getattr(self, f.name) for f in fields(self) if f.name in known}
        return kind(**{n: v for n, v in chosen.items() if v is not None}, **sizes)

    def build(self, words: int, corpus: Any, seed: int) -> EmbeddingModel:
        config = self._config(_sizes(corpus))
        program = SCORES[self.score].program(config).compile(R.score, seed=seed)
        return self.module(program, words, corpus)

    def module(self, program: Model, words: int, corpus: Any) -> EmbeddingModel:
        """The module around a compiled program."""
        sampled = SCORES[self.score].sampled(self._config(_sizes(corpus)))
        return EmbeddingModel(program, sampled.compile(R.score), corpus.entities)


def _sizes(corpus: Any) -> dict[str, int]:
    return {"entities": corpus.entities, "relations": corpus.relations}


class EmbeddingModel(nn.Module):
    """Scores of queries: with every entity, or with some; both programs have the same weights."""

    def __init__(self, program: Model, sampled: Model, entities: int) -> None:
        super().__init__()
        self.program, self.entities = program, entities
        self._sampled = (sampled,)  # a tuple: its own weights are not parameters of the module

    def forward(self, batch: Batch) -> Tensor:
        """(queries, entities)."""
        out: Any = self.program(**self.inputs(batch))
        return out

    def inputs(self, batch: Batch) -> dict[str, Any]:
        """What the program reads of a batch."""
        found = {name: numbers(batch[name]) for name in ("head", "relation")}
        if "candidate" in self.program.inputs:
            every = torch.arange(self.entities, device=batch["head"].device)
            found["candidate"] = numbers(every)
        return found

    def of_candidates(self, batch: Batch, candidate: Tensor) -> Tensor:
        """(queries, candidates), of numbers of entities in that shape."""
        (sampled,) = self._sampled
        sampled.train(self.training)
        read = {name: numbers(batch[name]) for name in ("head", "relation")}
        read["candidate"] = numbers(candidate)
        weights = {**dict(self.program.named_parameters()), **dict(self.program.named_buffers())}
        out: Any = torch.func.functional_call(sampled, weights, (), read)
        return out
