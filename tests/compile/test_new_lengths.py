"""A model at a length it has not seen: what does not depend on the length is not found again."""

import copy
import gc
import weakref

import pytest
import torch

from edgewise import F, Program, R, V, W, rows
from edgewise.ground.grounder import Grounder
from edgewise.physical import data
from edgewise.physical.value_shapes import Shapes
from edgewise.zoo import encoder


@pytest.fixture
def model():
    config = encoder.Config(size=8, heads=2, hidden=16, layers=3)
    return encoder.program(config).compile(R.out, seed=0, dtype=torch.float64).eval()


def counted(monkeypatch, of, name):
    calls, own = [], getattr(of, name)

    def count(*given):
        calls.append(given)
        return own(*given)

    monkeypatch.setattr(of, name, count)
    return calls


def test_shapes_of_rules_are_kept(model, monkeypatch):
    model(x=torch.randn(1, 5, 8, dtype=torch.float64))
    calls = counted(monkeypatch, Shapes, "_run")
    for n in (1, 2, 7):
        x = torch.randn(3, n, 8, dtype=torch.float64)
        found = model(x=x)
        assert not calls
        fresh = copy.deepcopy(model)
        fresh._shapes.clear()
        torch.testing.assert_close(found, fresh(x=x), rtol=0, atol=0)
        assert calls
        calls.clear()


def test_a_shape_that_depends_on_the_length_is_found_anew():
    program = Program(
        [(R.all(V.G) <= (R.x(V.I), R._in(V.I, V.G))) | [F.concat_agg], R.h <= R.all(0)]
    )
    model = program.compile(R.h, seed=0)
    for n in (2, 5, 3):
        x = torch.randn(n, 4)
        edges = torch.stack([torch.arange(n), torch.zeros(n, dtype=torch.int64)])
        found = model(model.ground(**{"in": edges}), x=x)
        torch.testing.assert_close(found, x.flatten())


def test_a_weight_of_another_shape_gives_another_shape():
    model = Program([R.h(V.I) <= R.x(V.I)["w":3, 4], R.out(V.I) <= R.h(V.I)]).compile(R.out)
    assert model(x=torch.randn(2, 4)).shape == (2, 3)
    model.w = torch.nn.Parameter(torch.randn(5, 4))
    assert model(x=torch.randn(6, 4)).shape == (6, 5)


def test_a_called_module_is_asked_every_time():
    class Grows(torch.nn.Module):
        size = 2

        def forward(self, x):
            return x.repeat(self.size)

    grows = Grows()
    program = Program([R.a(V.I) <= F.call(grows)(R.x(V.I)), R.out(V.I) <= R.a(V.I)])
    model = program.compile(R.out)
    assert model(x=torch.randn(2, 3)).shape == (2, 6)
    grows.size = 3
    assert model(x=torch.randn(4, 3)).shape == (4, 9)


def test_layers_that_read_alike_are_joined_once(model, monkeypatch):
    calls = counted(monkeypatch, Grounder, "finish")
    model(x=torch.randn(1, 5, 8, dtype=torch.float64))
    few = len(calls)
    config = encoder.Config(size=8, heads=2, hidden=16, layers=9)
    calls.clear()
    encoder.program(config).compile(R.out, seed=0)(x=torch.randn(1, 5, 8))
    assert len(calls) == few


def test_what_reads_alike_over_other_keys_is_joined_anew():
    program = Program(
        [
            (R.h(V.I) <= (R.x(V.J), R._a(V.J, V.I))) | [F.sum_agg],
            (R.g(V.I) <= (R.x(V.J), R._b(V.J, V.I))) | [F.sum_agg],
            (R.s(V.I) <= (R.x(V.J), R._b(V.J, V.I))) | [F.max_agg],
            R.out(V.I) <= (R.h(V.I), R.g(V.I)[W.two[2.0].fixed()], R.s(V.I)),
        ]
    )
    a, b = (torch.tensor([[0, 1, 2, 2], [0, 0, 1, 2]]), torch.tensor([[2, 0, 1], [0, 1, 2]]))
    x = torch.randn(3, 4, dtype=torch.float64)
    model = program.compile(R.out, dtype=torch.float64)
    found = model(model.ground(a=rows(a), b=rows(b)), x=x)
    facts = [R.x(i)[x[i].tolist()] for i in range(3)]
    facts += [R.a(*p) for p in a.T.tolist()] + [R.b(*p) for p in b.T.tolist()]
    solved = program.solve(facts)[R.out(V.I)]
    torch.testing.assert_close(
        torch.stack(list(found.values())), torch.stack(list(solved.values()))
    )


def test_many_lengths_are_held_in_bounded_bytes(monkeypatch):
    """What is built for a length goes with the oldest ones, in bytes and in number."""
    monkeypatch.setattr(data, "BUDGET", 1 << 20)
    program = Program([(R.h(V.I) <= (R.x(V.I), R.x(V.J))) | [F.sum, F.sum_agg]])
    model = program.compile(R.h, seed=0, without=["push sums"])
    alive: list[weakref.ref] = []
    for n in range(1, 201):
        x = torch.ones(n)
        assert torch.equal(model(x=x), torch.full((n,), 2.0 * n))
        alive.append(weakref.ref(list(model._cache.built.values())[-1]))
    held = model._cache.built.values()
    assert 0 < len(held) <= 64
    assert sum(step.bytes for step in held) <= max(1 << 20, model._cache.built[key_of(200)].bytes)
    gc.collect()
    assert sum(step() is not None for step in alive) == len(held)
    assert len(model._cache.prepared) == len(held)
    tensors = [t for step in held for plan in step.plans.values() for t in plan.tensors]
    assert sum(t.nbytes for t in tensors) < 1 << 20


def key_of(n):
    return ((("x", (n,)),), torch.float32, "cpu")
