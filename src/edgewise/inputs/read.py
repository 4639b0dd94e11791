"""Inputs by name, read and checked before anything is joined or computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from edgewise.checks.evaluation import NotANumber
from edgewise.errors import EdgewiseError, caller, nearest
from edgewise.inputs.kinds import Input, parts
from edgewise.inputs.readers import read_one
from edgewise.language import nodes


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


class DtypeMismatch(EdgewiseError):
    """A model computes in one precision; an input in another would be converted in silence."""

    code = "dtype-mismatch"
    example = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a=torch.ones(3, dtype=torch.float64))"
    instead = (
        "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h).double()"
        "(a=torch.ones(3, dtype=torch.float64))"
    )


class DeviceMismatch(EdgewiseError):
    """A model computes on one device; copying inputs to it at every step would be slow unseen."""

    code = "device-mismatch"
    example = 'Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a=torch.ones(3, device="meta"))'
    instead = 'Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a=torch.ones(3, device="cpu"))'


class KeysAtStep(EdgewiseError):
    """Keys are joined once, when grounding: a step is tensor work on what was joined."""

    code = "keys-at-step"
    example = """\
model = Program([R.h(V.X) <= (R.a(V.X), R._b(V.X))]).compile(R.h, fill=0.0)
model(model.ground(), a=torch.ones(3), b=torch.tensor([[0, 2]]))"""
    instead = """\
model = Program([R.h(V.X) <= (R.a(V.X), R._b(V.X))]).compile(R.h, fill=0.0)
model(model.ground(b=torch.tensor([[0, 2]])), a=torch.ones(3))"""


def read(
    inputs: Mapping[str, Any], arities: Mapping[str, int], every: Mapping[str, int], unit: Tensor
) -> dict[str, Input]:
    """Inputs by name, each of a relation that the plan reads, of the model's precision and device.

    `unit` is a tensor of the model.
    """
    found = {}
    casts = unit.device.type != "meta" and torch.is_autocast_enabled(unit.device.type)
    refuse_unknown(inputs, arities, every)
    for name, item in inputs.items():
        found[name] = read_one(name, item, arities[name])
        for part in parts(found[name]):
            keys = not isinstance(found[name], Tensor) and not part.is_floating_point()
            if not (keys and part.device.type == "cpu"):
                check_device(name, part.device, unit)
            if part.is_floating_point() and not casts:
                check_dtype(name, part.dtype, unit)
    return found


def refuse_unknown(
    names: Iterable[str], arities: Mapping[str, int], every: Mapping[str, int]
) -> None:
    """Refuse a name that is not one of the data relations."""
    for name in names:
        if name not in arities:
            raise _unknown(name, arities, every)


def _unknown(name: str, arities: Mapping[str, int], every: Mapping[str, int]) -> UnknownInput:
    if name in every:
        return UnknownInput(f"the output does not read `{name}`", caller(), "leave it out")
    near = nearest(name, list(arities))
    return UnknownInput(
        f"the program has no relation `{name}`",
        caller(),
        f"did you mean `{near}`?" if near else f"its relations are {', '.join(arities)}",
    )


def kinds_of(inputs: Mapping[str, Any]) -> tuple[tuple[str, torch.dtype, str], ...]:
    """The precision and the device of every input that is real numbers."""
    tensors = [(n, t) for n, t in inputs.items() if isinstance(t, Tensor)]
    return tuple([(n, t.dtype, str(t.device)) for n, t in tensors if t.is_floating_point()])


def check_dtype(name: str, dtype: torch.dtype, unit: Tensor) -> None:
    if dtype != unit.dtype:
        raise DtypeMismatch(
            f"`{name}` is {dtype}, the model {unit.dtype}",
            caller(),
            f"convert one of them: `x.to({unit.dtype})` or `model.to({dtype})`",
        )


def check_device(name: str, device: torch.device, unit: Tensor) -> None:
    if device != unit.device:
        raise DeviceMismatch(
            f"`{name}` is on {device}, the model on {unit.device}",
            caller(),
            "move one of them: `x.to(device)` or `model.to(device)`",
        )


def check_numbers(inputs: Mapping[str, Input]) -> None:
    """Refuse values that are not numbers; done when grounding, not at every step."""
    for name, item in inputs.items():
        for part in parts(item):
            if part.is_floating_point() and bool(part.isnan().any()):
                raise NotANumber(
                    f"`{name}` holds a value that is not a number",
                    caller(),
                    "drop those rows, or replace them: `torch.nan_to_num(x)`",
                )


def step_tensor(name: str, item: Input) -> Tensor:
    """What may come with a step: a tensor of values."""
    if isinstance(item, Tensor):
        return item
    raise KeysAtStep(
        f"`{name}` has keys, which are joined when grounding",
        caller(),
        f"give it to `model.ground({name}=...)`",
    )


def check_facts(facts: tuple[nodes.Atom, ...], every: Mapping[str, int]) -> None:
    """Refuse facts of relations that the program does not have, and values that are not numbers."""
    for atom in facts:
        if atom.relation not in every:
            near = nearest(atom.relation, list(every))
            raise UnknownInput(
                f"the program has no relation `{atom.relation}`",
                atom.place or caller(),
                f"did you mean `{near}`?" if near else f"its relations are {', '.join(every)}",
            )
        value = atom.weight.value if atom.weight is not None else None
        thing = value.thing if isinstance(value, nodes.Opaque) else value
        if thing is not None and bool(torch.as_tensor(thing).isnan().any()):
            raise NotANumber(
                f"the value of `{atom!r}` is not a number", atom.place or caller(), "drop the fact"
            )
