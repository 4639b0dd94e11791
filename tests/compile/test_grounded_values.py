"""Values given to `ground` are read at every call, in the precision of now; keys are read once."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W, numbers, ragged, rows

EDGES = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
RULES = [
    R.h(V.X) <= (R.x(V.Y)["w":4, 3], R._edge(V.Y, V.X)),
    (R.out(V.X) <= R.h(V.X)["v":2, 4]) | [F.tanh],
]


def compiled():
    return Program(RULES).compile(R.out, seed=0)


def facts(x):
    return [*(R.x(i)[row] for i, row in enumerate(x)), *(R.edge(*e) for e in EDGES.T.tolist())]


# `ground` of a model, with values of x as it may be given
GIVEN = {
    "dense": lambda model, x: model.ground(edge=EDGES, x=x),
    "rows": lambda model, x: model.ground(edge=EDGES, x=rows(torch.arange(3)[None], x)),
    "facts": lambda model, x: model.ground(facts=facts(x)),
}


def computed(model, data):
    return torch.stack(list(dict(model.rows(data)).values()))


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_may_change_its_precision(given, called, dtype):
    model, x = compiled(), torch.randn(3, 3)
    data = GIVEN[given](model, x)
    if called:
        model(data)
    model.to(dtype)
    expected = model.rows(model.ground(edge=EDGES), x=x.to(dtype))
    for _ in range(3):
        found = model(data)
        assert next(iter(dict(found).values())).dtype == dtype
        torch.testing.assert_close(dict(found), dict(expected))
    model.float()
    torch.testing.assert_close(computed(model, data), computed(model, GIVEN[given](model, x)))


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("called", [False, True])
def test_grounded_in_inference_mode_then_trained(given, called):
    model = compiled()
    with torch.inference_mode():
        data = GIVEN[given](model, torch.ones(3, 3))
        if called:
            model(data)
            model(data)
    for _ in range(3):
        model.zero_grad()
        computed(model, data).sum().backward()
        found = [weight.grad.clone() for weight in model.parameters()]
    other = GIVEN[given](model, torch.ones(3, 3))
    model.zero_grad()
    computed(model, other).sum().backward()
    torch.testing.assert_close(found, [weight.grad for weight in model.parameters()])


@pytest.mark.parametrize("given", GIVEN)
def test_values_are_read_at_every_call(given):
    model, x = compiled(), torch.randn(3, 3)
    data = GIVEN[given](model, x)
    before = computed(model, data).detach()
    for _ in range(2):
        x.mul_(2)
        found = computed(model, data).detach()
        assert not torch.equal(found, before)
        torch.testing.assert_close(found, computed(model, GIVEN[given](model, x)).detach())


def test_ragged_values_are_read_at_every_call():
    model = Program([(R.out <= R.x(V.X)["w":2, 3]) | [F.tanh]]).compile(R.out, seed=0)
    samples = [torch.randn(2, 3), torch.randn(4, 3)]
    data = model.ground(x=ragged(samples))
    model(data)
    samples[0].mul_(2)
    again = model.ground(x=ragged(samples))
    torch.testing.assert_close(dict(model.rows(data)), dict(model.rows(again)))


@pytest.mark.parametrize("given", GIVEN)
def test_grounded_values_are_trained(given):
    model, x = compiled(), torch.randn(3, 3, requires_grad=True)
    data = GIVEN[given](model, x)
    model.double()
    computed(model, data).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == x.dtype


def test_keys_are_read_once():
    model, x, edges = compiled(), torch.randn(3, 3), EDGES.clone()
    data = model.ground(edge=edges)
    expected = dict(model(data, x=x))
    edges.zero_()
    torch.testing.assert_close(dict(model(data, x=x)), expected)


def test_numbers_stay_integers():
    rules = [R.h(V.X) <= F.lookup(W.table[5, 2], R.token(V.X))]
    model = Program(rules).compile(R.h, seed=0)
    data = model.ground(token=numbers(torch.tensor([4, 0, 2])))
    expected = model(data).detach()
    torch.testing.assert_close(model.double()(data).detach(), expected.double())


class Wrapped(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x=x)


@pytest.mark.parametrize("called", [False, True])
def test_jit_tracing_is_refused(called):
    model, x = Program([R.h(V.X) <= R.x(V.X)[2, 3]]).compile(R.h), torch.ones(4, 3)
    if called:
        model(x=x)
    for module in (model, Wrapped(model)):
        with pytest.raises(
            EdgewiseError, match=r"torch.jit.trace.*\n(.*\n)*help: use `torch.export"
        ):
            torch.jit.trace(module, (x,))


def test_an_export_has_the_shapes_of_its_example():
    model, x = Program([R.h(V.X) <= R.x(V.X)[2, 3]]).compile(R.h), torch.ones(5, 4, 3)
    exported = torch.export.export(Wrapped(model), (x,))
    torch.testing.assert_close(exported.module()(x), model(x=x))
    with pytest.raises(RuntimeError, match="specialized it to be a constant"):
        torch.export.export(Wrapped(model), (x,), dynamic_shapes=({0: torch.export.Dim("b")},))
