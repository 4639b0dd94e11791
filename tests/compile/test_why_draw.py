"""`why` and `draw` on compiled models: the reference on one sample, with the current weights."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, ragged, rows
from tests.compile.rewritings import D_K, OUT, QKV, WEIGHTS, D, numbers

PROGRAM = Program([*QKV, D_K, WEIGHTS, OUT])
GRAPH = Program([R.h(V.X) <= (R.a(V.Y)["w":2.0], R._e(V.X, V.Y)), R.other <= R.missing(V.X)])


@pytest.fixture
def model():
    return PROGRAM.compile(R.out, seed=0, dtype=torch.float64)


def test_why_gives_the_value_of_the_model(model):
    x = numbers(6, D)
    with torch.no_grad():
        model.weight("v.x").mul_(3.0)
    why = model.why(R.out(3), x=x)
    torch.testing.assert_close(why.value, model(x=x)[3].detach())
    assert len(why.derivations[0].groundings) == 6
    assert "w(3, 0)" in repr(why)


def test_why_of_a_helper(model):
    why = model.why(R.w(1, 2), x=numbers(6, D))
    assert len(why.derivations[0].group) == 6


def test_a_sample_of_a_batch(model):
    x = numbers(2, 6, D)
    why = model.why(R.out(3), x=x, sample=1)
    torch.testing.assert_close(why.value, model(x=x)[1, 3].detach())


def test_a_sample_of_a_ragged_batch():
    model = GRAPH.compile(R.h)
    data = model.ground(
        a=ragged([torch.tensor([1.0, 2.0]), torch.tensor([5.0, 6.0, 7.0])]),
        e=ragged([torch.tensor([[0], [1]]), torch.tensor([[0, 0], [1, 2]])]),
    )
    assert model.why(R.h(0), data, sample=0).value.item() == 4.0
    assert model.why(R.h(0), data, sample=1).value.item() == 26.0


def test_facts_and_strings():
    model = GRAPH.compile(R.h)
    data = model.ground(facts=[R.a("u")[1.5], R.a("v")[2.0], R.e("u", "v"), R.e("u", "u")])
    assert model.why(R.h("u"), data).value.item() == 7.0


def test_facts_of_the_program_have_the_weights_of_now():
    model = Program([(R.h(V.X) <= (R.a(V.X), R.c)) | [F.product], R.c[2.0]]).compile(R.h)
    with torch.no_grad():
        model.weight("c").fill_(10.0)
    assert model.why(R.h(0), a=torch.ones(2)).value.item() == 10.0


def test_draw(model):
    x = numbers(3, D)
    whole, part = model.draw(x=x).svg, model.draw(R.out(1), x=x).svg
    assert whole.startswith("<svg")
    assert len(part) < len(whole)
    assert model.draw().svg == PROGRAM.draw().svg


def test_draw_with_data():
    model = GRAPH.compile(R.h)
    data = model.ground(a=torch.ones(3), e=torch.tensor([[0, 0], [1, 2]]))
    assert "h(0)" in model.draw(data).svg
    assert "h(0)" in model.draw(R.h(0), data).svg


def test_a_large_sample_is_not_drawn():
    model = PROGRAM.compile(R.out)
    with pytest.raises(EdgewiseError) as caught:
        model.draw(R.out(0), x=torch.ones(1000, D))
    assert caught.value.code == "sample-too-large"
    assert "1,000,000" in caught.value.message


def test_one_atom_of_many_is_explained_by_what_is_behind_it():
    rules = [
        (R.h(V.X) <= (R.edge(V.X, V.Y), R.x(V.Y)["w":2.0])) | [F.product],
        R.out(V.X) <= (R.h(V.Y), R._edge(V.X, V.Y), ~R.off(V.Y)),
    ]
    model = Program(rules).compile(R.out, dtype=torch.float64)
    nodes, edges = 20_000, 200_000
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(0, nodes, (2, edges), generator=generator).unique(dim=1)
    x = torch.rand(nodes, generator=generator, dtype=torch.float64)
    values = torch.rand(pairs.shape[1], generator=generator, dtype=torch.float64)
    data = model.ground(edge=rows(pairs, values), off=torch.arange(0, nodes, 3).unsqueeze(0))
    why = model.why(R.out(7), data, x=x)
    near = [y for y in pairs[1, pairs[0] == 7].tolist() if y % 3]
    assert sorted(dict(g.assignment)["Y"] for g in why.derivations[0].groundings) == near
    sums = [2 * (values * x[pairs[1]])[pairs[0] == y].sum() for y in near]
    torch.testing.assert_close(why.value, torch.stack(sums).sum())
    conditions = why.derivations[0].groundings[0].conditions
    assert [c.relation for c in conditions] == ["edge", "off"]
    assert "edge(7, " in repr(why)


def test_a_variable_of_conditions_alone_has_a_witness():
    model = Program([R.h(V.X) <= (R.a(V.X), R._e(V.X, V.Y), R._e(V.Y, V.Z))]).compile(R.h)
    facts = [R.a(0)[2.0], R.e(0, 1), R.e(0, 2), R.e(2, 3), R.e(2, 4)]
    (grounding,) = model.why(R.h(0), model.ground(facts=facts)).derivations[0].groundings
    first, second = (atom.terms for atom in grounding.conditions)
    assert first == (0, 2)
    assert second in ((2, 3), (2, 4))


def test_the_weights_of_now_are_printed():
    model = GRAPH.compile(R.h)
    with torch.no_grad():
        model.weight("w").fill_(5.0)
    why = model.why(R.h(0), a=torch.ones(3), e=torch.tensor([[0, 0], [1, 2]]))
    assert 'R.a(V.Y)["w": 5.0]' in repr(why)


def test_evidence_for_and_against_is_apart():
    rule = R.h(V.X) <= (R.a(V.Y), R._e(V.X, V.Y))
    model = Program([rule]).compile(R.h)
    facts = [R.a(0)[10.0], R.a(1)[9.0], R.a(2)[-14.0], *(R.e(0, y) for y in range(3))]
    why = model.why(R.h(0), model.ground(facts=facts))
    text = repr(why)
    assert "57.6% for, 42.4% against" in text
    assert text.index("a(1)") < text.index("\n  against") < text.index("a(2)")
    assert all(abs(g.share) <= 1 for g in why.derivations[0].groundings)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (R.h(V.X), "bad-query"),
        (R.h(7), "not-derivable"),
        (R.h("u"), "not-derivable"),
        (R.hh(0), "not-derivable"),
        (R.h(0, 1), "arity-mismatch"),
        (~R.h(0), "bad-query"),
        ("h", "bad-query"),
    ],
)
def test_what_cannot_be_explained(query, code):
    model = GRAPH.compile(R.h)
    with pytest.raises(EdgewiseError) as caught:
        model.why(query, a=torch.ones(3), e=torch.tensor([[0, 0], [1, 2]]))
    assert caught.value.code == code


def test_an_unknown_sample_is_refused(model):
    with pytest.raises(EdgewiseError) as caught:
        model.why(R.out(0), x=numbers(2, 6, D), sample=2)
    assert caught.value.code == "unknown-sample"


def test_an_atom_that_is_not_derived(model):
    with pytest.raises(EdgewiseError) as caught:
        model.why(R.out(9), x=numbers(6, D))
    assert caught.value.code == "not-derivable"
