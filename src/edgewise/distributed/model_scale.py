"""What a model would need on many ranks: memory, bytes and time, computed and not measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.distributed.attention import row_sizes
from edgewise.distributed.collectives import ranks_of
from edgewise.distributed.errors import BadShards, NotDistributed
from edgewise.distributed.present import BANDWIDTHS, seconds, size, table
from edgewise.distributed.rank_model import RankCache, output_rows, rank_call, tables_on, token_axes
from edgewise.distributed.shards import Shards
from edgewise.distributed.simulate import Communication, communication
from edgewise.distributed.traffic import RowSizes
from edgewise.errors import caller
from edgewise.graphs.checks import integer
from edgewise.graphs.pattern import Pattern
from edgewise.grow.axes import CannotGrow
from edgewise.grow.cache import PositionTables
from edgewise.grow.plan import IncrementalPlan, position_tables
from edgewise.inputs.kinds import InputLike
from edgewise.module import Model
from edgewise.physical.attention.step import AttentionStep
from edgewise.physical.data import Data

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True, eq=False)
class ModelScale:
    """The plans of a model's attentions, how many have each, and the bytes of its weights.

    >>> import torch
    >>> from edgewise import R, distributed, numbers, zoo
    >>> config = zoo.gpt2.Config(vocabulary=9, size=8, heads=2, hidden=8, layers=1, length=64)
    >>> model = zoo.gpt2.program(config).compile(R.logits, seed=0)
    >>> found = distributed.scale(model, tokens=64, ranks=4, token=numbers(torch.arange(8)))
    >>> found.ranks, found.received > 0, found.to_json()["tokens"], "64" in found.show()
    (4, True, 64, True)
    >>> found.received_back == found.received, found.memory > found.weights  # on the worst rank
    (True, True)
    """

    tokens: int
    ranks: int
    attentions: list[tuple[str, int, Communication]]
    weights: int

    @property
    def received(self) -> int:
        """Bytes that the worst rank receives in a forward pass."""
        return sum(count * found.worst for _, count, found in self.attentions)

    @property
    def received_back(self) -> int:
        """The same in a backward pass."""
        return sum(count * found.worst_back for _, count, found in self.attentions)

    def to_json(self) -> dict[str, Any]:
        """Everything as numbers and strings."""
        each = [
            {"relation": name, "count": count, **found.to_json()}
            for name, count, found in self.attentions
        ]
        return {
            "tokens": self.tokens,
            "ranks": self.ranks,
            "attentions": each,
            "weights": self.weights,
            "memory": self.memory,
            "received": self.received,
            "received_back": self.received_back,
        }

    @property
    def memory(self) -> int:
        """Bytes on the worst rank: weights, and of every attention what a backward pass reads."""
        return self.weights + sum(count * found.memory for _, count, found in self.attentions)

    def show(self, *bandwidths: float) -> str:
        """As text, with the times at this many bytes a second, 50e9 unless given."""
        return shown(self.to_json(), bandwidths or BANDWIDTHS)

    def __repr__(self) -> str:
        return self.show()


def shown(scale: Mapping[str, Any], bandwidths: Sequence[float] = BANDWIDTHS) -> str:
    """The plans of a model as text, from their JSON."""
    lines = [f"weights {size(scale['weights'])} on each rank, or a share of it by FSDP"]
    for one in scale["attentions"]:
        name, count = one["relation"], one["count"]
        title = name if count == 1 else f"{name} and {count - 1} more like it"
        lines += ["", title, *(f"  {line}" for line in table(one, bandwidths))]
    lines.append("")
    for name, count in (("receives", scale["received"]), ("backward", scale["received_back"])):
        times = ", ".join(f"{seconds(count / rate)} at {rate / 1e9:g} GB/s" for rate in bandwidths)
        lines.append(f"all attentions, worst rank: {name} {size(count)}, {times}")
    memory = size(scale["memory"])
    lines.append(
        f"weights and what attentions keep for a backward pass: {memory} on the worst rank"
    )
    return "\n".join([*lines, "computed, not measured"])


def scale(
    model: Model, *, tokens: int, ranks: int, itemsize: int = 2, **inputs: InputLike
) -> ModelScale:
    """What a model would send on this many ranks; `inputs` are those of some tokens, whatever their
    number. Models and inputs on the meta device hold no numbers, and nothing is computed.

    `itemsize` is the bytes of a number: 2 for bfloat16.

    >>> import torch
    >>> from edgewise import R, distributed, numbers, zoo
    >>> config = zoo.gpt2.Config(vocabulary=9, size=8, heads=2, hidden=8, layers=1, length=64)
    >>> model = zoo.gpt2.program(config).compile(R.logits, seed=0)
    >>> distributed.scale(model, tokens=64, ranks=4, token=numbers(torch.arange(8))).received
    1536
    """
    home = Shards(integer(tokens, "tokens"), integer(ranks, "ranks", 1))
    return plans_of_model(model, home, None, inputs, itemsize)


def plans_of_model(
    model: Model,
    home: Shards,
    data: Data | None,
    inputs: Mapping[str, Any],
    itemsize: int | None = None,
) -> ModelScale:
    """The plans of a model's attentions where ranks have tokens as `home` says; numbers have the
    precision of the model, or this many bytes."""
    counts: Counter[tuple[Pattern, RowSizes]] = Counter()
    names: dict[tuple[Pattern, RowSizes], str] = {}
    for name, graph, sizes in attention_calls(model, data, inputs):
        if itemsize is not None:
            sizes = replace(sizes, itemsize=itemsize, wide=max(itemsize, 4))
        key = (graph, sizes)
        names.setdefault(key, name)
        counts[key] += 1
    found = [
        (names[key], count, communication(key[0], sizes=key[1], shards=home))
        for key, count in counts.items()
    ]
    size = model._one.element_size() if itemsize is None else itemsize
    weights = sum(p.numel() for p in model.parameters()) * size
    return ModelScale(home.n, home.ranks, found, weights)


def explained(
    model: Model, mesh: DeviceMesh | Shards | int, data: Data | None, inputs: Mapping[str, Any]
) -> ModelScale:
    """The plans of `model.explain(mesh=...)`, whose inputs are those of one process: for as many
    tokens as these have, or as `Shards` say, on one axis of a mesh or any number of ranks."""
    if isinstance(mesh, Shards):
        return plans_of_model(model, mesh, data, inputs)
    if isinstance(mesh, int):
        ranks = integer(mesh, "mesh", 1)
    else:
        ranks = ranks_of(mesh, model._one.device).count
    if not inputs:
        raise BadShards(
            "without inputs there are no tokens to share",
            caller(),
            f"give the inputs as well: `model.explain(mesh={ranks}, x=...)`",
        )
    step, _ = model._resolved(data, inputs)
    rows = step.executable.sources[next(iter(inputs))].index.length(0)
    return plans_of_model(model, Shards(rows, ranks), data, inputs)


class _Recorder(RankCache):
    """In the place of attention on ranks: which calls there are."""

    def __init__(self, tables: PositionTables, relations: set[str]) -> None:
        super().__init__(None, Shards(0, 1), tables, 1 << 16)  # type: ignore[arg-type]
        self.relations = relations
        self.calls: list[tuple[str, Pattern, RowSizes]] = []

    def attend(
        self,
        step: AttentionStep,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        tables: list[Tensor],
    ) -> Tensor:
        lead = q.shape[:-1]
        (q, k, v), graph, _, of_heads = rank_call(step, q, k, v, bias, tables)
        own = any(x.shape[:-1].numel() > 1 for x in of_heads)  # a rank would have those of others
        sizes = row_sizes(q, k, v, by_heads=not own and not (self.training and step.node.dropout))
        self.calls.append((step.node.head.relation, graph, sizes))
        return q.new_zeros(*lead, v.shape[-1])


def attention_calls(
    model: Model, data: Data | None, inputs: Mapping[str, Any]
) -> list[tuple[str, Pattern, RowSizes]]:
    """The attentions among tokens of a model: relation, graph and the sizes of a row of each."""
    step, values = model._resolved(data, inputs)
    rows = step.executable.sources[next(iter(inputs))].index.length(0)
    try:
        axes = token_axes(step, inputs)
        tables = position_tables(step, axes, rows, model.limit)
    except CannotGrow as error:
        raise NotDistributed(
            f"tokens of different ranks meet outside of attention: {error.message}",
            error.place or caller(),
            "scale a model in which tokens meet in attention alone",
        ) from None
    unit, weights = model._one, model._weights()
    moved = tables_on(unit.device, tables)
    recorder = _Recorder(moved, axes.cached)
    recorder.training = model.training
    plan = IncrementalPlan(step, axes, moved, unit, False)
    with torch.no_grad():
        positions = torch.arange(rows, device=unit.device)
        output_rows(plan, values, weights, positions, recorder)
    return recorder.calls
