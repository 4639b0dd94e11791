"""A compiled model on a partition of its nodes: each rank computes the rows of its own.

Grounding is that of one process, on every rank; values and gradients are not. Every rule knows
which rows its body atoms read: those of other ranks come before it is computed, layer by layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never

import numpy as np
import torch
from torch import Tensor

from edgewise.distributed.collectives import Ranks, ranks_of
from edgewise.distributed.errors import BadShards, NotDistributed, not_compiled
from edgewise.distributed.halo import Halo, halo_of, tied, with_halo
from edgewise.distributed.partition import PartitionLike, partition_of
from edgewise.errors import EdgewiseError, caller
from edgewise.ground.embeddings import with_stacks
from edgewise.ground.index import Index
from edgewise.ground.source import Source
from edgewise.inputs.kinds import InputLike, dense, numbers, rows
from edgewise.language import nodes
from edgewise.language.statements import atoms
from edgewise.module import Model
from edgewise.physical.demand.need import Need, keys_at, source_at
from edgewise.physical.demand.partial_grounding import GroundedPlan, ground_all
from edgewise.physical.demand.smaller_plan import RelationIndex
from edgewise.physical.lowering import Lowering, to_device
from edgewise.physical.lowering_state import Column, State
from edgewise.physical.plan import PhysicalPlan, lowered, untraced
from edgewise.physical.prepare import GroundingMode, _grounding
from edgewise.physical.step import RelationStep

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class PartitionedModel(torch.nn.Module):
    """A model whose inputs of nodes are the rows of this rank, and so is its output.

    `nodes` are those of this rank, ascending: inputs and the output have a row for each of them, or
    as many as the relation has for it. Weights are the same on all ranks; their gradients are of
    this rank's rows and add up over the ranks.

    >>> import torch
    >>> from torch import distributed as dist
    >>> from torch.distributed.device_mesh import init_device_mesh
    >>> from edgewise import Program, R, V, distributed
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h, fill=0.0)
    >>> mesh = init_device_mesh("cpu", (1,))
    >>> part = distributed.partitioned(
    ...     model, mesh, nodes=3, partition="contiguous", edge=[(0, 1), (1, 2)]
    ... )
    >>> part.nodes.tolist(), part.received, part(x=torch.tensor([1.0, 2.0, 3.0])).shape
    ([0, 1, 2], {}, torch.Size([2]))
    >>> dist.destroy_process_group()
    """

    def __init__(
        self, model: Model, ranks: Ranks, partition: Tensor, inputs: dict[str, Any]
    ) -> None:
        super().__init__()
        self.model, self.partition = model, partition
        self.nodes = (partition == ranks.rank).nonzero()[:, 0]
        self._ranks, self._inputs = ranks, inputs
        self._built: dict[Any, _RankSteps] = {}

    def forward(self, *unnamed: Never, **inputs: InputLike) -> Tensor:
        """The output at the nodes of this rank, of inputs at these."""
        model = self.model
        if unnamed:
            raise model._reader.unnamed(type(unnamed[0]).__name__)
        tensors = {name: _values(name, item) for name, item in inputs.items()}
        shapes = tuple((n, tuple(t.shape[1:]), t.dtype) for n, t in sorted(tensors.items()))
        key = (shapes, model.training, model._one.dtype)
        if key not in self._built:
            failure: EdgewiseError | None = None
            try:
                self._check(tensors)
                found = _RankSteps(self, tensors)
            except EdgewiseError as error:
                failure = error
            self._ranks.agree("rules or inputs", (model.program.text(), key), failure)
            found.exchange_needs()
            self._built[key] = found
        self._check(tensors)
        out: Tensor = self._built[key](tensors)
        return out

    def _check(self, tensors: Mapping[str, Tensor]) -> None:
        for name, x in tensors.items():
            if not x.ndim or len(x) != len(self.nodes):
                raise BadShards(
                    f"`{name}` has shape {tuple(x.shape)}, this rank has {len(self.nodes)} nodes",
                    caller(),
                    "give the rows of this rank: `x[partitioned.nodes]`",
                )

    @property
    def received(self) -> dict[str, int]:
        """The rows of each relation that this rank receives at every call."""
        steps = next(reversed(self._built.values()), None)
        return {} if steps is None else {n: halo.count for n, halo in steps.halos.items()}


def _values(name: str, item: Any) -> Tensor:
    values = item.values if isinstance(item, numbers) else item
    if not isinstance(values, Tensor):
        raise BadShards(
            f"`{name}` is {type(item).__name__}, not values of nodes",
            caller(),
            "relations of keys are given when the model is partitioned",
        )
    return values


class _RankSteps:
    """The rules of this rank for inputs of some shapes, and the rows that they read."""

    def __init__(self, owner: PartitionedModel, tensors: Mapping[str, Tensor]) -> None:
        self.owner, self.model, self.ranks = owner, owner.model, owner._ranks
        self.dense = tuple(tensors)
        found = self._grounded(tensors)
        self.executable, self.prepared = found.executable, found.prepared
        self.sizes = found.demand.sizes
        self.output = self.model.plan.outputs[0].relation
        if len(self.model.plan.outputs) != 1:
            raise _refusal("the model has several outputs")
        self.axes = node_axes(self.prepared.plan.rules, self.dense, self._pairs_of_nodes())
        self.owners = {n: self._owner(n, i) for n, i in self._derived().items()}
        self.need, taken = Need(self.sizes), []
        for index in reversed(found.demand.steps):
            if not isinstance(index, RelationIndex):
                raise _refusal("its rules are recursive")
            taken.append(self._taken(index))
        self.facts = {one.index.step.relation: one.facts for one in taken if one.facts is not None}
        steps = [one.built(self.need) for one in reversed(taken)]
        self.steps: list[RelationStep] = to_device(steps, self.model._one.device)
        self.halos: dict[str, Halo] = {}
        self.plan: PhysicalPlan | None = None

    def _grounded(self, tensors: Mapping[str, Tensor]) -> GroundedPlan:
        """All rules on all nodes, as one process grounds them."""
        model, nodes = self.model, len(self.owner.partition)
        data = model._data(None, self.owner._inputs)
        read: dict[str, Any] = {}
        for name, x in tensors.items():
            every = torch.empty(nodes, *x.shape[1:], dtype=x.dtype, device="meta")
            read[name] = every if x.is_floating_point() else numbers(every)
        shapes = tuple((n, tuple(t.shape)) for n, t in dense(read).items())
        model._refuse_missing(data, [name for name, _ in shapes])
        unit = model._one
        with untraced():
            how = GroundingMode(lift=False, in_parts=True)
            return ground_all(*_grounding(model, data, shapes, unit.dtype, unit.device, how))

    def _pairs_of_nodes(self) -> dict[str, int]:
        """The relations of keys that were given, all of whose keys are nodes."""
        found = self.executable.sources
        return {n: found[n].index.arity for n in self.owner._inputs if n in found}

    def _derived(self) -> dict[str, Index]:
        """The relations that ranks compute or are given in part."""
        steps = self.executable.steps
        derived = {one.relation for one in steps if isinstance(one, RelationStep)}
        every = {n: i for n, i in self.executable.relations.items() if n in derived}
        return every | {n: self.executable.sources[n].index for n in self.dense}

    def _owner(self, name: str, index: Index) -> np.ndarray | None:
        """The rank of each row of a relation: that of its node; None where all ranks have all."""
        axis = self.axes.get(name)
        if axis is None:
            return None
        keys = keys_at(index, torch.arange(index.rows))[:, axis]
        nodes = len(self.owner.partition)
        if len(keys) and (int(keys.min()) < 0 or int(keys.max()) >= nodes):
            raise _refusal(f"a key of `{name}` is not one of the {nodes} nodes")
        found: np.ndarray = self.owner.partition[keys].numpy()
        return found

    def own(self, name: str) -> Tensor:
        owner = self.owners[name]
        if owner is None:
            return torch.arange(self.sizes[name])
        return torch.from_numpy(np.flatnonzero(owner == self.ranks.rank))

    def _taken(self, index: RelationIndex) -> Any:
        """The rules behind the own rows of a relation, of the first if there are none, which shows
        the shape of a value; what they read is noted."""
        one, name = Need(self.sizes), index.step.relation
        own = self.own(name)
        one.add(name, own if len(own) else torch.zeros(1, dtype=torch.int64))
        found = index.taken(one, None)
        for relation, several in one.rows.items():
            self.need.rows.setdefault(relation, []).extend(several)
        return found

    def exchange_needs(self) -> None:
        """Tell the other ranks which rows are read, relation by relation."""
        order = [*self.dense, *(step.relation for step in self.steps)]
        for name in order:
            read, own, owner = self.need.of(name).numpy(), self.own(name).numpy(), self.owners[name]
            if owner is not None:
                self.halos[name] = halo_of(self.ranks, owner, read, own)

    def _own_rows(self, name: str, column: Column) -> Column:
        """As many rows as the rank has: one may stand for all, or be there for its shape alone."""
        count = len(self.own(name))
        return Column(column.expanded(max(count, 1)).data[:, :count])

    def _with_halo(self, name: str, column: Column, sent: list[Tensor]) -> Column:
        own = column.data
        if name not in self.halos:  # all ranks have all rows
            return Column(own.index_select(1, self.need.of(name).to(own.device)))
        found = with_halo(own, self.halos[name])
        sent.append(found)
        return Column(found)

    def run(self, lowering: Lowering, tensors: Mapping[str, Tensor], weights: Any) -> Tensor:
        unit, sent = self.model._one, list[Tensor]()
        columns: dict[str, Column] = {}
        for name, source in self.executable.sources.items():
            columns[name] = self._source(name, source, lowering, tensors, weights, sent)
        integers = {n: c for n, c in columns.items() if not c.data.is_floating_point()}
        columns |= {n: Column(c.data.to(unit.dtype)) for n, c in integers.items()}
        held = with_stacks(weights, self.prepared.stacks)
        state = State(
            columns, held, self.model.training, unit.dtype, unit.device, lowering, numbers=integers
        )
        out: Column | None = None
        for step in self.steps:
            found = self._own_rows(step.relation, step(state)[step.relation])
            out = found if step.relation == self.output else out
            state.relations[step.relation] = self._with_halo(step.relation, found, sent)
        assert out is not None
        return tied(out.data, sent)

    def _source(
        self,
        name: str,
        source: Source,
        lowering: Lowering,
        tensors: Mapping[str, Tensor],
        weights: Any,
        sent: list[Tensor],
    ) -> Column:
        if name in tensors:
            own = tensors[name].reshape(1, len(self.own(name)), *source.shape)
            return self._with_halo(name, Column(own), sent)
        rows_ = self.facts.get(name)
        rows_ = self.need.of(name) if rows_ is None else rows_
        some, taken = source_at(source, rows_)
        data = some.data(None, weights, self.model._one.dtype)
        return Column(lowering.lifted(data.to(self.model._one.device))).take(taken)

    def __call__(self, tensors: Mapping[str, Tensor]) -> Tensor:
        weights, unit = self.model._weights(), self.model._one
        values = [*tensors.values(), *weights.values()]

        def run(lowering: Lowering, symbols: Any) -> Tensor:
            inputs = dict(zip(tensors, symbols, strict=False))
            held = dict(zip(weights, symbols[len(tensors) :], strict=True))
            return self.run(lowering, inputs, held)

        if self.plan is None or not self.plan.fits(values):
            with untraced():
                names = (*tensors, *weights)
                self.plan = lowered(run, names, values, unit.device, without=self.model.without)
        out: Tensor = self.plan(*values)
        return out[0]


def node_axes(
    rules: Sequence[nodes.Rule], inputs: Iterable[str], pairs: Mapping[str, int]
) -> dict[str, int]:
    """Relation → which of its keys is the node that decides its rank: of inputs the first, of rule
    heads the first variable that is a node in the body; relations without one are on all ranks."""
    axes = dict.fromkeys(inputs, 0)
    for rule in rules:
        known: set[str] = set()
        for atom in atoms(rule.body):
            if not isinstance(atom, nodes.Atom):
                continue
            places = list(range(pairs.get(atom.relation, 0)))
            if atom.relation in axes:
                places = [axes[atom.relation]]
            terms = [atom.terms[at] for at in places]
            known |= {term.name for term in terms if isinstance(term, nodes.Variable)}
        names = [v.name if isinstance(v, nodes.Variable) else None for v in rule.head.terms]
        found = [at for at, name in enumerate(names) if name in known]
        if known and not found:
            raise _refusal(f"`{rule.head.relation}` is computed from all nodes")
        if found and axes.setdefault(rule.head.relation, found[0]) not in found:
            raise _refusal(f"`{rule.head.relation}` has nodes in different places")
    return axes


def _refusal(what: str) -> NotDistributed:
    return NotDistributed(
        f"the model cannot be partitioned: {what}",
        caller(),
        "what is one for all nodes is computed from the outputs of all ranks, or on one process",
    )


def partitioned(
    model: Model,
    mesh: DeviceMesh,
    *,
    nodes: int,
    partition: PartitionLike = "metis",
    edges: str | None = None,
    **inputs: InputLike,
) -> PartitionedModel:
    """A compiled model on a partition of its nodes over one axis of a mesh.

    `inputs` are relations of keys, the same on all ranks. `partition` is "metis", "contiguous" or a
    rank for each node; METIS cuts the relation `edges`, the first of pairs if none is named.

    >>> import torch
    >>> from torch import distributed as dist
    >>> from torch.distributed.device_mesh import init_device_mesh
    >>> from edgewise import Program, R, V, distributed
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h, fill=0.0)
    >>> mesh = init_device_mesh("cpu", (1,))
    >>> part = distributed.partitioned(
    ...     model, mesh, nodes=3, partition="contiguous", edge=[(0, 1), (1, 2)]
    ... )
    >>> part.received
    {}
    >>> dist.destroy_process_group()
    """
    if not isinstance(model, Model):
        raise not_compiled(model)
    ranks = ranks_of(mesh, model._one.device)
    pairs = None
    if isinstance(partition, str) and partition == "metis":
        pairs = _pairs(inputs, edges)
    rank_of = partition_of(partition, nodes, ranks.count, pairs)
    first = ranks.gather_lists(rank_of.numpy() if ranks.rank == 0 else np.zeros(0, np.int64))[0]
    return PartitionedModel(model, ranks, torch.from_numpy(first.copy()), dict(inputs))


def _pairs(inputs: Mapping[str, Any], name: str | None) -> Tensor | None:
    for one, item in inputs.items():
        keys = item.keys if isinstance(item, rows) else item
        plain = isinstance(keys, Tensor) and not keys.is_floating_point() and keys.ndim == 2
        if plain and len(keys) == 2 and name in (None, one):
            found: Tensor = keys
            return found
    return None
