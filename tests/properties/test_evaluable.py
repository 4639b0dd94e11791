"""The fuzzer itself: its cases solve, cover the language, and print as what they are."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings

from edgewise import C, F, Program, R, V, W, graphs, repeat
from edgewise.language import nodes
from edgewise.language.functions import DEFINITIONS
from edgewise.language.specials import SPECIALS
from tests.properties.evaluable import evaluable

pytestmark = pytest.mark.filterwarnings("ignore::edgewise.EdgewiseWarning")

NAMES = {"C": C, "F": F, "Program": Program, "R": R, "V": V, "W": W, "repeat": repeat}
PATTERNS = {name: getattr(graphs, name) for name in ("causal", "dilated", "strided", "window")}


def parts(node: Any) -> Iterator[Any]:
    """A node and everything inside it."""
    yield node
    if isinstance(node, tuple | list):
        for item in node:
            yield from parts(item)
    elif is_dataclass(node) and not isinstance(node, nodes.Opaque):
        for one in fields(node):
            if one.name not in ("place", "pattern"):
                yield from parts(getattr(node, one.name))


@given(evaluable())
@settings(deadline=None, max_examples=100)
def test_every_case_solves(case):
    solution = case.program.solve(case.facts, seed=0)
    assert set(solution.computed) <= {rule.head.relation for rule in case.program.rules}


def test_the_cases_cover_the_language():
    seen: set[str] = set()

    @given(evaluable())
    @settings(deadline=None, max_examples=400, derandomize=True, database=None)
    def collect(case):
        found = list(parts(case.program.statements))
        seen.update(part.name for part in found if isinstance(part, nodes.Function))
        seen.update(f"@{part.name}" for part in found if isinstance(part, nodes.SpecialAtom))
        seen.update(type(part).__name__ for part in found)
        seen.update("family" for part in found if isinstance(part, nodes.Weight) and part.keys)
        seen.update("negated" for part in found if getattr(part, "negated", False))
        seen.update("hidden" for part in found if getattr(part, "hidden", False))

    collect()
    kinds = {"Atom", "SpecialAtom", "PatternAtom", "Apply", "Weight", "Rule", "Line", "Stack"}
    assert kinds | {"Fact", "family", "negated", "hidden"} <= seen
    assert "ValueComparison" in seen
    compared = {"greater", "greater_equal"}  # what such a comparison computes
    compared |= {"batch_norm"}  # of fixed weights: tests/compile/test_batch_norm.py
    missing = {*DEFINITIONS, *(f"@{name}" for name in SPECIALS)} - seen - compared
    assert len(missing) <= 3  # a run of this length may miss the rarest


@given(evaluable())
@settings(deadline=None, max_examples=60)
def test_a_case_prints_as_code_and_as_text_that_build_it(case):
    printed = repr(case.program)
    if "F.call(" in printed or "fn(" in printed:
        return  # a function of Python's prints as itself
    assert eval(printed, NAMES | PATTERNS) == case.program
    assert Program.parse(case.program.text()) == case.program
