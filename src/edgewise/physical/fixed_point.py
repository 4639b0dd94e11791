"""Rounds until nothing changes, outside of any trace; imported where a program has them.

`torch.compiler.disable` loads Dynamo, which takes a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from edgewise.checks.evaluation import NoFixedPoint

if TYPE_CHECKING:
    from edgewise.physical.rounds import FixedPoint


@torch.compiler.disable(reason="how many rounds there are depends on values")
def repeated(start: list[Tensor], outer: list[Tensor], loop: FixedPoint) -> list[Tensor]:
    """At most one round for each atom, and one to see that nothing changed."""
    values, last = tuple(start), len(loop.bodies) - 1
    for number in range(loop.rows + 2):
        before, (_, body) = values, loop.bodies[min(number, last)]
        values = body(*values, *outer)
        same = number >= last and len(before) == len(values)
        if same and all(torch.equal(a, b) for a, b in zip(before, values, strict=True)):
            return list(values)
    raise NoFixedPoint(
        f"`{loop.rule.head.relation}` still changes after {loop.rows} rounds, one for each of its "
        "atoms",
        loop.rule.place,
        "a cycle improves the value every time: remove it, or set `Program(..., rounds=k)`",
    )
