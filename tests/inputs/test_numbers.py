"""Integers as values: tokens looked up in a table, in every precision."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgewise import EdgewiseError, F, Program, R, V, W, numbers

EMBEDDED = Program(
    [R.x(V.I) <= F.lookup(W.word[50_000, 3], R.token(V.I)) + W.place(V.I)[3,]], domains={V.I: 9}
)


@given(st.integers(0, 3), st.integers(0, 9), st.sampled_from([torch.float64, torch.bfloat16]))
def test_a_table_is_read_by_number_in_every_precision(batch, n, dtype):
    model = EMBEDDED.compile(R.x, seed=0, dtype=dtype)
    token = torch.randint(40_000, 50_000, (batch, n))
    word, place = model.weight("word"), model.weight("place")
    assert torch.equal(model(token=numbers(token)), word[token] + place[:n])


def test_the_gradient_goes_to_the_rows_that_were_read():
    model = EMBEDDED.compile(R.x, seed=0)
    model(token=numbers(torch.tensor([7, 7, 2]))).sum().backward()
    assert model.weight("word").grad[[7, 2, 0], 0].tolist() == [2, 1, 0]


def test_numbers_are_the_reference_s():
    program = Program(
        [
            (R.x(V.I) <= (R.table, R.token(V.I))) | [F.lookup],
            R.y(V.I) <= F.relu(F.lookup(W.bias[[0.5, -2.0, 3.0]], R.token(V.I))),
        ]
    )
    facts = [R.table[[[1.0, 2.0], [3.0, 4.0]]], R.token(0)[1.0], R.token(1)[0.0]]
    solution = program.solve(facts)
    table = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    x = program.compile(R.x)(table=table, token=numbers([[1, 0]]))[0]
    assert x.tolist() == [solution[R.x(i)].tolist() for i in range(2)] == [[3.0, 4.0], [1.0, 2.0]]
    y = program.compile(R.y)(token=numbers([1, 0]))
    assert y.tolist() == [solution[R.y(i)].item() for i in range(2)] == [0.0, 0.5]


def test_numbers_are_numbers_elsewhere():
    program = Program([R.h(V.I) <= R.token(V.I)[2.0] + F.exp(R.token(V.I))])
    found = program.compile(R.h, dtype=torch.float64)(token=numbers([0, 3]))
    expected = torch.tensor([1.0, 6.0 + torch.tensor(3.0, dtype=torch.float64).exp()])
    torch.testing.assert_close(found, expected.double(), check_dtype=True, rtol=1e-6, atol=0)


def test_a_step_may_bring_numbers_and_a_trace_keeps_them():
    model = EMBEDDED.compile(R.x, seed=0)
    token = numbers([[5, 49_999]])
    assert torch.equal(model(model.ground(), token=token), model(token=token))
    assert torch.equal(torch.compile(model, fullgraph=True)(token=token), model(token=token))


@pytest.mark.parametrize(
    ("token", "code"),
    [
        (lambda: numbers([50_000]), "no-such-row"),
        (lambda: numbers([-1]), "no-such-row"),
        (lambda: torch.tensor([0.5]), "no-such-row"),
        (lambda: numbers([1.0]), "bad-input"),
        (lambda: numbers([[[1]]]), "bad-input"),
        (lambda: numbers(list(range(10))), "out-of-domain"),
    ],
)
def test_numbers_without_a_row_are_refused(token, code):
    with pytest.raises(EdgewiseError) as caught:
        EMBEDDED.compile(R.x, seed=0)(token=token())
    assert caught.value.code == code


@given(st.integers(1, 4), st.integers(0, 5))
def test_a_rotation_keeps_lengths_and_turns_by_differences(half, shift):
    """⟨turn(q, i), turn(k, j)⟩ depends on i − j alone."""
    program = Program(
        [
            (R.angle(V.I) <= (R.place(V.I), W.speed[[1.0 / (c + 1) for c in range(half)]].fixed()))
            | [F.product],
            R.turned(V.I) <= F.rotate(R.x(V.I), F.cos(R.angle(V.I)), F.sin(R.angle(V.I))),
        ]
    )
    x = torch.randn(2, 2 * half, dtype=torch.float64, requires_grad=True)

    def turned(places):
        facts = [R.x(i)[x[i]] for i in range(2)] + [R.place(i)[p] for i, p in enumerate(places)]
        model = program.compile(R.turned, dtype=torch.float64)
        place = torch.tensor(places, dtype=torch.float64)
        ours, reference = model(x=x, place=place), program.solve(facts)[R.turned(V.I)]
        torch.testing.assert_close(ours, torch.stack([*reference.values()]))
        return ours

    here, there = turned([1.0, 3.0]), turned([1.0 + shift, 3.0 + shift])
    torch.testing.assert_close(here[0] @ here[1], there[0] @ there[1])
    torch.testing.assert_close(here.norm(dim=1), x.norm(dim=1))
    (grad,) = torch.autograd.grad(here.square().sum(), x)
    torch.testing.assert_close(grad, 2 * x)


@given(st.integers(1, 5), st.booleans())
def test_rms_norm_and_gelu_tanh_are_the_reference_s(size, vector):
    program = Program([R.h(V.I) <= F.gelu_tanh(F.rms_norm(eps=1e-3)(R.x(V.I)))])
    x = torch.randn(3, *([size] if vector else []), dtype=torch.float64, requires_grad=True)
    ours = program.compile(R.h, dtype=torch.float64)(x=x)
    theirs = torch.stack([*program.solve([R.x(i)[x[i]] for i in range(3)])[R.h(V.I)].values()])
    torch.testing.assert_close(ours.flatten(), theirs.flatten())
    a, b = (torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs))
    torch.testing.assert_close(a, b)
