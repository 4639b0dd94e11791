"""Made-up tasks of claims as data and an objective of recipes.

An example is a sequence and an answer at some of its tokens; every answer follows from tokens that
stand elsewhere in the sequence.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import torch
from claims.claim import Row
from claims.runs import trained
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from edgewise import training
from edgewise.graphs import Pattern, parse
from edgewise.training.data.batches import IGNORED
from edgewise.training.models.language import Encoder
from edgewise.training.objectives.objective import Average, Objective
from edgewise.training.randomness import generator
from edgewise.training.recipe import KINDS
from edgewise.training.schema import number, one_of

HELD_OUT = 1 << 20  # the first step of examples that are not trained on


@dataclass(frozen=True, kw_only=True)
class SequenceData:
    """`needle`: each token says which of `values` stands somewhere among noise.

    `motifs`: 64 codons of DNA. One of two enhancers, of three codons, stands in the first half, one
    of two promoters in the last quarter, whose tokens say which of the four pairs it is.
    """

    task: str = one_of("needle", "needle", "motifs")
    context: int = number(least=8)
    values: int = number(8, least=2)
    noise: int = number(4, least=1)
    examples: int = number(256, least=1)  # for validation

    def read(self, folder: Path, tokenizer: Any = None) -> "SequenceCorpus":
        return SequenceCorpus(self)


class SequenceCorpus:
    tokenizer = None
    tokens: ClassVar[dict[str, int]] = {}
    parts: ClassVar[tuple[str, ...]] = ("train", "validation")
    fingerprint = "made up"

    def __init__(self, how: SequenceData) -> None:
        self.how, self.context = how, how.context
        self.words = how.values + how.noise if how.task == "needle" else 64

    @property
    def sizes(self) -> dict[str, int]:
        return {"words": self.words, "context": self.context}

    def batch(self, size: int, seed: int, step: int) -> dict[str, Tensor]:
        draws = generator(seed, "batch", step)
        return (self.needle if self.how.task == "needle" else self.motifs)(size, draws)

    def validation(self, size: int, part: str = "validation") -> Iterator[dict[str, Tensor]]:
        for at in range(0, self.how.examples, size):
            yield self.batch(min(size, self.how.examples - at), 0, HELD_OUT + at)

    def needle(self, size: int, draws: torch.Generator) -> dict[str, Tensor]:
        shape, values = (size, self.context), self.how.values
        token = values + torch.randint(self.how.noise, shape, generator=draws)
        value = torch.randint(values, (size, 1), generator=draws)
        place = torch.randint(self.context, (size, 1), generator=draws)
        answer = value.expand(shape).clone().scatter_(1, place, IGNORED)  # itself it knows
        return {"token": token.scatter_(1, place, value), "answer": answer, "place": place}

    def motifs(self, size: int, draws: torch.Generator) -> dict[str, Tensor]:
        n, long = self.context, 3
        noise = self.words - 4 * long
        token = torch.randint(noise, (size, n), generator=draws)
        enhancer, promoter = torch.randint(2, (2, size, 1), generator=draws)
        far = torch.randint(n // 2 - long, (size, 1), generator=draws)
        near = torch.randint(n - n // 4, n - long, (size, 1), generator=draws)
        for k in range(long):
            token.scatter_(1, far + k, noise + long * enhancer + k)
            token.scatter_(1, near + k, noise + 2 * long + long * promoter + k)
        answer = torch.full((size, n), IGNORED)
        answer[:, n - n // 4 :] = 2 * enhancer + promoter
        return {"token": token, "answer": answer, "place": far}


@lru_cache
def hops_of(graph: str, n: int, most: int = 8) -> Tensor:
    """The layers that a query at i needs to know a key at j, at most `most`: (n, n)."""
    pattern = parse(graph)
    assert isinstance(pattern, Pattern)
    step = (pattern.dense(n) | torch.eye(n, dtype=torch.bool)).float()
    reach, found = torch.eye(n), torch.full((n, n), most)
    for hop in range(1, most):
        reach = (step @ reach).clamp(max=1)
        found = torch.where((reach > 0) & (found == most), hop, found)
    return found


@dataclass(frozen=True)
class Answers(Objective):
    """-log p(answer | sequence), the mean over the tokens that have one; measured by accuracy.

    With a `graph`, accuracy is measured by the hops from the token to where the answer stands too.
    """

    graph: str = ""
    task: ClassVar = "embed"
    data: ClassVar = (SequenceData,)
    model: ClassVar = (Encoder,)

    def terms(self, batch: dict[str, Tensor]) -> int:
        return int((batch["answer"] != IGNORED).sum())

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        logits, answer = model(batch["token"]).flatten(0, 1), batch["answer"].flatten()
        return cross_entropy(logits, answer, ignore_index=IGNORED)

    def measure(self, model: nn.Module, batch: dict[str, Tensor], found: Average) -> None:
        logits, answer = model(batch["token"]).flatten(0, 1).float(), batch["answer"].flatten()
        asked = answer != IGNORED
        found.add("loss", cross_entropy(logits[asked], answer[asked]), int(asked.sum()))
        right = logits.argmax(1)[asked] == answer[asked]
        found.add("accuracy", right.float().mean(), len(right))
        if self.graph:
            hops = hops_of(self.graph, batch["token"].shape[1]).T[batch["place"][:, 0]]
            hops = hops.flatten()[asked]
            for hop in hops.unique().tolist():
                at = right[hops == hop]
                found.add(f"accuracy at {hop}", at.float().mean(), len(at))


KINDS["data"]["sequences"] = SequenceData
KINDS["objective"]["answers"] = Answers

RECIPE = """
[data]
kind = "sequences"
context = 128

[model]
kind = "encoder"
layers = 3
heads = 2
size = 32
hidden = 64
positions = "none"

[objective]
kind = "answers"

[training]
steps = 400
batch = 16
rate = 3e-3
weight_decay = 0.0
"""


def task_sweep(
    graphs: dict[str, str], settings: Sequence[str], seeds: Sequence[int], *, hops: bool = False
) -> list[Row]:
    """A row for each graph and seed of a made-up task; `{seed}` in a graph is the run's."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.toml"
        path.write_text(RECIPE)
        for name, text in graphs.items():
            for seed in seeds:
                graph = text.format(seed=seed)
                own = [f"model.graph={graph}", f"training.seed={seed}"]
                own += [f"objective.graph={graph}"] if hops else []
                run = trained(training.load(path, [*settings, *own]), data=Path(folder))
                kept = {"variant": name, "graph": graph, "seed": seed, "pairs": run["pairs"]}
                kept |= {k.removeprefix("validation "): v for k, v in run.items() if "vali" in k}
                rows.append(kept)
                print(kept, flush=True)
    return rows
