"""Values as conditions, the best of a group, and subtraction: reference, compiled, text."""

import copy

import pytest
import torch

import edgewise
from edgewise import EdgewiseError, F, Program, R, V, W, ragged

FACTS = [R.x(i)[value] for i, value in enumerate((0.3, -1.2, 2.5, 0.9, 0.0))]
EDGES = [R.e(i, j)[0.5 * i - j] for i in range(5) for j in range(5) if (i + 2 * j) % 3]


def numbers(found) -> dict[tuple, float]:
    return {atom.terms: value.item() for atom, value in found.items()}


def both(program: Program, query, facts) -> dict[tuple, float]:
    """What the reference derives, which is what a compiled model gives."""
    solved = numbers(program.solve(facts)[query])
    model = program.compile(R[query.relation], dtype=torch.float64)
    assert numbers(model.rows(model.ground(facts=facts))) == pytest.approx(solved)
    assert Program.parse(program.text()) == program
    return solved


def test_a_condition_on_values_filters_groundings():
    program = Program([R.h(V.I) <= (R.x(V.I)[2.0], R.x(V.I) > 0.2, R.x(V.I) <= 0.9)])
    assert both(program, R.h(V.I), FACTS) == pytest.approx({(0,): 0.6, (3,): 1.8})


def test_a_variable_of_a_condition_alone_is_existential():
    program = Program([R.h(V.I) <= (R.x(V.I), R.e(V.I, V.J) - 0.25 > R.x(V.J))])
    value = {a.terms: a.weight.value for a in (*FACTS, *EDGES)}
    expected = {
        (i,): value[i,]
        for i in range(5)
        if any((i, j) in value and value[i, j] - 0.25 > value[j,] for j in range(5))
    }
    assert both(program, R.h(V.I), FACTS + EDGES) == pytest.approx(expected)


def test_conditions_on_derived_values_are_stratified():
    program = Program(
        [
            R.sum(V.I) <= R.e(V.I, V.J),
            R.big(V.I) <= (R.sum(V.I)[-1.0].fixed(), R.sum(V.I) < 0),
            R.top(V.I) <= (R.big(V.I), ~(R.big(V.I) > 4.0)),
            R.rest(V.I) <= (R.x(V.I), ~R.top(V.I)),
        ]
    )
    sums = {(i,): sum(a.weight.value for a in EDGES if a.terms[0] == i) for i in range(5)}
    top = {key: -s for key, s in sums.items() if -4.0 <= s < 0}
    assert both(program, R.top(V.I), FACTS + EDGES) == pytest.approx(top)
    assert both(program, R.rest(V.I), FACTS + EDGES).keys() == sums.keys() - top.keys()


def test_a_negated_condition_holds_where_there_is_no_value():
    program = Program([R.h(V.I) <= (R._n(V.I), ~(R.x(V.I) >= 0))])
    facts = [R.n(i) for i in range(7)] + FACTS
    assert both(program, R.h(V.I), facts).keys() == {(1,), (5,), (6,)}


def test_a_condition_without_variables():
    program = Program([R.h(V.I) <= (R.x(V.I), R.threshold > R.x(2))])
    assert both(program, R.h(V.I), [*FACTS, R.threshold[1.0]]) == {}
    assert len(both(program, R.h(V.I), [*FACTS, R.threshold[3.0]])) == 5


def test_no_gradient_passes_through_a_condition():
    program = Program([R.h(V.I) <= (R.x(V.I)["w":2.0], R.x(V.I)["t":1.0] > 0.2)])
    model = program.compile(R.h, fill=0.0)
    x = torch.tensor([[0.3], [-1.2], [2.5]], requires_grad=True)
    model(x=x).sum().backward()
    assert model.w.grad.item() == pytest.approx(2.8)
    assert x.grad.flatten().tolist() == [2.0, 0.0, 2.0]
    assert model.t.grad is None
    with torch.no_grad():
        model.t.fill_(-1.0)  # the weight of a condition decides at every step
    assert model(x=x).tolist() == pytest.approx([0.0, -2.4, 0.0])


