"""Calls with new keys by recordings of earlier ones: the same as grounding each by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from edgewise import EdgewiseError, F, Model, Program, R, V, W, rows
from edgewise.module import Relation
from edgewise.physical.recordings.calls import MOST, RecordedCalls

SIZE, HEADS = 3, 2


def mean() -> Model:
    rules = [
        R.z(V.J) <= R.x(V.J)["z":SIZE, SIZE],
        (R.mean(V.I) <= (R._edge(V.J, V.I), R.z(V.J))) | [F.avg_agg],
        R.h(V.I) <= R.x(V.I)["own":SIZE, SIZE],
        R.h(V.I) <= R.mean(V.I),
    ]
    return Program(rules).compile(R.h, seed=0, dtype=torch.float64)


def gcn() -> Model:
    rules = [
        (R.degree(V.I) <= R._edge(V.J, V.I)) | [F.count_agg],
        (R.h(V.I) <= (R._edge(V.J, V.I), F.inverse(R.degree(V.I)), R.x(V.J)["w":SIZE, SIZE]))
        | [F.product],
        (R.out(V.I) <= (R._edge(V.J, V.I), R.h(V.J)["w2":SIZE, SIZE])) | [F.product, F.relu],
    ]
    return Program(rules).compile(R.out, seed=0, fill=0.0, dtype=torch.float64)


def gin() -> Model:
    rules = [
        R.sum(V.I) <= R.x(V.I),
        R.sum(V.I) <= (R._edge(V.J, V.I), R.x(V.J)),
        (R.h(V.I) <= R.sum(V.I)["w":SIZE, SIZE]) | [F.relu],
        R.graph <= R.h(V.I)["out":1, SIZE],
    ]
    return Program(rules).compile(R.graph, seed=0, dtype=torch.float64)


def most() -> Model:
    """No dense output: rows."""
    rules = [(R.pair(V.I, V.K) <= (R.edge(V.I, V.J), R.x(V.J), R._edge(V.J, V.K))) | [F.max_agg]]
    return Program(rules).compile(R.pair, seed=0, dtype=torch.float64)


def gat() -> Model:
    rules = [
        R.z(V.H, V.I) <= R.x(V.I)[W.lin(V.H)[SIZE, SIZE]],
        (
            R.weight(V.H, V.I, V.J)
            <= (
                R.z(V.H, V.I)[W.target(V.H)[1, SIZE]],
                R.z(V.H, V.J)[W.source(V.H)[1, SIZE]],
                R._edge(V.J, V.I),
            )
        )
        | [F.leaky_relu(0.2), F.softmax_agg(agg_terms=[V.J])],
        (R.head(V.H, V.I) <= (R.weight(V.H, V.I, V.J), R.z(V.H, V.J))) | [F.product],
        (R.out(V.I) <= R.head(V.H, V.I)) | [F.concat_agg],
    ]
    domains = {V.H: HEADS}
    return Program(rules, domains=domains).compile(R.out, seed=0, fill=0.0, dtype=torch.float64)


MODELS = {each.__name__: each for each in (mean, gcn, gin, most, gat)}


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return {name: each() for name, each in MODELS.items()}


def graph(
    seed: int, nodes: int, edges: int, kind: torch.dtype, in_order: bool
) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, SIZE, generator=random, dtype=torch.float64)
    if not nodes:
        return x, torch.zeros(2, 0, dtype=kind)
    edge = torch.randint(nodes, (2, edges), generator=random).unique(dim=1)
    if not in_order:
        edge = edge[:, torch.randperm(edge.shape[1], generator=random)]
    return x, edge.to(kind)


def outcome(run, model: Model, x: Tensor) -> object:
    """The output and its gradients, or the error."""
    model.zero_grad()
    x = x.clone().requires_grad_()
    try:
        found = run(x)
    except EdgewiseError as error:
        return error.code, str(error).splitlines()[0]
    values = found if isinstance(found, Tensor) else found.data
    keys = None if isinstance(found, Tensor) else found.index
    ((values * values).sum() + values.sum()).backward()
    return values.detach(), keys, x.grad, {n: w.grad for n, w in model.named_parameters()}


def assert_same(model: Model, x: Tensor, edge: Tensor) -> None:
    mine = outcome(lambda x: model(x=x, edge=edge), model, x)
    alone = outcome(lambda x: model(model.ground(edge=edge), x=x), model, x)
    if isinstance(alone[0], str):
        assert mine[0] == alone[0]
        return
    torch.testing.assert_close(mine, alone)


graphs = st.builds(
    graph,
    st.integers(0, 1 << 30),
    st.integers(0, 9) | st.integers(20, 60),
    st.integers(0, 12) | st.integers(20, 150),
    st.sampled_from([torch.int64, torch.int64, torch.int32]),
    st.booleans(),
)


@pytest.mark.parametrize("name", MODELS)
@given(items=st.lists(graphs, min_size=1, max_size=6))
@settings(max_examples=6, deadline=None)
def test_random_graphs_in_turn(models: dict[str, Model], name: str, items: list) -> None:
    for x, edge in items:
        assert_same(models[name], x, edge)


class Counted:
    """How many calls were run by recordings of earlier ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        call = RecordedCalls.call

        def counted(this: RecordedCalls, *args: Any, **options: bool) -> object:
            found = call(this, *args, **options)
            self.count += found is not None
            return found

        monkeypatch.setattr(RecordedCalls, "call", counted)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    return Counted(monkeypatch)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("in_order", [True, False])
