"""Data on a partition of its nodes: every rank grounds and computes the rows of its own.

Rules are grounded relation by relation, for the rule heads of this rank alone. Which rows their
body atoms read of other ranks is known then, and these come before a rule is computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.distributed.collectives import Ranks, agreeing_ranks
from edgewise.distributed.errors import BadShards, NotDistributed
from edgewise.distributed.node_axes import refusal
from edgewise.distributed.partition import PartitionLike, check_kind, partition_of
from edgewise.distributed.rank_grounding import RankGrounding
from edgewise.distributed.rank_rules import RankRules
from edgewise.errors import EdgewiseError, caller
from edgewise.ground.index import STRINGS
from edgewise.inputs.kinds import Input, numbers, rows
from edgewise.inputs.prepare import value_lengths
from edgewise.inputs.sources import dense_source
from edgewise.module import Model
from edgewise.physical.data import Data
from edgewise.physical.output import Returned

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class PartitionedData(Data):
    """Inputs grounded on a partition of their nodes, by `model.ground(..., mesh=mesh)`.

    `nodes` are those of this rank, ascending: dense inputs and the output have a row for each of
    them. Weights are the same on all ranks; their gradients are of this rank's rows and add up over
    the ranks.

    >>> import torch
    >>> from torch import distributed as dist
    >>> from torch.distributed.device_mesh import init_device_mesh
    >>> from edgewise import Program, R, V
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
    >>> mesh = init_device_mesh("cpu", (1,))
    >>> data = model.ground(edge=[(0, 1), (1, 2)], mesh=mesh, partition="contiguous")
    >>> data.nodes.tolist(), model(data, x=torch.tensor([1.0, 2.0, 3.0])[data.nodes]).data.tolist()
    ([0, 1, 2], [1.0, 2.0])
    >>> dist.destroy_process_group()
    """

    is_partitioned = True

    def __init__(
        self, model: int, inputs: Mapping[str, Input], ranks: Ranks, partition: Tensor
    ) -> None:
        super().__init__(model, dict(inputs))
        self.partition = partition
        self.nodes = (partition == ranks.rank).nonzero()[:, 0]
        self._ranks = ranks
        self._plans: dict[Any, RankRules] = {}

    @torch.compiler.disable
    def _output(self, model: Model, inputs: Mapping[str, Any], as_rows: bool) -> Returned:
        """The output at the nodes of this rank, of dense inputs at these."""
        failure: EdgewiseError | None = None
        values, key, known = dict[str, Tensor](), None, False
        try:
            model._refuse_of_others(self)
            values = {name: self._values(name, item) for name, item in inputs.items()}
            key = _shapes(model, values)
            known = (id(model), key) in self._plans
            if not known:
                self._check(model, values)
        except EdgewiseError as error:
            failure = error
        # in every call: a rank that grounds and one that sends rows would wait for each other
        said = (key, known, torch.is_grad_enabled())
        self._ranks.agree("inputs or gradient mode", said, failure)
        with self._ranks.failures.together():
            plan = self._plans.get((id(model), key))
            if plan is None:
                grounding = RankGrounding(model, self._ranks, self.partition, self.inputs, values)
                plan = self._plans[id(model), key] = RankRules(grounding)  # which holds the model
            return plan(values, as_rows)

    def _check(self, model: Model, values: Mapping[str, Tensor]) -> None:
        model._reader.refuse_unknown(values)
        model._refuse_missing(self, values)
        for name in self.inputs.keys() & values:
            raise BadShards(f"`{name}` was grounded", caller(), "leave it out of the call")
        model._reader.read(
            {n: x if x.is_floating_point() else numbers(x) for n, x in values.items()}, model._one
        )

    def _values(self, name: str, item: Any) -> Tensor:
        x = item.values if isinstance(item, numbers) else item
        if not isinstance(x, Tensor):
            raise BadShards(
                f"`{name}` is {type(item).__name__}, not values of nodes",
                caller(),
                "relations of keys are given to `model.ground(..., mesh=mesh)`",
            )
        if not x.ndim or len(x) != len(self.nodes):
            raise BadShards(
                f"`{name}` has shape {tuple(x.shape)}, this rank has {len(self.nodes)} nodes",
                caller(),
                f"give the rows of this rank: `{name}[data.nodes]`",
            )
        return x

    @property
    def received(self) -> dict[str, int]:
        """The rows of each relation that this rank receives at every call; known after the first.

        >>> import torch
        >>> from torch import distributed as dist
        >>> from torch.distributed.device_mesh import init_device_mesh
        >>> from edgewise import Program, R, V
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
        >>> mesh = init_device_mesh("cpu", (1,))
        >>> data = model.ground(edge=[(0, 1)], mesh=mesh, partition="contiguous")
        >>> _ = model(data, x=torch.ones(2))
        >>> data.received
        {'x': 0, 'h': 0}
        >>> dist.destroy_process_group()
        """
        plan = next(reversed(self._plans.values()), None)
        return {} if plan is None else {n: halo.count for n, halo in plan.halos.items()}

    @property
    def crossing(self) -> dict[str, dict[str, int]]:
        """Rule → body atom → the rows that it reads of other ranks, where it reads any.

        >>> import torch
        >>> from torch import distributed as dist
        >>> from torch.distributed.device_mesh import init_device_mesh
        >>> from edgewise import Program, R, V
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
        >>> mesh = init_device_mesh("cpu", (1,))
        >>> data = model.ground(edge=[(0, 1)], mesh=mesh, partition="contiguous")
        >>> _ = model(data, x=torch.ones(2))
        >>> data.crossing
        {}
        >>> dist.destroy_process_group()
        """
        plan = next(reversed(self._plans.values()), None)
        return {} if plan is None else plan.crossing

    def __repr__(self) -> str:
        ranks = self._ranks
        held = (
            f"{len(self.nodes)} of {len(self.partition)} nodes, rank {ranks.rank} of {ranks.count}"
        )
        return f"<data: {', '.join(self.inputs)}; {held}>"


def _shapes(model: Model, values: Mapping[str, Tensor]) -> Any:
    """What a plan of rules is for; ranks have different numbers of rows."""
    shapes = tuple((n, tuple(t.shape[1:]), t.dtype) for n, t in sorted(values.items()))
    return shapes, model._one.dtype, str(model._one.device)


def _mark(item: Any) -> str:
    """What differs where the keys or values of a relation do."""
    held = [item.keys] if item.values is None else [item.keys, item.values]
    found = hashlib.sha256()
    for x in held:
        found.update(x.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def partitioned(
    model: Model,
    mesh: DeviceMesh,
    partition: PartitionLike | None,
    count: int | None,
    relations: Mapping[str, Any],
) -> PartitionedData:
    """The data of this rank: `relations` are of keys, the same on all ranks."""
    partition = "metis" if partition is None else partition
    ranks, elsewhere = agreeing_ranks(mesh, model._one.device)
    ranks.agree("rules", model.program.text(), elsewhere)
    failure: EdgewiseError | None = None
    rank_of, inputs = torch.zeros(0, dtype=torch.int64), dict[str, rows]()
    marks: list[tuple[str, str]] = []
    try:
        if type(model) is not Model:
            raise refusal("which groundings there are depends on values")
        read = model._reader.read_to_ground(dict(relations), model._one)
        inputs = {name: _listed(model, name, item) for name, item in read.items()}
        held = {name: item.keys for name, item in inputs.items()}
        marks = [(name, _mark(item)) for name, item in sorted(inputs.items())]
        if not isinstance(partition, Tensor):
            check_kind(partition)
        nodes = _count(partition, count, held.values())
        if ranks.rank == 0 or not isinstance(partition, str):
            rank_of = partition_of(partition, nodes, ranks.count, _pairs(held.values(), nodes))
    except EdgewiseError as error:
        failure = error
    kind = partition if isinstance(partition, str) else "given"
    ranks.agree("relations or the partition", (tuple(marks), kind, count), failure)
    first = torch.from_numpy(ranks.of_first(rank_of.numpy()))
    if not isinstance(partition, str):
        ranks.agree("the partition", rank_of.numpy().tobytes())
    return PartitionedData(model._number, inputs, ranks, first)


def _listed(model: Model, name: str, item: Input) -> rows:
    """A relation that all ranks are given, by its keys; of a dense one these are all."""
    if isinstance(item, Tensor):
        arity, lengths = model._reader.arities[name], value_lengths(model.plan, name)
        source = dense_source(name, item, arity, lengths)
        if source.batched:
            raise refusal(f"`{name}` is a batch")
        values = item.reshape(source.index.rows, *(source.shape or ()))
        item = rows.of(source.index.keys.T, values, ())
    if not isinstance(item, rows):
        raise NotDistributed(
            f"`{name}` is ragged",
            caller(),
            f"values of nodes come with a call: `model(data, {name}={name}[data.nodes])`",
        )
    if item.values is not None and item.values.requires_grad:
        raise refusal(f"the values of `{name}` are trained")
    return item


def _count(partition: PartitionLike, count: int | None, held: Iterable[Tensor]) -> int:
    """The nodes: as many as are said, or as keys and a partition show."""
    if count is None and isinstance(partition, Tensor):
        return len(partition)
    if count is None:
        numbers = [keys[keys < STRINGS] for keys in held]
        largest = [int(keys.max()) for keys in numbers if keys.numel()]
        return max(largest, default=-1) + 1
    return count


def _pairs(held: Iterable[Tensor], nodes: int) -> Tensor | None:
    """The edges that METIS cuts: of each relation the first two keys that are all nodes."""
    found = []
    for keys in held:
        columns = [c for c in keys.cpu() if not len(c) or 0 <= int(c.min()) <= int(c.max()) < nodes]
        found += [torch.stack(columns[:2])] if len(columns) > 1 else []
    return torch.cat(found, 1) if found else None