def test_samples_of_a_batch_are_selected_one_by_one():
    model = Program([R.h(V.I) <= (R.x(V.I), R.x(V.I) > 0.5)]).compile(R.h, fill=-1.0)
    x = torch.tensor([[0.1, 0.7], [0.9, 0.2], [0.0, 0.0]]).unsqueeze(-1)
    expected = torch.tensor([[-1.0, 0.7], [0.9, -1.0], [-1.0, -1.0]])
    torch.testing.assert_close(model(x=x), expected)
    torch.testing.assert_close(model(x=x[1]), expected[1])
    data = model.ground(x=ragged([x[0], x[1, :1], x[2]]))
    assert numbers(model.rows(data)) == pytest.approx({(0, 1): 0.7, (1, 0): 0.9})
    named = ragged([[R.x("a")[1.0], R.x("b")[0.1]], [R.x("b")[0.6]]])
    assert numbers(model.rows(model.ground(facts=named))) == pytest.approx(
        {(0, "a"): 1.0, (1, "b"): 0.6}
    )


def test_a_grounding_is_used_again_for_the_same_selection():
    model = Program([R.h(V.I) <= (R.x(V.I), R.x(V.I) > 0.5)]).compile(R.h, fill=0.0)
    for shift in (0.0, 0.1, 0.2):
        model(x=torch.tensor([[0.1], [0.9]]) + shift)
    assert len(model.held.grounded) == 2  # of the selection's model, and of the model


def test_a_condition_masks_attention():
    body = (R.k(V.J).T, R.q(V.I), R.gate(V.J) > 0.5, V.J <= V.I)
    program = Program(
        [
            (R.w(V.I, V.J) <= body) | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.o(V.I) <= (R.w(V.I, V.J), R.k(V.J))) | [F.product],
        ]
    )
    torch.manual_seed(0)
    q, k, gate = torch.randn(6, 3), torch.randn(6, 3), torch.rand(6, 1)
    gate[0] = 1.0
    mask = (gate.T > 0.5) & torch.ones(6, 6).tril().bool()
    expected = (q @ k.T).masked_fill(~mask, -torch.inf).softmax(1) @ k
    torch.testing.assert_close(program.compile(R.o)(q=q, k=k, gate=gate), expected)


def test_argmin_gives_the_key_that_later_rules_join():
    program = Program(
        [
            (R.parent(V.X, V.Y) <= (R.dist(V.Y), R.cost(V.Y, V.X)))
            | [F.sum, F.argmin_agg(agg_terms=[V.Y])],
            R.before(V.X) <= (R._parent(V.X, V.Y), R.name(V.Y)),
        ]
    )
    facts = [R.dist(0)[0.0], R.dist(1)[2.0], R.dist(2)[1.0]]
    facts += [R.cost(0, 3)[4.0], R.cost(1, 3)[0.5], R.cost(2, 3)[1.5], R.cost(2, 4)[1.0]]
    facts += [R.name(i)[10.0 + i] for i in range(3)]
    # of equals the first
    assert both(program, R.parent(V.X, V.Y), facts) == {(3, 1): 2.5, (4, 2): 2.0}
    assert both(program, R.before(V.X), facts) == {(3,): 11.0, (4,): 12.0}


def test_the_best_key_has_the_gradient_of_its_value():
    best = F.argmax_agg(agg_terms=[V.Y])
    program = Program([(R.best(V.X, V.Y) <= R.a(V.X, V.Y)["w":2.0]) | [best]])
    model = program.compile(R.best, fill=0.0)
    a = torch.tensor([[1.0, 3.0, 3.0], [0.0, -1.0, -2.0]], requires_grad=True)
    found = model(a=a.unsqueeze(-1))
    assert found.tolist() == [[0.0, 6.0, 0.0], [0.0, 0.0, 0.0]]
    found.sum().backward()
    assert a.grad.tolist() == [[0.0, 2.0, 0.0], [2.0, 0.0, 0.0]]
    assert model.w.grad.item() == 3.0


def test_values_are_subtracted_element_by_element():
    program = Program([R.h(V.I) <= (R.a(V.I) - R.b(V.I)[2.0].fixed(), 1 - R.s)])
    facts = [R.a(0)[[1.0, 2.0]], R.b(0)[[0.5, 0.25]], R.s[0.25]]
    assert program.solve(facts)[R.h(0)].tolist() == [0.75, 2.25]
    model = program.compile(R.h)
    assert model.rows(model.ground(facts=facts)).data.tolist() == [[0.75, 2.25]]
    assert repr(program.rules[0].body[0]) == "R.a(V.I) - R.b(V.I)[2.0].fixed()"
    assert Program.parse(program.text()) == program
    assert Program.parse("h(I) :- a(I) -1, a(I) - b(I) - c(I).").text() == (
        "h(I) :- a(I) - 1.0, a(I) - b(I) - c(I).\n"
    )


