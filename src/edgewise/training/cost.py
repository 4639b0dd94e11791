"""What a run will cost: weights, FLOPs, memory, and what ranks send, before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.distributed import Shards, partition_of, quality, scale
from edgewise.distributed.present import size
from edgewise.inputs.kinds import numbers
from edgewise.training.data.batches import Batch
from edgewise.training.data.graph_corpus import NODE
from edgewise.training.randomness import seed_of
from edgewise.training.ranks.group import started_ranks
from edgewise.training.ranks.ways import check_ranks, token_shards
from edgewise.training.recipe import Recipe, check_recipe
from edgewise.training.runs.folder import data_folder
from edgewise.zoo.layers import AGGREGATED

BACKWARD = 2  # gradients of inputs and of weights cost as much as the forward pass, each
MOMENTS = 2  # of AdamW
ITEMS = {"float64": 8, "bfloat16": 2, "float16": 2}  # bytes of a number that is sent
SHOWN = 8  # ranks that are listed
STATE = ("weights", "gradients", "optimiser", "average")  # what FSDP2 shards
Memory = dict[str, int]
COST = "cost.json"  # of a run: weights, FLOPs of a step, pairs of attention


@dataclass(frozen=True)
class Estimate:
    """Numbers of a run: FLOPs of a step are 3 × those of the forward passes of its batch.

    `memory` is in bytes: weights, gradients, optimiser, average and activations, which are what
    autograd stores in a forward pass. `plan` says what each of several ranks has and sends;
    `memory` is that of the rank with most.

    >>> from edgewise import training
    >>> recipe = training.load("recipe.toml")
    >>> found = training.estimate(recipe)
    >>> found.parameters > 0, sorted(found.memory)
    (True, ['activations', 'average', 'gradients', 'optimiser', 'weights'])
    """

    parameters: int
    words: int
    steps: int
    step_flops: float
    memory: dict[str, int]
    plan: tuple[str, ...] = ()

    @property
    def flops(self) -> float:
        return self.steps * self.step_flops


def estimate(recipe: Recipe, *, data: str | Path | None = None) -> Estimate:
    """The cost of a recipe on its data; the model is built, and run on two examples.

    >>> from edgewise import training
    >>> recipe = training.load("recipe.toml")
    >>> training.estimate(recipe).steps
    2
    """
    check_recipe(recipe)
    corpus = recipe.data.read(data_folder(recipe.path, data))
    how, words = recipe.training, recipe.objective.words(corpus)
    model: Any = recipe.model.build(words, corpus, seed_of(how.seed, "weights"))
    batch = recipe.objective.drawn(corpus.batch(how.batch, how.seed, 0), corpus, 0)
    rows = len(next(iter(batch.values())))
    two = _first(corpus, batch)
    count = len(next(iter(two.values())))
    parameters = sum(p.numel() for p in model.parameters())
    weights = (8 if how.precision == "float64" else 4) * parameters
    activations = stored_bytes(recipe, model, two) * rows // count
    if how.precision in ("bfloat16", "float16"):
        activations //= 2
    memory = {
        "weights": weights,
        "gradients": weights,
        "optimiser": MOMENTS * weights,
        "average": weights if how.ema else 0,
        "activations": activations,
    }
    ranks = started_ranks() if started_ranks() > 1 else max(recipe.distributed.ranks, 1)
    plan, memory = rank_plan(recipe, ranks, corpus, model, batch, memory)
    return Estimate(
        parameters=parameters,
        words=words,
        steps=how.steps,
        step_flops=_step_flops(recipe, forward_work(recipe, model, two)["flops"], rows / count),
        memory=memory,
        plan=plan,
    )


def _first(corpus: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Two examples of a batch, or what the corpus says is the smallest part of it."""
    if hasattr(corpus, "first"):
        found: dict[str, Tensor] = corpus.first(batch)
        return found
    return {name: tensor[:2] for name, tensor in batch.items()}


def _step_flops(recipe: Recipe, forward: int, times: float) -> float:
    return (1 + BACKWARD) * forward * times * recipe.training.accumulate


def recorded(recipe: Recipe, model: Any, corpus: Any, device: torch.device) -> dict[str, Any]:
    """What a run writes about its cost, from two examples of its first batch."""
    how = recipe.training
    batch = recipe.objective.drawn(corpus.batch(how.batch, how.seed, 0), corpus, 0)
    rows = len(next(iter(batch.values())))
    some = _first(corpus, batch)
    moved = getattr(corpus, "moved", some)
    some = {name: t.to(device) if name in moved else t for name, t in some.items()}
    work = forward_work(recipe, model, some)
    count = len(next(iter(some.values())))
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "step_flops": _step_flops(recipe, work["flops"], rows / count),
        "pairs": work["pairs"],
    }


