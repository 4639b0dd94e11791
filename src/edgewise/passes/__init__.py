"""Passes over rules, in order: named functions Plan → Plan. `edgewise.pipeline` lists all.

To add one, such as a pass that removes equal rules, write `passes/<name>.py` and add it to
ON_RULES.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from edgewise.passes.find_patterns import find_patterns
from edgewise.passes.fuse_attention import fuse_attention
from edgewise.passes.inline_pairs import inline_pairs
from edgewise.passes.inline_places import inline_places
from edgewise.passes.push_conditions import push_conditions
from edgewise.passes.push_sums import push_sums
from edgewise.plan.nodes import Plan

RULES, GROUND, GRAPH = "rules", "ground rules", "graph"


@dataclass(frozen=True)
class Pass:
    """A rewrite with a reason, of rules (Plan → Plan), of ground rules while they are made, or of
    the graph of tensor operations, where it gives the number of places it changed.

    `reads_keys` if it depends on which atoms hold; `appending` says whether it is for plans that
    append rows, or for all others (None: for both).
    """

    name: str
    why: str
    on: str
    run: Callable[..., Any]
    reads_keys: bool = False
    appending: bool | None = None


ON_RULES = (
    # before the others, which read patterns where rules write arithmetic
    Pass("find patterns", "pairs defined by arithmetic are never enumerated", RULES, find_patterns),
    # before rules are inlined and fused, whose atoms it reads
    Pass(
        "push conditions",
        "members of a family of weights that are not read are not multiplied",
        RULES,
        push_conditions,
    ),
    # before fusing, which looks for one score rule and one sum
    Pass(
        "inline pairs",
        "an intermediate relation would materialise a value for each pair",
        RULES,
        inline_pairs,
    ),
    Pass(
        "inline places",
        "a function of positions would be materialised for each pair",
        RULES,
        inline_places,
    ),
    Pass(
        "fuse attention",
        "one kernel over the pairs; scores are never materialised",
        RULES,
        fuse_attention,
    ),
    Pass("push sums", "a sum over one atom is taken before the join, not after", RULES, push_sums),
)


def optimise(plan: Plan, *, without: Collection[str] = ()) -> tuple[Plan, list[tuple[str, Plan]]]:
    """The plan after all passes over rules, and what each of them changed."""
    changes = []
    for step in ON_RULES:
        if step.name in without:
            continue
        after = step.run(plan)
        if after != plan:
            changes.append((step.name, after))
        plan = after
    return plan, changes
