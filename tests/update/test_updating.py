"""Facts told one after another give what they give together."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W
from edgewise.checks.evaluation import OutOfDomain
from edgewise.physical.rule import RuleStep
from edgewise.physical.symbols import Symbol
from edgewise.update import values

TWO_HOPS = [
    R.h(V.X) <= (R.edge(V.X, V.Y), R.x(V.Y)[W.w[2, 2]]),
    (R.out(V.X) <= (R.edge(V.X, V.Y), R.h(V.Y))) | [F.product, F.tanh],
]


def chain(n):
    generator = torch.Generator().manual_seed(0)
    return [
        *(R.edge(f"n{i}", f"n{i + 1}")[0.5] for i in range(n - 1)),
        *(R.x(f"n{i}")[torch.randn(2, generator=generator).tolist()] for i in range(n)),
    ]


def at_once(model, facts):
    return dict(model.rows(model.ground(facts=facts)))


def assert_same(found, expected):
    found = dict(found)
    assert set(found) == set(expected)
    for atom, value in expected.items():
        torch.testing.assert_close(found[atom], value.detach(), rtol=1e-9, atol=1e-9)


def test_only_what_new_facts_reach_is_computed():
    model = Program(TWO_HOPS).compile(R.out, seed=0, dtype=torch.float64)
    facts = chain(200)
    updating = model.updating(facts=facts)
    assert updating.computed == {"h": 199, "out": 198}
    more = [R.edge("n7", "n100")[2.0], R.edge("n3", "a new one")[1.0], R.x("a new one")[[1.0, 2.0]]]
    found = updating.add(more)
    assert updating.computed["h"] == 2
    assert updating.computed["out"] == 3  # n7, and n6 and n2, which read what changed
    assert_same(found, at_once(model, [*facts, *more]))


def test_a_fact_told_again_has_a_new_value():
    model = Program(TWO_HOPS).compile(R.out, seed=0, dtype=torch.float64)
    facts = chain(9)
    updating = model.updating(facts=facts)
    updating.add([R.x("n4")[[3.0, -1.0]]])
    expected = [f for f in facts if (f.relation, f.terms) != ("x", ("n4",))]
    assert_same(updating.output, at_once(model, [*expected, R.x("n4")[[3.0, -1.0]]]))
    assert updating.computed == {"h": 1, "out": 1}


SOFTMAX = [
    (R.w(V.X, V.Y) <= (R.edge(V.X, V.Y), R.x(V.Y)[W.a[1, 2]]))
    | [F.product, F.softmax_agg(agg_terms=[V.Y])],
    (R.out(V.X) <= (R.w(V.X, V.Y), R.x(V.Y))) | [F.product],
]


def test_a_softmax_is_computed_over_all_it_joins():
    model = Program(SOFTMAX).compile(R.out, seed=0, dtype=torch.float64)
    facts = [*chain(6), R.edge("n0", "n3")[1.0], R.edge("n0", "n4")[1.0]]
    updating = model.updating(facts=facts)
    more = [R.edge("n0", "n5")[1.0]]
    assert_same(updating.add(more), at_once(model, [*facts, *more]))
    assert updating.computed == {"w": 4, "out": 1}


def test_what_negation_takes_away_is_gone():
    rules = [
        R.leaf(V.X) <= (R.x(V.X), ~R.has(V.X)),
        R.out(V.Y) <= (R.edge(V.X, V.Y), R.leaf(V.X)),
    ]
    model = Program(rules).compile(R.out, dtype=torch.float64)
    facts = chain(5)
    updating = model.updating(facts=facts)
    more = [R.has("n2")]
    assert_same(updating.add(more), at_once(model, [*facts, *more]))


def test_nothing_changes_when_facts_are_refused():
    model = Program(TWO_HOPS).compile(R.out, seed=0, dtype=torch.float64)
    updating = model.updating(facts=chain(5))
    before = dict(updating.output)
    for wrong in ([R.edge("n0")], [R.nobody(1)], [R.x("n1")[float("inf")]], [R.x("n9")[[1.0]]]):
        with pytest.raises(EdgewiseError):
            updating.add(wrong)
        assert_same(updating.output, before)
    assert_same(updating.add([]), before)


FROM_THE_START = {  # bodies without a relation hold before any fact is added
    "a family alone": [R.out(V.H) <= W.p(V.H)[2,]],
    "a family beside a relation": [R.out(V.H) <= W.p(V.H)[2,], R.out(V.X) <= R.x(V.X)],
    "a weight alone": [R.out <= W.p[2,]],
    "a condition on constants": [R.one <= R.special.leq(1, 2), R.out(V.X) <= (R.one, R.x(V.X))],
    "a number": [R.sum <= R.special.add_eval(1, 2), R.out(V.X) <= (R.sum, R.x(V.X))],
    "a negation": [R.out(0)[2,] <= ~R.x(3), R.out(V.X) <= R.x(V.X)],
    "several rules for one head": [
        (R.h <= (W.p, R.special.max_eval(2, 1))) | [F.avg],
        (R.h <= (R.edge(V.X, V.Y), R.edge(V.Y, V.X))) | [F.product],
        (R.h <= R.edge(V.X, V.Y)) | [F.max_agg],
        (R.out(V.X) <= (R.x(V.X), R.h)) | [F.product],
        R.out(0) <= W.p[1.5] @ W.q[2,],
    ],
}


@pytest.mark.parametrize("name", FROM_THE_START)
@pytest.mark.parametrize("first", [0, 1, 3, 6])
def test_bodies_without_relations_hold_from_the_start(name, first):
    program = Program(FROM_THE_START[name], domains={V.H: 3})
    model = program.compile(R.out, seed=0, dtype=torch.float64)
    used = {"x", "edge"} & set(model.inputs)
    facts = [R.x(0)[[1.0, 2.0]], R.edge(0, 1)[2.0], R.x(1)[[3.0, 4.0]], R.edge(1, 0)[-3.0]]
    facts = [f for f in [*facts, R.edge(1, 1)[0.5], R.x(3)[[5.0, 6.0]]] if f.relation in used]
    updating = model.updating(facts=facts[:first])
    assert_same(updating.output, at_once(model, facts[:first]))
    for fact in facts[first:]:
        updating.add([fact])
    assert_same(updating.output, at_once(model, facts))


WEIGHT_PER_KEY = [
    R.h(V.H, V.X) <= (R.a(V.X)[W.f(V.H)[1, 1]], R.b(V.X)),
    (R.out(V.G) <= (R.c(V.G), R.h(V.G, V.X), R.a(V.X)[W.g(V.G)[1, 1]])) | [F.product],
]


def test_keys_outside_a_domain_are_refused_only_in_groundings_that_hold():
    program = Program(WEIGHT_PER_KEY, domains={V.H: 2, V.G: (0, 2)})
    model = program.compile(R.out, seed=0, dtype=torch.float64)
    facts = [R.c(0)[1.0], R.a(0)[2.0], R.a(1)[4.0], R.c(2)[1.0], R.b(0)[3.0], R.b(1)[5.0]]
    updating = model.updating(facts=facts[:2])
    assert_same(updating.add(facts[2:]), at_once(model, facts))
    weights = dict(model.named_parameters())
    assert_same(updating.output, program.solve(facts, weights=weights)[R.out(V.G)])
    before = model.updating(facts=[R.c(1)[1.0], R.a(0)[2.0]])
    assert_same(before.output, {})
    with pytest.raises(OutOfDomain, match="`G` = 1 has no weight in `g`"):
        before.add([R.b(0)[3.0]])


@pytest.mark.parametrize("facts", [[R.c(1)[1.0], R.a(0)[2.0]], [R.a(0)[2.0], R.c(1)[1.0]]])
def test_no_pass_leaves_out_a_key_that_has_no_weight(facts):
    rule = (R.out(V.G) <= (R.c(V.G), R.a(V.X)[W.g(V.G)[1, 1]])) | [F.product]
    model = Program([rule], domains={V.G: (0, 2)}).compile(R.out, seed=0)
    updating = model.updating(facts=facts[:1])
    with pytest.raises(OutOfDomain, match="`G` = 1 has no weight in `g`"):
        updating.add(facts[1:])
    with pytest.raises(OutOfDomain, match="`G` = 1 has no weight in `g`"):
        at_once(model, facts)


def test_a_plan_is_reused_where_rows_are_read_in_the_same_pattern(monkeypatch):
    made = []
    lowered = values.lowered
    monkeypatch.setattr(values, "lowered", lambda *a, **k: made.append(a) or lowered(*a, **k))
    model = Program(TWO_HOPS).compile(R.out, seed=0, dtype=torch.float64)
    facts = chain(30)
    updating = model.updating(facts=facts)
    made.clear()
    more = [R.edge(f"n{i}", f"n{i + 9}")[float(i)] for i in (11, 13, 15, 17)]
    for fact in more:
        updating.add([fact])
        assert len(made) == 2  # of the first: one for each relation
    assert_same(updating.output, at_once(model, [*facts, *more]))


def test_values_of_another_shape_are_not_read_by_an_earlier_plan():
    model = Program([R.out(V.X) <= R.x(V.X)]).compile(R.out, dtype=torch.float64)
    updating = model.updating(facts=[R.x(0)[[1.0, 2.0]]])
    assert_same(updating.add([R.x(0)[3.0]]), {R.out(0): torch.tensor(3.0, dtype=torch.float64)})


def test_every_value_is_computed_by_a_plan(monkeypatch):
    """Rules run on symbols alone, those of an addition included."""
    states = []
    compute = RuleStep._compute
    monkeypatch.setattr(
        RuleStep, "_compute", lambda step, state: states.append(state) or compute(step, state)
    )
    model = Program(SOFTMAX).compile(R.out, seed=0)
    updating = model.updating(facts=chain(5))
    updating.add([R.edge("n0", "n3")[1.0]])
    assert states
    for state in states:
        assert all(isinstance(column.data, Symbol) for column in state.relations.values())


@pytest.mark.parametrize("rules", [TWO_HOPS, SOFTMAX], ids=["two hops", "softmax"])
def test_large_additions(rules):
    model = Program(rules).compile(R.out, seed=0, dtype=torch.float64)
    facts, generator = chain(80), torch.Generator().manual_seed(1)
    updating = model.updating(facts=facts)
    pairs = torch.randint(0, 80, (1500, 2), generator=generator).unique(dim=0).tolist()
    more = [R.edge(f"n{i}", f"n{j}")[1.0 / (1 + i)] for i, j in pairs if j != i + 1]
    for start in (0, 100, 103):
        updating.add(more[start : {0: 100, 100: 103, 103: None}[start]])
    assert_same(updating.output, at_once(model, [*facts, *more]))
