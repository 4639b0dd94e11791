"""A plan beyond the memory of the machine is refused before it allocates."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, rows

EDGES = rows(torch.stack([torch.arange(40) // 4, torch.arange(40) % 10]))
PAIRS = Program([R.h(V.X, V.Y) <= (R.a(V.X), R.a(V.Y))])
ATTENDED = Program([R.h(V.I) <= (R.edge(V.I, V.J), F.relu(R.x(V.J) + R.x(V.I)))])
SUMMED = Program([(R.h(V.I) <= (R.edge(V.I, V.J), R.x(V.J))) | [F.product]])


@pytest.fixture
def memory(monkeypatch):
    def of(count):
        monkeypatch.setattr("edgewise.ground.grounder.physical_memory", lambda: count)
        monkeypatch.setattr("edgewise.physical.build.physical_memory", lambda: count)

    return of


def test_keys_that_do_not_fit_are_not_joined(memory):
    memory(1 << 20)
    model = PAIRS.compile(R.h, limit=10**12)
    with pytest.raises(EdgewiseError, match=r"rule for `h` has about 1,000,000 groundings") as e:
        model(a=torch.ones(1000))
    assert e.value.code == "plan-too-large"
    assert "more than there is memory" in str(e.value)
    assert model(a=torch.ones(10)).shape == (10, 10)


def test_values_that_do_not_fit_are_not_computed(memory):
    model = ATTENDED.compile(R.h)
    x = torch.ones(10, 64)
    data = model.ground(edge=EDGES)
    memory(40 * 64 * 4)
    assert model(data, x=x).shape == (10, 64)
    memory(40 * 64 * 4 - 1)
    with pytest.raises(EdgewiseError, match=r"`h` has about 40 values of 64, which take") as e:
        model.ground(edge=EDGES, x=x)
    assert e.value.code == "plan-too-large"


def test_a_batch_and_a_precision_count(memory):
    model = ATTENDED.compile(R.h).double()
    memory(40 * 64 * 8 * 3 - 1)
    data = model.ground(edge=EDGES)
    assert model(data, x=torch.ones(2, 10, 64, dtype=torch.float64)).shape == (2, 10, 64)
    with pytest.raises(EdgewiseError, match="about 120 values of 64"):
        model(data, x=torch.ones(3, 10, 64, dtype=torch.float64))


def test_what_is_summed_along_edges_is_not_counted_by_edge(memory):
    model = SUMMED.compile(R.h)
    data = model.ground(edge=EDGES)
    memory(10 * 64 * 4)  # the heads alone
    assert model.rows(data, x=torch.ones(10, 64)).data.shape == (10, 64)
