"""Every pass: what it does on a program, the same results on and off, and nothing more twice."""

import os
import warnings
from pathlib import Path

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V
from edgewise.errors import EdgewiseWarning
from edgewise.language import nodes
from edgewise.passes import ON_RULES, optimise
from edgewise.passes.fuse_attention import refusals
from edgewise.pipeline import PASSES
from edgewise.plan.lower import assert_well_formed, lower
from edgewise.plan.show import show
from tests.compile.look_alikes import LOOK_ALIKES
from tests.compile.rewritings import REWRITINGS
from tests.compile.terms import TERMS

PLANS = Path(__file__).parents[1] / "golden" / "plans"
NAMES = [step.name for step in PASSES]
CASES = [*REWRITINGS, *TERMS, *(case for _, case in LOOK_ALIKES)]


def lowered(program):
    """The plan for the relation of the last rule."""
    return lower(program, nodes.Atom(program.rules[-1].head.relation))


def stages(plan):
    """The plan before each pass, the pass, and the plan after it."""
    for step in ON_RULES:
        after = step.run(plan)
        yield plan, step, after
        plan = after


@pytest.mark.parametrize("step", ON_RULES, ids=lambda step: step.name)
def test_it_fires_in_its_golden(step, assert_golden):
    folder = step.name.replace(" ", "-")
    plan = lowered(Program.load(PLANS / folder / "program.rules"))
    before, after = next((b, a) for b, s, a in stages(plan) if s is step)
    assert before != after
    assert_golden(f"plans/{folder}/plan.txt", show(before))
    assert_golden(f"plans/{folder}/fused.txt", show(after))


def test_every_golden_has_its_pass():
    assert {p.name for p in PLANS.iterdir()} == {s.name.replace(" ", "-") for s in ON_RULES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_plans_stay_well_formed(case):
    program = case.program
    inputs = frozenset(case.inputs())
    for before, step, after in stages(lower(program, R[case.output])):
        assert_well_formed(before, inputs)
        assert_well_formed(after, inputs)
        assert step.run(after) == after, f"{step.name} twice"


@pytest.mark.parametrize("name", NAMES)
def test_off_is_on_for_attention(name):
    for case in CASES[:: 1 if os.environ.get("EDGEWISE_FUZZ") else 4]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EdgewiseWarning)
            options = {"seed": 0, "dtype": torch.float64, "fill": case.fill}
            on = case.program.compile(R[case.output], **options).eval()
            off = case.program.compile(R[case.output], without=[name], **options).eval()
        off.load_state_dict(on.state_dict())
        inputs = case.inputs()
        torch.testing.assert_close(on(**inputs), off(**inputs), atol=1e-12, rtol=1e-9)


def test_a_pass_that_is_off_does_not_fire():
    plan = lowered(Program.load(PLANS / "fuse-attention" / "program.rules"))
    assert [name for name, _ in optimise(plan)[1]] == ["find patterns", "fuse attention"]
    assert optimise(plan, without=tuple(NAMES))[1] == []


@pytest.mark.parametrize(
    ("name", "help"), [("fuse atention", "did you mean `fuse attention`?"), ("x", "choose one of")]
)
def test_an_unknown_pass_is_an_error(name, help):
    with pytest.raises(EdgewiseError) as caught:
        Program([R.h(V.X) <= R.a(V.X)]).compile(R.h, without=[name])
    assert caught.value.code == "unknown-pass"
    assert help in caught.value.help


def work(program, without, **inputs):
    model = program.compile(nodes.Atom("out"), without=without)
    return model.explain(stage="kernels", json=True, **inputs)["kernels"]


def test_projecting_rows_first_is_less_work():
    program = Program([(R.out(V.I) <= (R.a(V.I), R.x(V.J)[8, 8])) | [F.product]])
    inputs = {"a": torch.ones(64), "x": torch.ones(64, 8)}
    off = ["push sums", "merge projections"]
    on = work(program, off, **inputs)["total"]["flops"]
    assert work(program, ["project rows", *off], **inputs)["total"]["flops"] > 5 * on


def test_projections_of_one_relation_are_one_product():
    program = Program.load(PLANS / "fuse-attention" / "program.rules")
    inputs = {"x": torch.ones(5, 3)}
    assert work(program, [], **inputs)["one product"] == [["q.x", "k.x", "v.x"]]
    assert work(program, ["merge projections"], **inputs)["one product"] == []


def test_a_sum_is_not_pushed_below_what_binds_its_variables():
    rule = (R.h(V.Y) <= (R.a(V.Y), R.b(V.X), R.special.sub_eval(V.X, V.Y))) | [F.product]
    facts = [R.a(1)[2.0], R.a(2)[3.0], R.b(0)[5.0], R.b(4)[7.0]]
    program = Program([rule], domains={V.Y: 5})
    model = program.compile(R.h, dtype=torch.float64)
    found = dict(model.rows(model.ground(facts=facts)))
    assert found == {R.h(1): 2 * (5 * -1 + 7 * 3), R.h(2): 3 * (5 * -2 + 7 * 2)}


def test_a_score_deeper_than_kernels_compile_is_computed_by_its_rules():
    listed = [F.product, *[F.tanh] * 120, F.softmax_agg(agg_terms=[V.J])]
    weights = (R.w(V.I, V.J) <= (R.k(V.J).T, R.q(V.I))) | listed
    program = Program([weights, (R.out(V.I) <= (R.w(V.I, V.J), R.v(V.J))) | [F.product]])
    assert "100 functions deep" in refusals(lowered(program))["w"]
    model = program.compile(R.out, dtype=torch.float64)
    inputs = {name: torch.rand(3, 2, dtype=torch.float64) for name in ("q", "k", "v")}
    facts = [R[n](i)[x[i]] for n, x in inputs.items() for i in range(3)]
    solved = program.solve(facts)
    found = model(**inputs)
    for i in range(3):
        torch.testing.assert_close(found[i], solved[R.out(i)])
