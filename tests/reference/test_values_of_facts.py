"""What `solve` takes: exact numbers, weights by name, options."""

import pickle

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W, repeat

pytestmark = pytest.mark.filterwarnings("ignore::edgewise.EdgewiseWarning")


@pytest.mark.parametrize("number", [0.1, 16777217, 1e40, -1e-30])
def test_numbers_are_exact(number):
    program = Program([R.h <= R.a])
    assert program.solve([R.a[number]])[R.h].item() == number
    model = program.compile(R.h, dtype=torch.float64)
    assert model(model.ground(facts=[R.a[number]])).item() == number


def test_a_named_vector_is_a_shape():
    assert Program([R.h <= R.a["w":3,]]).weights()["w"].shape == (3,)


def test_programs_travel():
    program = Program([(R.h(V.X) <= R.a(V.X)[2, 2]) | [F.relu]])
    assert pickle.loads(pickle.dumps(program)) == program


@pytest.mark.parametrize(
    ("compute", "code"),
    [
        (lambda p: p.solve(weights={"w": torch.ones(3, 2)}), "shape-mismatch"),
        (lambda p: p.solve(weights={"w": None}), "unknown-weight"),
        (lambda p: p.solve(weights="w"), "unknown-weight"),
        (lambda p: p.solve(seed="x"), "bad-default"),
        (lambda p: p.solve(dtype=torch.int64), "bad-default"),
        (lambda p: p.compile(R.h(0)), "unknown-output"),
        (lambda p: p.solve([R.a[torch.ones(2, dtype=torch.complex64)]]), "not-a-number"),
        (lambda p: Program([], domains=[V.T]), "bad-default"),
        (lambda p: Program([], domains={V.T: []}), "bad-default"),
        (lambda p: R.a[10**400], "bad-weight"),
        (lambda p: R.hidden(V.X), "unknown-special"),
    ],
)
def test_bad_options(compute, code):
    with pytest.raises(EdgewiseError) as caught:
        compute(Program([R.h <= R.a["w":2, 2]]))
    assert caught.value.code == code
    assert caught.value.help


def test_two_stacks_need_two_names():
    def layer(x):
        return [R.h(V.I) <= x(V.I)["w":1, 1]]

    rules = [repeat(layer, 2)(R.x), repeat(layer, 2)(R.y)]
    with pytest.raises(EdgewiseError, match="two stacks are named `layer`"):
        Program(rules).check()


def test_copies_are_bounded():
    text = "layer * " + "9" * 400 + " (x = x) -> h { h(I) :- $w={4,4} x(I). }"
    with pytest.raises(EdgewiseError, match="repeated more than 10,000 times"):
        Program.parse(text).check()


def test_depth_is_bounded():
    expression = R.a
    for _ in range(75):
        expression = F.relu(expression)
    with pytest.raises(EdgewiseError, match="deep"):
        F.relu(expression)
    nested = []
    nested.append(nested)
    with pytest.raises(EdgewiseError, match="nested"):
        Program(nested)


def test_keys_that_grow_for_ever_end_soon():
    program = Program([R.n(V.Y) <= (R._n(V.X), R.special.mul(V.X, 2, V.Y))])
    with pytest.raises(EdgewiseError) as caught:
        program.solve([R.n(1)[1.0]])
    assert caught.value.code == "too-many-groundings"


def test_a_called_module_belongs_to_the_model():
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Dropout(0.9))
    model = Program([(R.h(V.X) <= R.a(V.X)) | [F.call(module)]]).compile(R.h)
    assert {id(p) for p in module.parameters()} <= {id(p) for p in model.parameters()}
    x = torch.ones(4, 2)
    torch.testing.assert_close(model.eval()(a=x), module.eval()(x))
    assert not model.train()(a=x).equal(model.eval()(a=x))


def test_a_called_module_follows_the_mode_of_solving():
    program = Program([(R.h <= R.a) | [F.call(torch.nn.Dropout(0.99))]])
    assert program.solve([R.a[[1.0, 2.0]]])[R.h].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_seed_gives_a_weight_the_same_numbers_everywhere(dtype):
    """In `solve`, `weights` and `compile`, in any precision, whatever else is in the program."""
    rule = R.h(V.I) <= R.x(V.I)["w":3, 2]
    other = R.g(V.I) <= R.x(V.I)["v":2, 2]
    alone = Program([rule]).compile(R.h, seed=4, dtype=dtype).weight("w")
    together = Program([other, rule]).compile(R.h, seed=4, dtype=dtype).weight("w")
    solved = Program([other, rule]).solve([R.x(0)[[1.0, 2.0]]], seed=4).weights["w"]
    drawn = Program([other, rule]).weights(seed=4)
    assert torch.equal(alone, together)
    assert torch.equal(alone, solved.to(dtype))
    assert torch.equal(drawn["w"], solved)
    assert not torch.equal(drawn["w"][:2], drawn["v"])
    assert not torch.equal(drawn["w"], Program([rule]).weights(seed=5)["w"])


def test_groundings_are_sorted_by_first_occurrence():
    """The key of a family counts where the family stands, not after all atoms."""
    body = (R.x(V.J)[W.w(V.T)[1, 1]], R.y(V.K))
    program = Program([(R.h <= body) | [F.concat_agg]], domains={V.T: 2})
    facts = [R.x(0)[1.0], R.y(0)[0.0], R.y(1)[0.5]]
    weights = {"w": torch.tensor([1.0, 2.0], dtype=torch.float64).reshape(2, 1, 1)}
    assert program.solve(facts, weights=weights)[R.h].tolist() == [1.0, 1.5, 2.0, 2.5]
    model = program.compile(R.h, dtype=torch.float64)
    with torch.no_grad():
        model.weight("w").copy_(weights["w"])
    assert model(model.ground(facts=facts)).tolist() == [1.0, 1.5, 2.0, 2.5]