def test_graphs_alike_share_a_plan(name: str, in_order: bool, counted: Counted) -> None:
    model = MODELS[name]()
    for number in range(12):
        x, edge = graph(number, 40 + number, 600 + 3 * number, torch.int64, in_order)
        assert_same(model, x, edge)
    assert counted.count > 1


@pytest.mark.parametrize("name", MODELS)
def test_graphs_of_one_size(name: str) -> None:
    """Numbers that are always the same are not taken for sizes that follow from others."""
    model = MODELS[name]()
    for number in range(8):
        assert_same(model, *graph(number, 30, 100, torch.int64, True))
    for number in range(8):
        assert_same(model, *graph(number, 20 + number, 100, torch.int64, True))


@pytest.mark.parametrize("name", MODELS)
def test_what_grounding_refuses_is_refused(name: str) -> None:
    model = MODELS[name]()
    for number in range(8):
        assert_same(model, *graph(number, 40 + number, 200 + 3 * number, torch.int64, True))
    x, edge = graph(9, 50, 220, torch.int64, True)
    for wrong in (50, 51, 1 << 20, 1 << 45, -1):
        again = edge.clone()
        again[0, 7] = wrong
        assert_same(model, x, again)
    assert_same(model, x, torch.cat([edge, edge[:, 3:4]], 1))
    assert_same(model, x, edge[:, :0])
    assert_same(model, x, edge[:1])
    assert_same(model, x, (edge > 2))


def test_special_graphs_among_others() -> None:
    """Complete graphs, single edges, hubs, rings: other plans than those of random graphs."""
    for name in MODELS:
        model = MODELS[name]()
        for number in range(12):
            n = 12 + number
            ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
            special = [
                torch.cartesian_prod(torch.arange(n), torch.arange(n)).T,
                ring,
                torch.stack([torch.arange(n), torch.zeros(n, dtype=torch.int64)]),
                torch.stack([torch.zeros(n, dtype=torch.int64), torch.arange(n)]),
                ring[:, :1],
                torch.stack([torch.arange(n), torch.arange(n)]),
            ]
            x, edge = graph(number, n, 4 * n, torch.int64, True)
            every = [edge, special[number % len(special)].contiguous()]
            for one in every:
                assert_same(model, x, one)


def test_few_plans_are_held() -> None:
    model = mean()
    for number in range(60):
        x, edge = graph(number, 2 + number % 13, 1 + number % 17, torch.int64, True)
        model(x=x, edge=edge)
    for kind in model._recordings.kinds.values():
        assert len(kind.reruns) <= MOST


def test_changed_weights_are_read() -> None:
    model = mean()
    for number in range(8):
        x, edge = graph(number, 40, 200 + 3 * number, torch.int64, True)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.1)
        assert_same(model, x, edge)
    model.float()
    with pytest.raises(EdgewiseError, match="float64"):
        model(x=x, edge=edge)
    torch.testing.assert_close(
        model(x=x.float(), edge=edge), model(model.ground(edge=edge), x=x.float())
    )


def test_the_last_call_is_explained() -> None:
    model = mean()
    for number in range(12):
        x, edge = graph(number, 40 + number, 200 + 3 * number, torch.int64, True)
        model(x=x, edge=edge)
    assert str(model.explain(stage="kernels")) == str(
        model.explain(stage="kernels", x=x, edge=edge)
    )


