"""A physical plan computes what the reference does, values and gradients, at every call."""

import copy

import pytest
import torch

from edgewise import F, Program, R, V, W, rows
from edgewise.graphs import window
from edgewise.physical.opaque import opaque
from edgewise.physical.plan import lowered

X, Y = V.X, V.Y
EDGE = torch.tensor([[0, 1, 2, 3, 3, 5], [1, 2, 0, 0, 4, 4]])


def attention(*condition):
    return Program(
        [
            R.q(X) <= R.x(X)["q":4, 4],
            R.k(X) <= R.x(X)["k":4, 4],
            (R.w(X, Y) <= (R.k(Y).T, R.q(X), *condition))
            | [F.product, F.softmax_agg(agg_terms=[Y])],
            (R.out(X) <= (R.w(X, Y), R.x(Y))) | [F.product],
        ]
    )


def neighbours(aggregation):
    return Program(
        [
            (R.h(X)[3, 4] <= (R.x(Y)[4, 4], R._edge(Y, X))) | [F.relu, aggregation],
            (R.h(X)[3, 3] <= R.x(X)[3, 4]) | [F.tanh],
            R.h / 1 | [F.sigmoid],
            R.out(V.K) <= R.h(V.K)[W.f(V.K)[2, 3]],
        ],
        domains={V.K: 6},
    )


CASES = {
    "a layer": (Program([(R.out[1, 8] <= R.x[8, 4]) | [F.tanh], R.out / 0 | [F.tanh]]), ()),
    "attention": (attention(), ()),
    "attention along a graph": (attention(window(1)(X, Y)), ()),
    "recursion": (
        Program(
            [
                R.out(0) <= R.x(0)[3, 4],
                (R.out(X) <= (R.out(Y)[3, 3], R.x(X)[3, 4], R.special.next(Y, X))) | [F.tanh],
            ]
        ),
        (),
    ),
    **{
        f"rows as they are, {name}": (
            Program([(R.out(X) <= (R.x(Y)[3, 4], R._edge(Y, X))) | [getattr(F, name)]]),
            ("edge",),
        )
        for name in ("sum_agg", "avg_agg", "max_agg")
    },
    "a matrix for each target": (
        Program([R.out(X) <= (R.x(Y)[W.f(X)[3, 4]], R._edge(Y, X))], domains={X: 6}),
        ("edge",),
    ),
    **{
        name: (neighbours(getattr(F, name)), ("edge",))
        for name in ("sum_agg", "avg_agg", "max_agg", "std_agg", "lse_agg", "median_agg")
    },
}


def case(name, dtype=torch.float64):
    program, keys = CASES[name]
    model = program.compile(R.out, seed=0, fill=0.0, dtype=dtype)
    data = model.ground(**{key: EDGE for key in keys})
    return model, data, torch.randn(6, 4, dtype=dtype, generator=torch.manual_seed(1))


def tensor(found):
    return found if isinstance(found, torch.Tensor) else found.data


def values_and_gradients(model, data, x):
    x = x.clone().requires_grad_()
    out = tensor(model(data, x=x))
    found = torch.autograd.grad(
        out.square().sum(), [x, *model.parameters()], allow_unused=True, materialize_grads=True
    )
    return [out, *found]


def assert_equal(found, expected):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_every_run_is_the_first(name):
    model, data, x = case(name)
    first = values_and_gradients(model, data, x)
    for _ in range(3):
        assert_equal(values_and_gradients(model, data, x), first)
    other = torch.randn_like(x)
    fresh = copy.deepcopy(model)
    again = fresh.ground(**{key: EDGE for key in CASES[name][1]})
    assert_equal(
        values_and_gradients(model, data, other), values_and_gradients(fresh, again, other)
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_and_with_them(name, mode):
    model, data, x = case(name)
    with mode():
        found = [tensor(model(data, x=x)) for _ in range(4)]
    assert not any(out.requires_grad for out in found)
    first = values_and_gradients(model, data, x)
    for out in found:
        assert_equal([out.clone()], [first[0].detach()])
    for _ in range(3):
        assert_equal(values_and_gradients(model, data, x), first)


def test_weights_are_those_of_now():
    model, data, x = case("sum_agg")
    for _ in range(3):
        model(data, x=x)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.5)
    fresh = copy.deepcopy(model)
    expected = values_and_gradients(fresh, fresh.ground(edge=EDGE), x)
    assert_equal(values_and_gradients(model, data, x), expected)
    named = {name: torch.zeros_like(w) for name, w in model.named_parameters()}
    zero = torch.func.functional_call(model, named, (data,), {"x": x})
    assert_equal([zero], [torch.zeros_like(zero)])