def forward_work(recipe: Recipe, model: Any, batch: dict[str, Tensor]) -> dict[str, int]:
    """The FLOPs of a forward pass and the pairs of a text that attend, in all layers and heads."""
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    hook = model.program.register_forward_pre_hook(
        lambda module, args, inputs: seen.append((args, inputs)), with_kwargs=True
    )
    with torch.no_grad():
        recipe.objective.loss(model.eval(), batch)
    hook.remove()
    shown = [
        model.program.explain(*args, **inputs, stage="kernels").to_json() for args, inputs in seen
    ]
    relations = [relation for one in shown for relation in one["kernels"]["relations"]]
    return {
        "flops": sum(int(one["kernels"]["total"]["flops"]) for one in shown),
        "pairs": sum(
            _pairs(one["relation"], step, len(next(iter(batch.values()))))
            for one in relations
            for step in one["steps"]
        ),
    }


def _pairs(relation: str, step: dict[str, Any], samples: int) -> int:
    """Pairs of attention in one sample, or of values that are aggregated without scores."""
    if "pairs" in step:
        return int(step["pairs"]) // samples
    return int(step["groundings"]) if relation.endswith(AGGREGATED) else 0


def stored_bytes(recipe: Recipe, model: nn.Module, batch: dict[str, Tensor]) -> int:
    """The bytes that autograd stores for the backward pass, weights not included."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    stored: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in weights:
            stored[memory.data_ptr()] = memory.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        loss = recipe.objective.loss(model.train(), batch)
    del loss
    return sum(stored.values())


def rank_plan(
    recipe: Recipe, ranks: int, corpus: Any, model: Any, batch: Batch, memory: Memory
) -> tuple[tuple[str, ...], Memory]:
    """Lines about the ranks, and the memory of the one with most."""
    check_ranks(recipe, ranks)
    if ranks == 1:
        return (), memory
    lines, shares = _parts(recipe, ranks, corpus, model, batch, memory["gradients"])
    part = max(shares) / max(sum(shares), 1)
    found = memory | {"activations": int(memory["activations"] * part)}
    if recipe.distributed.shard == "fsdp2":
        found |= {name: -(-memory[name] // ranks) for name in STATE}
    return tuple(lines), found


def _parts(
    recipe: Recipe, ranks: int, corpus: Any, model: Any, batch: Batch, weights: int
) -> tuple[list[str], list[int]]:
    """The lines, and how much of the work each rank has; `weights` is in bytes."""
    shard = recipe.distributed.shard
    title = f"{ranks} ranks, {shard}:"
    if shard == "context":
        shards = token_shards(recipe, corpus.context, ranks)
        found = scale(
            model.program,
            tokens=corpus.context,
            ranks=ranks,
            itemsize=ITEMS.get(recipe.training.precision, 4),
            token=numbers(batch["token"]),
        )
        sent = f"attention receives {size(found.received)} in a forward pass, {_reduced(weights)}"
        shares = [shards.count(rank) for rank in range(ranks)]
        return [f"{title} tokens of a text {_listed(shares)}; {sent}"], shares
    if shard == "graph" and corpus.level == NODE:
        edge, nodes = corpus.graphs[0].edge, corpus.graphs[0].nodes
        partition = partition_of(recipe.distributed.partition, nodes, ranks, edge)
        cut = quality(partition, edge.flip(0), ranks)
        shares = [int((partition == rank).sum()) for rank in range(ranks)]
        sent = f"at most {cut.halo} rows of others for each hop, {cut.cut:.0%} of the edges cut"
        return [f"{title} nodes {_listed(shares)}; {sent}; {_reduced(weights)}"], shares
    shares = [Shards(corpus.count(batch), ranks).count(rank) for rank in range(ranks)]
    sent = _reduced(weights)
    if shard == "fsdp2":
        sent = f"{size(weights)} of weights are gathered in each pass, gradients are scattered"
    return [f"{title} examples of a batch {_listed(shares)}; {sent}"], shares


def _reduced(weights: int) -> str:
    return f"{size(weights)} of gradients are added up in each step"


def _listed(shares: list[int]) -> str:
    """How much each rank has.

    >>> _listed([3, 2, 2])
    '3 + 2 + 2'
    """
    more = " + ..." if len(shares) > SHOWN else ""
    return " + ".join(map(str, shares[:SHOWN])) + more
