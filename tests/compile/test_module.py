"""A compiled model is a plain torch module: everything torch does with modules works."""

import copy
import math
import pickle
import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from edgewise import F, Program, R, V, W, ragged, repeat, rows
from edgewise.graphs import bigbird, window

EDGES = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])


def graph(*more, **options):
    program = Program(
        [
            (R.h(V.I) <= (R.x(V.J)[4, 3], W.b[4,], R._edge(V.J, V.I))) | [F.tanh, F.avg_agg],
            (R.out(V.I) <= (R.h(V.I)[2, 4], R.x(V.I)[2, 3])) | [F.tanh],
            *more,
        ]
    )
    return program.compile(R.out, **options)


def attention(*conditions, d=4, **options):
    program = Program(
        [
            R.q(V.I) <= R.x(V.I)[d, d],
            R.k(V.I) <= R.x(V.I)[d, d],
            R.v(V.I) <= R.x(V.I)[d, d],
            R.d_k[1 / math.sqrt(d)].fixed(),
            (R.w(V.I, V.J) <= (R.d_k, R.k(V.J).T, R.q(V.I), *conditions))
            | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.out(V.I) <= (R.w(V.I, V.J), R.v(V.J))) | [F.product],
        ]
    )
    return program.compile(R.out, **options)


def x(n=3, d=3, dtype=torch.float32, batch=()):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*batch, n, d, generator=generator, dtype=torch.float64).to(dtype)


# names and first values


def test_parameters_are_named_by_scope_rule_and_atom():
    assert set(graph().state_dict()) == {"h.x", "b", "out.h", "out.x"}
    block = repeat(lambda y: [R.z(V.I) <= y(V.I)[2, 2]], 2, name="layer")(R.x)
    model = Program([block, R.out(V.I) <= block.out(V.I)[2, 2]]).compile(R.out)
    assert [name[:8] for name in model.state_dict()] == ["layer.0.", "layer.1.", "out.laye"]


def test_names_are_stable_when_rules_are_added_elsewhere():
    one = graph()
    other = graph(
        R.more(V.I) <= R.x(V.I)[5, 3],
        R.more(V.I) <= R.h(V.I)[5, 4],
        R.x_of_nobody[1.0],
    )
    assert set(one.state_dict()) == set(other.state_dict())
    other.load_state_dict(one.state_dict())
    data, again = one.ground(edge=EDGES), other.ground(edge=EDGES)
    assert torch.equal(one(data, x=x()), other(again, x=x()))


def test_names_that_torch_uses_itself_do_not_clash():
    program = Program(
        [
            R.a["weight":2.0],
            R.b["training":3.0],
            R.c["forward.x":4.0],
            R.d["weight.x":5.0],
            R.e["":1.0] if False else R.e["plan":1.0],
            R.out <= (R.a, R.b, R.c, R.d, R.e),
        ]
    )
    model = program.compile(R.out)
    assert model().item() == 15.0
    assert len(model.state_dict()) == 5
    assert model.weight("training").item() == 3.0
    model.load_state_dict(model.state_dict())


def test_fixed_weights_are_kept_and_not_learned():
    model = attention()
    assert "d_k" in model.state_dict()
    assert "d_k" not in dict(model.named_parameters())


def test_weights_start_as_those_of_a_linear_layer():
    model = Program([R.out(V.I) <= R.x(V.I)[400, 100]]).compile(R.out, seed=1)
    weight, linear = model.weight("out.x").detach(), torch.nn.Linear(100, 400).weight.detach()
    assert weight.shape == linear.shape
    assert float(weight.abs().max()) <= 0.1
    torch.testing.assert_close(weight.std(), linear.std(), rtol=0.03, atol=0)


def test_weights_come_from_the_generator_or_a_seed():
    torch.manual_seed(3)
    one, two = graph(), graph()
    torch.manual_seed(3)
    three = graph()
    assert torch.equal(one.weight("h.x"), three.weight("h.x"))
    assert not torch.equal(one.weight("h.x"), two.weight("h.x"))
    before = torch.get_rng_state()
    assert torch.equal(graph(seed=5).weight("h.x"), graph(seed=5).weight("h.x"))
    assert torch.equal(before, torch.get_rng_state())


def test_a_parameter_is_used_itself():
    own = torch.nn.Parameter(torch.randn(2, 3))
    model = Program([R.out(V.I) <= R.x(V.I)[own]]).compile(R.out)
    assert model.weight("out.x") is own
    model(x=x()).sum().backward()
    assert own.grad is not None


