"""What each rank of a run would have, send and store, before any is started."""

from __future__ import annotations

from typing import Any

from edgewise.distributed import Shards, partition_of, quality, scale
from edgewise.distributed.present import size
from edgewise.inputs.kinds import numbers
from edgewise.training.data.batches import Batch
from edgewise.training.data.graph_corpus import NODE
from edgewise.training.ranks.ways import check_ranks, token_shards
from edgewise.training.recipe import Recipe

ITEMS = {"float64": 8, "bfloat16": 2, "float16": 2}  # bytes of a number that is sent
SHOWN = 8  # ranks that are listed
STATE = ("weights", "gradients", "optimiser", "average")  # what FSDP2 shards
Memory = dict[str, int]


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
