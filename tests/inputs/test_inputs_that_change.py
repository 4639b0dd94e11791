"""Data that is trained, or written into, after grounding."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgewise import Program, R, V, ragged, rows
from edgewise.errors import EdgewiseError
from edgewise.module import Data, Model

FORMS = ("rows", "ragged", "ragged rows", "facts", "ragged facts", "facts beside the program's")


def _grounded(form: str, xs: list[Tensor]) -> tuple[Model, Data]:
    """The sum of two values that are held as one of the forms."""
    program = [R.out <= R.h(V.I), R.h(V.I) <= R.x(V.I)[2.0]]
    if form == "facts beside the program's":
        program = [*program, R.x(7)[0.0]]  # type: ignore[list-item]
    model = Program(program).compile(R.out)
    one = torch.zeros(1, 1, dtype=torch.int64)
    match form:
        case "rows":
            return model, model.ground(x=rows(torch.tensor([[0]]), xs[0].reshape(1)))
        case "ragged":
            return model, model.ground(x=ragged(xs))
        case "ragged rows":
            return model, model.ground(x=ragged([rows(one, x) for x in xs]))
        case "ragged facts":
            return model, model.ground(facts=ragged([[R.x(0)[x]] for x in xs]))
        case _:
            return model, model.ground(facts=[R.x(i)[x] for i, x in enumerate(xs)])


def _total(model: Model, data: Data) -> Tensor:
    found = model(data)
    return (found if isinstance(found, Tensor) else found.data).sum()


@pytest.mark.parametrize("form", FORMS[1:])
@pytest.mark.parametrize("late", [False, True])
def test_values_train(form: str, late: bool) -> None:
    xs = [torch.ones(1, requires_grad=not late) for _ in range(2)]
    model, data = _grounded(form, xs)
    if late:
        assert _total(model, data).item() == 4.0
        for x in xs:
            x.requires_grad_()
    descent = torch.optim.SGD(xs, lr=0.25)
    for step in range(4):
        loss = _total(model, data)
        assert loss.item() == pytest.approx(4.0 - 2.0 * step)
        descent.zero_grad()
        loss.backward()
        assert [x.grad.item() for x in xs if x.grad is not None] == [2.0, 2.0]
        descent.step()


@pytest.mark.parametrize("form", FORMS[1:])
def test_values_that_are_written_into(form: str) -> None:
    xs = [torch.ones(1), torch.ones(1)]
    model, data = _grounded(form, xs)
    for step in range(4):
        assert _total(model, data).item() == 4.0 + 2.0 * step
        xs[0] += 1


def test_rows_ask_for_gradients_after_grounding() -> None:
    values = torch.ones(3)
    model = Program([R.out <= R.x(V.I)]).compile(R.out)
    data = model.ground(x=rows(torch.tensor([[0, 1, 2]]), values))
    model(data)
    values.requires_grad_()
    for _ in range(3):
        model(data).backward()
    assert values.grad is not None
    assert values.grad.tolist() == [3.0, 3.0, 3.0]


def test_a_weight_learns_beside_ragged_values() -> None:
    xs = [torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)]
    model = Program([R.out <= R.x(V.I)["w":1.0]]).compile(R.out)
    data = model.ground(x=ragged(xs))
    descent = torch.optim.SGD([*xs, *model.parameters()], lr=0.1)
    losses = []
    for _ in range(5):
        loss = model(data).data.square().sum()
        descent.zero_grad()
        loss.backward()
        descent.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 2


def test_compiled_steps_follow_values_that_train() -> None:
    xs = [torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)]
    model = Program([R.out <= R.x(V.I)]).compile(R.out)
    data = model.ground(x=ragged(xs))
    compiled = torch.compile(model, backend="eager")
    assert compiled(data).data.tolist() == [2.0, 1.0]
    compiled(data).data.sum().backward()
    with torch.no_grad():
        xs[0] += 1
    assert compiled(data).data.tolist() == [4.0, 1.0]
    assert xs[0].grad is not None
    assert xs[0].grad.tolist() == [1.0, 1.0]


def test_stacked_facts_train() -> None:
    xs = [torch.tensor(1.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)]
    rules = [R.h(V.I) <= R.a(V.I)["v":1.0], R.h(V.I) <= R.b(V.I)["w":1.0]]
    model = Program(rules).compile(R.h)
    data = model.ground(facts=[R.a(0)[xs[0]], R.b(1)[xs[1]]])
    for _ in range(3):
        model(data).data.sum().backward()
        with torch.no_grad():
            xs[0].add_(1.0)
    assert model(data).data.tolist() == [4.0, 2.0]
    assert xs[0].grad is not None
    assert xs[0].grad.item() == 3.0


@pytest.mark.parametrize("given", [lambda keys: keys, rows])
def test_keys_are_copied(given: Callable[[Tensor], Any]) -> None:
    edges = torch.tensor([[0, 1], [1, 2]])
    model = Program([R.h(V.X) <= (R._edge(V.X, V.Y), R.x(V.Y))]).compile(R.h)
    data = model.ground(edge=given(edges))
    for length in (3, 4):  # built anew for each
        edges.zero_()
        assert model.rows(data, x=torch.ones(length)).index.tolist() == [[0, 1]]


def test_keys_of_samples_are_copied() -> None:
    keys = torch.tensor([[0, 1]])
    model = Program([R.h(V.X) <= (R._node(V.X), R.x(V.X))]).compile(R.h)
    data = model.ground(node=ragged([keys]))
    keys.fill_(2)
    assert model.rows(data, x=torch.ones(1, 3, 1)).index.tolist() == [[0, 0], [0, 1]]


def test_arrays_are_copied() -> None:
    keys, values = np.array([[0, 1]]), np.ones(2, dtype=np.float32)
    model = Program([R.out <= R.x(V.I)]).compile(R.out)
    data = model.ground(x=rows(keys, values))  # type: ignore[arg-type]
    dense = model.ground(x=values)
    keys[:], values[:] = 5, 5.0
    assert model(data).item() == 2.0
    assert model(dense).item() == 2.0


def test_samples_refuse_values_that_train() -> None:
    model = Program([R.h <= R.x(V.X)]).compile(R.h)
    xs = [torch.ones(2, requires_grad=True), torch.ones(1)]
    with pytest.raises(EdgewiseError, match="needs gradients"):
        model.samples(model.ground(x=ragged(xs)))