# precision and devices


def test_to_double_and_back():
    model = graph(seed=0)
    data = model.ground(edge=EDGES)
    single = model(data, x=x())
    model.double()
    double = model(data, x=x(dtype=torch.float64))
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), single)
    model.to(torch.bfloat16)
    assert model(data, x=x(dtype=torch.bfloat16)).dtype == torch.bfloat16
    model.float()
    torch.testing.assert_close(model(data, x=x()), single, rtol=0.02, atol=0.02)


def test_to_another_device():
    model = graph(seed=0)
    data = model.ground(edge=EDGES)
    assert model.to("meta")(data, x=torch.ones(3, 3, device="meta")).shape == (3, 2)


@pytest.mark.parametrize("conditions", [(), (R.special.leq(V.J, V.I),), (window(1)(V.I, V.J),)])
def test_autocast_attention(conditions):
    model = attention(*conditions, seed=0)
    expected = model(x=x(6, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(x=x(6, 4))
        found.float().sum().backward()
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)
    assert all(p.grad is not None and p.grad.dtype == p.dtype for p in model.parameters())


@pytest.mark.parametrize("conditions", [(), (R.special.leq(V.J, V.I),), (window(1)(V.I, V.J),)])
@pytest.mark.parametrize("inside", [False, True])
def test_autocast_in_a_trace(conditions, inside):
    model = attention(*conditions, seed=0)
    precise = torch.autocast("cpu", dtype=torch.bfloat16)
    torch._dynamo.reset()

    def run(data):
        with precise if inside else nullcontext():
            return model(x=data)

    traced = torch.compile(run, backend="aot_eager", fullgraph=True)
    results = []
    for call in (run, traced):
        data = x(6, 4).requires_grad_()
        with nullcontext() if inside else precise:
            found = call(data)
        found.float().square().sum().backward()
        grads = [p.grad.clone() for p in model.parameters()]
        results.append((found, data.grad, *grads))
        model.zero_grad()
    torch.testing.assert_close(results[1], results[0], rtol=0.02, atol=0.02)
    assert results[1][0].dtype == results[0][0].dtype
    (step,) = model._cache.built.values()
    assert any(lower is torch.bfloat16 for *_, lower in step.modules)


def test_autocast_graph():
    model = graph(seed=0)
    data = model.ground(edge=EDGES)
    expected = model(data, x=x())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(data, x=x())
        again = model(data, x=x(dtype=torch.bfloat16))
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)
    torch.testing.assert_close(again.float(), expected, rtol=0.05, atol=0.05)


def test_autocast_families():
    program = Program([R.out(V.H, V.I) <= R.x(V.I)[W.q(V.H)[2, 3]]], domains={V.H: 2})
    model = program.compile(R.out, seed=0)
    expected = model(x=x())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(model(x=x()).float(), expected, rtol=0.05, atol=0.05)


# state


def test_state_is_saved_and_loaded():
    one, two = graph(seed=0), graph(seed=1)
    two.load_state_dict(one.state_dict())
    a, b = one.ground(edge=EDGES), two.ground(edge=EDGES)
    assert torch.equal(one(a, x=x()), two(b, x=x()))


def test_a_deep_copy_is_a_model_of_its_own():
    model = graph(seed=0)
    data = model.ground(edge=EDGES)
    before = model(data, x=x())
    other = copy.deepcopy(model)
    assert torch.equal(other(data, x=x()), before)
    assert torch.equal(other(copy.deepcopy(data), x=x()), before)
    with torch.no_grad():
        other.weight("h.x").zero_()
    assert torch.equal(model(data, x=x()), before)
    assert not torch.equal(other(data, x=x()), before)


def test_a_deep_copy_after_dense_calls():
    model = attention(R.special.leq(V.J, V.I), seed=0)
    before = model(x=x(5, 4))
    assert torch.equal(copy.deepcopy(model)(x=x(5, 4)), before)


def test_a_model_travels_between_processes():
    model = graph(seed=0)
    data = model.ground(edge=EDGES)
    expected = model(data, x=x())
    other, again = pickle.loads(pickle.dumps((model, data)))
    assert torch.equal(other(again, x=x()), expected)