def test_a_weight_of_another_shape_is_noticed():
    model = Program([R.out(X) <= R.x(X)["w":3, 4]]).compile(R.out)
    x = torch.randn(6, 4)
    for _ in range(3):
        model(x=x)
    model.w = torch.nn.Parameter(torch.ones(2, 4))
    torch.testing.assert_close(model(x=x), x.sum(1, keepdim=True).expand(6, 2))


def test_dropout_is_drawn_anew_and_only_when_training():
    program = Program([(R.out(X) <= R.x(X)[4, 4]) | [F.dropout(p=0.5)]])
    model = program.compile(R.out, seed=0)
    x = torch.randn(64, 4)
    drawn = []
    for _ in range(4):
        torch.manual_seed(3)
        drawn.append([model(x=x), model(x=x)])
    for one, two in drawn:
        torch.testing.assert_close([one, two], drawn[0])
        assert not torch.equal(one, two)
    model.eval()
    still = [model(x=x) for _ in range(4)]
    torch.testing.assert_close(still, [still[0]] * 4)
    assert not torch.equal(still[0], drawn[0][0])


def test_dropout_of_facts_is_drawn_anew():
    facts = rows(torch.arange(64).unsqueeze(0), torch.ones(64))
    model = Program([(R.out(X) <= R.x(X)) | [F.dropout(p=0.5)]]).compile(R.out)
    data = model.ground(x=facts)
    found = [model(data).data for _ in range(5)]
    assert len({tuple(f.tolist()) for f in found}) == 5


def test_other_shapes_precision_and_order_of_inputs():
    program = Program([(R.out(X) <= (R.x(X)[3, 4], R.y(X))) | [F.product]])
    model = program.compile(R.out, seed=0)
    x, y = torch.randn(6, 4), torch.randn(6)
    expected = model(x=x, y=y)
    for _ in range(3):
        torch.testing.assert_close(model(x=x, y=y), expected)
        torch.testing.assert_close(model(y=y, x=x), expected)
        torch.testing.assert_close(model(x=x[:2], y=y[:2]), expected[:2])
    model.double()
    for _ in range(3):
        torch.testing.assert_close(model(x=x.double(), y=y.double()).float(), expected)


def test_autocast_runs_the_same_graph():
    model, data, x = case("a layer", torch.float32)
    plain = [model(data, x=x) for _ in range(3)]
    with torch.autocast("cpu", torch.bfloat16):
        low = [model(data, x=x) for _ in range(3)]
    with torch.autocast("cpu", torch.float16):
        half = [model(data, x=x) for _ in range(3)]
    torch.testing.assert_close(model(data, x=x), plain[0])
    torch.testing.assert_close(low[0].float(), plain[0], atol=0.05, rtol=0.05)
    for found in (low, half):
        assert torch.equal(found[0], found[2])
        assert not torch.equal(found[2].float(), plain[0])
    assert not torch.equal(low[2].float(), half[2].float())


@pytest.mark.parametrize(
    "rules",
    [
        [R.out(X) <= R.x(X)[2, 4], R.out(X) <= R.y(X)],
        [R.out(X) <= R.x(X)[W.family(X)[2, 4]], R.out(X) <= R.y(X)],
    ],
    ids=["a matrix", "a family"],
)
def test_autocast_adds_parts_of_two_precisions(rules):
    """A product is in the lower precision, what is beside it is not."""
    model = Program(rules, domains={X: 5}).compile(R.out)
    x, y = torch.randn(5, 4), rows(torch.tensor([1, 3]), torch.randn(2, 2))
    data = model.ground(x=rows(torch.arange(5), x), y=y)
    exact = model(data).data
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(3):
            found = model(data).data
            torch.testing.assert_close(found.float(), exact, rtol=0.05, atol=0.05)
        found.sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_transformations_of_functions():
    model, data, x = case("a layer")
    parameters = dict(model.named_parameters())

    def loss(weights):
        return torch.func.functional_call(model, weights, (data,), {"x": x}).square().sum()

    first = torch.func.grad(loss)(parameters)
    for _ in range(3):
        model(data, x=x)
        found = torch.func.grad(loss)(parameters)
        assert_equal(found.values(), first.values())


def test_a_module_of_somebody_else_is_called_every_time():
    inner = torch.nn.Linear(4, 2).double()
    model = Program([(R.out(X) <= R.x(X)) | [F.call(inner)]]).compile(R.out, dtype=torch.float64)
    x = torch.randn(6, 4, dtype=torch.float64)
    for _ in range(3):
        torch.testing.assert_close(model(x=x), inner(x))
    calls = []
    inner.register_forward_hook(lambda *_: calls.append(1))
    model(x=x).sum().backward()
    assert calls
    assert inner.weight.grad is not None


