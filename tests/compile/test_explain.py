"""What `explain` says at every stage, as text and as JSON."""

import json

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W, ragged, rows
from edgewise.language import nodes
from edgewise.physical.passes import gathers
from tests.compile.rewritings import D_K, OUT, QKV, SOFTMAX, WEIGHTS, D, numbers

CAUSAL = (R.w(V.I, V.J) <= (R.d_k, R.k(V.J).T, R.q(V.I), R.special.leq(V.J, V.I))) | [
    F.product,
    SOFTMAX,
]
PROGRAM = Program([*QKV, D_K, CAUSAL, OUT])


def model(program=PROGRAM, **options):
    return program.compile(R.out, seed=0, dtype=torch.float64, **options)


@pytest.mark.parametrize("stage", ["rules", "plan", "passes"])
def test_a_stage_reads_well(stage, assert_golden):
    assert_golden(f"explain/{stage}.txt", repr(model().explain(stage=stage)))


def test_it_says_the_same_twice():
    assert repr(model().explain(x=numbers(6, D))) == repr(model().explain(x=numbers(6, D)))


def test_the_text_is_made_of_the_json():
    found = model().explain(x=numbers(6, D))
    data = json.loads(json.dumps(found.to_json()))
    assert data == model().explain(x=numbers(6, D), json=True)
    assert list(data) == ["rules", "plan", "passes", "kernels"]
    assert all(line in repr(found) for line in data["rules"] + data["plan"])
    assert not hasattr(found, "_repr_html_")


@pytest.mark.parametrize("stage", ["rules", "plan", "passes", "kernels"])
def test_one_stage(stage):
    compiled = model()
    whole = compiled.explain(x=numbers(6, D), json=True)
    assert compiled.explain(x=numbers(6, D), stage=stage, json=True) == {stage: whole[stage]}


def test_an_unknown_stage_is_an_error():
    with pytest.raises(EdgewiseError) as caught:
        model().explain(stage="kernel")
    assert caught.value.code == "unknown-stage"
    assert "`kernels`" in caught.value.help


def test_only_what_the_output_needs_is_in_the_plan():
    program = Program([R.h(V.X) <= R.a(V.X)[2.0], R.other(V.X) <= R.h(V.X)])
    data = program.compile(R.h).explain(json=True)
    assert data["plan"] == ['R.h(V.X) <= R.a(V.X)["h.a": 2.0]']
    assert len(data["rules"]) == 2


def test_a_pass_says_why_and_what():
    fired = model().explain(stage="passes", json=True)["passes"]["fired"]
    assert [f["pass"] for f in fired] == ["find patterns", "fuse attention"]
    assert all(f["why"] and f["removed"] and f["added"] for f in fired)
    assert "causal()" in fired[0]["added"][0]
    assert fired[1]["added"][0].startswith("R.out(V.I) = attention from I over J")


def test_passes_over_the_graph_are_shown_where_they_changed_something():
    rules = [
        R.q(V.I) <= R.x(V.I)["q":2, 2],
        R.k(V.I) <= R.x(V.I)["k":2, 2],
        R.out(V.I) <= (R.q(V.I), R.k(V.I)),
    ]
    compiled = Program(rules).compile(R.out, seed=0)
    assert compiled.explain(stage="passes", json=True)["passes"]["when running"] is None
    assert "when running: none yet: give inputs" in str(compiled.explain(stage="passes"))
    found = compiled.explain(x=torch.ones(3, 2), stage="passes", json=True)["passes"]
    (merged,) = found["when running"]
    assert (merged["pass"], merged["on"], merged["places"]) == ("merge projections", "graph", 2)


def test_a_pass_that_is_off_is_shown():
    found = model(without=["fuse attention", "merge projections"]).explain(stage="passes")
    assert "fuse attention: switched off" in repr(found)
    assert found.to_json()["passes"]["switched off"] == ["fuse attention", "merge projections"]