def dropping() -> Model:
    rules = [(R.h(V.I) <= (R._edge(V.J, V.I), R.x(V.J))) | [F.dropout(0.5)]]
    return Program(rules).compile(R.h, seed=0, fill=0.0, dense=True, dtype=torch.float64)


def test_random_numbers_are_drawn_in_every_call() -> None:
    model = dropping()
    drawn = []
    for number in range(6):
        x, edge = graph(number, 40 + number, 600, torch.int64, True)
        drawn.append((model(x=x, edge=edge), model(x=x, edge=edge)))
    assert all(not torch.equal(one, other) for one, other in drawn)
    model.eval()
    assert_same(model, x, edge)


def test_values_beside_keys_are_trained() -> None:
    rules = [(R.h(V.I) <= (R.edge(V.J, V.I), R.x(V.J))) | [F.product]]
    model = Program(rules).compile(R.h, fill=0.0, dense=True, dtype=torch.float64)
    counted = 0
    for number in range(8):
        x, keys = graph(number, 30 + number, 200, torch.int64, number % 2 == 0)
        weights = torch.rand(keys.shape[1], dtype=torch.float64, requires_grad=number % 3 > 0)
        found = model(x=x, edge=rows(keys, weights))
        counted += isinstance(model._last, dict)
        wanted = torch.zeros_like(x).index_add(0, keys[1], weights[:, None] * x[keys[0]])
        torch.testing.assert_close(found, wanted)
        if weights.requires_grad:
            (mine,) = torch.autograd.grad(found.square().sum(), weights)
            (theirs,) = torch.autograd.grad(wanted.square().sum(), weights)
            torch.testing.assert_close(mine, theirs)
    assert counted


def test_values_that_are_no_numbers_are_refused() -> None:
    rules = [(R.h(V.I) <= (R.edge(V.J, V.I), R.x(V.J))) | [F.product]]
    model = Program(rules).compile(R.h, fill=0.0, dense=True, dtype=torch.float64)
    for number in range(5):
        x, keys = graph(number, 30 + number, 200, torch.int64, True)
        model(x=x, edge=rows(keys, torch.ones(keys.shape[1], dtype=torch.float64)))
    weights = torch.ones(keys.shape[1], dtype=torch.float64)
    weights[3] = torch.nan
    with pytest.raises(EdgewiseError, match="not-a-number"):
        model(x=x, edge=rows(keys, weights))


def test_another_device_precision_or_layout_of_values() -> None:
    model = mean()
    for number in range(6):
        x, edge = graph(number, 40 + number, 200 + 3 * number, torch.int64, True)
        assert_same(model, x, edge)
    assert_same(model, x.T.contiguous().T, edge)
    assert_same(model, torch.randn(2, *x.shape, dtype=x.dtype), edge)
    with pytest.raises(EdgewiseError, match="device-mismatch"):
        model(x=x.to("meta"), edge=edge)
    with pytest.raises(EdgewiseError, match="dtype-mismatch"):
        model(x=x.float(), edge=edge)


def test_keys_that_become_a_grid() -> None:
    """A relation of all pairs is a grid, and one of some pairs is not."""
    model = most()
    x = torch.randn(4, dtype=torch.float64)
    full = torch.cartesian_prod(torch.arange(4), torch.arange(4)).T.contiguous()
    for number in range(10):
        edge = full if number % 3 == 2 else graph(number, 4, 9, torch.int64, True)[1]
        wanted = model.rows(model.ground(edge=edge), x=x)
        found = model.rows(x=x, edge=edge)
        assert isinstance(found, Relation)
        assert isinstance(wanted, Relation)
        assert torch.equal(found.index, wanted.index)
        torch.testing.assert_close(found.data, wanted.data)


def test_rows_are_recorded_too(counted: Counted) -> None:
    model = gcn()
    for number in range(10):
        x, edge = graph(number, 40 + number, 600 + 3 * number, torch.int64, True)
        found, wanted = model.rows(x=x, edge=edge), model.rows(model.ground(edge=edge), x=x)
        assert isinstance(found, Relation)
        assert isinstance(wanted, Relation)
        assert torch.equal(found.index, wanted.index)
        torch.testing.assert_close(found.data, wanted.data)
    assert counted.count > 1
