"""A model whose groundings depend on values: selections are computed first, then it is grounded."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Never

import torch
from torch import Tensor

from edgewise.batches import Batch
from edgewise.checks.evaluation import not_a_scalar
from edgewise.errors import EdgewiseError, caller
from edgewise.inputs.kinds import InputLike, ragged
from edgewise.language.program import FactLike
from edgewise.language.statements import is_selection
from edgewise.language.statements import weights as weights_of
from edgewise.layouts.ragged import Ints
from edgewise.module import Model
from edgewise.passes import optimise
from edgewise.physical.data import Data, Demand
from edgewise.physical.demand.wanted import Want, WantLike, read_want
from edgewise.physical.output import Returned
from edgewise.physical.prepare import refuse_want
from edgewise.physical.relation import Relation
from edgewise.physical.selected_keys import (
    Selected,
    chosen_keys,
    key_of,
    of_sides,
    samples_of,
    with_facts,
)
from edgewise.physical.step import Step
from edgewise.physical.weights import owner
from edgewise.plan.lower import lower
from edgewise.plan.nodes import Plan

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from edgewise.distributed.partition import PartitionLike
    from edgewise.grow import Growing
    from edgewise.update import Updating

RowsOf = Callable[[int, Model, Selected], Relation]
MOST_GROUNDED = 16  # selections for which a grounding is held


class DecidedByValues(EdgewiseError):
    """Comparisons of values and `argmin_agg` decide at every step which groundings there are, so
    there is no one graph of tensor operations to compile, export or pad samples to. Calls, wanted
    rows, mini-batches, edits (`updating`) and appended rows (`growing`) decide each time."""

    code = "decided-by-values"
    example = """\
model = Program([R.h(V.X) <= (R.a(V.X), R.a(V.X) > 0.5)]).compile(R.h)
model.samples(model.ground(facts=[R.a(0)[1.0]]))"""
    instead = """\
