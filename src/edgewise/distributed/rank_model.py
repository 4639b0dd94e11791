"""A compiled model on the tokens of this rank: rules run row by row, attention over all ranks.

The plan is that of appended rows: what depends on a position is read at the tokens of the rank, and
attention, which for appended rows reads a cache, exchanges keys with the other ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Never
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from edgewise.distributed.attention import RankOptions, attention_on_ranks, lowest
from edgewise.distributed.collectives import Ranks, agreeing_ranks, ranks_of
from edgewise.distributed.errors import BadShards, NotDistributed, not_compiled
from edgewise.distributed.local_attention import Tensors
from edgewise.distributed.shards import Shards
from edgewise.errors import EdgewiseError, caller
from edgewise.graphs import full
from edgewise.graphs.pattern import Pattern
from edgewise.ground.ground_rule import GroundRule
from edgewise.grow.axes import AppendedAxes, CannotGrow
from edgewise.grow.cache import PositionTables, read_at
from edgewise.grow.masks import lengthened
from edgewise.grow.plan import IncrementalPlan, position_tables
from edgewise.inputs.kinds import InputLike, numbers
from edgewise.module import Model
from edgewise.physical.attention.step import AttentionStep
from edgewise.physical.data import Data
from edgewise.physical.relation import Relation
from edgewise.physical.step import RelationStep, Step
from edgewise.scores.nodes import Call, Node, Number, S, walk

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from edgewise.distributed.model_scale import ModelScale


class RankCache:
    """In the place of a KV cache: attention of the rows of this rank to those of all."""

    def __init__(self, mesh: DeviceMesh, home: Shards, tables: PositionTables, rows: int) -> None:
        self.mesh, self.home, self.tables, self.rows = mesh, home, tables, rows
        self.relations: set[str] = set()
        self.training = False

    def __contains__(self, relation: str) -> bool:
        return relation in self.relations

    def at_positions(self, ground: GroundRule, at: int, positions: Tensor) -> Tensor | None:
        """What a literal reads at the tokens of the rank, None if it reads no position."""
        return read_at(self.tables, ground, at, positions)

    def attend(
        self,
        step: AttentionStep,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        tables: list[Tensor],
    ) -> Tensor:
        """Queries of this rank over the keys of all; each is (batch, shared..., rows, size)."""
        call = rank_call(step, q, k, v, bias, tables)
        dropout = step.node.dropout if self.training else 0.0
        options = RankOptions(
            1.0, dropout, score=call.score, tables=call.tables, absent=bias is not None
        )
        found = attention_on_ranks(*call.tensors, call.graph, self.mesh, self.home, options)
        return found.unflatten(1, q.shape[1:-2])


class RankCall(NamedTuple):
    """An attention of a model as one of `edgewise.attention`: (batch, heads, tokens, size)."""

    tensors: Tensors
    graph: Pattern
    score: Node
    tables: tuple[Tensor, ...]


def rank_call(
    step: AttentionStep,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    tables: Sequence[Tensor],
) -> RankCall:
    """The call of a step; keys that several heads share stay shared."""
    lead = q.shape[1:-2]
    own = max(_own_axes(x.shape[1:-2], q.shape[1:-2]) for x in (k, v))
    heads = q.shape[1 : 1 + own]
    k, v = (x.expand(len(q), *heads, *x.shape[1 + own :]) for x in (k, v))
    if bias is not None:  # what a key adds to all scores is one more feature
        of_key = bias.clamp(min=lowest(q.dtype)).transpose(-1, -2)
        own = max(own, _own_axes(of_key.shape[1:-2], lead))
        shape = (len(q), *q.shape[1 : 1 + own], *(1,) * (q.ndim - 3 - own))
        k, v = (x.expand(*shape, *x.shape[-2:]) for x in (k, v))
        k = torch.cat([k, of_key.expand(*shape, k.shape[-2], 1)], -1)
        q = torch.cat([q, q.new_ones(*q.shape[:-1], 1)], -1)
    graph = full() if step.pattern is None else step.pattern
    q, k, v = (x.flatten(1, -3) for x in (q, k, v))
    score = S if step.tree is None else step.tree.tree
    if bias is not None and not _adds(score):  # keys that are absent stay so: others have bias 0
        absent = Call("lt", (S, Number(lowest(q.dtype) / 2)))
        score = Call("where", (absent, S, score))
    return RankCall((q, k, v), graph, score, tuple([_of_heads(x, lead) for x in tables]))


def _of_heads(table: Tensor, heads: Sequence[int]) -> Tensor:
    """A table ([batch,] heads..., entries) with one axis of heads."""
    if all(size == 1 for size in table.shape[-1 - len(heads) : -1]):
        return table.reshape(*table.shape[: -1 - len(heads)], 1, table.shape[-1])
    shape = (*table.shape[: -1 - len(heads)], *heads, table.shape[-1])
    return table.expand(shape).flatten(-1 - len(heads), -2)


def _adds(score: Node) -> bool:
    """Whether a score is the dot product and terms that are added to it."""
    match score:
        case Call("add", (a, b)):
            return (_adds(a) and S not in walk(b)) or (_adds(b) and S not in walk(a))
        case Call("sub", (a, b)):
            return _adds(a) and S not in walk(b)
    return score == S


def _own_axes(shape: Sequence[int], heads: Sequence[int]) -> int:
    """After how many axes of heads a key is the same for all."""
    different = [at + 1 for at, size in enumerate(shape) if size != 1 and heads[at] != 1]
    return max(different, default=0)


class RankModel(torch.nn.Module):
    """A model whose inputs are the rows of this rank, and so is its output.

    Weights are those of the model, the same on all ranks; their gradients are of this rank's rows
    and add up over the ranks.

    >>> import torch
    >>> from torch import distributed as dist
    >>> from torch.distributed.device_mesh import init_device_mesh
    >>> from edgewise import Program, R, V, distributed
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = Program([R.h(V.I) <= R.x(V.I)[2.0]]).compile(R.h)
    >>> ranked = distributed.on_mesh(model, init_device_mesh("cpu", (1,)))
    >>> ranked.explain(x=torch.ones(3)).received
    0
    >>> ranked(x=torch.ones(3)).tolist()
    [2.0, 2.0, 2.0]
    >>> dist.destroy_process_group()
    """

    def __init__(self, model: Model, mesh: DeviceMesh, shards: Shards | None) -> None:
        super().__init__()
        self.model, self.mesh, self.shards = model, mesh, shards
        self._rules = model.program.text()
        self._plans: WeakKeyDictionary[Step, dict[Any, tuple[IncrementalPlan, RankCache]]]
        self._plans = WeakKeyDictionary()

    def forward(
        self, data: Data | None = None, /, *unnamed: Never, **inputs: InputLike
    ) -> Tensor | Relation:
        """The output at the tokens of this rank, of inputs at these."""
        model = self.model
        if unnamed:
            raise model._reader.unnamed(type(unnamed[0]).__name__)
        ranks, elsewhere = agreeing_ranks(self.mesh, model._one.device)
        failure: EdgewiseError | None = None
        said: Any = None
        try:
            if elsewhere is not None:
                raise elsewhere
            step, values = model._resolved(data, inputs)
            rows = self._rows(step, inputs)
            home = Shards(rows * ranks.count, ranks.count) if self.shards is None else self.shards
            _check_tokens(home)
            plan, cache = self._planned(ranks, step, data, inputs, home, rows)
            said = (self._rules, tuple(sorted(inputs)), home, torch.is_grad_enabled())
        except EdgewiseError as error:
            failure = error
        ranks.agree("rules, inputs or gradient mode", said, failure)
        cache.training = model.training
        with ranks.failures.together():
            weights, tokens = model._weights(), home.tokens(ranks.rank).list()
            positions = torch.from_numpy(tokens).to(model._one.device)
            return step.output.shown(output_rows(plan, values, weights, positions, cache), False)

    def explain(self, data: Data | None = None, /, **inputs: InputLike) -> ModelScale:
        """What this model sends for inputs like these, which are the rows of this rank."""
        model = self.model
        ranks = ranks_of(self.mesh, model._one.device)
        step, _ = model._resolved(data, inputs)
        rows = self._rows(step, inputs)
        home = Shards(rows * ranks.count, ranks.count) if self.shards is None else self.shards
        from edgewise.distributed.model_scale import plans_of_model  # which records such a model

        return plans_of_model(model, home, data, inputs)

    def _rows(self, step: Step, inputs: Mapping[str, Any]) -> int:
        """How many tokens the inputs have; those of the data are the same for all tokens."""
        sources = step.executable.sources
        lengths = {name: sources[name].index.length(0) for name in inputs}
        if len(set(lengths.values())) != 1:
            shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
            raise BadShards(
                f"the inputs have different numbers of tokens ({shown or 'there are none'})",
                caller(),
                "give the rows of this rank's tokens; what all tokens share is grounded: "
                "`ranked(model.ground(...), x=...)`",
            )
        return int(next(iter(lengths.values())))

    def _planned(
        self,
        ranks: Ranks,
        step: Step,
        data: Data | None,
        inputs: Mapping[str, Any],
        home: Shards,
        rows: int,
    ) -> tuple[IncrementalPlan, RankCache]:
        plans = self._plans.setdefault(step, {})
        key = (frozenset(inputs), home, self.model.training and step.is_random)
        if key not in plans:
            plans[key] = self._plan(ranks, step, data, inputs, home, rows)
        return plans[key]

    def _plan(
        self,
        ranks: Ranks,
        step: Step,
        data: Data | None,
        inputs: Mapping[str, Any],
        home: Shards,
        rows: int,
    ) -> tuple[IncrementalPlan, RankCache]:
        model = self.model
        if home.ranks != ranks.count or home.count(ranks.rank) != rows:
            raise BadShards(
                f"rank {ranks.rank} of {ranks.count} has {rows} tokens, which {home} contradicts",
                caller(),
                "give the `shards=` that the ranks have: `Shards(tokens, ranks)`",
            )
        try:
            axes = token_axes(step, inputs)
            tables = position_tables(step, axes, home.n, model.limit)
            step = with_all_distances(model, step, data, inputs, home.n)
        except CannotGrow as error:
            raise NotDistributed(
                f"tokens of different ranks meet outside of attention: {error.message}",
                error.place,
                "share its rules, text by text: "
                '`model.ground(mesh=mesh, nodes=tokens, partition="contiguous")`',
            ) from None
        moved = tables_on(model._one.device, tables)
        cache = RankCache(self.mesh, home, moved, max(rows, 1 << 16))
        cache.relations = axes.cached
        return IncrementalPlan(step, axes, moved, model._one, model.training), cache


def _check_tokens(home: Shards) -> None:
    """Refuse ranks without tokens, whose rules would have no rows."""
    empty = [rank for rank in range(home.ranks) if not home.count(rank)]
    if empty:
        raise BadShards(
            f"rank {empty[0]} of {home} has no tokens",
            caller(),
            f"share {home.n} tokens among {max(home.n, 1)} ranks at most",
        )


def output_rows(
    plan: IncrementalPlan,
    values: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    positions: Tensor,
    cache: RankCache,
) -> Tensor:
    """The output of a plan at some tokens."""
    static: dict[str, Tensor] = {}
    if plan.static:
        found = plan.static_plan(values, weights)(*values.values(), *weights.values())
        static = dict(zip(plan.static, found, strict=True))
    cached: Any = cache  # in the place of a `KeyValueCache`
    run = plan.appended_plan(values, weights, positions, static, cached)
    out: Tensor = run(*values.values(), *weights.values(), positions, *static.values(), cached)
    return out


def tables_on(device: torch.device, tables: PositionTables) -> PositionTables:
    """Position tables with their tensors on a device."""
    return {g: {at: t.to(device) for at, t in own.items()} for g, own in tables.items()}


def with_all_distances(
    model: Model, step: Step, data: Data | None, inputs: Mapping[str, Any], tokens: int
) -> Step:
    """The step of some tokens with scores as they are among `tokens`: what these read by distance
    has entries for all of theirs."""
    if not any(one.tree is not None and one.tree.fills for one in _attentions(step).values()):
        return step
    axes = {name: int(step.executable.sources[name].batched) for name in inputs}
    tensors = {n: x if isinstance(x, numbers) else torch.as_tensor(x) for n, x in inputs.items()}
    every, _ = model._resolved(data, lengthened(tensors, axes, tokens))
    scored = _attentions(every)

    def placed(part: Any) -> Any:
        if not isinstance(part, RelationStep):
            return part
        steps = [
            replace(one, tree=scored[part.relation].tree, pattern=scored[part.relation].pattern)
            if isinstance(one, AttentionStep)
            else one
            for one in part.steps
        ]
        return replace(part, steps=tuple(steps))

    parts = tuple(map(placed, step.executable.steps))
    return replace(step, executable=replace(step.executable, steps=parts))


def _attentions(step: Step) -> dict[str, AttentionStep]:
    """By relation."""
    return {
        part.relation: one
        for part in step.executable.steps
        if isinstance(part, RelationStep)
        for one in part.steps
        if isinstance(one, AttentionStep)
    }


def token_axes(step: Step, inputs: Mapping[str, Any]) -> AppendedAxes:
    """The axis of tokens of each relation, the first of `inputs`; refuses rules in which tokens
    meet outside of attention."""
    axes = AppendedAxes({name: 0 for name in inputs}, any_score=True)
    for part in step.executable.steps:
        if not isinstance(part, RelationStep):
            raise CannotGrow("the rules are recursive", None, "")
        axes.add(part)
        for one in part.steps:
            if isinstance(one, AttentionStep) and part.relation in axes.cached:
                _check_attention(one)
    if step.output.relation not in axes.axis:
        raise CannotGrow(f"`{step.output.relation}` has no axis of tokens", None, "")
    return axes


def _check_attention(step: AttentionStep) -> None:
    place, tree = step.rule.place, step.tree
    if step.edge_bias or step.edge_scale:
        raise CannotGrow("a score reads a value for each pair", place, "")
    if tree is not None and not _adds(tree.tree) and step.biases:
        raise CannotGrow("a score does not add to the dot product, and keys have biases", place, "")
    both = {step.node.query, step.node.key}
    if any(both <= set(side.names) for side in step.biases):
        raise CannotGrow("a bias has a value for each pair of tokens", place, "")


def on_mesh(model: Model, mesh: DeviceMesh, *, shards: Shards | None = None) -> RankModel:
    """A compiled model on the tokens of this rank of one axis of a mesh.

    `on_mesh(model, mesh["cp"])(x=rows)` gives the rows of `model(x=all)` that this rank has: rules
    run on its tokens alone, attention exchanges keys as its graph needs them. `shards` say which
    tokens each rank has; without them all have as many, one after another.

    >>> import torch
    >>> from torch import distributed as dist
    >>> from torch.distributed.device_mesh import init_device_mesh
    >>> from edgewise import Program, R, V, distributed
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = Program([R.h(V.I) <= R.x(V.I)[2.0]]).compile(R.h)
    >>> distributed.on_mesh(model, init_device_mesh("cpu", (1,)))(x=torch.ones(3)).tolist()
    [2.0, 2.0, 2.0]
    >>> dist.destroy_process_group()
    """
    if not isinstance(model, Model):
        raise not_compiled(model)
    if not model.plan.is_one_relation:
        raise NotDistributed(
            "the model was compiled for several outputs",
            caller(),
            f"compile it for one relation: `compile(R.{model.plan.outputs[0].relation})`",
        )
    return RankModel(model, mesh, shards)