def test_without_shapes_there_are_no_kernels():
    compiled = model()
    assert compiled.explain(json=True)["kernels"] is None
    assert "give inputs" in repr(compiled.explain())
    compiled(x=numbers(7, D))
    seen = compiled.explain(stage="kernels", json=True)["kernels"]
    assert seen["inputs"]["x"] == {"kind": "dense", "axes": [7], "rows": 7}


def relation(found, name):
    return next(r for r in found["kernels"]["relations"] if r["relation"] == name)


def test_an_attention_names_its_kernel_and_the_others_reasons():
    out = relation(model().explain(x=numbers(3, 6, D), json=True), "out")
    (step,) = out["steps"]
    assert step["kernel"] == "attention (dense)"
    assert step["pattern"] == "causal()"
    assert step["pairs"] == 3 * 21
    assert step["flops"] >= 2 * 3 * 21 * 2 * D
    assert "GPU" in step["not"]["triton_blocks"]
    assert out["layouts"] == [{"kind": "dense", "axes": [6], "rows": 6}]


def test_the_work_of_a_projection_is_counted():
    program = Program([R.out(V.I) <= R.x(V.I)[5, 7]])
    found = program.compile(R.out).explain(x=torch.ones(4, 7), json=True)
    (step,) = relation(found, "out")["steps"]
    assert step["kernel"] == "linear"
    assert step["flops"] == 2 * 4 * 5 * 7
    assert step["bytes"] >= 4 * (4 * 7 + 5 * 7 + 4 * 5)
    assert step["groundings"] == 4


def test_a_graph_is_gathered_and_summed_in_segments():
    program = Program([R.out(V.I) <= (R.x(V.J), R._edge(V.I, V.J))])
    compiled = program.compile(R.out)
    data = compiled.ground(edge=torch.tensor([[0, 0, 3], [1, 2, 0]]), x=torch.ones(4))
    out = relation(compiled.explain(data, json=True), "out")
    assert out["layouts"] == [{"kind": "rows", "rows": 2}]
    assert out["steps"][0]["kernel"] == "gather, segment sum"
    assert out["steps"][0]["groundings"] == 3


def test_a_fused_step_that_is_refused_says_why():
    compiled = model(Program([*QKV, D_K, WEIGHTS, OUT]), fill=0.0)
    data = compiled.ground(x=rows(torch.tensor([[0, 2]]), numbers(2, D)))
    assert "not one attention: `R.q(V.I)` is not dense" in repr(compiled.explain(data))


def test_recursion_says_how_it_runs():
    steps = [
        R.out(V.T) <= (R.x(V.T), R.hidden.first(V.T)),
        R.out(V.T) <= (R.out(V.S)[0.5], R.special.next(V.S, V.T), R._x(V.T)),
    ]
    compiled = Program(steps).compile(R.out)
    data = compiled.ground(x=torch.ones(5), first=torch.tensor([[0]]))
    assert "levels, one after another" in repr(compiled.explain(data))
    again = R.out(V.X) <= (R.out(V.Y)[0.5], R._e(V.X, V.Y))
    cycle = Program([again, R.out(V.X) <= R.a(V.X)], rounds=3).compile(R.out)
    data = cycle.ground(a=torch.ones(2), e=torch.tensor([[0, 1], [1, 0]]))
    assert "3 rounds" in repr(cycle.explain(data))


def test_explaining_leaves_the_model_as_it_was():
    compiled, x = model(), numbers(6, D)
    before = compiled(x=x)
    compiled.explain(x=x)
    assert all(p.grad is None for p in compiled.parameters())
    torch.testing.assert_close(compiled(x=x), before)


def test_a_ragged_batch_says_why_its_attention_is_not_one():
    program = Program(
        [
            (R.w(V.I, V.J) <= (R.x(V.I).T, R.x(V.J))) | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
        ]
    )
    model = program.compile(R.out)
    gap = rows(torch.tensor([[0, 2]]), torch.randn(2, 2))
    data = model.ground(x=ragged([gap, torch.randn(5, 2)]))
    assert "not one attention: `R.x" in repr(model.explain(data))
    assert "not one attention" not in repr(model.explain(x=torch.randn(3, 2)))


