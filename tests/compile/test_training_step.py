"""`training_step` against the plain loop: the same losses and weights with every optimiser."""

import copy

import pytest
import torch

from edgewise import F, Program, R, V, W, ragged, training_step
from edgewise.inputs.errors import BadInput

X, Y = V.X, V.Y
mse = torch.nn.functional.mse_loss
GRAPH = Program(
    [
        (R.h(X) <= (R.x(Y)[8, 3], R._edge(Y, X))) | [F.relu],
        (R.out <= R.h(X)[1, 8]) | [F.avg_agg],
    ]
)
XOR = Program([(R.xor["outer":1, 8] <= R.xy["inner":8, 2]) | [F.tanh], R.xor / 0 | [F.tanh]])
OPTIMISERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.001, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "LBFGS": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
}


def plain_step(model, loss, optimiser):
    values = []

    def step(data, *targets, **inputs):
        def closure():
            optimiser.zero_grad()
            value = loss(model(data, **inputs), *targets)
            value.backward()
            values.append(value.detach())
            return value

        values.clear()
        optimiser.step(closure)
        return values[0]

    return step


def molecules():
    made = torch.Generator().manual_seed(0)
    return [
        [R.x(i)[torch.randn(3, generator=made, dtype=torch.float64)] for i in range(n)]
        + [R.edge(i, i + 1) for i in range(n - 1)]
        for n in (4, 6, 3)
    ]


def xor_samples():
    pairs = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    return pairs.split(1), torch.tensor([[0.0], [1.0], [1.0], [0.0]], dtype=torch.float64)


def same(model, other):
    torch.testing.assert_close(model.state_dict(), other.state_dict())


@pytest.mark.parametrize("name", OPTIMISERS)
def test_samples_of_one_layout_with_a_schedule(name):
    fast, plain = (GRAPH.compile(R.out, seed=0, dtype=torch.float64) for _ in range(2))
    sides = []
    for model, make in ((fast, training_step), (plain, plain_step)):
        optimiser = OPTIMISERS[name](model.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, 2, gamma=0.5)
        samples = model.samples(model.ground(facts=ragged(molecules())))
        sides.append((make(model, mse, optimiser), schedule, samples))
    for _ in range(5):
        for at in range(3):
            target = torch.tensor(float(at), dtype=torch.float64)
            found, wanted = (step(samples[at], target) for step, _, samples in sides)
            torch.testing.assert_close(found, wanted)
        for _, schedule, _ in sides:
            schedule.step()
    assert sides[0][0].plain is None
    same(fast, plain)


@pytest.fixture
def traced_only(monkeypatch):
    """Graphs run without code generation, which takes seconds for every layout."""
    monkeypatch.setattr(torch._inductor, "compile", lambda graph, inputs, options: graph)


def assert_trains_alike(program, output, prepare, loss, calls):
    """`prepare(model)` gives data; `calls` are (number of the data, targets, inputs)."""
    fast, plain = (program.compile(output, seed=0, dtype=torch.float64) for _ in range(2))
    sides = []
    for model, make in ((fast, training_step), (plain, plain_step)):
        step = make(model, loss, torch.optim.Adam(model.parameters(), lr=0.01))
        sides.append((step, prepare(model)))
    reasons = []
    for at, targets, inputs in calls:
        found, wanted = (step(data[at], *targets, **inputs) for step, data in sides)
        torch.testing.assert_close(found, wanted)
        reasons.append(sides[0][0].plain)
    same(fast, plain)
    return reasons


@pytest.mark.usefixtures("traced_only")
def test_samples_of_different_shapes():
    target = torch.tensor(1.0, dtype=torch.float64)

    def prepare(model):
        return [model.ground(facts=facts) for facts in molecules()]

    calls = [(at, (target,), {}) for _ in range(4) for at in range(3)]
    reasons = assert_trains_alike(GRAPH, R.out, prepare, mse, calls)
    assert all(reasons[:6])
    assert reasons[6:] == [None] * 6


@pytest.mark.usefixtures("traced_only")
def test_more_shapes_than_are_compiled():
    program = Program([(R.h(X) <= R.x(X)["w":2, 2]) | [F.tanh]])
    made = torch.Generator().manual_seed(0)
    rows = [torch.randn(n, 2, generator=made, dtype=torch.float64) for n in range(1, 11)]
    calls = [(0, (x.flip(0),), {"x": x}) for _ in range(3) for x in rows]
    reasons = assert_trains_alike(program, R.h, lambda _: [None], mse, calls)
    assert reasons[20:28] == [None] * 8
    assert all("8 layouts are compiled" in reason for reason in reasons[28:])


