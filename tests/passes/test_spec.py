"""A plan that is not one is told apart."""

from dataclasses import replace

import pytest

from edgewise import F, Program, R, V
from edgewise.passes import optimise
from edgewise.plan.lower import BadPlan, assert_well_formed, lower, problems
from edgewise.plan.nodes import Dot, LoweredScore
from edgewise.scores.nodes import S
from tests.compile.rewritings import D_K, OUT, QKV, WEIGHTS

PLAN = lower(Program([R.g(V.X) <= R.a(V.X)[2.0], R.h(V.X) <= R.g(V.X)]), R.h)
FUSED = optimise(lower(Program([*QKV, D_K, WEIGHTS, OUT]), R.out))[0]
ATTENTION = FUSED.steps[-1]


def test_a_plan_is_one():
    assert_well_formed(PLAN, frozenset({"a"}))
    assert_well_formed(FUSED, frozenset({"x"}))


WRONG = {
    "nothing derives the output `h`": replace(PLAN, steps=PLAN.steps[:1]),
    "`a` is read and nothing gives it": PLAN,
    "`g` is derived and nothing reads it": replace(
        PLAN, steps=(*PLAN.steps[:1], R.h(V.X) <= R.b(V.X))
    ),
    "`g` has 1 terms and 2": replace(PLAN, steps=(*PLAN.steps, R.h(V.X) <= R.g(V.X, V.Y))),
    "`Y` in the head of": replace(PLAN, steps=(*PLAN.steps, R.h(V.Y) <= R.g(V.X))),
    "has no name": replace(PLAN, steps=(*PLAN.steps, R.h(V.X) <= R.g(V.X)[2, 2])),
    "has heads": replace(FUSED, steps=(*FUSED.steps[:-1], replace(ATTENTION, shared=("H",)))),
    "hold its query": replace(FUSED, steps=(*FUSED.steps[:-1], replace(ATTENTION, value=R.v(V.I)))),
    "hold its key": replace(
        FUSED,
        steps=(
            *FUSED.steps[:-1],
            replace(ATTENTION, score=LoweredScore(S, (Dot(R.q(V.J), R.k(V.J), ()),))),
        ),
    ),
    "are read elsewhere": replace(
        FUSED, steps=(*FUSED.steps, (R.out(V.I) <= R.w(V.I, V.J)) | [F.sum_agg])
    ),
}


@pytest.mark.parametrize(("text", "plan"), WRONG.items(), ids=WRONG)
def test_what_is_wrong_is_said(text, plan):
    assert any(text in problem for problem in problems(plan, frozenset()))
    with pytest.raises(BadPlan):
        assert_well_formed(plan, frozenset())


def test_compiling_checks_when_asked(monkeypatch):
    monkeypatch.setenv("EDGEWISE_CHECK", "1")
    assert Program([*QKV, D_K, WEIGHTS, OUT]).compile(R.out).inputs == ("x",)
    monkeypatch.setattr(
        "edgewise.compile.lower", lambda program, *outputs, several, as_inputs: WRONG["has no name"]
    )
    with pytest.raises(BadPlan):
        Program([R.h(V.X) <= R.g(V.X)]).compile(R.h)
