"""The passes, in order; each is a named function Plan → Plan with a reason."""

from __future__ import annotations

from edgewise.plan.nodes import Plan

PIPELINE: tuple = ()


def optimise(plan: Plan, *, without: tuple[str, ...] = ()) -> tuple[Plan, list]:
    return plan, []