TREE = Program(
    [
        R.h(X) <= R.leaf(X)[4, 3],
        (R.h(X) <= (R.h(Y)["rec":4, 4], R._child(X, Y))) | [F.tanh],
        R.out <= R.h(0)[1, 4],
    ]
)


def tree(*children, leaves):
    made = torch.Generator().manual_seed(0)
    values = [torch.randn(3, generator=made, dtype=torch.float64) for _ in leaves]
    return [
        *(R.leaf(i)[value] for i, value in zip(leaves, values, strict=True)),
        *(R.child(i, j) for i, j in children),
    ]


@pytest.mark.usefixtures("traced_only")
def test_recursion_over_trees_is_compiled():
    trees = [
        tree((0, 1), (0, 2), (1, 3), (1, 4), leaves=(2, 3, 4)),
        tree((0, 1), (1, 2), (2, 3), leaves=(3,)),
    ]

    def prepare(model):
        return [model.ground(facts=facts) for facts in trees]

    target = torch.tensor(0.5, dtype=torch.float64)
    calls = [(at, (target,), {}) for _ in range(4) for at in range(2)]
    reasons = assert_trains_alike(TREE, R.out, prepare, mse, calls)
    assert reasons[4:] == [None] * 4


CYCLE = [R.edge(0, 1)[1.0], R.edge(1, 2)[0.5], R.edge(2, 0)[0.3]]
ROUNDS = Program(
    [
        R.h(X) <= R.x(X)[4, 3],
        (R.h(X) <= (R.h(Y)["rec":4, 4], R._edge(X, Y))) | [F.tanh],
        R.out <= R.h(X)[1, 4],
    ],
    rounds=3,
)
FIXED_POINT = Program(
    [
        (R.d(X, Y) <= R.edge(X, Y)["first":2.0]) | [F.max_agg],
        (R.d(X, V.Z) <= (R.d(X, Y), R._edge(Y, V.Z), W.k[0.5])) | [F.product, F.max_agg],
        R.d / 2 | [F.max],
        (R.out <= R.d(X, Y)) | [F.max_agg],
    ]
)


@pytest.mark.usefixtures("traced_only")
def test_a_number_of_rounds_is_compiled():
    facts = [*CYCLE, R.x(0)[[1.0, 2.0, -1.0]]]
    calls = [(0, (torch.tensor(0.5, dtype=torch.float64),), {})] * 4
    reasons = assert_trains_alike(ROUNDS, R.out, lambda m: [m.ground(facts=facts)], mse, calls)
    assert reasons[-1] is None


def test_a_fixed_point_is_plain():
    """How many rounds it takes depends on values."""
    calls = [(0, (torch.tensor(0.5, dtype=torch.float64),), {})] * 4
    reasons = assert_trains_alike(FIXED_POINT, R.out, lambda m: [m.ground(facts=CYCLE)], mse, calls)
    assert reasons[-1] == "it calls `until_still`, which is not a torch operation"


@pytest.mark.usefixtures("traced_only")
def test_a_loss_that_changes_too_often_is_plain():
    scale = [1.0]

    def loss(y, t):
        return mse(y, t) * scale[0]

    model = XOR.compile(R.xor, seed=0, dtype=torch.float64)
    step = training_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.0))
    xs, ys = xor_samples()
    found = []
    with torch._dynamo.config.patch(recompile_limit=3):
        for n in range(9):
            scale[0] = float(n)
            found.append(step(None, ys[1], xy=xs[1]))
    assert step.plain == "`torch.compile` compiled it 3 times: what the loss reads keeps changing"
    torch.testing.assert_close(
        torch.stack(found), found[1] * torch.arange(9.0, dtype=torch.float64)
    )


@pytest.mark.usefixtures("traced_only")
def test_a_loss_that_dynamo_cannot_trace_is_plain():
    def loss(y, t):
        return mse(y, t) if y.sum() > 0 else mse(y, t) * 2

    xs, ys = xor_samples()
    calls = [(0, (y,), {"xy": x}) for _ in range(3) for x, y in zip(xs, ys, strict=True)]
    reasons = assert_trains_alike(XOR, R.xor, lambda _: [None], loss, calls)
    assert reasons[-1] == "`torch.compile` cannot compile it: Data-dependent branching"


