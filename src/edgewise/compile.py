"""The whole pipeline on one screen: rules → checks → plan → passes → module."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch

from edgewise.checks import check as check_program
from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.module import Model
from edgewise.passes import optimise
from edgewise.plan.lower import lower
from edgewise.plan.spec import assert_well_formed

LIMIT = 100_000_000


def compile(
    program: Program,
    output: nodes.Atom,
    *,
    fill: float | None = None,
    limit: int = LIMIT,
    without: Iterable[str] = (),
    seed: int | None = None,
    dtype: torch.dtype | None = None,
    check: bool = False,
) -> Model:
    """A torch module that computes one relation of a program.

    `fill` is the value of absent atoms in a dense output that is not total; `limit` the most
    groundings a rule may have; `without` names passes to leave out; `seed` draws the weights, each
    by its name, as in `solve`.
    What is grounded must be numbers; with `check=True` the tensors of every call are looked at
    too, which waits for a GPU.

    >>> from edgewise import R, V, Program
    >>> model = compile(Program([R.h(V.I) <= R.x(V.I)[2.0]]), R.h)
    >>> model(x=torch.tensor([1.0, 3.0])).tolist()
    [2.0, 6.0]
    """
    check_program(program)
    plan = lower(program, output)
    stages: dict[str, Any] = {"plan": plan, "without": tuple(without)}
    plan, stages["passes"] = optimise(plan, without=tuple(without))
    if os.environ.get("EDGEWISE_CHECK"):
        for _, made in (("plan", stages["plan"]), *stages["passes"]):
            assert_well_formed(made)
    return Model(program, plan, stages, fill=fill, limit=limit, seed=seed, dtype=dtype, check=check)