model = Program([R.h(V.X) <= (R.a(V.X), R.a(V.X) > 0.5)]).compile(R.h)
model.rows(model.ground(facts=[R.a(0)[1.0]]))"""


class SelectedData(Data):
    """Inputs of a model with selections, and what was grounded for selections so far."""

    def __init__(self, number: int, facts: Any, inputs: dict[str, Any]) -> None:
        super().__init__(number, {})
        self.own_facts = facts
        self.named = inputs
        self.want: Want | None = None
        self.grounded: dict[Any, Data] = {}

    @property
    def samples(self) -> int | None:
        """The samples of a ragged batch."""
        items = (self.own_facts, *self.named.values())
        return next((len(item.samples) for item in items if isinstance(item, ragged)), None)

    @property
    def is_part(self) -> bool:
        return self.want is not None

    def of_samples(self, numbers: Ints) -> SelectedData:
        chosen = numbers.tolist()

        def some(item: Any) -> Any:
            return ragged([item.samples[n] for n in chosen]) if isinstance(item, ragged) else item

        named = {name: some(item) for name, item in self.named.items()}
        found = SelectedData(self.model, some(self.own_facts), named)
        found.open, found.index = self.open, torch.from_numpy(numbers)
        return found


class Selecting(Model):
    """A model that reads selections, each computed by a model of its own with the same weights.

    A selection is a relation that holds where its value is not 0. No gradient passes through it.
    """

    built: tuple[tuple[str, Model], ...] = ()
    held: SelectedData | None = None  # what calls without data have grounded

    @property
    def inputs(self) -> tuple[str, ...]:
        every = [name for model in (*self._models, self) for name in model._reader.required]
        return tuple(dict.fromkeys(name for name in every if not is_selection(name)))

    @property
    def parts(self) -> tuple[tuple[str, Model], ...]:
        """Selections in order, each with its model."""
        if not self.built:  # not while weights are being loaded
            plans = self.stages["selections"]
            self.built = tuple((p.outputs[0].relation, self._part(p)) for p in plans)
        return self.built

    def _part(self, plan: Plan) -> Model:
        # of equal rows the first is the best one, so equal rows are not alike
        without = tuple(dict.fromkeys((*self.without, "lift equal rows")))
        stages: dict[str, Any] = {"plan": plan, "before passes": plan, "without": without}
        plan, stages["passes"] = optimise(plan, without=without)
        used = {w.name for s in (*plan.rules, *plan.facts) for w in weights_of(s)}
        held = {name: tensor for name, tensor in self._weights().items() if name in used}
        options: dict[str, Any] = {"fill": None, "limit": self.limit, "seed": None}
        return Model(self.program, plan, stages, **options, dtype=self._one.dtype, weights=held)

    @property
    def _models(self) -> list[Model]:
        return [model for _, model in self.parts]

    def ground(
        self,
        *unnamed: Never,
        facts: Iterable[FactLike] | ragged | None = None,
        want: WantLike | None = None,
        mesh: DeviceMesh | None = None,
        partition: PartitionLike | None = None,
        nodes: int | None = None,
        **inputs: InputLike,
    ) -> Data:
        """Check the inputs; what depends on values is joined at the steps, once for each selection
        that occurs."""
        if unnamed:
            self._refuse_unnamed(unnamed[0])
        if mesh is not None:  # which refuses
            return super().ground(mesh=mesh, partition=partition, nodes=nodes)
        named: dict[str, Any] = {"partition": partition, "nodes": nodes}
        inputs |= {name: item for name, item in named.items() if item is not None}
        self._refuse_inputs(inputs)
        facts = facts if facts is None or isinstance(facts, ragged) else list(facts)
        data = SelectedData(self._number, facts, inputs)
        data.want = None if want is None else read_want(self.plan, want)
        data.open = facts is None and not {*inputs}.issuperset(self.inputs)
        if not data.open:
            self._selected(data, {})
        return data

    @torch.compiler.disable(reason="values decide which groundings there are")
    def _kind(self, inputs: Mapping[str, Any], as_rows: bool) -> None:
        """No call is recorded: values decide what is grounded."""

    def _output(self, data: Data | None, inputs: Mapping[str, Any], as_rows: bool) -> Returned:
        return super()._output(data, inputs, as_rows)

    def _ready(self, data: Data | None, inputs: dict[str, Any]) -> None:
        """No call is like an earlier one before its values are known."""

    def _prepare(self, *call: Any) -> None:
        """See `_ready`."""

    def _gathers(self, data: Data, inputs: Mapping[str, Any]) -> bool:
        """See `_ready`."""
        return False

    def _seen_before(self, inputs: Mapping[str, Any]) -> None:
        """See `_ready`."""

    def _resolved(
        self, data: Data | None, inputs: Mapping[str, Any]
    ) -> tuple[Step, dict[str, Tensor]]:
        return super()._resolved(*self._decided(data, dict(inputs)))

    def _decided(self, data: Data | None, inputs: dict[str, Any]) -> tuple[Data, dict[str, Any]]:
        """What is grounded on the selections of these inputs, and the inputs of the step."""
        if data is None:
            self._refuse_inputs(inputs)
            step = {n: t for n, t in inputs.items() if _is_dense(t)}
            rest = {n: t for n, t in inputs.items() if n not in step}
            if not rest and self.held is None:
                self.held = SelectedData(self._number, None, {})
            data = SelectedData(self._number, None, rest) if rest else self.held
            inputs = step
        assert data is not None
        self._refuse_foreign(data)
        own = _those_of(self, inputs)
        if isinstance(data, Batch):
            return self._of_batch(data, inputs), own
        if not isinstance(data, SelectedData):  # its selections are known
            return data, own
        found = self._selected(data, inputs)
        return found if data.want is None else found.wanting(data.want), own

    def _of_batch(self, batch: Batch, inputs: Mapping[str, Any]) -> Data:
        """The part of a batch of what is grounded on its current selections."""
        demand = batch.demand
        assert demand is not None
        assert isinstance(demand.origin, SelectedData)
        origin = self._selected(demand.origin, {**batch.inputs, **inputs}, in_parts=True)
        if origin not in batch.decided:
            # drawn from the same numbers, whatever was selected before
            choose = copy.deepcopy(demand.choose)
            more = _those_of(self, batch.inputs)
            batch.decided = {origin: origin.part(Demand(origin, demand.want, choose), more)}
        return batch.decided[origin]

    def _selected(
        self, data: SelectedData, step: Mapping[str, Any], in_parts: bool = False
    ) -> Data:
        """What is grounded on the current selections; joined when its parts are, if `in_parts`."""

        def rows(at: int, model: Model, selected: Selected) -> Relation:
            found = model.rows(self._ground(at, model, data, selected), **_those_of(model, step))
            assert isinstance(found, Relation)
            return found

        return self.decided(data, rows, in_parts)

    def undecided(self, inputs: dict[str, Any]) -> SelectedData:
        """Inputs for which selections are to come."""
        return SelectedData(self._number, None, inputs)

    def decided(self, data: SelectedData, rows: RowsOf, in_parts: bool = False) -> Data:
        """What is grounded on selections, of which `rows` computes one, given those before."""
        selected: Selected = {}
        sides: list[Relation] = []
        for at, (name, model) in enumerate(self.parts):
            self._share(model)
            arity = len(model.plan.outputs[0].terms)
            with torch.no_grad():
                found = rows(at, model, selected)
            samples = data.samples or samples_of(selected)
            comparison = self.stages["split"].get(name)
            columns = comparison.columns_of[len(sides)] if comparison else 1
            shape = (columns,) * (columns > 1)
            if found.data.shape[1 + found.batched :] != shape:
                if len(found):
                    raise not_a_scalar(name, model.plan.rules[-1])
                none = found.data.new_zeros(*found.data.shape[: 1 + found.batched], *shape)
                found = Relation(found.name, found.index, none, found.constants, found.batched)
            if comparison is None:
                selected[name] = chosen_keys(found, arity, samples)
                continue
            sides.append(found)
            if len(sides) == 2:
                selected |= of_sides(comparison, sides, samples, self.limit)
                sides = []
        in_parts = in_parts or data.want is not None
        return self._ground(len(self.parts), self, data, selected, in_parts)

    def _ground(
        self,
        at: int,
        model: Model,
        data: SelectedData,
        selected: Selected,
        in_parts: bool = False,
    ) -> Data:
        """A model grounded on selections; the last ones are remembered."""
        own = {n: s for n, s in selected.items() if n in model._reader.arities}
        key = (at, str(self._one.dtype), str(self._one.device), *map(key_of, own.values()))
        if key not in data.grounded:
            while len(data.grounded) >= MOST_GROUNDED:
                data.grounded.pop(next(iter(data.grounded)))
            listed = {n: s for n, s in own.items() if isinstance(s, list)}
            own_facts = with_facts(data.own_facts, listed)
            keys: dict[str, Any] = {n: s for n, s in own.items() if n not in listed}
            inputs = _those_of(model, data.named) | keys
            data.grounded[key] = (
                self._data(own_facts, inputs)
                if in_parts
                else Model.ground(model, facts=own_facts, **inputs)
            )
        return data.grounded[key]

    def _share(self, model: Model) -> None:
        """Give a model the current weights, mode, precision and device."""
        unit = self._one
        if model._one.dtype != unit.dtype or model._one.device != unit.device:
            model._buffers["_unit"] = torch.ones((), dtype=unit.dtype, device=unit.device)
        model.train(self.training)
        own = self._weights()
        for name, path in model._paths.items():
            holder = owner(model, path)
            held = holder._parameters if path[-1] in holder._parameters else holder._buffers
            held[path[-1]] = own[name]  # type: ignore[assignment]

    def _refuse_inputs(self, inputs: Iterable[str]) -> None:
        for name in inputs:
            if not any(name in m._reader.arities for m in self._models) or is_selection(name):
                self._reader.refuse_unknown([name])

    def samples(self, data: Data) -> Never:
        raise decided_by_values("padded to one layout")

    def _wanting(
        self, data: Data | None, inputs: dict[str, Any], want: WantLike
    ) -> tuple[Data, dict[str, Any]]:
        if torch.compiler.is_compiling():
            refuse_want(self._handle)
        return super()._wanting(*self._decided(data, inputs), want)

    def _to_batch(
        self, data: Data | None, inputs: dict[str, Any]
    ) -> tuple[Data, dict[str, Tensor]]:
        self._refuse_inputs(inputs)
        held = SelectedData(self._number, None, {}) if data is None else data
        self._refuse_foreign(held)
        assert isinstance(held, SelectedData)
        more = {name: item for name, item in inputs.items() if _is_dense(item)}
        rest = {name: item for name, item in inputs.items() if name not in more}
        if rest:
            held = SelectedData(self._number, held.own_facts, {**held.named, **rest})
        return held, more

    def _ready_plan(self, data: Data) -> None:
        """A batch is decided when it is computed: by the weights at that time."""

    def updating(self, *, facts: Iterable[FactLike] = (), **inputs: InputLike) -> Updating:
        """Selections are relations like others, of which rows are added and removed."""
        several = not self.plan.is_one_relation
        every = self._part(lower(self.program, *self.plan.outputs, several=several))
        self._share(every)
        return every.updating(facts=facts, **inputs)

    def growing(self, capacity: int, **fixed: InputLike) -> Growing:
        """Conditions on values are decided for each row as it comes."""
        return import_module("edgewise.grow").GrowingByValues(self, capacity, fixed)


def decided_by_values(what: str) -> DecidedByValues:
    return DecidedByValues(
        f"values decide which groundings this model has, so it cannot be {what}",
        caller(),
        "call the model itself, `model(...)`, or compute what is compared beforehand",
    )


def _is_dense(item: Any) -> bool:
    return isinstance(item, Tensor) and item.is_floating_point() and not item.is_nested


def _those_of(model: Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in inputs.items() if name in model._reader.arities}