def test_weights_and_losses_that_change_between_calls():
    scale = [1.0]

    def loss(y, t):
        return mse(y, t) * scale[0]

    fast, plain = (XOR.compile(R.xor, seed=0, dtype=torch.float64) for _ in range(2))
    sides = [
        make(m, loss, torch.optim.SGD(m.parameters(), lr=0.1))
        for m, make in ((fast, training_step), (plain, plain_step))
    ]
    xs, ys = xor_samples()
    for epoch in range(4):
        if epoch == 2:
            scale[0] = 3.0  # guarded by Dynamo
            for model in (fast, plain):
                model.load_state_dict({k: v + 0.1 for k, v in model.state_dict().items()})
        for x, y in zip(xs, ys, strict=True):
            found, wanted = (step(None, y, xy=x) for step in sides)
            torch.testing.assert_close(found, wanted)
    assert sides[0].plain is None
    for model in (fast, plain):
        model.weight("inner").requires_grad_(False)
    for _ in range(3):
        torch.testing.assert_close(*(step(None, ys[1], xy=xs[1]) for step in sides))
    assert "optimiser's parameters" in sides[0].plain
    same(fast, plain)


def test_gradients_have_their_own_memory():
    """Both weights have the gradient `x`: scaled in place, neither the other nor `x` changes."""
    model = Program([R.h <= (R.x["a":2,], R.x["b":2,])]).compile(R.h, seed=0)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)
    step = training_step(model, lambda y, t: (y * t).sum(), optimiser)

    def scaled(*_):
        for p in model.parameters():
            p.grad.mul_(2)

    optimiser.register_step_pre_hook(scaled)
    x, target = torch.tensor([[3.0]]), torch.tensor([1.0, 2.0])
    for _ in range(3):
        step(None, target, x=x[0])
        found = [p.grad.clone() for p in model.parameters()]
    assert step.plain is None
    torch.testing.assert_close(found, [torch.tensor([6.0, 12.0]).view(g.shape) for g in found])
    assert x.item() == 3.0
    assert target.tolist() == [1.0, 2.0]


def test_weights_without_gradients_are_left_alone():
    """Weight decay is for weights that have a gradient."""
    fast, plain = (XOR.compile(R.xor, seed=0, dtype=torch.float64) for _ in range(2))
    xs, ys = xor_samples()
    for model, make in ((fast, training_step), (plain, plain_step)):
        frozen = next(model.parameters()).requires_grad_(False)
        before = frozen.clone()
        optimiser = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.5)
        step = make(model, mse, optimiser)
        for _ in range(4):
            step(None, ys[1], xy=xs[1])
        assert torch.equal(frozen, before)
    same(fast, plain)


def test_dropout_and_modes():
    program = Program([(R.h <= R.x[4, 3]) | [F.dropout(0.5)], R.out <= R.h[1, 4]])
    fast = program.compile(R.out, seed=0)
    plain = copy.deepcopy(fast)
    x, y = torch.ones(3), torch.ones(())
    results = []
    for model, make in ((fast, training_step), (plain, plain_step)):
        torch.manual_seed(0)
        step = make(model, mse, torch.optim.SGD(model.parameters(), lr=0.01))
        losses = []
        for training in (True, True, True, True, False, False, False, True):
            model.train(training)
            losses.append(step(None, y, x=x))
        results.append(torch.stack(losses))
    torch.testing.assert_close(*results)
    same(fast, plain)


def test_what_cannot_be_compiled_says_why():
    x, y = torch.ones(3, 2), torch.zeros(3, 2)
    model = Program([(R.h(X) <= R.x(X)["w":2, 2]) | [F.call(torch.nn.Tanh())]]).compile(R.h)
    step = training_step(model, mse, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(3):
        before = model.weight("w").detach().clone()
        step(None, y, x=x)
        assert not torch.equal(before, model.weight("w"))
    assert "calls" in step.plain
    model = Program([R.h(X) <= R.x(X)["w":2, 2]]).compile(R.h)
    step = training_step(model, mse, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(3):
        step(None, y, x=x)
    assert step.plain is None
    with torch.autocast("cpu"):
        step(None, y, x=x)
        step(None, y, x=x)
    assert step.plain == "autocast is on"
    trained = x.clone().requires_grad_()
    step(None, y, x=trained)
    assert "requires a gradient" in step.plain
    assert trained.grad is not None
    seen = []
    hook = model.weight("w").register_hook(seen.append)
    step(None, y, x=x)
    assert step.plain == "hooks are registered"
    assert len(seen) == 1
    hook.remove()
    with pytest.raises(UserWarning, match="target size"):
        step(None, torch.zeros(3, 1), x=x)
    with torch.no_grad(), pytest.raises(BadInput, match="without a gradient"):
        step(None, y, x=x)


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (lambda out: out, "of shape (3, 2)"),
        (lambda out: out.detach().sum(), "without a gradient"),
        (lambda out: None, "a NoneType"),
        (lambda out: 0.5, "a float"),
    ],
)
def test_a_loss_is_one_number_with_a_gradient(loss, says):
    model = Program([R.h(X) <= R.x(X)[2, 2]]).compile(R.h)
    step = training_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(BadInput) as caught:
        step(None, x=torch.ones(3, 2))
    assert says in caught.value.message
