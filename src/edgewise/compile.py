"""The pipeline on one screen: rules → checks → plan → passes → module."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from edgewise.checks import check as check_program
from edgewise.checks.lint import IdleCombination, LearnableConstant, LikelyVariable
from edgewise.errors import EdgewiseError, caller, iterates, safe_repr
from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.language.statements import atoms, name_weights
from edgewise.language.statements import weights as weights_of
from edgewise.module import Model
from edgewise.passes import optimise
from edgewise.pipeline import refuse_unknown
from edgewise.plan.lower import assert_well_formed, lower, selections
from edgewise.plan.nodes import Plan
from edgewise.plan.value_ranks import RankedComparison, by_ranks, split
from edgewise.weights import PRECISIONS

LIMIT = 8 << 30  # bytes


# what a model, and its `ground`, `explain`, `why`, `profile` and `growing`, have arguments for
RESERVED = frozenset({"self", "facts", "stage", "json", "sample", "backward", "capacity", "want"})


class ReservedName(EdgewiseError):
    """Data is passed by the name of its relation, which cannot be that of another argument."""

    code = "reserved-name"
    example = "Program([R.h(V.X) <= R.facts(V.X)]).compile(R.h)"
    instead = "Program([R.h(V.X) <= R.known(V.X)]).compile(R.h)"


class BadCompileOption(EdgewiseError):
    """An option of a model is a number, a precision or the names of passes."""

    code = "bad-compile-option"
    example = 'Program([R.h(V.X) <= R.a(V.X)]).compile(R.h, limit="many")'
    instead = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h, limit=1 << 30)"


def compile(
    program: Program,
    output: nodes.Atom | Sequence[nodes.Atom],
    *,
    fill: float | None = None,
    limit: int = LIMIT,
    without: Iterable[str] = (),
    seed: int | None = None,
    dtype: torch.dtype | None = None,
    check: bool = False,
    weights: Model | Mapping[str, torch.Tensor] | None = None,
    dense: bool | None = None,
) -> Model:
    """A torch module that computes one relation of a program, or a list of them.

    Constants choose rows: of `R.g(3, V.X)` those with 3, of `R.g(3, 4)` the value of one atom. A
    model for a list returns a dictionary by name.
    `fill` is the value of absent atoms in a dense output that is not total; `limit` the most bytes
    that the groundings of a rule may take; `without` names passes to leave out; `seed` draws the
    weights, each by its name, as in `solve`; `weights` shares those of another model, or has some
    by name.
    An output is a tensor or a relation of rows as its inputs are; always a tensor with
    `dense=True`, always rows with `dense=False`.
    What is grounded must be numbers; with `check=True` the tensors of every call are looked at
    too, which waits for a GPU.

    >>> from edgewise import R, V, Program
    >>> model = compile(Program([R.h(V.I) <= R.x(V.I)[2.0]]), R.h)
    >>> model(x=torch.tensor([1.0, 3.0])).tolist()
    [2.0, 6.0]
    >>> rules = [R.h(V.I) <= R.x(V.I)[2.0], R.g <= R.h(V.I)]
    >>> found = compile(Program(rules), [R.h(1), R.g])(x=torch.tensor([1.0, 3.0]))
    >>> {name: value.item() for name, value in found.items()}
    {'h': 6.0, 'g': 8.0}
    """
    without = _options(fill, limit, without, seed, dtype, check, dense)
    refuse_unknown(without)
    for warning in check_program(program):
        # the others may be about inputs of the model
        if isinstance(warning, IdleCombination | LearnableConstant | LikelyVariable):
            # past `Program.compile` and the check of its options
            warnings.warn(warning, stacklevel=4)
    several = isinstance(output, list | tuple)
    outputs: Sequence[nodes.Atom] = output if isinstance(output, list | tuple) else (output,)
    if not outputs:
        raise _bad("output", output, "name at least one relation: `compile([R.out])`")
    chosen = selections(program, [o for o in outputs if isinstance(o, nodes.Atom)])
    plan = lower(program, *outputs, several=several, as_inputs=frozenset(chosen))
    stages: dict[str, Any] = {"plan": plan, "without": without}
    plan = _by_ranks(plan, [_selection(program, chosen, n) for n in chosen], stages)
    stages["before passes"] = plan
    plan, stages["passes"] = optimise(plan, without=without)
    if os.environ.get("EDGEWISE_CHECK"):
        for _, made in (("plan", stages["plan"]), *stages["passes"]):
            assert_well_formed(made)
    _refuse_names(plan)
    held = _shared(program, plan, weights, dtype or torch.get_default_dtype())
    options: dict[str, Any] = {"fill": fill, "limit": limit, "seed": seed, "dtype": dtype}
    kind = _selecting() if chosen else Model
    return kind(program, plan, stages, **options, check=check, weights=held, dense=dense)


def _selecting() -> type[Model]:
    """Models whose groundings depend on values leave every trace, which loads Dynamo: a second."""
    from edgewise.selecting import Selecting

    return Selecting


def _selection(program: Program, chosen: Sequence[str], name: str) -> Plan:
    """The plan of a selection, which takes the others as inputs."""
    return lower(program, nodes.Atom(name), as_inputs=frozenset(chosen) - {name})


def _by_ranks(plan: Plan, selected: Sequence[Plan], stages: dict[str, Any]) -> Plan:
    """A plan whose selections, of which some are computed for each key apart, are a stage."""
    known = {p.outputs[0].relation: found for p in selected if (found := split(p)) is not None}
    by_rank = {name: one for name, one in known.items() if isinstance(one, RankedComparison)}
    parts: list[Plan] = []
    for one in selected:
        found = known.get(one.outputs[0].relation)
        parts += [one] if found is None else found.plans
    stages["selections"] = tuple(by_ranks(part, by_rank) for part in parts)
    stages["split"] = {p.outputs[0].relation: one for one in known.values() for p in one.plans}
    return by_ranks(plan, by_rank)


def _shared(
    program: Program,
    plan: Plan,
    weights: Model | Mapping[str, torch.Tensor] | None,
    dtype: torch.dtype,
) -> dict[str, torch.Tensor]:
    """The weights that are not drawn: parameters as they are, other tensors as initial values."""
    if weights is None:
        return {}
    if not isinstance(weights, Model | Mapping):
        raise _bad("weights", weights, "give a compiled model, or tensors by name")
    found = weights._weights() if isinstance(weights, Model) else dict(weights)
    used = {w.name: w for s in (*plan.rules, *plan.facts) for w in weights_of(s)}
    every = {w.name for s in name_weights(program) for w in weights_of(s)}
    shared = {}
    for name, tensor in found.items():
        if isinstance(weights, Mapping) and name not in every:
            raise _bad("weights", name, f"the program has {', '.join(sorted(map(str, every)))}")
        if isinstance(tensor, torch.nn.Parameter) and tensor.dtype != dtype:
            raise _bad("weights", tensor.dtype, f"share weights in {dtype}, or give `dtype`")
        if name in used:
            shared[name] = _own(tensor, used[name], dtype)
    return shared


def _own(tensor: Any, weight: nodes.Weight, dtype: torch.dtype) -> Any:
    """A weight that is shared, or begins with the numbers of a tensor."""
    if isinstance(tensor, torch.nn.Parameter) or not isinstance(tensor, torch.Tensor):
        return tensor
    start = tensor.detach().to(dtype).clone()
    return start if weight.is_fixed else torch.nn.Parameter(start)


def _refuse_names(plan: Plan) -> None:
    """Refuse data relations that could not be passed by their names."""
    derived = {rule.head.relation for rule in plan.rules} | {f.atom.relation for f in plan.facts}
    for rule in plan.rules:
        for atom in atoms(rule.body):
            if isinstance(atom, nodes.Atom) and atom.relation in RESERVED - derived:
                raise ReservedName(
                    f"`{atom.relation}` is an input with the name of an argument of the model",
                    atom.place or rule.place,
                    f"rename the relation, for example to `{atom.relation}_input`",
                )


def _options(
    fill: Any, limit: Any, without: Any, seed: Any, dtype: Any, check: Any, dense: Any
) -> tuple[str, ...]:
    """Refuse options that would fail later, or mean something else; the names of passes."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype in PRECISIONS):
        raise _bad("dtype", dtype, "give a precision: `dtype=torch.float64`")
    if fill is not None:
        precision = torch.finfo(dtype or torch.get_default_dtype())
        if isinstance(fill, bool) or not isinstance(fill, int | float):
            raise _bad("fill", fill, "give a number: `fill=0.0`")
        if precision.max < abs(fill) < math.inf:
            raise _bad("fill", fill, f"give a number that {precision.dtype} has")
    if not isinstance(check, bool):
        raise _bad("check", check, "give `check=True` or leave it out")
    if dense is not None and not isinstance(dense, bool):
        raise _bad("dense", dense, "give `dense=True` for tensors, `dense=False` for rows")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise _bad("limit", limit, "give an integer number of bytes: `limit=1 << 30`")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise _bad("seed", seed, "give an integer from 0 to 2^63 - 1: `seed=0`")
    if isinstance(without, str | bytes) or not iterates(without):
        raise _bad("without", without, 'give a list of names: `without=["fuse attention"]`')
    names = tuple(without)
    for name in names:
        if not isinstance(name, str):
            raise _bad("without", name, 'give names of passes: `without=["fuse attention"]`')
    return names


def _bad(name: str, value: Any, help: str) -> BadCompileOption:
    return BadCompileOption(f"`{name}` is {safe_repr(value)}", caller(), help)
