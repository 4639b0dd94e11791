"""The compiled model: a plain `torch.nn.Module`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from edgewise.checks import check
from edgewise.checks.facts import data_atoms
from edgewise.errors import EdgewiseError, caller, nearest
from edgewise.ground.constants import KeyOutOfRange
from edgewise.ground.index import Grid, locate
from edgewise.ground.inputs import Given, ragged, read, rows
from edgewise.ground.kinds import axis_lengths, dense_relations
from edgewise.ground.sources import DtypeMismatch
from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.language.statements import atoms
from edgewise.plan.nodes import Plan
from edgewise.reference import NotANumber
from edgewise.reference.weights import WeightTable
from edgewise.run.build import Executable, build
from edgewise.run.column import Column
from edgewise.run.inputs import SAMPLES, Prepared, prepare
from edgewise.run.move import to_device
from edgewise.run.result import Relation
from edgewise.run.rule import State


class UnknownInput(EdgewiseError):
    """Inputs are given by the names of data relations; a misspelt one would be ignored."""

    code = "unknown-input"
    example = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(b=torch.ones(3))"
    instead = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a=torch.ones(3))"


class MissingInput(EdgewiseError):
    """A relation that no rule derives must be given, if only as an empty one."""

    code = "missing-input"
    example = "Program([R.h(V.X) <= (R.a(V.X), R._b(V.X))]).compile(R.h)(a=torch.ones(3))"
    instead = (
        "Program([R.h(V.X) <= (R.a(V.X), R._b(V.X))]).compile(R.h, fill=0.0)"
        "(a=torch.ones(3), b=torch.tensor([[0, 2]]))"
    )


class NotTotal(EdgewiseError):
    """A dense output has a place for every key; where a rule derives none, its value is absent."""

    code = "not-total"
    example = (
        "Program([R.h(V.X) <= (R.a(V.X), R.special.lt(V.X, 2))]).compile(R.h)(a=torch.ones(3))"
    )
    instead = (
        "Program([R.h(V.X) <= (R.a(V.X), R.special.lt(V.X, 2))]).compile(R.h, fill=0.0)"
        "(a=torch.ones(3))"
    )


class Data:
    """Grounded inputs: keys and facts, and what has been built for the shapes seen so far."""

    def __init__(
        self,
        given: dict[str, Given],
        facts: tuple[nodes.Atom, ...] | ragged = (),
        open: bool = True,
    ) -> None:
        self.given = given
        self.facts = facts
        self.open = open  # whether relations that are not given may still come with a call
        self.built: dict[Any, tuple[Prepared, Executable]] = {}

    def __repr__(self) -> str:
        return f"<data: {', '.join(self.given) or 'facts'}>"


class Model(torch.nn.Module):
    """A program compiled for one of its relations.

    `model(x=...)` where nothing needs grounding; `data = model.ground(edge=...)` once and
    `model(data, x=...)` at every step where something does.
    """

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
    ) -> None:
        super().__init__()
        self.program = program
        self.plan = plan
        self.stages = stages
        self.fill = fill
        self.limit = limit
        self.project_first = "project rows" not in stages.get("without", ())
        precision = dtype or torch.get_default_dtype()
        self.register_buffer("_unit", torch.ones((), dtype=precision), persistent=False)
        table = WeightTable(
            [*plan.rules, *plan.facts], dict(plan.domains), seed=seed, dtype=precision
        )
        self._paths = {name: _register(self, name, t) for name, t in table.tensors.items()}
        for name in table.tensors:
            if name not in table.learnable:
                _freeze(self, self._paths[name])
        self._arities = _arities(plan)
        self._derived = {rule.head.relation for rule in plan.rules}
        self._cache = Data({})

    @property
    def inputs(self) -> tuple[str, ...]:
        """The relations that data must give: those that no rule derives and no fact states."""
        stated = {fact.atom.relation for fact in self.plan.facts}
        return tuple(n for n in self._arities if n not in self._derived and n not in stated)

    def weight(self, name: str) -> Tensor:
        """A weight by its name in the program."""
        return _at(self, self._paths[name])

    def ground(self, *, facts: Iterable[Any] | ragged | None = None, **inputs: Any) -> Data:
        """Join, check and lay out everything that depends on keys; do it once, step many times."""
        atoms = facts if isinstance(facts, ragged) else data_atoms(facts or ())
        data = Data(self._read(inputs), atoms, open=facts is None)
        self._check_facts(data)
        if data.open and self._missing(data, {}) is None:
            self._built(data, {})
        return data

    def forward(self, data: Data | None = None, /, **inputs: Any) -> Tensor | Relation:
        prepared, executable, value, batched = self._computed(data, inputs)
        output = prepared.plan.output
        dense = dense_relations(prepared.plan.rules, prepared.dense, dict(prepared.plan.domains))
        if output.relation not in dense:
            return self._relation(output.relation, executable, value, batched)
        sizes = dense_sizes(prepared, executable)[output.relation]
        found = self._on_axes(output.relation, value, sizes, executable)
        found = found.reshape(found.shape[0], *sizes, *value.shape)
        return found if batched else found.squeeze(0)

    def rows(self, data: Data | None = None, /, **inputs: Any) -> Relation:
        """The output as explicit rows, whatever its layout: only the atoms that hold."""
        prepared, executable, value, batched = self._computed(data, inputs)
        return self._relation(prepared.plan.output.relation, executable, value, batched)

    def _relation(
        self, name: str, executable: Executable, value: Column, batched: bool
    ) -> Relation:
        data = value.data if batched else value.data.squeeze(0)
        return Relation(name, executable.relations[name], data, executable.constants, batched)

    def _computed(
        self, data: Data | None, inputs: Mapping[str, Any]
    ) -> tuple[Prepared, Executable, Column, bool]:
        if data is None:
            given = self._read(inputs)
            tensors = {n: t for n, t in given.items() if _is_dense(t)}
            rest = {n: t for n, t in given.items() if n not in tensors}
            data = Data(rest) if rest else self._cache
        else:
            tensors = {n: self._step_input(n, t) for n, t in self._read(inputs).items()}
        missing = self._missing(data, tensors)
        if missing is not None:
            raise MissingInput(
                f"`{missing}` is not given", caller(), f"call `model({missing}=...)` or ground it"
            )
        prepared, executable = self._built(data, tensors)
        value = self._run(prepared, executable, data.given | tensors)
        batched = any(source.batched for source in executable.sources.values())
        return prepared, executable, value, batched

    def _run(
        self, prepared: Prepared, executable: Executable, given: Mapping[str, Given]
    ) -> Column:
        unit = self._unit
        assert isinstance(unit, Tensor)
        weights = {name: _at(self, path) for name, path in self._paths.items()}
        columns = {}
        for name, source in executable.sources.items():
            item = given.get(name)
            tensor = item if isinstance(item, Tensor) and source.dense else None
            columns[name] = Column(source.data(tensor, weights, unit.dtype))
        state = State(columns, weights, self.training, unit.dtype, unit.device)
        value = executable.run(state).get(prepared.plan.output.relation)
        return Column(unit.new_zeros(1, 0)) if value is None else value

    # inputs

    def _read(self, inputs: Mapping[str, Any]) -> dict[str, Given]:
        found = {}
        for name, item in inputs.items():
            if name not in self._arities:
                near = nearest(name, list(self._arities))
                raise UnknownInput(
                    f"the program has no relation `{name}`",
                    caller(),
                    f"did you mean `{near}`?" if near else f"inputs: {', '.join(self.inputs)}",
                )
            found[name] = read(name, item)
            self._check_values(name, found[name])
        return found

    def _check_values(self, name: str, item: Given) -> None:
        values = item.values if isinstance(item, rows) else item
        if not isinstance(values, Tensor) or not values.is_floating_point():
            return
        unit = self._unit
        assert isinstance(unit, Tensor)
        if values.dtype != unit.dtype and not torch.is_autocast_enabled(unit.device.type):
            raise DtypeMismatch(
                f"`{name}` is {values.dtype}, the model {unit.dtype}",
                caller(),
                f"convert one of them: `x.to({unit.dtype})` or `model.to({values.dtype})`",
            )
        if values.device != unit.device:
            raise DtypeMismatch(
                f"`{name}` is on {values.device}, the model on {unit.device}",
                caller(),
                "move one of them: `x.to(device)` or `model.to(device)`",
            )

    def _step_input(self, name: str, item: Given) -> Tensor:
        if isinstance(item, Tensor) and item.is_floating_point():
            return item
        raise UnknownInput(
            f"`{name}` has keys, which are joined when grounding",
            caller(),
            f"give it to `model.ground({name}=...)`",
        )

    def _missing(self, data: Data, tensors: Mapping[str, Tensor]) -> str | None:
        """A relation that must be given and is not; facts give all relations that they can."""
        if not data.open:
            return None
        return next((n for n in self.inputs if n not in data.given and n not in tensors), None)

    def _check_facts(self, data: Data) -> None:
        if isinstance(data.facts, ragged):
            return
        if data.facts:
            check(self.program, data.facts)
        for atom in data.facts:
            value = atom.weight.value if atom.weight is not None else None
            thing = value.thing if isinstance(value, nodes.Held) else value
            if thing is not None and torch.as_tensor(thing).isnan().any():
                raise NotANumber(
                    f"the value of `{atom!r}` is not a number", atom.place, "drop the fact"
                )

    def _built(self, data: Data, tensors: Mapping[str, Tensor]) -> tuple[Prepared, Executable]:
        unit = self._unit
        assert isinstance(unit, Tensor)
        key = (
            *sorted((name, tuple(t.shape)) for name, t in tensors.items()),
            unit.dtype,
            unit.device,
        )
        if key not in data.built:
            if len(data.built) >= 64 and data is self._cache:
                data.built.clear()  # many lengths in a row must not add up
            data.built[key] = self._build({**data.given, **tensors}, data.facts)
        return data.built[key]

    @torch.compiler.disable
    def _build(
        self, given: Mapping[str, Given], facts: tuple[nodes.Atom, ...] | ragged
    ) -> tuple[Prepared, Executable]:
        unit = self._unit
        assert isinstance(unit, Tensor)
        prepared = prepare(self.plan, self._arities, given, facts, unit.dtype)
        executable = build(
            prepared.plan,
            prepared.sources,
            prepared.constants,
            limit=self.limit,
            project_first=self.project_first,
        )
        return prepared, to_device(executable, unit.device)

    # output

    def _on_axes(
        self,
        relation: str,
        value: Column,
        sizes: tuple[int, ...],
        executable: Executable,
    ) -> Tensor:
        index = executable.relations[relation]
        if index == Grid(sizes):
            return value.data
        grid = Grid(sizes)
        columns = [index.column(p) for p in range(index.arity)]
        places = locate(grid, columns) if columns else torch.zeros(index.rows).long()
        if bool((places < 0).any()):
            at = int((places < 0).nonzero()[0])
            key = tuple(executable.constants.constant(int(c[at])) for c in columns)
            raise KeyOutOfRange(
                f"`{relation}` is derived for {key}, outside its axes {sizes}",
                help="give keys below the length of the dense inputs",
            )
        if index.rows < grid.rows and self.fill is None:
            raise NotTotal(
                f"`{relation}` has {index.rows} of {grid.rows} values on its axes {sizes}",
                caller(),
                "say what the absent ones are: `compile(..., fill=0.0)`",
            )
        shape = (value.data.shape[0], grid.rows, *value.shape)
        out = value.data.new_full(shape, self.fill if self.fill is not None else 0.0)
        return out.index_copy(1, places.to(out.device), value.data)


def dense_sizes(prepared: Prepared, executable: Executable) -> dict[str, tuple[int, ...]]:
    """The lengths of the axes of every dense relation."""
    domains = dict(prepared.plan.domains)
    sizes: dict[str, tuple[int, ...]] = {
        name: executable.sources[name].index.sizes  # type: ignore[union-attr]
        for name in prepared.dense
    }
    changed = True
    while changed:
        changed = False
        for rule in prepared.plan.rules:
            found = axis_lengths(rule, sizes, domains)
            old = sizes.get(rule.head.relation)
            if found is not None and old is None:
                sizes[rule.head.relation] = found
                changed = True
            elif (
                found is not None
                and old is not None
                and any(a > b for a, b in zip(found, old, strict=True))
            ):
                sizes[rule.head.relation] = tuple(map(max, found, old))
                changed = True
    return sizes


def _is_dense(item: Given) -> bool:
    return isinstance(item, Tensor) and item.is_floating_point()


def _arities(plan: Plan) -> dict[str, int]:
    found: dict[str, int] = {}
    for rule in plan.rules:
        for atom in (rule.head, *atoms(rule.body)):
            if isinstance(atom, nodes.Atom):
                found.setdefault(atom.relation, len(atom.terms))
    for fact in plan.facts:
        found.setdefault(fact.atom.relation, len(fact.atom.terms))
    return found


def _register(module: torch.nn.Module, name: str, tensor: Tensor) -> tuple[str, ...]:
    """Put a weight into a tree of modules by the parts of its name; give its path."""
    *scopes, leaf = name.split(".")
    path = []
    for part in scopes:
        if not isinstance(getattr(module, part, None), torch.nn.Module):
            part = part if not hasattr(module, part) else f"{part}_"
            if not hasattr(module, part):
                module.add_module(part, torch.nn.Module())
        module = getattr(module, part)
        path.append(part)
    while hasattr(module, leaf):
        leaf += "_"
    if isinstance(tensor, torch.nn.Parameter):
        module.register_parameter(leaf, tensor)
    else:
        module.register_buffer(leaf, tensor)
    return (*path, leaf)


def _freeze(module: torch.nn.Module, path: tuple[str, ...]) -> None:
    found = _at(module, path)
    if isinstance(found, torch.nn.Parameter):
        found.requires_grad_(False)


def _at(module: torch.nn.Module, path: tuple[str, ...]) -> Tensor:
    for part in path:
        module = getattr(module, part)
    assert isinstance(module, Tensor)
    return module


__all__ = ["SAMPLES", "Data", "Model", "Relation"]
