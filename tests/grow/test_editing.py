"""Tokens that are edited in the middle give what all tokens give at once."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W, numbers
from edgewise.graphs import causal, window

WINDOW, LAYERS = 3, 2


def model_of(condition):
    softmax = F.softmax_agg(agg_terms=[V.J])
    rules = [R.e(V.I) <= F.lookup(W.word[10, 4], R.token(V.I)) + W.place(V.I)[4,]]
    x = R.e
    for n in range(LAYERS):
        w, h, y = (R[f"{name}{n}"] for name in "why")
        rules += [
            (w(V.I, V.J) <= (x(V.J).T, x(V.I)[4, 4], condition)) | [F.product, softmax],
            (h(V.I) <= (w(V.I, V.J), x(V.J)[4, 4])) | [F.product],
            y(V.I) <= h(V.I),
            y(V.I) <= x(V.I),
        ]
        x = y
    program = Program([*rules, R.logits(V.I) <= x(V.I)[10, 4]], domains={V.I: 64})
    return program.compile(R.logits, seed=0, dtype=torch.float64)


CONDITIONS = {
    "window": (causal() & window(WINDOW))(V.I, V.J),
    "causal": R.special.leq(V.J, V.I),
}


@pytest.fixture(params=CONDITIONS, name="case")
def _case(request):
    model = model_of(CONDITIONS[request.param])
    tokens = torch.randint(0, 10, (2, 30), generator=torch.Generator().manual_seed(0))
    growing = model.growing(48)
    growing(token=numbers(tokens[:, :20]))
    growing(token=numbers(tokens[:, 20:]))
    return request.param, model, growing, tokens


def assert_edited(model, growing, tokens, start, found):
    """The output from `start` on, and a row that is appended after it."""
    every = model(token=numbers(tokens)).detach()
    wanted = every[:, start : start + growing.computed]
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert growing.length == tokens.shape[1]
    more = torch.tensor([[1], [2]])
    last = growing(token=numbers(more))[:, 0]
    wanted = model(token=numbers(torch.cat([tokens, more], 1))).detach()[:, -1]
    torch.testing.assert_close(last, wanted, rtol=1e-12, atol=1e-12)


def test_a_token_is_replaced(case):
    name, model, growing, tokens = case
    new = torch.tensor([[7, 3], [2, 9]])
    found = growing.edit(10, token=numbers(new))
    tokens[:, 10:12] = new
    assert growing.computed == (2 + LAYERS * WINDOW if name == "window" else 20)
    assert_edited(model, growing, tokens, 10, found)


def test_tokens_are_inserted(case):
    _, model, growing, tokens = case
    new = torch.tensor([[7, 3, 1], [2, 9, 4]])
    found = growing.edit(5, 6, token=numbers(new))
    tokens = torch.cat([tokens[:, :5], new, tokens[:, 6:]], 1)
    assert growing.computed == 27
    assert_edited(model, growing, tokens, 5, found)


def test_tokens_are_removed(case):
    _, model, growing, tokens = case
    found = growing.edit(5, 9)
    tokens = torch.cat([tokens[:, :5], tokens[:, 9:]], 1)
    assert_edited(model, growing, tokens, 5, found)


def test_the_last_tokens_are_removed(case):
    _, model, growing, tokens = case
    assert growing.edit(12, 30) is None
    assert growing.computed == 0
    found = growing.edit(11, token=numbers(torch.tensor([[4], [5]])))
    tokens = tokens[:, :12].clone()
    tokens[:, 11] = torch.tensor([4, 5])
    assert_edited(model, growing, tokens, 11, found)


def test_after_samples_were_taken(case):
    _, model, growing, tokens = case
    growing.take([1, 0])
    growing.crop(25)
    tokens = tokens[[1, 0], :25].clone()
    found = growing.edit(3, token=numbers(torch.tensor([[4], [5]])))
    tokens[:, 3] = torch.tensor([4, 5])
    assert_edited(model, growing, tokens, 3, found)


@pytest.mark.parametrize(
    "edit",
    [
        lambda g: g.edit(-1),
        lambda g: g.edit(1.5),
        lambda g: g.edit(40, 50),
        lambda g: g.edit(5, 3),
        lambda g: g.edit(3, x=torch.ones(3)),
        lambda g: g.edit(3, token=torch.ones(2, 1)),
        lambda g: g.edit(3, token=numbers(torch.zeros(3, 1, dtype=torch.int64))),
        lambda g: g.edit(0, 0, token=numbers(torch.zeros(2, 40, dtype=torch.int64))),
    ],
)
def test_nothing_changes_when_an_edit_is_refused(edit):
    model = model_of(CONDITIONS["window"])
    tokens = torch.randint(0, 10, (2, 30), generator=torch.Generator().manual_seed(0))
    growing = model.growing(48)
    growing(token=numbers(tokens))
    with pytest.raises(EdgewiseError):
        edit(growing)
    tokens[:, 4] = 1
    found = growing.edit(4, token=numbers(tokens[:, 4:5]))
    assert_edited(model, growing, tokens, 4, found)
