"""Writing a model: its rules as text, its weights, its options."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.language.statements import mapped
from edgewise.language.text_form.printer import NoTextForm
from edgewise.module import Model
from edgewise.physical.weights import gathered
from edgewise.save import archive


class NotSavable(EdgewiseError):
    """A file holds rules, weights and options; Python code is never saved or run."""

    code = "not-savable"
    example = """\
model = Program([(R.h(V.X) <= R.a(V.X)) | [F.call(torch.nn.Tanh())]]).compile(R.h)
model.save("model.edgewise")"""
    instead = """\
model = Program([(R.h(V.X) <= R.a(V.X)) | [F.tanh]]).compile(R.h)
model.save("model.edgewise")"""


def save(model: Model, path: str | Path) -> None:
    """Write a model to one file, atomically.

    The file has the rules as text, the weights and the options; the same model gives the same
    bytes. `load` gives an equal model: the same program, `state_dict` and outputs. Of weights that
    are sharded over ranks, all ranks call this, and the first of them writes.
    """
    if not isinstance(path, str | Path):
        raise NotSavable(
            f"expected a path, got {type(path).__name__}",
            caller(),
            'write `model.save("model.edgewise")`',
        )
    path = Path(path)
    rules = rules_text(model).encode()
    tensors, ties = tensors_of(model)
    weights = safetensors.torch.save(tensors)
    manifest = options_of(model) | {
        "ties": ties,
        "parts": {archive.RULES: archive.digest(rules), archive.WEIGHTS: archive.digest(weights)},
    }
    parts = {archive.MANIFEST: archive.dump(manifest), archive.RULES: rules}
    if _waits_for_first(model):
        return
    try:
        archive.write(path, archive.pack(parts | {archive.WEIGHTS: weights}))
    except (OSError, ValueError) as problem:  # a null byte in a path is a ValueError
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise NotSavable(
            f"cannot write `{path}`: {why}",
            caller(),
            "give a path in an existing, writable folder",
        ) from None


def _waits_for_first(model: Model) -> bool:
    """Whether this is not the first of the ranks that share the weights."""
    sharded = any(hasattr(p, "full_tensor") for p in model.parameters())
    return sharded and torch.distributed.get_rank() != 0


def options_of(model: Model) -> dict[str, Any]:
    """How the program was compiled, and which weights do not learn."""
    unit = model.get_buffer("_unit")
    state = model.state_dict(keep_vars=True).items()
    parameters = {n: t for n, t in state if isinstance(t, torch.nn.Parameter)}
    return {
        "format": archive.FORMAT,
        "edgewise": sys.modules["edgewise"].__version__,
        "output": model.plan.outputs[0].relation,
        **_queries(model),
        "fill": _number(model.fill),
        "limit": model.limit,
        "limit_unit": "bytes",
        "without": list(model.without),
        "check": model.check,
        **({} if model._dense is None else {"dense": model._dense}),
        "dtype": str(unit.dtype).removeprefix("torch."),
        "frozen": sorted(n for n, p in parameters.items() if not p.requires_grad),
    }


def _queries(model: Model) -> dict[str, Any]:
    """Outputs that are more than one relation: their names and terms, `{}` for a variable."""
    plan = model.plan
    if plan.is_one_relation:
        return {}
    terms = [[_term(t, q.terms) for t in q.terms] for q in plan.outputs]
    names = plan.names or (plan.outputs[0].relation,)
    outputs = [[name, own] for name, own in zip(names, terms, strict=True)]
    return {"outputs": outputs, "several": bool(plan.names)}


def _term(term: nodes.Term, terms: tuple[nodes.Term, ...]) -> int | str | list[int]:
    """A constant as it is, a variable as the place where it occurs first."""
    return [terms.index(term)] if isinstance(term, nodes.Variable) else term


def _number(number: float | None) -> float | str | None:
    """JSON lacks NaN and infinity: they are written as strings."""
    return number if number is None or math.isfinite(number) else repr(float(number))


def tensors_of(model: Model) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The state by name, each tensor once, and the names tied to another."""
    tensors: dict[str, Tensor] = {}
    ties: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if tensor.is_meta:
            raise NotSavable(
                f"`{name}` is on the device meta and has no numbers",
                caller(),
                "load numbers first: `model.to_empty(device=...)`, `model.load_state_dict(...)`",
            )
        known = first.setdefault(id(tensor), name)
        if known == name:
            tensors[name] = gathered(tensor.detach()).cpu().contiguous().clone()
        else:
            ties[name] = known
    return tensors, ties


def rules_text(model: Model) -> str:
    """The rules as text that `Program.parse` reads back; tensors are among the weights."""
    program = model.program
    placeholders: dict[int, int] = {}
    bare = Program(
        _bare(program.statements, placeholders),
        aggregation=program.aggregation,
        domains=dict(program.domains),
        rounds=program.rounds,
    )
    try:
        text = bare.text()
    except NoTextForm as problem:
        raise NotSavable(problem.message, caller(), problem.help) from None
    try:
        same = Program.parse(text) == bare
    except EdgewiseError:
        same = False
    if not same:
        raise NotSavable(
            "the rules cannot be written as text and read back",
            caller(),
            "see `Program.parse(program.text())`; save `model.state_dict()` instead",
        )
    return text


def _bare(node: Any, placeholders: dict[int, int]) -> Any:
    """The node with a numbered placeholder for each tensor, whose values are among the weights.

    Different tensors have different placeholders, so that different rules stay different.
    """
    match node:
        case nodes.Weight(value=nodes.Opaque(thing=thing)):
            shape = tuple(torch.as_tensor(thing).shape)
            number = float(placeholders.setdefault(id(thing), len(placeholders)))
            if not shape:
                return replace(node, value=number)
            return replace(node, value=None, shape=shape, fill=number)
    return mapped(node, lambda part: _bare(part, placeholders))
