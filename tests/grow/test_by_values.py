"""Rows appended under conditions on values: equal to computing all rows at once."""

import itertools

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W
from edgewise.graphs import causal, window

I, J, S, H, D = V.I, V.J, V.S, V.H, V.D  # noqa: E741
N, SIZE = 9, 4
CAUSAL = R.special.leq(J, I)


def attention(*conditions, rules=()):
    return Program([
        R.q(I) <= R.x(I)[SIZE, SIZE], R.k(I) <= R.x(I)[SIZE, SIZE], *rules,
        (R.w(I, J) <= (R.k(J).T, R.q(I), *conditions)) | [F.product, F.softmax_agg(agg_terms=[J])],
        (R.out(I) <= (R.w(I, J), R.x(J))) | [F.product],
    ])  # fmt: skip


def near(*bodies):
    return [R.near(I, J) <= body for body in bodies]


SELF = (R.x(I), R.x(J), R.special.eq(I, J))
SECOND = [
    (R.w2(I, J) <= (R.out(J).T, R.out(I), R.g(J) > 0, CAUSAL))
    | [F.product, F.softmax_agg(agg_terms=[J])],
    (R.top(I) <= (R.w2(I, J), R.out(J))) | [F.product],
]
CASES = {
    "a gate of the key": attention(R.gate(J) > 0, CAUSAL),
    "a negated gate of the key": attention(~(R.gate(J) < -0.5), CAUSAL),
    "a gate computed from the row": attention(
        R.g(J) > 0, CAUSAL, rules=[R.g(I) <= R.x(I)["g":1, SIZE], R.g/1 | [F.sum, F.square]]
    ),
    "itself, or a gate": attention(
        R._near(I, J), CAUSAL, rules=near(SELF, (R.x(I), R.gate(J) > 0))
    ),
    "a gate of the query, or itself": attention(
        R._near(I, J), CAUSAL, rules=near(SELF, (R.gate(I) > 0, R.x(J)))
    ),
    "values of both": attention(R.score(I) >= R.score(J), CAUSAL),
    "values that are close": attention(abs(R.score(I) - R.score(J)) <= 0.7, CAUSAL),
    "a threshold": attention(R.gate(J) > R.threshold, CAUSAL),
    "a window, and a gate": attention(R.gate(J) > 0, (causal() & window(4))(I, J)),
    "the same speaker, and a gate": attention(
        R._near(I, J), CAUSAL,
        rules=near(SELF, (R.speaker(I, S), R.speaker(J, S), R.gate(J) > 0)),
    ),
}  # fmt: skip


def given(seed, first=1.0):
    random = torch.Generator().manual_seed(seed)
    rows = {"x": torch.randn(N, SIZE, generator=random)}
    rows["gate"] = torch.randn(N, 1, generator=random)
    rows["gate"][0] = first
    rows["score"] = torch.randn(N, 1, generator=random)
    speaker = torch.stack([torch.arange(N), torch.randint(2, (N,), generator=random)])
    return rows, {"threshold": torch.tensor([0.1]), "speaker": speaker}


def made(program, seed, output=R.out):
    model = program.compile(output, seed=0).eval()
    rows, fixed = given(seed)
    names = set(model.inputs)
    return (
        model,
        {n: t for n, t in rows.items() if n in names},
        {n: t for n, t in fixed.items() if n in names},
    )


@pytest.mark.parametrize("parts", [(9,), (1,) * 9, (4, 1, 1, 3), (1, 5, 3), (2, 2, 2, 2, 1)])
@pytest.mark.parametrize("name", CASES)
def test_is_equal_to_all_rows_at_once(name, parts):
    model, rows, fixed = made(CASES[name], len(name))
    expected = model(**rows, **fixed)
    growing = model.growing(12, **fixed)
    ends = list(itertools.accumulate(parts, initial=0))
    found = [growing(**{n: t[a:b] for n, t in rows.items()}) for a, b in itertools.pairwise(ends)]
    torch.testing.assert_close(torch.cat(found), expected)


