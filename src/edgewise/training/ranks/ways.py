"""What each rank computes of a run: examples, weights, tokens or nodes.

The loss is a mean over all of a batch. A rank computes the mean over its part and weighs it by the
share of terms that it has; gradients and losses of the ranks then add up to those of one process.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.distributed import PartitionedData, Shards, on_mesh, replicated_scalars
from edgewise.distributed.errors import BadMesh, NotDistributed
from edgewise.errors import Span
from edgewise.functions import DEFINITIONS
from edgewise.functions.definition import Law
from edgewise.inputs.kinds import numbers, rows
from edgewise.language.statements import applied_functions
from edgewise.physical.weights import Layer
from edgewise.training.data.batches import Batch
from edgewise.training.data.graph_corpus import NODE
from edgewise.training.ranks.group import RankGroup
from edgewise.training.recipe import Recipe

Part = tuple[Batch | None, float]  # of a batch: what this rank computes, and its share of the loss


@dataclass(frozen=True, eq=False)
class Setup:
    """What a way of sharing reads: the model has all its weights on every rank."""

    recipe: Recipe
    corpus: Any
    model: Any
    ranks: RankGroup
    device: torch.device


class OneProcess:
    """All of a batch; `model` is what objectives call."""

    factor = 1.0  # of the loss, where gradients are averaged and not added up
    is_sharded = False  # whether no rank has all weights

    def __init__(self, setup: Setup) -> None:
        self.setup, self.ranks = setup, setup.ranks
        self.model: nn.Module = setup.model

    def part(self, batch: Batch) -> Part:
        """This rank's part of a batch; one without terms, such as masked tokens, has no share."""
        return batch, float(self.setup.recipe.objective.terms(batch) > 0)

    def reduced(self, loss: Tensor) -> Tensor:
        """The loss of all ranks; gradients are those of all after it."""
        return loss

    def measured(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
        """The batches that this rank measures, and whether they count."""
        for batch in batches:
            yield batch, True

    def _share(self, batch: Batch, part: Batch) -> float:
        terms = self.setup.recipe.objective.terms
        return terms(part) / max(terms(batch), 1)


class DataParallel(OneProcess):
    """Examples of a batch, one after another; every rank has all weights."""

    def _range(self, batch: Batch) -> tuple[int, int]:
        count = self.setup.corpus.count(batch)
        rank, ranks = self.ranks.rank, self.ranks.count
        return count * rank // ranks, count * (rank + 1) // ranks

    def part(self, batch: Batch) -> Part:
        first, last = self._range(batch)
        if first == last:  # fewer examples than ranks
            return None, 0.0
        part = self.setup.corpus.part(batch, first, last)
        return part, self._share(batch, part)

    def reduced(self, loss: Tensor) -> Tensor:
        weights = [p for p in self.setup.model.parameters() if p.requires_grad]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in weights]
        has = [float(p.grad is not None) for p in weights]
        present = torch.tensor(has, dtype=weights[0].dtype, device=weights[0].device)
        total = loss.to(weights[0].dtype, copy=True)
        self.ranks.add_up([*gradients, present, total])
        if not all(has):  # what no rank has a gradient of does not decay either
            for p, gradient, count in zip(weights, gradients, present.tolist(), strict=True):
                p.grad = gradient if count else None
        return total

    def measured(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
        for batch in islice(batches, self.ranks.rank, None, self.ranks.count):
            yield batch, True


class ShardedWeights(DataParallel):
    """Examples of a batch, and by FSDP2 a part of the weights, gradients and optimiser state.

    A forward pass gathers weights from all ranks, so that each takes as many as the others.
    """

    is_sharded = True

    def __init__(self, setup: Setup) -> None:
        from torch.distributed.fsdp import fully_shard

        # outputs are views, and nothing here writes into them
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
        super().__init__(setup)
        self.factor = float(self.ranks.count)  # FSDP2 averages
        mesh = self.ranks.mesh(setup.device)
        scalars = replicated_scalars(setup.model, mesh)
        shard = partial(fully_shard, mesh=mesh, reshard_after_forward=True, ignored_params=scalars)
        # weights of a layer are complete while it runs, others in forward and backward passes
        for layer in [one for one in setup.model.modules() if isinstance(one, Layer)]:
            shard(layer)
        shard(setup.model)

    def part(self, batch: Batch) -> Part:
        first, last = self._range(batch)
        if first < last:
            return super().part(batch)
        last = self.setup.corpus.count(batch)
        return self.setup.corpus.part(batch, last - 1, last), 0.0

    def reduced(self, loss: Tensor) -> Tensor:
        total = loss.clone()
        self.ranks.add_up([total])
        return total

    def measured(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
        """A rank that has none left in the last round measures one that does not count."""
        every = iter(batches)
        while some := list(islice(every, self.ranks.count)):
            mine = self.ranks.rank
            yield some[min(mine, len(some) - 1)], mine < len(some)


class TokenParallel(DataParallel):
    """Tokens of every text: attention exchanges keys as its graph needs them."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        context, count = setup.corpus.context, self.ranks.count
        if context < count:
            raise BadMesh(
                f"a text has {context} tokens, there are {count} ranks",
                Span.of("<recipe>", setup.recipe.path),
                "start as many ranks as tokens at most, or raise `context`",
            )
        self.shards = token_shards(setup.recipe, context, count)
        mesh = self.ranks.mesh(setup.device)
        ranked = on_mesh(setup.model.program, mesh, shards=self.shards)
        self.model = TokensOfRank(ranked, setup.model.words, context)

    def part(self, batch: Batch) -> Part:
        part = {n: self.shards.take(t, self.ranks.rank, 1) for n, t in batch.items()}
        return part, self._share(batch, part)

    def measured(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
        for batch in batches:
            part, _ = self.part(batch)
            assert part is not None
            yield part, True


def token_shards(recipe: Recipe, context: int, ranks: int) -> Shards:
    """Which tokens of a text each rank has: where all earlier ones are attended to, two pieces
    each, which is equal work for all."""
    section = recipe.json()["model"]
    return Shards(context, ranks, paired=section["kind"] == "gpt" and not section["graph"])


class TokensOfRank(nn.Module):
    """A language model on the tokens of this rank."""

    def __init__(self, ranked: nn.Module, words: int, context: int) -> None:
        super().__init__()
        self.ranked, self.words, self.context = ranked, words, context

    def forward(self, token: Tensor) -> Tensor:
        out: Tensor = self.ranked(token=numbers(token))
        return out


class NodeParallel(TokenParallel):
    """Nodes of one graph: rules receive the rows of other ranks that they read."""

    def __init__(self, setup: Setup) -> None:
        DataParallel.__init__(self, setup)
        corpus = setup.corpus
        if corpus.level != NODE:
            raise NotDistributed(
                "`graph` shares the nodes of one graph, and the labels are not of nodes",
                Span.of("<recipe>", setup.recipe.path),
                'write `shard = "ddp"`',
            )
        inputs = setup.model.inputs(corpus.of_examples(corpus.parts["train"]))
        keyed: Any = {name: item for name, item in inputs.items() if isinstance(item, rows)}
        self.data = setup.model.program.ground(
            mesh=self.ranks.mesh(setup.device),
            nodes=corpus.graphs[0].nodes,
            partition=setup.recipe.distributed.partition,
            **keyed,
        )
        dtype = next(setup.model.parameters()).dtype
        own = {n: x[self.data.nodes].to(dtype) for n, x in inputs.items() if n not in keyed}
        self.place = torch.zeros_like(self.data.partition)
        self.place[self.data.nodes] = torch.arange(len(self.data.nodes))
        self.model = NodesOfRank(setup.model.program, self.data, own, setup.model.outputs)

    def part(self, batch: Batch) -> Part:
        own = self.data.partition[batch["index"]] == self.ranks.rank
        part = {name: batch[name][own] for name in ("example", "label", "index")}
        part["index"] = self.place[part["index"]]
        return part, self._share(batch, part)


class NodesOfRank(nn.Module):
    """A graph network on the nodes of this rank: logits of some of them."""

    def __init__(
        self, program: nn.Module, data: PartitionedData, own: dict[str, Tensor], outputs: int
    ) -> None:
        super().__init__()
        self.program, self.data, self.own, self.outputs = program, data, own, outputs

    def forward(self, batch: Batch) -> Tensor:
        found: Tensor = self.program(self.data, **self.own)
        return found.reshape(-1, self.outputs)[batch["index"]]


WAYS = {"ddp": DataParallel, "fsdp2": ShardedWeights, "context": TokenParallel,
        "graph": NodeParallel}  # fmt: skip


def way_of(setup: Setup) -> OneProcess:
    """How the ranks of a run share it."""
    check_ranks(setup.recipe, setup.ranks.count)
    if setup.ranks.is_alone:
        return OneProcess(setup)
    for rule in setup.model.program.program.rules:
        for function in (*rule.functions, *applied_functions(rule.body)):
            if Law.BATCH in DEFINITIONS[function.name]:
                raise NotDistributed(
                    f"`{function.name}` is of all rows of a batch, which no rank has",
                    Span.of("<recipe>", setup.recipe.path),
                    'write `norm = "layer"`, or run one process',
                )
    return WAYS[setup.recipe.distributed.shard](setup)


def check_ranks(recipe: Recipe, started: int) -> None:
    """Refuse another number of ranks than the recipe is for."""
    wanted = recipe.distributed.ranks
    if wanted not in (0, started):
        raise BadMesh(
            f"the recipe is for {wanted} ranks, {started} {'is' if started == 1 else 'are'} there",
            Span.of("<recipe>", recipe.path),
            f"run `torchrun --nproc-per-node {wanted} -m edgewise train ...`, or leave out `ranks`",
        )