# training


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam])
def test_a_step_lowers_the_loss(optimiser):
    model = graph(seed=0)
    data = model.ground(edge=EDGES)
    target = torch.ones(3, 2)
    losses = []
    steps = optimiser(model.parameters(), lr=0.05)
    for _ in range(20):
        steps.zero_grad()
        loss = (model(data, x=x()) - target).square().mean()
        loss.backward()
        steps.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_training_on_a_ragged_batch():
    model = graph(seed=0)
    data = model.ground(x=ragged([x(3), x(2) + 1]), edge=ragged([EDGES, EDGES[:, :1]]))
    losses = []
    steps = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(10):
        steps.zero_grad()
        loss = model(data).data.square().mean()
        loss.backward()
        steps.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_dropout_only_in_training():
    model = Program([(R.out(V.I) <= R.x(V.I)) | [F.dropout(0.5)]]).compile(R.out)
    assert torch.equal(model.eval()(x=x(50)), x(50))
    assert (model.train()(x=x(50)) == 0).any()


def test_functional_call():
    model = graph(seed=0)
    data = model.ground(edge=EDGES)
    weights = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    found = torch.func.functional_call(model, weights, (data,), {"x": x()})
    assert torch.equal(found, torch.zeros(3, 2))


def test_functional_gradients():
    model = attention(seed=0)
    weights = dict(model.named_parameters())

    def loss(given):
        return torch.func.functional_call(model, given, (), {"x": x(5, 4)}).square().sum()

    found = torch.func.grad(loss)(weights)
    loss(weights).backward()
    for name, weight in weights.items():
        torch.testing.assert_close(found[name], weight.grad)


def test_gradient_checkpointing():
    model = attention(window(1)(V.I, V.J), seed=0)
    given = x(6, 4).requires_grad_()
    model(x=given).square().sum().backward()
    plain, given.grad = given.grad, None
    checkpoint(lambda v: model(x=v), given, use_reentrant=False).square().sum().backward()
    torch.testing.assert_close(given.grad, plain)


def test_hooks():
    model, seen = graph(seed=0), []
    data = model.ground(edge=EDGES)
    model.register_forward_hook(lambda *_: seen.append(1))
    model(data, x=x())
    assert seen == [1]


# compiling and exporting


def assert_compiles(model, data, *inputs, backend="aot_eager"):
    """The same outputs and gradients in one graph, for every input, and for another length."""
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    for given in inputs:
        arguments = () if data is None else (data,)
        found = values(compiled(*arguments, **given))
        expected = values(model(*arguments, **given))
        torch.testing.assert_close(found, expected)
        weights = [p for p in model.parameters() if p.requires_grad]
        ours = torch.autograd.grad(found.square().sum(), weights)
        theirs = torch.autograd.grad(expected.square().sum(), weights)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def values(found):
    return found if isinstance(found, torch.Tensor) else found.data


def test_compile_a_graph_layer():
    model = graph(seed=0)
    assert_compiles(model, model.ground(edge=EDGES), {"x": x()}, {"x": x() + 1})
    model = graph(seed=0, fill=0.0)
    assert_compiles(model, model.ground(edge=EDGES), {"x": x()}, {"x": x(5)}, {"x": x(4)})


def test_compile_without_any_call_before():
    torch._dynamo.reset()
    model = graph(seed=0)
    data = model.ground(edge=EDGES)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert torch.equal(compiled(data, x=x()), model(data, x=x()))


def test_compile_dense():
    program = Program(
        [
            (R.h(V.I) <= (R.x(V.I)[8, 4], W.b[8,])) | [F.relu],
            (R.out(V.I) <= (R.h(V.I)[4, 8], R.x(V.I))) | [F.norm],
        ]
    )
    model = program.compile(R.out, seed=0)
    assert_compiles(model, None, {"x": x(5, 4)}, {"x": x(7, 4, batch=(2,))})


@pytest.mark.parametrize(
    "function",
    [F.max_agg, F.median_agg, F.topk_agg(2), F.std_agg, F.lse_agg, F.count_agg],
    ids=lambda f: f.name,
)
def test_compile_aggregations(function):
    program = Program([(R.out(V.I) <= (R.x(V.J)[4, 3], R._edge(V.J, V.I))) | [function]])
    model = program.compile(R.out, seed=0)
    torch._dynamo.reset()
    data = model.ground(edge=EDGES)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(data, x=x()), model(data, x=x()))


def test_compile_attention_on_edges():
    model = attention(R._edge(V.J, V.I), seed=0)
    assert_compiles(model, model.ground(edge=EDGES), {"x": x(3, 4)})