@pytest.mark.parametrize("name", CASES)
def test_rows_are_cropped_and_edited(name):
    model, rows, fixed = made(CASES[name], 3)
    growing = model.growing(12, **fixed)
    growing(**rows)
    growing.crop(4)
    torch.testing.assert_close(
        growing(**{n: t[4:6] for n, t in rows.items()}),
        model(**{n: t[:6] for n, t in rows.items()}, **fixed)[4:],
    )
    other, _ = given(11, first=2.0)
    new = {n: other[n][2:3] for n in rows}
    found = growing.edit(2, **new)
    edited = {n: torch.cat([t[:2], new[n], t[3:6]]) for n, t in rows.items()}
    torch.testing.assert_close(found, model(**edited, **fixed)[2:])
    growing.edit(1, 2)
    shorter = {n: torch.cat([t[:1], t[2:]]) for n, t in edited.items()}
    again = growing(**{n: t[6:] for n, t in rows.items()})
    every = {n: torch.cat([shorter[n], t[6:]]) for n, t in rows.items()}
    torch.testing.assert_close(again, model(**every, **fixed)[5:])


def test_a_condition_on_what_attention_computes():
    gate = [R.g(I) <= R.out(I)["g":1, SIZE], R.g / 1 | [F.sum, F.square]]
    program = attention(CAUSAL) + Program([*gate, *SECOND])
    model, rows, _ = made(program, 0, R.top)
    growing = model.growing(N)
    found = [growing(x=rows["x"][a : a + 3]) for a in (0, 3, 6)]
    torch.testing.assert_close(torch.cat(found), model(**rows))


def test_weights_of_each_head():
    program = Program(
        [
            R.q(H, I) <= R.x(I)[W.q(H)[SIZE, SIZE]],
            R.k(H, I) <= R.x(I)[W.k(H)[SIZE, SIZE]],
            (R.w(H, I, J) <= (R.k(H, J).T, R.q(H, I), R.gate(J) > 0, CAUSAL))
            | [F.product, F.softmax_agg(agg_terms=[J])],
            (R.out(H, I) <= (R.w(H, I, J), R.x(J))) | [F.product],
        ],
        domains={H: 2},
    )
    model, rows, _ = made(program, 1)
    growing = model.growing(N)
    found = [growing(**{n: t[a : a + 3] for n, t in rows.items()}) for a in (0, 3, 6)]
    torch.testing.assert_close(torch.cat(found, 1), model(**rows))


REFUSED = {
    "later rows": (attention(R.gate(J) > 0), {}, "cannot-grow"),
    "a value of later rows": (
        attention(R.gate(J) > R.most, CAUSAL, rules=[(R.most <= R.gate(I)) | [F.max_agg]]),
        {}, "cannot-grow",
    ),
    "no key": (attention(R.gate(J) > 9.0, CAUSAL), {}, "cannot-grow"),
    "rows that values leave out": (
        attention(CAUSAL, rules=[R.most(I) <= (R.x(I), R.gate(I) > 0)])
        + Program([R.top(I) <= (R.out(I), R.most(I))]),
        {"output": R.top}, "cannot-grow",
    ),
    "another condition": (
        attention(R.g(J) > 0, CAUSAL, rules=[R.g(I) <= (R.gate(I), R.gate(I) > -9.0)]),
        {}, "cannot-grow",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::edgewise.EdgewiseWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    program, options, code = REFUSED[name]
    model, rows, _ = made(program, 0, **options)
    with pytest.raises(EdgewiseError) as caught:
        model.growing(N)(**rows)
    assert caught.value.code == code, caught.value


def test_a_batch_and_other_numbers_of_rows_are_refused():
    model, rows, _ = made(CASES["a gate of the key"], 0)
    growing = model.growing(N)
    with pytest.raises(EdgewiseError, match="samples of a batch"):
        growing(**{n: t[None] for n, t in rows.items()})
    with pytest.raises(EdgewiseError, match="different numbers of new rows"):
        growing(x=rows["x"], gate=rows["gate"][:3])
    with pytest.raises(EdgewiseError, match="samples of a batch"):
        growing.take([0, 0])
    with pytest.raises(EdgewiseError, match="no relation `y`"):
        growing(y=rows["x"])
    found = growing(**rows)
    torch.testing.assert_close(found, model(**rows))