def steps(program, relation, edges, **inputs):
    """How a relation is computed along edges."""
    compiled = program.compile(nodes.Atom(program.rules[-1].head.relation), fill=0.0)
    data = compiled.ground(edge=edges)
    found = compiled.explain(data, stage="kernels", json=True, **inputs)["kernels"]["relations"]
    return next(r["steps"] for r in found if r["relation"] == relation)


RING = torch.stack([torch.arange(64), torch.arange(64).roll(1)])
RING = torch.cat([RING, RING.flip(0)], 1)[:, :100]


@pytest.mark.parametrize(
    ("aggregation", "name", "kernel"),
    [
        (F.sum_agg, "sum", "embedding_bag"),
        (F.avg_agg, "avg", "embedding_bag"),
        (F.max_agg, "max", "numba"),
    ],
)
def test_an_aggregation_names_its_kernel_and_why_not_others(aggregation, name, kernel, monkeypatch):
    monkeypatch.setattr(gathers, "SMALL_ROWS", 0)
    program = Program([(R.out(V.I) <= (R.x(V.J), R._edge(V.I, V.J))) | [aggregation]])
    (step,) = steps(program, "out", RING, x=torch.ones(64, 4))
    assert step["kernel"] == f"aggregate {name} ({kernel})"
    others = {"numba"} if kernel == "embedding_bag" else set()
    assert set(step["not"]) == {"triton", "reference"} | others
    assert step["not"]["triton"] == "it runs on a CUDA GPU, not on cpu"
    assert step["not"]["reference"] == f"{kernel} is preferred"


WRITTEN_OUT = {
    "it does not compute median_agg": ([R.x(V.J)], [F.median_agg]),
    "more than a row": ([R.x(V.J), R.x(V.I)], [F.elproduct, F.relu]),
    "torch aggregates single numbers": ([R.x(V.J)], []),
}


@pytest.mark.parametrize("reason", WRITTEN_OUT)
def test_rows_that_are_written_out_say_why(reason):
    body, listed = WRITTEN_OUT[reason]
    program = Program([(R.out(V.I) <= (*body, R._edge(V.I, V.J))) | listed])
    shape = (64,) if "single" in reason else (64, 4)
    (step,) = steps(program, "out", RING, x=torch.ones(shape))
    assert "segment" in step["kernel"]
    assert reason in step["not"]["aggregate"]


def test_typed_relations_name_their_products():
    typed = Program(
        [R.out(V.I) <= (R.x(V.J)[W.type(V.T)[3, 4]], R._edge(V.I, V.T, V.J))],
        domains={V.T: 40},
    )
    types = torch.arange(100) % 40
    (few,) = steps(typed, "out", torch.stack([RING[0], types, RING[1]]), x=torch.ones(64, 4))
    assert "products (reference)" in few["kernel"]
    assert few["not"]["triton"] == "it runs on a CUDA GPU, not on cpu"
    twice = replace_domain(typed, 2)
    types = torch.cat([torch.zeros(64), torch.ones(36)]).long()
    (most,) = steps(twice, "out", torch.stack([RING[0], types, RING[1]]), x=torch.ones(64, 4))
    assert most["kernel"] == "aggregate sum (one matrix product)"
    assert "most heads meet most members" in most["not"]["reference"]


def replace_domain(program, count):
    return Program(program.rules, domains={V.T: count})


def test_additive_attention_says_why_not_others():
    program = Program(
        [
            (R.w(V.I, V.J) <= (R.l(V.I), R.l(V.J), R._edge(V.I, V.J)))
            | [F.sum, F.leaky_relu(0.2), SOFTMAX],
            (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
        ]
    )
    (step,) = steps(program, "out", RING, x=torch.ones(64, 4), l=torch.ones(64))
    assert step["kernel"] == "additive attention (numba)"
    assert set(step["not"]) == {"triton", "reference"}
