"""The passes, in order: each a named function Plan → Plan with a reason and an off-switch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgewise.errors import EdgewiseError, caller, nearest
from edgewise.passes.find_patterns import find_patterns
from edgewise.passes.fuse_attention import fuse_attention
from edgewise.passes.inline_pairs import inline_pairs
from edgewise.passes.inline_places import inline_places
from edgewise.passes.push_sums import push_sums
from edgewise.plan.nodes import Plan


class UnknownPass(EdgewiseError):
    """Passes are switched off by name; a misspelt one would stay on."""

    code = "unknown-pass"
    example = 'Program([R.h(V.X) <= R.a(V.X)]).compile(R.h, without=["fuse atention"])'
    instead = 'Program([R.h(V.X) <= R.a(V.X)]).compile(R.h, without=["fuse attention"])'


@dataclass(frozen=True)
class Pass:
    name: str
    why: str
    run: Callable[[Plan], Plan]


PIPELINE = (
    # before the others, which read patterns where rules write arithmetic
    Pass("find patterns", "pairs defined by arithmetic are never enumerated", find_patterns),
    # before fusing, which looks for one score rule and one sum
    Pass(
        "inline pairs",
        "an intermediate relation would materialise a value for each pair",
        inline_pairs,
    ),
    Pass(
        "inline places",
        "a function of positions would be materialised for each pair",
        inline_places,
    ),
    Pass(
        "fuse attention", "one kernel over the pairs; scores are never materialised", fuse_attention
    ),
    Pass("push sums", "a sum over one atom is taken before the join, not after", push_sums),
)
# decided when running, not by rewriting rules
EXECUTION = {
    "project rows": "weights are applied once per row, before rows are gathered",
    "merge projections": "projections of one relation are one product of matrices",
    "stack embeddings": "rules that differ in facts and their weight are one gather of weights",
    "lift equal rows": "rows that are sure to be equal are computed once",
}


def optimise(plan: Plan, *, without: tuple[str, ...] = ()) -> tuple[Plan, list[tuple[str, Plan]]]:
    """The plan after all passes, and what each of them changed."""
    names = [p.name for p in PIPELINE] + list(EXECUTION)
    for name in without:
        if name not in names:
            near = nearest(name, names)
            raise UnknownPass(
                f"there is no pass `{name}`",
                caller(),
                f"did you mean `{near}`?" if near else f"there are {', '.join(names)}",
            )
    changes = []
    for step in PIPELINE:
        if step.name in without:
            continue
        after = step.run(plan)
        if after != plan:
            changes.append((step.name, after))
        plan = after
    return plan, changes