@pytest.mark.parametrize(
    "conditions",
    [(), (R.special.leq(V.J, V.I),), (window(1)(V.I, V.J),), (bigbird(block=2, seed=1)(V.I, V.J),)],
    ids=["full", "causal", "window", "bigbird"],
)
def test_compile_fused_attention(conditions):
    model = attention(*conditions, seed=0)
    assert "attention" in str(model.explain())
    assert_compiles(model, None, {"x": x(8, 4, batch=(2,))}, {"x": x(9, 4)})


def test_compile_a_recurrence():
    program = Program(
        [
            R.s(0)[[0.0, 0.0]].fixed(),
            (R.s(V.J) <= (R.s(V.I)[2, 2], R.x(V.I)[2, 3], R.special.next(V.I, V.J))) | [F.tanh],
            R.out(V.I) <= (R.s(V.I), R._x(V.I)),
        ]
    )
    model = program.compile(R.out, seed=0)
    assert_compiles(model, None, {"x": x(4)})


def test_compile_a_ragged_batch():
    model = graph(seed=0)
    data = model.ground(x=ragged([x(3), x(2)]), edge=ragged([EDGES, EDGES[:, :1]]))
    assert_compiles(model, data, {})


def test_compile_inside_a_larger_module():
    class Larger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.last = graph(seed=0), torch.nn.Linear(2, 1)

        def forward(self, data, given):
            return self.last(self.inner(data, x=given))

    torch._dynamo.reset()
    model = Larger()
    data = model.inner.ground(edge=EDGES)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(data, x()), model(data, x()))


def test_export_a_dense_program():
    program = Program([(R.out(V.I) <= (R.x(V.I)[8, 4], W.b[8,])) | [F.relu, F.norm]])
    model = program.compile(R.out, seed=0).eval()
    for strict in (False, True):
        exported = torch.export.export(model, (), {"x": x(5, 4)}, strict=strict)
        torch.testing.assert_close(exported.module()(x=x(5, 4)), model(x=x(5, 4)))


def test_export_a_called_function():
    """The plan is built outside of the modes of export, which would look into the function."""
    model = Program([(R.out(V.I) <= R.x(V.I)) | [F.call(torch.tanh)]]).compile(R.out).eval()
    exported = torch.export.export(model, (), {"x": x(5, 4)})
    torch.testing.assert_close(exported.module()(x=x(5, 4)), x(5, 4).tanh())


def test_export_on_grounded_data():
    model = graph(seed=0).eval()
    data = model.ground(edge=EDGES)

    class Bound(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, given):
            return self.model(data, x=given)

    exported = torch.export.export(Bound(), (x(),))
    torch.testing.assert_close(exported.module()(x()), model(data, x=x()))


# many processes

DDP = """
import os, torch
from edgewise import F, Program, R, V
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
model = Program([(R.out(V.I) <= (R.x(V.J)[2, 3], R._edge(V.J, V.I))) | [F.tanh]]).compile(R.out)
data = model.ground(edge=torch.tensor([[0, 1], [1, 0]]))
parallel = torch.nn.parallel.DistributedDataParallel(model)
optimiser = torch.optim.SGD(parallel.parameters(), lr=0.1)
losses = []
for _ in range(5):
    optimiser.zero_grad()
    loss = parallel(data, x=torch.ones(2, 3)).data.square().sum()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses
torch.distributed.destroy_process_group()
print("trained")
"""


def test_distributed_data_parallel():
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("needs gloo")
    command = [sys.executable, "-W", "ignore", "-c", DDP]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert "trained" in done.stdout, done.stderr


@drawn(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    width=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=40)
def test_the_gradient_of_a_standard_deviation(sizes, width, seed):
    made = torch.Generator().manual_seed(seed)
    values = [torch.randn(n, width, generator=made, dtype=torch.float64) for n in sizes]
    values = [v.requires_grad_() for v in values]
    keys = torch.tensor([[i, j] for i, n in enumerate(sizes) for j in range(n)]).T
    model = Program([(R.out(V.X) <= R.a(V.X, V.Y)) | [F.std_agg]]).compile(
        R.out, dtype=torch.float64
    )
    found = model(model.ground(a=rows(keys, torch.cat(values)))).data.reshape(len(sizes), -1)
    plain = torch.stack([v.std(0, correction=0) if len(v) > 1 else v[0] * 0 for v in values])
    torch.testing.assert_close(found, plain)
    ours = torch.autograd.grad(found.sum(), values)
    theirs = torch.autograd.grad(plain.sum(), values)
    torch.testing.assert_close(ours, theirs)
