"""Both sides of every pass over the graph: values and gradients are the same without it."""

import pytest
import torch

from edgewise import F, Program, R, V, W
from edgewise.physical.passes import ON_GRAPH
from edgewise.pipeline import PASSES
from tests.physical.test_plan import CASES, EDGE, assert_equal, values_and_gradients

PROGRAMS = {
    **CASES,
    "projections of one relation": (
        Program(
            [
                R.a(V.X) <= R.x(V.X)["a":4, 4],
                R.b(V.X) <= R.x(V.X)["b":2, 4] + W.shift[2,],
                R.c(V.X) <= R.x(V.X)["c":4, 4],
                (R.out(V.X) <= (R.a(V.X).T, R.c(V.X))) | [F.product],
                R.out(V.X) <= R.b(V.X)["d":1, 2],
            ]
        ),
        (),
    ),
    "heads": (
        Program(
            [
                R.q(V.H, V.X) <= R.x(V.X)[W.q(V.H)[2, 4]] + W.qb(V.H)[2,],
                R.k(V.H, V.X) <= R.x(V.X)[W.k(V.H)[2, 4]],
                (R.out(V.H, V.X) <= (R.q(V.H, V.X).T, R.k(V.H, V.X))) | [F.product],
            ],
            domains={V.H: 3},
        ),
        (),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("left_out", [step.name for step in ON_GRAPH])
def test_without_a_pass_everything_is_the_same(name, left_out):
    program, keys = PROGRAMS[name]
    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.manual_seed(1))
    found = []
    for without in ((), (left_out,)):
        model = program.compile(R.out, seed=0, fill=0.0, dtype=torch.float64, without=without)
        data = model.ground(**{key: EDGE for key in keys})
        found.append(values_and_gradients(model, data, x))
    assert_equal(*found)


def test_every_pass_over_the_graph_can_be_left_out():
    assert set(ON_GRAPH) <= set(PASSES)


def test_projections_of_one_relation_are_one_product():
    program, _ = PROGRAMS["projections of one relation"]
    for without, products in (((), 2), (("merge projections",), 4)):
        model = program.compile(R.out, seed=0, without=without)
        model(x=torch.randn(6, 4))
        (step,) = model._cache.built.values()
        (plan,) = step.plans.values()
        linear = [n for n in plan.graph.nodes if n.target is torch.nn.functional.linear]
        assert len(linear) == products