@pytest.mark.parametrize("called", [torch.tanh, torch.nn.Linear(4, 4).double()])
def test_what_somebody_else_wrote_is_compiled_too(called):
    model = Program([(R.out(X) <= R.x(X)) | [F.call(called)]]).compile(R.out, dtype=torch.float64)
    x = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    torch._dynamo.reset()
    found = torch.compile(model, backend="aot_eager")(x=x)
    torch.testing.assert_close(found, called(x))
    torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x) for y in (found, called(x))))


def plan_of(run, *tensors):
    names = [f"x{n}" for n in range(len(tensors))]
    return lowered(lambda _, symbols: run(*symbols), names, tensors, torch.device("cpu"))


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 3  # not its derivative: a gradient that only this function has


def test_opaque_functions_are_one_node():
    x = torch.ones(2, requires_grad=True)
    twice = opaque(like=lambda t: torch.empty(t.shape, device="meta"))(lambda t: Twice.apply(t))
    plan = plan_of(lambda t: twice(t) + 1, x)
    assert len(plan.kernels) == 1
    (grad,) = torch.autograd.grad(plan(x).sum(), x)
    assert grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    "run", [lambda x: x * (2 if x.sum() > 0 else 3), lambda x: x * x.sum().item()]
)
def test_what_reads_numbers_is_not_lowered(run):
    with pytest.raises((NotImplementedError, RuntimeError)):
        plan_of(run, torch.ones(2))


def test_lowering_computes_nothing():
    plan = plan_of(lambda x: (x @ x).exp(), torch.empty(1 << 20, 1 << 20, device="meta"))
    assert [node.op for node in plan.graph.nodes][1:-1] == ["call_method"] * 2


def test_the_output_is_the_callers():
    x = torch.ones(2, 3)
    for run in (lambda t: t, lambda t: t.transpose(0, 1), lambda t: t.reshape(6)[:3]):
        plan_of(run, x)(x).zero_()
    assert x.sum() == 6


def test_bound_weights_are_prepared_once():
    calls = []

    def prepare(weight):
        calls.append(weight)
        return lambda x: x @ weight

    times = opaque(
        like=lambda x, w: torch.empty(x.shape[0], w.shape[1], device="meta"), prepare=prepare
    )(lambda x, weight: x @ weight)

    def run(x, weight, bias):
        return times(x, weight.transpose(0, 1)) + bias.reshape(1, 3) + torch.rand_like(bias)

    x, weight, bias = torch.randn(5, 4), torch.randn(3, 4), torch.randn(3)
    plan = plan_of(run, x, weight, bias)
    step = plan.bound({1: weight, 2: bias})
    for _ in range(2):
        x = torch.randn(5, 4)
        torch.manual_seed(0)
        found = step(x)
        torch.manual_seed(0)
        torch.testing.assert_close(found, run(x, weight, bias))
    assert len(calls) == 1
    assert not torch.equal(step(x), step(x))  # random numbers are drawn anew
    assert not plan.fits([x[:4], weight, bias])


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.transpose(0, 1).reshape(3, 8),  # an axis of length 1 moves: still in order
        lambda x: x.permute(1, 0, 3, 2).reshape(3, 8),
        lambda x: x.permute((1, 0, 2, 3)).flatten(),
        lambda x: x.transpose(-1, -2).reshape(1, 24),
        lambda x: x.transpose(1, 3).transpose(0, 2).reshape(24),
    ],
)
def test_axes_in_another_order(view):
    x = torch.randn(1, 3, 2, 4)
    torch.testing.assert_close(plan_of(lambda t: view(t) * 2, x)(x + 1), view(x + 1) * 2)


@pytest.mark.parametrize("count", [1, 3])
def test_gradients_have_memory_of_their_own(count):
    sums = R.x(X) + F.tanh(R.x(X)[4, 4]) + W.a[4,], F.tanh(R.y(X)) + W.b[4,], R.y(X) + W.c[4,]
    model = Program([R.out(X) <= sums]).compile(R.out, seed=0, dtype=torch.float64)
    inputs = {name: torch.randn(count, 4, dtype=torch.float64) for name in "xy"}
    leaves = [*model.parameters(), *(x.requires_grad_() for x in inputs.values())]
    w = torch.randn(count, 4, dtype=torch.float64)
    expected = torch.autograd.grad((model(**inputs) * w).sum(), leaves)
    (model(**inputs) * w).sum().backward()
    for leaf in leaves:
        leaf.grad.mul_(3.0)
    assert_equal([leaf.grad / 3.0 for leaf in leaves], [x.clone() for x in expected])
