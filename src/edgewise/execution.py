"""A compiled program as it runs: its weights, its steps, and calls like earlier ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import caller, counted, named, suggest
from edgewise.inputs.errors import BadInput
from edgewise.inputs.kinds import dense, numbers, ragged, rows
from edgewise.inputs.read import InputReader, check_numbers, kinds_of, step_tensor
from edgewise.inputs.sources import rows_source
from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.language.statements import atoms
from edgewise.notebook import html_table
from edgewise.physical.data import Data, ForeignData, ReadyCall, note_trained
from edgewise.physical.demand.wanted import BadWant, WantLike, read_want
from edgewise.physical.layers import layered
from edgewise.physical.output import Returned
from edgewise.physical.plan import PhysicalPlan, untraced
from edgewise.physical.prepare import (
    build_step,
    check_kinds,
    check_names,
    ensure,
    ensure_plan,
    fixed,
    refuse_unnamed,
    refuse_want,
)
from edgewise.physical.recordings.calls import RecordedCalls
from edgewise.physical.recordings.recording import Recording
from edgewise.physical.samples.batches import gathered_call
from edgewise.physical.samples.seen import SeenSamples
from edgewise.physical.step import Step
from edgewise.physical.tracing import autocast_dtype, autocasts, handle, is_transformed
from edgewise.physical.weights import PLAIN as PLAIN_WEIGHTS
from edgewise.physical.weights import (
    NotALayer,
    Slots,
    at,
    called_layers,
    held_at,
    layer_of,
    mark,
    register,
    sharded_like,
)
from edgewise.plan.nodes import Plan
from edgewise.weights import UnknownWeight, WeightTable, called_modules

_NUMBERS = itertools.count()
CALLS = 256  # whose plans are found by shapes alone
PLAIN = (Tensor, torch.nn.Parameter, numbers)
LARGEST = 1 << 19  # keys; grounding more of them takes much longer than planning for them


class Execution(torch.nn.Module):
    """The weights of a plan by name, and the steps that were built for data and shapes."""

    def __init__(
        self,
        program: Program,
        plan: Plan,
        stages: dict[str, Any],
        *,
        fill: float | None,
        limit: int,
        seed: int | None,
        dtype: torch.dtype | None,
        check: bool = False,
        weights: Mapping[str, Tensor] | None = None,
        dense: bool | None = None,
    ) -> None:
        super().__init__()
        self.program = program
        self.plan = plan
        self.stages = stages
        self.fill = fill
        self.limit = limit
        self.check = check
        self._dense = dense  # `dense` may be the name of weights
        self._seed = seed
        self.without = tuple(stages.get("without", ()))
        precision = dtype or torch.get_default_dtype()
        self.register_buffer("_unit", torch.ones((), dtype=precision), persistent=False)
        statements: list[nodes.Statement] = [*plan.rules, *plan.facts]
        for part in stages.get("selections", ()):  # whose weights are saved with the others
            statements += [s for s in (*part.rules, *part.facts) if s not in statements]
        domains = dict(plan.domains)
        table = WeightTable(statements, domains, seed=seed, dtype=precision, values=weights)
        for name, tensor in table.tensors.items():
            if name not in table.learnable and isinstance(tensor, torch.nn.Parameter):
                tensor.requires_grad_(False)
        self._reader = InputReader(program, plan, stages.get("plan", plan))
        self._number = next(_NUMBERS)
        self._cache = Data(self._number, {})
        # of the last call with keys, for `explain`: its data, or its inputs
        self._last: Data | dict[str, Any] | None = None
        self._recordings = RecordedCalls()
        self._samples = SeenSamples()
        self._shapes: dict[Any, Any] = {}
        self._slots = Slots(self, ())
        self._handle = handle(self)
        self._paths: dict[str, tuple[str, ...]] = {}
        self._paths = register(self, table.tensors)  # weights take names that are left
        self._layers = [*dict.fromkeys(filter(None, map(layer_of, self._paths.values())))]
        for number, module in enumerate(called_modules(plan.rules)):
            name = f"called{number}"
            while hasattr(self, name):
                name += "_"
            self.add_module(name, module)

    def reset_parameters(self) -> None:
        """Give every weight the value that it started with, or with no seed another like it: after
        `to_empty`, which leaves them undefined, also where they are sharded over ranks.

        >>> import torch
        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= R.x(V.I)["w":2, 3]]).compile(R.h, seed=0)
        >>> before = model.weight("w").detach().clone()
        >>> _ = torch.nn.init.zeros_(model.weight("w"))
        >>> model.reset_parameters()
        >>> torch.equal(model.weight("w"), before)
        True
        """
        unit = self._buffers["_unit"]
        assert unit is not None
        unit.fill_(1)
        statements: list[nodes.Statement] = [*self.plan.rules, *self.plan.facts]
        for part in self.stages.get("selections", ()):
            statements += [s for s in (*part.rules, *part.facts) if s not in statements]
        domains = dict(self.plan.domains)
        table = WeightTable(statements, domains, seed=self._seed, dtype=unit.dtype)
        with torch.no_grad():
            for name, path in self._paths.items():
                held, start = held_at(self, path), table.tensors[name].detach()
                if type(held) not in PLAIN_WEIGHTS:
                    start = sharded_like(held, start)
                held.copy_(start)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._handle = handle(self)  # a copy has its own

    def __repr__(self) -> str:
        lines = [f"  {name}  {shape}{kind}" for name, shape, kind in self._described()]
        return "\n".join([f"Model({self._summary()}", *lines]) + ("\n)" if lines else ")")

    def _repr_html_(self) -> str:
        rows = self._described()
        return html_table(f"Model: {self._summary()}", ["weight", "shape", ""], rows, len(rows))

    def _summary(self) -> str:
        outputs = ", ".join(str(output.relation) for output in self.plan.outputs)
        learnable = sum(p.numel() for p in self.parameters() if p.requires_grad)
        inputs = f" from {', '.join(self.inputs)}" if self.inputs else ""
        rules = counted(len(self.program.rules), "rule")
        return f"{outputs}{inputs}: {rules}, {learnable:,} parameters"

    def _described(self) -> list[tuple[str, str, str]]:
        """Name, shape and kind of each weight."""
        return [
            (name, str(tuple(weight.shape)), "" if weight.requires_grad else " fixed")
            for name, weight in self._weights().items()
        ]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The relations that a caller passes: those that no rule derives and no fact states.

        >>> from edgewise import Program, R, V
        >>> Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h).inputs
        ('x', 'edge')
        """
        return self._reader.required

    def weight(self, name: str) -> Tensor:
        """A weight by its name in the program.

        >>> from edgewise import Program, R, V
        >>> Program([R.h(V.I) <= R.x(V.I)["w":2, 3]]).compile(R.h).weight("w").shape
        torch.Size([2, 3])
        """
        if not isinstance(name, str) or name not in self._paths:
            raise UnknownWeight(
                f"the output needs no weight `{named(name)}`",
                caller(),
                suggest(name, list(self._paths)),
            )
        return at(self, self._paths[name])

    def _again(self, data: Data | None, inputs: dict[str, Any]) -> Returned | None:
        """The output by the plan of an earlier call with inputs like these; None if there is none.

        Names, shapes, precisions and devices are the key, so nothing needs to be checked.
        """
        found, last = self._ready(data, inputs), None
        if found is None and isinstance(data, Data) and self._gathers(data, inputs):
            found = self._ready(data, inputs)
        if found is None and data is None:
            last = self._seen_before(inputs)
            found = None if last is None else self._ready(last, {})
        if found is None:
            return self._rerun(inputs, as_rows=False) if data is None else None
        ready, tensors, weights = found
        if data is None and self._last is not last:
            self._last = last
        return ready.outputs.shown(ready.plan(*ready.first, *tensors, *weights), False)

    def _rerun(self, inputs: Mapping[str, Any], as_rows: bool) -> Returned | None:
        """The output by what an earlier call with other keys or lengths was seen to compute; None
        if there is none like this."""
        kind = self._kind(inputs, as_rows)
        if kind is None:
            return None
        key, tensors = kind
        weights = list(self._weights().values())
        found = self._recordings.call(key, tensors, weights)
        if found is None:
            recording = self._recordings.recording(key, tensors, weights)
            if recording is None or not self._recorded(recording, key, inputs, as_rows):
                return None
            found = self._recordings.call(key, tensors, weights, new=True)
        if found is not None:  # without dense values, which `explain` does not read
            self._last = {n: _unwritten(x) if n in tensors else x for n, x in inputs.items()}
        return found

    def _kind(
        self, inputs: Mapping[str, Any], as_rows: bool
    ) -> tuple[Any, dict[str, Tensor]] | None:
        """What calls with keys have in common of which one is recorded, all but lengths, and their
        tensors; None where a call is not recorded."""
        unit = self._one
        if self.check or unit.device.type != "cpu" or is_transformed() or autocasts(unit.device):
            return None
        held = (held_at(self, path) for path in self._paths.values())
        if called_layers(self, self._layers) or any(type(w) not in PLAIN_WEIGHTS for w in held):
            return None
        key: list[Any] = [self.training, unit.dtype, torch.get_default_dtype(), as_rows]
        tensors: dict[str, Tensor] = {}
        for name, item in inputs.items():
            if type(item) is rows and not item.strings:
                tensors[f"{name} keys"] = item.keys
                key += (rows, item.has_precision, item.are_combined)
                if item.values is not None:
                    tensors[f"{name} values"] = item.values
            else:
                tensors[name] = item
        for name, item in tensors.items():
            if type(item) not in (Tensor, torch.nn.Parameter) or item.is_nested:
                return None
            if item.device.type != "cpu" or item.layout != torch.strided:
                return None
            if not item.is_floating_point() and item.numel() > LARGEST:
                return None
            key += (name, item.dtype, item.ndim, item.requires_grad, item.is_inference())
        with_keys = not all(item.is_floating_point() for item in tensors.values())
        return (tuple(key), tensors) if with_keys else None

    def _recorded(
        self, recording: Recording, key: Any, inputs: Mapping[str, Any], as_rows: bool
    ) -> bool:
        """Record how a call is grounded and lowered; False where that is not possible."""
        try:
            with untraced(), recording.running():
                read = self._reader.read(inputs, self._one)
                tensors = dense(read)
                rest = {n: t for n, t in read.items() if n not in tensors}
                check_numbers(rest)
                data = Data(self._number, rest)
                self._refuse_missing(data, tensors)
                shapes = tuple((n, tensors[n].shape) for n in self._reader.arities if n in tensors)
                step = build_step(self, data, shapes, self._one.dtype, self._one.device)
                note_trained(data, step)
                values, weights = data.live(step) | tensors, self._weights()
                every = [*values.values(), *weights.values()]
                names = tuple(values), every, tuple(weights)
                plan = step.plan(*names, self._one, self.training, as_rows)
            listed = list(values.values())
            self._recordings.learn(key, recording, plan, step.outputs, listed, as_rows)
        except Exception as error:  # what is wrong with inputs, the call itself says
            self._recordings.failed = f"{type(error).__name__}: {error}"
            return False
        return True

    def _gathers(self, data: Data, inputs: Mapping[str, Any]) -> bool:
        """Prepare a call with some samples of grounded data, where nothing has to be joined."""
        if data.chosen is None or data.joined is not None or data.model != self._number:
            return False
        if inputs or self.check or data.volatile:
            return False
        found = gathered_call(self, data)
        if isinstance(found, str):
            data.joined = found
            return False
        self._hold(data, {}, found)
        return True

    def _seen_before(self, inputs: Mapping[str, Any]) -> Data | None:
        """A batch of samples that earlier calls had, prepared."""
        seen = self._samples
        if seen.joined or self.check or not any(isinstance(i, ragged) for i in inputs.values()):
            return None
        read = self._reader.read(inputs, self._one)
        self._reader.refuse_missing(read)
        batch = seen.batch(self._number, read)
        if batch is None or self._gathers(batch, {}):
            return batch
        templates = {} if seen.data is None else seen.data.templates
        seen.joined = next((t for t in templates.values() if isinstance(t, str)), None)
        return None

    def _hold(self, data: Data, inputs: Mapping[str, Any], call: ReadyCall) -> None:
        """Remember a call for those with inputs like these."""
        found = self._key(data, dict(inputs))
        if found is None:
            return
        if len(data.prepared) >= CALLS:
            data.prepared.clear()
        self._slots = Slots(self, self._paths.values())
        data.prepared[found[0]] = call

    def _ready(
        self, data: Data | None, inputs: dict[str, Any]
    ) -> tuple[ReadyCall, list[Tensor], list[Tensor]] | None:
        """An earlier call with inputs like these, their tensors, and the current weights."""
        held = self._cache if data is None else data
        if not isinstance(held, Data) or held.model != self._number or self.check:
            return None
        found = self._key(held, inputs)
        prepared = None if found is None else held.prepared.get(found[0])
        weights = None if prepared is None else self._slots.tensors()
        if found is None or prepared is None or weights is None:
            return None
        if [(weight.shape, weight.dtype) for weight in weights] != prepared.weights:
            return None
        return prepared, found[1], weights

    def _key(self, data: Data, inputs: dict[str, Any]) -> tuple[Any, list[Tensor]] | None:
        """What decides the plan of a call, and the tensors of its inputs."""
        data.forget_changed()
        unit = self._buffers["_unit"]
        assert unit is not None
        device = unit.device
        key = [self.training, unit.dtype, device, autocasts(device)]
        tensors = []
        for name, item in inputs.items():
            kind = type(item)
            item = item.values.unsqueeze(-1) if kind is numbers else item
            if kind not in PLAIN or item.is_nested:
                return None
            key += (name, kind is numbers, item.shape, item.dtype, item.device, item.layout)
            tensors.append(item)
        return tuple(key), tensors

    @property
    def _one(self) -> Tensor:
        unit = self._unit
        assert isinstance(unit, Tensor)
        return unit

    def _mark(self) -> tuple[object, ...]:
        """What changes with a weight, or the precision or device of the model."""
        return mark((self._one, *(held_at(self, path) for path in self._paths.values())))

    def _weights(self) -> dict[str, Tensor]:
        return {name: at(self, path) for name, path in self._paths.items()}

    def _output(self, data: Data | None, inputs: Mapping[str, Any], as_rows: bool) -> Returned:
        step, values = self._resolved(data, inputs)
        if called_layers(self, self._layers):
            found = self._by_layer(step, values, as_rows)
            if found is not None:
                return step.outputs.shown(found, as_rows)
        weights, unit = self._weights(), self._one
        tensors = [*values.values(), *weights.values()]
        if torch.compiler.is_compiling():
            names, shapes = tuple(values), tuple(map(fixed, values.values()))
            kinds = tuple(value.dtype for value in values.values())
            lower = autocast_dtype(unit.device)
            mode = (self.training, as_rows)
            ensure_plan(self._handle, names, shapes, kinds, mode, lower, step.handle)
            found = step.modules[names, kinds, mode, lower](*tensors)
        else:
            plan = step.plan(tuple(values), tensors, tuple(weights), unit, self.training, as_rows)
            if not as_rows:
                self._prepare(data, inputs, plan, step, values)
            found = plan(*tensors)
        return step.outputs.shown(found, as_rows)

    def _by_layer(self, step: Step, values: Mapping[str, Tensor], as_rows: bool) -> Any:
        """The output, each layer by the call of its module; None where weights are sharded and a
        layer cannot run by itself: then all are gathered."""
        paths, unit, traced = list(self._paths.values()), self._one, torch.compiler.is_compiling()
        held = [held_at(self, path) for path in paths]
        like = [torch.empty(w.shape, dtype=w.dtype, device="meta") for w in held]
        kinds = tuple([value.dtype for value in values.values()])
        mode = (tuple(values), kinds, self.training, as_rows, traced, autocast_dtype(unit.device))
        key = (*mode, tuple([(w.shape, w.dtype) for w in held]))
        if key not in step.layered:
            tensors = [*values.values(), *like]
            plan = step.plan(tuple(values), tensors, tuple(self._paths), unit, *mode[2:4])
            try:
                step.layered[key] = layered(plan, len(values), paths, traced)
            except NotALayer as error:
                step.layered[key] = error
        found = step.layered[key]
        if not isinstance(found, NotALayer):
            return found(self, list(values.values()))
        if all(type(w) in PLAIN_WEIGHTS for w in held):
            raise found
        return None

    def _ready_plan(self, data: Data) -> None:
        """Build and lower the step for data that has every input, before it is called."""
        self._plan(*self._resolved(data, {}))

    def _plan(self, step: Step, values: Mapping[str, Tensor]) -> PhysicalPlan:
        """The plan of a step for these values."""
        weights = self._weights()
        tensors = [*values.values(), *weights.values()]
        as_rows = not step.outputs.is_dense
        return step.plan(tuple(values), tensors, tuple(weights), self._one, self.training, as_rows)

    def _prepare(
        self,
        data: Data | None,
        inputs: Mapping[str, Any],
        plan: PhysicalPlan,
        step: Step,
        values: Mapping[str, Tensor],
    ) -> None:
        """Remember the plan for calls like this one, unless its values are recomputed for each."""
        held = self._cache if data is None else data
        first = [tensor for name, tensor in values.items() if name not in inputs]
        current = all(_is_current(value, self._one) for value in dense(held.inputs).values())
        if held.volatile or not current or list(values)[len(first) :] != list(inputs):
            return
        weights = plan.signature[len(values) :]
        self._hold(held, inputs, ReadyCall(plan, first, weights, step.outputs))

    def _wanting(
        self, data: Data | None, inputs: dict[str, Any], want: WantLike
    ) -> tuple[Data, dict[str, Any]]:
        """Data for wanted rows, and the inputs that are not part of it."""
        if torch.compiler.is_compiling():
            refuse_want(self._handle)
        wish = read_want(self.plan, want)
        if data is None:
            read = self._reader.read(inputs, self._one)
            rest = {n: t for n, t in read.items() if n not in dense(read)}
            check_numbers(rest)
            data = Data(self._number, rest) if rest else self._cache
            inputs = {name: item for name, item in inputs.items() if name not in rest}
        self._refuse_foreign(data)
        if data.demand is not None:
            raise BadWant(
                "the data was grounded with `want=`, and the call has another `want=`",
                caller(),
                "call `model.ground(...)` without `want`, and `model(data, want=...)`",
            )
        return data.wanting(wish), inputs

    def _resolved(
        self, data: Data | None, inputs: Mapping[str, Any]
    ) -> tuple[Step, dict[str, Tensor]]:
        """The step for these inputs, and its dense values."""
        if torch.compiler.is_compiling():
            if data is not None and not isinstance(data, Data):
                self._refuse_unnamed(data)
            check_names(self._handle, (self._cache if data is None else data).handle, tuple(inputs))
            check_kinds(self._handle, kinds_of(inputs), autocasts(self._one.device))
        if data is not None:
            self._refuse_foreign(data)
        read = self._reader.read(inputs, self._one)
        if self.check and not torch.compiler.is_compiling():
            check_numbers(read)
        if data is None:
            tensors = dense(read)
            rest = {n: t for n, t in read.items() if n not in tensors}
            check_numbers(rest)
            data = Data(self._number, rest) if rest else self._cache
            if not torch.compiler.is_compiling():
                self._last = data if rest else None
        else:
            keyed = self._hidden(data, read)
            tensors = {n: step_tensor(n, t) for n, t in read.items() if n not in keyed}
            if keyed:
                return self._without_hidden(data, keyed, tensors)
        self._refuse_missing(data, tensors)
        step = self._step(data, tensors)
        return step, self._grounded(data) | data.live(step) | tensors

    def _hidden(self, data: Data, read: Mapping[str, Any]) -> dict[str, rows | ragged]:
        """Keys beside grounded data, of relations that rules negate and do nothing else with."""
        found = {n: item for n, item in read.items() if isinstance(item, rows | ragged)}
        if not found or torch.compiler.is_compiling() or data.demand is not None or data.padded:
            return {}
        for name in found:
            if name in data.inputs or name in data.stated:
                raise BadInput(
                    f"`{name}` is given both to `ground` and to the call",
                    caller(),
                    f"leave it out of `model.ground(...)`, or of the call: `{name}=...`",
                )
        every = [a for rule in self.plan.rules for a in atoms(rule) if isinstance(a, nodes.Atom)]
        used = {a.relation for a in every if not a.negated}
        return {name: item for name, item in found.items() if name not in used}

    def _without_hidden(
        self, data: Data, keyed: Mapping[str, rows | ragged], tensors: Mapping[str, Tensor]
    ) -> tuple[Step, dict[str, Tensor]]:
        """The step where groundings that keys rule out are masked, or that is joined with them."""
        found = self._masked(data, keyed, tensors)
        if found is not None:
            return found
        joined = Data(self._number, {**data.inputs, **keyed}, data.facts, data.open)
        self._refuse_missing(joined, tensors)
        step = self._step(joined, tensors)
        return step, self._grounded(joined) | joined.live(step) | dict(tensors)

    def _masked(
        self, data: Data, keyed: Mapping[str, rows | ragged], tensors: Mapping[str, Tensor]
    ) -> tuple[Step, dict[str, Tensor]] | None:
        """The step with masks; None where it has to be joined: see `physical/negated_keys.py`."""
        arities, hidden, empty = self._reader.arities, {}, {}
        for name, item in keyed.items():
            if not isinstance(item, rows) or item.strings:
                return None
            hidden[name] = rows_source(name, item, arities[name]).index.keys
            empty[name] = rows(torch.zeros(arities[name], 0, dtype=torch.int64))
        held = data.hiding(empty)
        self._refuse_missing(held, tensors)
        step = self._step(held, tensors)
        values = self._grounded(held) | held.live(step) | dict(tensors)
        for one in step.masked or ():
            mask = one.mask(hidden)
            if mask is None:
                return None
            values[one.name] = mask.to(self._one)
        return (step, values) if step.masked else None

    def _grounded(self, data: Data) -> dict[str, Tensor]:
        """Dense values that were grounded, in the current precision and on the current device."""
        unit = self._one
        return {
            name: value if _is_current(value, unit) else _current(value, unit)
            for name, value in dense(data.inputs).items()
        }

    def _refuse_unnamed(self, thing: Any) -> None:
        if torch.compiler.is_compiling():
            refuse_unnamed(self._handle, type(thing).__name__)
        raise self._reader.unnamed(type(thing).__name__)

    def _refuse_foreign(self, data: Data) -> None:
        if not isinstance(data, Data):
            self._refuse_unnamed(data)
        self._refuse_of_others(data)
        if data.is_partitioned:
            raise ForeignData(
                "each rank has a part of the data",
                caller(),
                "call `model(data, ...)` or `model.rows(data, ...)`, or ground without `mesh`",
            )

    def _refuse_of_others(self, data: Data) -> None:
        if data.model != self._number:
            raise ForeignData(
                "the data was not grounded by this model",
                caller(),
                "call `data = model.ground(...)` on the same model",
            )

    def _refuse_missing(self, data: Data, names: Iterable[str]) -> None:
        if data.open:  # else facts give all relations that they can
            self._reader.refuse_missing({*data.inputs, *names})

    def _step(self, data: Data, tensors: Mapping[str, Any]) -> Step:
        shapes = tuple((n, fixed(tensors[n])) for n in self._reader.arities if n in tensors)
        unit = self._one
        key = (shapes, unit.dtype, str(unit.device))
        tracing = torch.compiler.is_compiling()
        ensure(self._handle, data.handle, shapes, unit.dtype, str(unit.device), tracing)
        return data.built[key]


def _unwritten(x: Tensor) -> Tensor:
    """Keys; zeros of the shape of values, in the memory of one."""
    return x.new_zeros(()).expand(x.shape) if x.is_floating_point() else x


def _is_current(value: Tensor, unit: Tensor) -> bool:
    """Whether a model reads a grounded value as it is."""
    dtype = unit.dtype if value.is_floating_point() else value.dtype
    inference = not torch.compiler.is_compiling() and value.is_inference()
    return value.dtype == dtype and value.device == unit.device and not inference


def _current(value: Tensor, unit: Tensor) -> Tensor:
    """A grounded value as a model reads it: autograd cannot save an inference tensor."""
    value = value.to(unit.device, unit.dtype if value.is_floating_point() else value.dtype)
    return (
        value.clone() if value.is_inference() and not torch.is_inference_mode_enabled() else value
    )
