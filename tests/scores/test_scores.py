"""Scores are what they say: values, derivatives, printing, and the buckets of T5."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edgewise import R, V
from edgewise.errors import EdgewiseError
from edgewise.graphs import window
from edgewise.kernels.attention import attention
from edgewise.scores import (
    H,
    I,
    J,
    S,
    alibi,
    exp,
    floor,
    log,
    maximum,
    minimum,
    relative,
    scalar,
    sigmoid,
    softcap,
    sqrt,
    t5_buckets,
    table,
    tanh,
    where,
)  # fmt: skip
from edgewise.scores.evaluate import PairScores
from edgewise.scores.library import alibi_slopes
from edgewise.scores.nodes import S as DOT
from edgewise.scores.nodes import by_distance, entries
from edgewise.scores.primitives import derivative

HEADS, ROWS, COLUMNS = 2, 3, 4


def pairs(tables=(), seed=0):
    random = torch.Generator().manual_seed(seed)
    s = torch.randn(HEADS, ROWS, COLUMNS, generator=random, dtype=torch.float64)
    places = torch.arange(ROWS)[:, None], torch.arange(COLUMNS)[None]
    return PairScores(
        s.requires_grad_(), *places, torch.arange(HEADS).view(-1, 1, 1), tuple(tables)
    )


def rows_of(score):
    """The tables of a score as kernels see them: (rows, length)."""
    return [t.reshape(-1, t.shape[-1]).requires_grad_() for t in score.tables]


def tables_of(random):
    draw = lambda *shape: torch.randn(*shape, generator=random, dtype=torch.float64)  # noqa: E731
    return draw(7), draw(HEADS, 7), draw(HEADS)


@st.composite
def scores(draw, depth=3):
    one, each, slopes = tables_of(torch.Generator().manual_seed(draw(st.integers(0, 3))))
    leaves = [S, I, J, H, I - J, relative(one), relative(each), scalar(slopes),
              table(each, abs(I - J) + H), table(one, S)]  # fmt: skip
    numbers = st.sampled_from([2, -1.5, 0.25, 3])
    if depth == 0:
        return draw(st.sampled_from(leaves))
    a, b = draw(scores(depth - 1)), draw(st.one_of(scores(depth - 1), numbers))
    return draw(
        st.sampled_from(
            [
                a + b,
                a - b,
                a * b,
                tanh(a) * b,
                sigmoid(a),
                exp(-abs(a)),
                log(1 + abs(a)) + b,
                sqrt(1 + a * a),
                maximum(a, b),
                minimum(a, b),
                where(a > b, a, b * 0.5),
                -a,
                where((S < 0.3) & ~(I > J), a, S),
                floor(a) + S,
                a / (2 + abs(a)),
            ]
        )
    )


@given(score=scores())
@settings(max_examples=60, deadline=None)
def test_derivatives_are_those_of_autograd(score):
    tables = rows_of(score)
    at = pairs(tables)
    value = at[score.node].to(torch.float64).expand(at.s.shape)
    assume(bool(value.isfinite().all()))
    weight = torch.randn(value.shape, generator=torch.Generator().manual_seed(9)).double()
    needed = [x for x in (at.s, *tables)]
    if not value.requires_grad:
        return
    expected = torch.autograd.grad((value * weight).sum(), needed, allow_unused=True)
    with torch.no_grad():
        ds = at[derivative(score.node, DOT)] * weight
        found = [torch.zeros_like(t) for t in tables]
        for entry in entries(score.node):
            grad = at[derivative(score.node, entry)] * weight
            at.add_to(found[entry.table], entry, grad)
    for mine, right in zip((ds, *found), expected, strict=True):
        right = torch.zeros_like(mine) if right is None else right
        torch.testing.assert_close(mine, right.expand(mine.shape))


def test_they_print_as_they_are_written():
    slopes = torch.ones(2)
    for score, text in [
        (softcap(30.0) + alibi(slopes), "30.0 * tanh(S / 30.0) + -table0[0] * abs(I - J)"),
        (2 * (S - 1) / (I - (J - 1)), "2 * (S - 1) / (I - (J - 1))"),
        (where(~(I > J) & (H < 2), S, -math.inf), "where(~(I > J) & (H < 2), S, -inf)"),
    ]:
        assert repr(score) == text


def test_a_tensor_that_is_read_twice_is_one_table():
    slopes = torch.ones(2)
    assert len((alibi(slopes) + scalar(torch.ones(2))).tables) == 2
    values = torch.ones(5)
    assert len((table(values, I) + table(values, J)).tables) == 1


def test_a_score_knows_whether_only_distances_count():
    assert by_distance((softcap(5.0) + alibi(2) + relative(torch.zeros(3))).node)
    assert not by_distance((S + I).node)
    assert not by_distance(table(torch.zeros(3), I).node)


def test_soft_caps_go_before_biases():
    both = (S + alibi(torch.ones(1))).at(softcap(2.0))
    assert repr(both) == "2.0 * tanh(S / 2.0) + -table0[0] * abs(I - J)"


@pytest.mark.parametrize("both", [True, False])
def test_buckets_are_those_of_t5(both):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5", reason="no transformers")
    away = torch.arange(-300, 301)
    expected = t5.T5Attention._relative_position_bucket(-away, both, 32, 128)
    assert torch.equal(t5_buckets(32, 128, both=both)[away.clamp(-128, 128) + 128], expected)


@pytest.mark.parametrize("heads", [1, 2, 6, 8, 12])
def test_slopes_are_those_of_the_paper(heads):
    def paper(n):
        if math.log2(n).is_integer():
            return [2 ** (-(2 ** -(math.log2(n) - 3)) * (i + 1)) for i in range(n)]
        whole = 2 ** math.floor(math.log2(n))
        return paper(whole) + paper(2 * whole)[0::2][: n - whole]

    torch.testing.assert_close(alibi_slopes(heads), torch.tensor(paper(heads)))


WRONG = [
    (lambda: bool(S > 1), "where(condition, a, b)"),
    (lambda: S + torch.ones(3), "not of Tensor"),
    (lambda: S + "1", "not of str"),
    (lambda: softcap(0.0), "a positive number, got 0.0"),
    (lambda: softcap(True), "got True"),
    (lambda: relative(torch.zeros(4)), "2r + 1 entries, got 4"),
    (lambda: relative(torch.zeros(0)), "2r + 1"),
    (lambda: table(torch.zeros(3).long(), I), "int64 of shape (3,)"),
    (lambda: table([1.0], I), "got list"),
    (lambda: table(torch.zeros(2, 0), I), "no entry"),
    (lambda: alibi([]) + torch.ones(1), "not of Tensor"),
    (lambda: alibi("8"), "got '8'"),
    (lambda: alibi(0), "0 heads"),
    (lambda: alibi(True), "True heads"),
    (lambda: relative([1.0]), "got list"),
    (lambda: t5_buckets(2), "at least 4 buckets"),
    (lambda: t5_buckets(32, 8), "beyond those that have a bucket each, 8"),
    (lambda: t5_buckets(32.0, 128), "32.0 buckets"),
    (lambda: softcap(2.0).at("S"), "not of str"),
]


@pytest.mark.parametrize(("make", "text"), WRONG, ids=[text for _, text in WRONG])
def test_mistakes_say_what_to_write(make, text):
    with pytest.raises(EdgewiseError) as caught:
        make()
    assert caught.value.code == "bad-score"
    assert text in caught.value.message + caught.value.help
    assert __file__ in str(caught.value)


@pytest.mark.parametrize(
    ("step", "most"),
    [
        (tanh, "100 functions deep"),
        (lambda score: score + 0.5, "100 functions deep"),
        (lambda score: where(I > J, score, S), "100 functions deep"),
        (lambda score: S.at(score) * 2, "100 functions deep"),
        (lambda score: score.at(score * score), "10,000 parts large"),
        (lambda score: score * score, "10,000 parts large"),
    ],
)
def test_a_score_that_is_too_deep_is_refused_before_it_is_worked_out(step, most):
    made = [S / 8]

    def build():
        for _ in range(3000):
            made.append(step(made[-1]))

    with pytest.raises(EdgewiseError, match=f"more than {most}") as caught:
        build()
    assert caught.value.code == "score-too-deep"
    last = made[-1]  # what is allowed works
    q = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    ours, plain = (
        attention(q, q, q, window(1), score=last, kernel=k) for k in ("csr", "reference")
    )
    torch.testing.assert_close(ours, plain)
    mine, wanted = (torch.autograd.grad(out.square().sum(), q) for out in (ours, plain))
    torch.testing.assert_close(mine, wanted)
    assert repr(last)


@pytest.mark.parametrize(
    ("write", "help"),
    [
        (lambda: where(I == J, S, 0.0), "`I.equals(J)`"),
        (lambda: S + (I == 1), "`I.equals(J)`"),
        (lambda: S**2, "`S * S`"),
        (lambda: I // 2, "`floor(I / 2)`"),
        (lambda: S + torch.ones(3), "`scores.table(tensor, index)`"),
        (lambda: torch.ones(3) * S, "`scores.scalar(tensor)`"),
        (lambda: torch.ones(3) > S, "`scores.scalar(tensor)`"),
        (lambda: np.ones(3) * S, "`scores.scalar(tensor)`"),
        (lambda: torch.ones(4)[H] * S, "`scores.scalar(tensor)`"),
        (lambda: [1, 2][I] + S, "`scores.table(tensor, J)`"),
        (lambda: S[0], "`scores.table(tensor, index)`"),
        (lambda: torch.log(1 + I - J), "`scores.log(x)`"),
        (lambda: np.log(1 + I - J), "`scores.log(x)`"),
        (lambda: (1 + I - J).log(), "`scores.log(x)`"),
        (lambda: torch.relu(S), "`scores.maximum(x, 0)`"),
        (lambda: S.clamp(-5, 5), "`scores.maximum(low, scores.minimum(x, high))`"),
        (lambda: torch.where(I > J, S, 0), "`scores.where(condition, a, b)`"),
        (lambda: torch.nn.functional.softplus(S), "exp, log"),
        (lambda: max(S, 0), "`maximum(a, b)`"),
        (lambda: S + V.I, "`I`, `J` and `H` of `edgewise.scores`"),
        (lambda: S + R.bias(V.I), "`I`, `J` and `H` of `edgewise.scores`"),
        (lambda: table(torch.ones(4)), "`scalar(values)`"),
        (lambda: table(torch.ones(4, 8), H, J), "the row of its head"),
        (lambda: table(torch.tensor(2.0), 0), "`scalar(tensor)`"),
        (lambda: table(torch.arange(3), J), "`table(tensor.float(), index)`"),
    ],
)
def test_a_slip_is_refused_with_the_right_spelling(write, help):
    with pytest.raises(EdgewiseError) as caught:
        write()
    assert help in caught.value.help