def test_models_with_conditions_are_saved_copied_and_explained(tmp_path):
    program = Program([R.h(V.I) <= (R.x(V.I)["w":2.0], R.x(V.I)["t":1.0] > 0.2)])
    model = program.compile(R.h)
    model.save(tmp_path / "model.edgewise")
    for other in (edgewise.load(tmp_path / "model.edgewise"), copy.deepcopy(model).double()):
        assert numbers(other.rows(other.ground(facts=FACTS))).keys() == {(0,), (2,), (3,)}
    data = model.ground(facts=FACTS)
    assert "3 groundings" in str(model.explain(data))
    assert "x(2) = 2.5" in str(model.why(R.h(2), data))


X, Y, Z = V.X, V.Y, V.Z
COMPARED = {
    "two keys": [R.h(X, Y) <= (R.b(X), R._a(Y), R.a(X) > R.a(Y))],
    "a key of conditions alone": [R.h(X) <= (R.b(X), R._a(Y), R.a(X) > R.a(Y))],
    "negated": [R.h(X, Y) <= (R.b(X), R._a(Y), ~(R.a(X) > R.a(Y)))],
    "apart": [R.h(X, Y) <= (R.b(X), R._a(Y), abs(R.a(X) - R.a(Y)) > 1)],
    "two numbers of each": [
        R.h(X, Y) <= (R.b(X), R._a(Y), R.a(X) * R.a(Y) + R.b(X) * R.b(Y) > 5.5)
    ],
    "of a derived value": [
        R.g(X) <= R.a(X)[0.5], (R.h(X) <= (R.b(Y), R.g(X) >= R.g(Y))) | [F.max_agg],
    ],
    "attention": [
        (R.w(X, Y) <= (R.a(Y), R.b(X), R.a(X) >= R.a(Y)))
        | [F.product, F.softmax_agg(agg_terms=[Y])],
        (R.h(X) <= (R.w(X, Y), R.b(Y))) | [F.product],
    ],
    "a recursion": [
        R.h(X) <= (R._a(X), R.b(X)),
        R.h(Y) <= (R.h(X)[0.5], R.special.next(X, Y), R.a(Y) >= R.a(X)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARED)
def test_why_of_compared_values_of_two_keys(name):
    """They are ranks inside; what follows from them is found as the reference finds it."""
    program = Program(COMPARED[name])
    facts = [R.a(k)[v] for k, v in enumerate((2.0, 0.5, 3.0, 3.0))]
    facts += [R.b(k)[1.0 + k] for k in range(4)]
    model = program.compile(R.h, seed=0, dtype=torch.float64)
    data = model.ground(facts=facts)
    weights = {name: w.detach() for name, w in model.named_parameters()}
    solution = program.solve(facts, weights=weights)
    atoms = [atom for atom in solution if atom.relation == "h"]
    assert {atom for atom, _ in model.rows(data).items()} == set(atoms)
    for atom in atoms:
        ours, other = model.why(atom, data), solution.why(atom)
        torch.testing.assert_close(ours.value, other.value)
        for a, b in zip(ours.derivations, other.derivations, strict=True):
            assert [g.assignment for g in a.groundings] == [g.assignment for g in b.groundings]
    with pytest.raises(EdgewiseError, match="not-derivable"):
        model.why(R.h(*[9] * len(atoms[0].terms)), data)


TESTED = Program([R.h(V.I) <= (R.x(V.I), R.x(V.I) > 1)])
OWN = R.h(V.I) <= (R.x(V.I), R.h(V.I) > 1)
VECTOR = [R.h(V.I) <= R.x(V.I)[2, 3], R.g(V.I) <= (R._x(V.I), R.h(V.I) > 1)]
FREE = R.h(V.I) <= (R.x(V.I), ~(R.x(V.J) > 1))
PAIRS = R.h(V.I) <= R.e(V.I, V.J)
WRONG = {
    "of itself": (lambda: Program([OWN]).check(), "not-stratified"),
    "a vector": (lambda: Program(VECTOR).check(), "shape-mismatch"),
    "a statement": (lambda: Program([R.h(V.I) >= R.x(V.I)]), "bad-head"),
    "a rule in a body": (lambda: R.h(V.I) <= (R.x(V.I), R.x(V.I) <= R.y(V.I)), "chained-rule"),
    "a chain": (lambda: 0 < R.x(V.I) < 1, "no-truth-value"),
    "unbound": (lambda: Program([FREE]).check(), "unbound-variable"),
    "hidden": (lambda: R.h(V.I) <= (R.x(V.I), R._x(V.I) > 1), "condition-in-expression"),
    "no group": (lambda: Program([PAIRS | [F.argmin_agg]]).check(), "no-group"),
    "another": (lambda: Program([PAIRS | [F.argmin_agg(agg_terms=[V.J])]]).check(), "no-group"),
    "growing": (lambda: TESTED.compile(R.h).growing(4)(x=torch.ones(3, 1)), "cannot-grow"),
    "equality in text": (lambda: Program.parse("h(I) :- x(I), x(I) == 1."), "syntax-error"),
    "another input": (lambda: TESTED.compile(R.h)(y=torch.ones(3, 1)), "unknown-input"),
    "a missing input": (lambda: TESTED.compile(R.h)(), "missing-input"),
}


@pytest.mark.parametrize(("wrong", "code"), WRONG.values(), ids=WRONG)
def test_misuse_is_our_error(wrong, code):
    with pytest.raises(EdgewiseError) as caught:
        wrong()
    assert caught.value.code == code


def test_the_best_of_vectors_is_refused():
    program = Program([(R.h(V.I) <= R.x(V.I)[W.w[2, 3]]) | [F.argmax_agg(agg_terms=[V.I])]])
    facts = [R.x(0)[[1.0, 2.0, 3.0]]]
    with pytest.raises(EdgewiseError, match="scalar"):
        program.solve(facts)
    model = program.compile(R.h)
    with pytest.raises(EdgewiseError, match="scalar"):
        model.rows(model.ground(facts=facts))


@pytest.mark.parametrize("compared", [False, True])
def test_no_rows_choose_nothing_whatever_their_shape(compared):
    rule = (
        (R.h(V.X, V.Y) <= (R.y(V.X), R.y(V.Y), R.y(V.X) > R.y(V.Y)))
        if compared
        else ((R.h(V.X, 0) <= R.y(V.X)) | [F.argmin_agg(agg_terms=[V.X])])
    )
    model = Program([rule]).compile(R.h, seed=0)
    assert model.rows(y=torch.zeros(0, 3)).data.shape == (0, 3)
    with pytest.raises(EdgewiseError, match="not scalars"):
        model(y=torch.zeros(2, 3))


def test_of_equal_rows_one_is_the_best():
    best = F.argmax_agg(agg_terms=[V.X])
    program = Program([(R.h(V.X, V.Y) <= (R._n(V.Y), R._n(V.X))) | [best]])
    found = both(program, R.h(V.X, V.Y), [R.n(0), R.n(1)])
    assert found == {(0, 0): 1.0, (0, 1): 1.0}


def gated(size=30):
    """A graph network along edges of nodes whose gate is open, and its data."""
    edge = R.hidden.edge(V.J, V.I)
    open_ = R.gate(V.J)["t":1.0] > 0.5
    program = Program(
        [
            R.h(V.I) <= R.x(V.I)[4, 3],
            (R.h(V.I) <= (R.x(V.J)[4, 3], edge, open_)) | [F.avg_agg],
            R.o(V.I) <= R.h(V.I)[2, 4],
            (R.o(V.I) <= (R.h(V.J)[2, 4], edge, R.gate(V.J) > R.gate(V.I))) | [F.avg_agg],
        ]
    )
    random = torch.Generator().manual_seed(0)
    edges = torch.randint(size, (2, 5 * size), generator=random).unique(dim=1)
    x = torch.randn(size, 3, generator=random, dtype=torch.float64)
    gate = torch.rand(size, 1, generator=random, dtype=torch.float64)
    model = program.compile(R.o, seed=0, dtype=torch.float64)
    return model, edges, {"x": x, "gate": gate}


def test_wanted_rows_of_a_model_with_conditions():
    model, edge, inputs = gated()
    data = model.ground(edge=edge)
    assert any(name.endswith("t") for name, _ in model.named_parameters())
    want = [7, 3, 7, 29]
    for threshold in (1.0, 0.6):  # the weight of a condition decides at every call
        with torch.no_grad():
            model.t.fill_(threshold)
        full = model(data, **inputs)[want]
        found = [
            model(data, **inputs, want=want),
            model(edge=edge, **inputs, want=want),
            model(model.ground(edge=edge, want=want), **inputs),
            model(model.ground(edge=edge, **inputs, want=want)),
        ]
        for part in found:
            torch.testing.assert_close(part, full)
    learnt = [p for name, p in model.named_parameters() if name != "t"]
    of_full = torch.autograd.grad(full.square().sum(), learnt)
    of_part = torch.autograd.grad(found[0].square().sum(), learnt)
    for one, other in zip(of_full, of_part, strict=True):
        torch.testing.assert_close(one, other)
    with pytest.raises(EdgewiseError, match="has another `want=`"):
        model(model.ground(edge=edge, want=[1]), **inputs, want=[2])


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_model_with_conditions(workers):
    model, edge, inputs = gated()
    data = model.ground(edge=edge)
    full, seen = model(data, **inputs), []
    for batch in model.batches(torch.arange(30), data, batch=8, workers=workers, **inputs):
        torch.testing.assert_close(model(batch), full[batch.seeds])
        with torch.no_grad():
            model.t.mul_(0.9)
        full = model(data, **inputs)
        torch.testing.assert_close(model(batch), full[batch.seeds])
        torch.testing.assert_close(model(batch, **inputs), full[batch.seeds])
        seen += batch.seeds.tolist()
    assert sorted(seen) == list(range(30))


def test_sampled_batches_of_a_model_with_conditions_depend_on_the_seed_alone():
    model, edge, inputs = gated()
    options = {"batch": 10, "most": [2, 1], "seed": 3, **inputs}
    one = model.batches(torch.arange(30), model.ground(edge=edge), **options)
    two = model.batches(torch.arange(30), edge=edge, **options)
    batch = one.at(2)
    torch.testing.assert_close(model(batch), model(two.at(2)))
    torch.testing.assert_close(model(batch), model(batch))
    every = model.batches(torch.arange(30), edge=edge, **{**options, "most": None}).at(2)
    assert not torch.equal(model(batch), model(every))


@pytest.mark.parametrize("key", [2, -2, "a"])
def test_values_of_two_keys_are_compared_whatever_the_keys_are(key):
    program = Program([R.h(V.X) <= (R.a(V.X) < 2.0 * R.b(V.Y))])
    facts = [R.a(0)[1.0], R.a(1)[3.0], R.b(key)[0.9], R.b(4)[0.1]]
    model = program.compile(R.h)
    found = model.rows(model.ground(facts=facts))
    assert found.index.tolist() == [[0]]
    assert list(program.solve(facts)[R.h(V.X)]) == [R.h(0)]


def test_keys_that_are_chosen_may_be_strings_or_negative():
    best = (R.best(V.X, V.Y) <= R.d(V.X, V.Y)) | [F.argmax_agg(agg_terms=[V.Y])]
    facts = [R.d("a", "u")[-1.0], R.d("a", "v")[2.0], R.d("b", -2)[-1.0], R.d("b", 9)[-3.0]]
    model = Program([best]).compile(R.best)
    found = dict(model.rows(model.ground(facts=facts)))
    assert {str(atom): value.item() for atom, value in found.items()} == {
        "R.best('a', 'v')": 2.0,
        "R.best('b', -2)": -1.0,
    }


@pytest.mark.parametrize("least", [10.0, 0.1])
def test_a_selection_of_a_batch_may_be_empty(least):
    """The second comparison is then of no rows, in each of the samples."""
    program = Program(
        [
            R.h(V.Y) <= (R.a(V.Y), R.a(V.Y) >= R.b(V.Y)),
            R.g(V.Z) <= (R.h(V.Z), R.h(V.Z) - 0.5 <= 0.25),
        ]
    )
    a, b = torch.rand(2, 3, generator=torch.manual_seed(0)), torch.full((2, 3), least)
    model = program.compile(R.g, fill=0.0)
    found = model(a=a[:, :, None], b=b[:, :, None])
    for sample in range(2):
        facts = [R.a(i)[x] for i, x in enumerate(a[sample].tolist())]
        facts += [R.b(i)[least] for i in range(3)]
        solved = program.solve(facts)[R.g(V.Z)]
        wanted = [float(solved.get(R.g(i), 0.0)) for i in range(3)]
        assert found[sample].flatten().tolist() == pytest.approx(wanted)
