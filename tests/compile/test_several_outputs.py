"""Several outputs of one model, rows with constants, and weights that models share."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, Relation, V, load, ragged, rows

RULES = Program(
    [
        (R.h(V.I) <= R.x(V.I)[3, 2]) | [F.tanh],
        R.far(V.I, V.J) <= (R.h(V.I).T @ R.h(V.J)),
        R.total <= R.h(V.I),
    ]
)
X = torch.linspace(-1, 1, 8).reshape(4, 2)


def alone(output, **inputs):
    return RULES.compile(output, seed=0)(**inputs)


def test_several_outputs_by_name():
    model = RULES.compile([R.far, R.total, R.h(V.A)], seed=0)
    found = model(x=X)
    assert list(found) == ["far", "total", "h"]
    for name, value in found.items():
        torch.testing.assert_close(value, alone(R[name], x=X))
    again = model(x=X + 1)
    torch.testing.assert_close(again["h"], alone(R.h, x=X + 1))
    assert {name: len(rows) for name, rows in model.rows(x=X).items()} == {
        "far": 16,
        "total": 1,
        "h": 4,
    }


def test_gradients_of_several_outputs_add_up():
    model = RULES.compile([R.total, R.h], seed=0)
    found = model(x=X)
    (found["total"].sum() + found["h"].square().sum()).backward()
    one, two = RULES.compile(R.total, seed=0), RULES.compile(R.h, seed=0)
    (one(x=X).sum() + two(x=X).square().sum()).backward()
    grads = [next(m.parameters()).grad for m in (model, one, two)]
    torch.testing.assert_close(grads[0], grads[1] + grads[2])


@pytest.mark.parametrize(
    ("output", "chosen"),
    [
        (R.far(2, V.X), lambda far: far[2]),
        (R.far(V.X, 1), lambda far: far[:, 1]),
        (R.far(V.X, V.X), lambda far: far.diagonal()),
        (R.far(3, 0), lambda far: far[3, 0]),
        (R.far(V.Y, V.X), lambda far: far),
    ],
)
def test_constants_choose_rows(output, chosen):
    full = alone(R.far, x=X)
    torch.testing.assert_close(alone(output, x=X), chosen(full))
    torch.testing.assert_close(RULES.compile([output], seed=0)(x=X)["far"], chosen(full))
    rows = RULES.compile(output, seed=0).rows(x=X)
    for atom, value in rows.items():
        torch.testing.assert_close(value, full[atom.terms])


def test_strings_and_ragged_samples():
    program = Program([R.h(V.X) <= R.a(V.X)[2.0], R.g(V.X, V.Y) <= (R.h(V.X), R.h(V.Y))])
    facts = [R.a("red")[1.0], R.a("blue")[3.0]]
    model = program.compile(R.g("red", V.Y))
    found = model(model.ground(facts=facts))
    assert {str(a): v.item() for a, v in found.items()} == {
        "R.g('red', 'blue')": 8.0,
        "R.g('red', 'red')": 4.0,
    }
    one = program.compile(R.h("blue"))
    assert one(one.ground(facts=facts)).item() == 6.0
    samples = ragged([torch.ones(3), torch.ones(1), torch.ones(2)])
    some = program.compile(R.h(1)).rows(a=samples)
    assert some.index.tolist() == [[0, 2], [1, 1]]
    assert some.data.tolist() == [2.0, 2.0]


def test_outputs_are_their_own():
    model = RULES.compile([R.h, R.total], seed=0)
    for _ in range(3):
        with torch.no_grad():
            found = model(x=X)
            found["h"].mul_(0)
            torch.testing.assert_close(found["total"], alone(R.total, x=X))
    both = Program([R.a(V.I) <= R.x(V.I), R.b(V.I) <= R.a(V.I)]).compile([R.a, R.b])
    found = both(x=X)
    found["a"].add_(5)
    torch.testing.assert_close(found["b"], X)


@pytest.mark.parametrize("output", [[R.h, R.far(1, V.X)], R.far(V.X, V.X), R.far(2, 2), [R.h]])
def test_saved_and_compiled(output, tmp_path):
    model = RULES.compile(output, seed=0)
    model.save(tmp_path / "model.edgewise")
    other = load(tmp_path / "model.edgewise")
    traced = torch.compile(model, backend="eager", fullgraph=True)
    exported = torch.export.export(model, (), {"x": X}).module()
    expected = model(x=X)
    for found in (other(x=X), traced(x=X), exported(x=X)):
        torch.testing.assert_close(found, expected)


def test_weights_are_shared():
    one = RULES.compile(R.h, seed=0)
    two = RULES.compile([R.total, R.far], weights=one)
    assert next(two.parameters()) is next(one.parameters())
    torch.testing.assert_close(two(x=X)["total"], one(x=X).sum(0))
    (name,) = dict(one.named_parameters())
    start = RULES.compile(R.h, weights={name: torch.ones(3, 2)})
    assert next(start.parameters()).tolist() == [[1.0, 1.0]] * 3
    three = RULES.compile(R.h, weights={name: next(one.parameters())})
    assert next(three.parameters()) is next(one.parameters())


@pytest.mark.parametrize(
    ("mistake", "code"),
    [
        (lambda: RULES.compile([]), "bad-compile-option"),
        (lambda: RULES.compile([R.h, R.h]), "unknown-output"),
        (lambda: RULES.compile([R.h, "total"]), "unknown-output"),
        (lambda: RULES.compile(R.far(1)), "unknown-output"),
        (lambda: RULES.compile(R.h, weights=3), "bad-compile-option"),
        (lambda: RULES.compile(R.h, weights={"w": torch.ones(1)}), "bad-compile-option"),
        (lambda: RULES.compile(R.h, weights={"h.x": torch.ones(1)}), "shape-mismatch"),
        (lambda: RULES.compile(R.h(9))(x=X), "not-total"),
        (lambda: RULES.compile([R.h, R.total]).growing(4), "cannot-grow"),
        (lambda: RULES.compile(R.h(1)).updating(facts=[]), "cannot-update"),
    ],
)
def test_mistakes_have_a_code(mistake, code):
    with pytest.raises(EdgewiseError) as caught:
        mistake()
    assert caught.value.code == code


def test_one_type_whatever_the_input(tmp_path):
    program = Program([R.h(V.I) <= R.x(V.I)[2.0]])
    inputs = [
        torch.ones(3),
        torch.ones(2, 3)[:1].squeeze(0),
        ragged([torch.ones(2), torch.ones(3)]),
        rows(torch.tensor([[0, 2]]), torch.ones(2)),
    ]
    expected = [[2.0] * 3, [2.0] * 3, [[2.0, 2.0, 9.0], [2.0] * 3], [2.0, 9.0, 2.0]]
    tensors = program.compile(R.h, dense=True, fill=9.0)
    listed = program.compile(R.h, dense=False)
    listed.save(tmp_path / "model.edgewise")
    for model in (listed, load(tmp_path / "model.edgewise")):
        for x in inputs:
            found = model(x=x)
            assert isinstance(found, Relation)
            assert found.data.unique().tolist() == [2.0]
    for x, values in zip(inputs, expected, strict=True):
        assert tensors(x=x).tolist() == values
    facts = tensors.ground(facts=[R.x(1)[3.0]])
    assert tensors(facts).tolist() == [9.0, 6.0]
    named = tensors.ground(facts=[R.x("a")[3.0]])
    with pytest.raises(EdgewiseError, match="outside its axes"):
        tensors(named)
