"""All passes, in the order in which they run: each with a reason and an off-switch."""

from __future__ import annotations

from collections.abc import Collection

from edgewise.errors import EdgewiseError, caller, suggest
from edgewise.ground.colour_refinement import Lifting
from edgewise.ground.embeddings import stacked
from edgewise.passes import GROUND, ON_RULES, Pass
from edgewise.physical.passes import ON_GRAPH
from edgewise.physical.recursion.scan import NAME as SCAN
from edgewise.physical.recursion.scan import scanned


class UnknownPass(EdgewiseError):
    """Passes are switched off by name; a misspelt one would stay on."""

    code = "unknown-pass"
    example = 'Program([R.h(V.X) <= R.a(V.X)]).compile(R.h, without=["fuse atention"])'
    instead = 'Program([R.h(V.X) <= R.a(V.X)]).compile(R.h, without=["fuse attention"])'


ON_GROUND_RULES = (  # all compare keys and values of data, which a graph does not hold
    Pass(
        "stack embeddings",
        "rules that differ in facts and their weight are one gather of weights",
        GROUND,
        stacked,
    ),
    Pass("lift equal rows", "rows that are provably equal are computed once", GROUND, Lifting),
    Pass(SCAN, "a recursion is one loop, its inputs are multiplied before it", GROUND, scanned),
)
PASSES = (*ON_RULES, *ON_GROUND_RULES, *ON_GRAPH)


def refuse_unknown(without: Collection[str]) -> None:
    """Refuse names that no pass has."""
    names = [step.name for step in PASSES]
    for name in without:
        if name not in names:
            raise UnknownPass(
                f"there is no pass `{name}`",
                caller(),
                suggest(name, names),
            )
