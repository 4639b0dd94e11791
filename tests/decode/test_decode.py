"""Decoding with a cache finds what decoding without one finds, and what trying everything finds."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import EdgewiseError, F, Program, R, V, W, numbers
from edgewise.decode import CachedDecoder, RecomputingDecoder, beam, greedy, sample
from edgewise.graphs import causal
from edgewise.zoo.parts import attention, linear, residual

WORDS, STOP = 5, 0
RULES = [
    R.x(V.I) <= F.lookup(W.word[WORDS, 8], R.token(V.I)) + W.place(V.I)[8,],
    *attention(R.x, R.heads, 8, 2, where=(causal()(V.I, V.J),)),
    *residual(R.x, R.heads, R.y, 8, 8, 0.0),
    (R.cross(V.I, V.J) <= (R.memory(V.J).T, R.y(V.I)))
    | [F.product, F.softmax_agg(agg_terms=[V.J])],
    (R.told(V.I) <= (R.cross(V.I, V.J), R.memory(V.J)[W.m[8, 8]])) | [F.product],
    *residual(R.y, R.told, R.z, 8, 8, 0.0),
    *linear(R.z, R.logits, 8, WORDS),
]


def language_model(seed=0):
    program = Program(RULES, domains={V.H: 2, V.I: 16})
    model = program.compile(R.logits, seed=seed, dtype=torch.float64)
    for weight in model.requires_grad_(False).parameters():
        weight.mul_(3)  # sure of itself, so that rows differ
    return model


def memory(batch, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, 3, 8, generator=generator, dtype=torch.float64)


def following(model, told, capacity=16):
    return CachedDecoder(model.growing(capacity, memory=told), "token")


def log_probabilities(model, told, prompt, row):
    """Of each token of a row, computed all at once."""
    tokens = torch.cat([prompt, torch.tensor(row)])[None]
    scores = model(memory=told[None], token=numbers(tokens))[0].log_softmax(-1)
    at = range(len(prompt) - 1, len(prompt) + len(row) - 1)
    return [float(scores[i, token]) for i, token in zip(at, row, strict=True)]


def greedy_without_cache(model, told, prompt, most):
    tokens, found = prompt, []
    while len(found) < most and STOP not in found:
        found.append(int(model(memory=told[None], token=numbers(tokens[None]))[0, -1].argmax()))
        tokens = torch.cat([tokens, torch.tensor(found[-1:])])
    return found + [STOP] * (most - len(found))


@settings(max_examples=15)
@given(st.integers(0, 99), st.integers(1, 3), st.integers(1, 4), st.integers(1, 6))
def test_greedy_is_the_likeliest_each_time(seed, batch, start, most):
    model, told = language_model(seed), memory(batch, seed)
    prompt = torch.randint(1, WORDS, (batch, start))
    found = greedy(following(model, told), prompt, most=most, stop=STOP)
    for row, got in enumerate(found):
        expected = greedy_without_cache(model, told[row], prompt[row], most)
        assert got.tolist() == expected[: len(got)]


def every_row(most):
    """All rows that end once, at the latest with token `most`, or do not end."""
    for length in range(1, most + 1):
        for row in itertools.product(range(WORDS), repeat=length):
            if STOP not in row[:-1] and (row[-1] == STOP or length == most):
                yield list(row)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_enough_beams_find_the_best_of_all_rows(seed, alpha):
    model, told = language_model(seed), memory(2, seed)
    prompt, most = torch.tensor([[1, 2], [3, 1]]), 3
    found, scores = beam(
        following(model, told), prompt, beams=WORDS**2, most=most, stop=STOP, alpha=alpha
    )
    for sample_, (row, score) in enumerate(zip(found, scores, strict=True)):
        best = max(
            (sum(log_probabilities(model, told[sample_], prompt[sample_], row)))
            / ((5 + len(row)) / 6) ** alpha
            for row in every_row(most)
        )
        assert float(score) == pytest.approx(best, abs=1e-9)
        ended = row.tolist()[: row.tolist().index(STOP) + 1] if STOP in row else row.tolist()
        own = sum(log_probabilities(model, told[sample_], prompt[sample_], ended))
        assert own / ((5 + len(ended)) / 6) ** alpha == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_a_beam_end_with_any_of_several_tokens(seed):
    model, told, most, ends = language_model(seed), memory(1, seed), 3, (STOP, 2)
    prompt = torch.tensor([[1, 3]])
    (found,), (score,) = beam(
        following(model, told), prompt, beams=WORDS**2, most=most, stop=ends, alpha=0.6
    )
    rows = [
        list(row[:k])
        for k in range(1, most + 1)
        for row in itertools.product(range(WORDS), repeat=k)
    ]
    ended = [r for r in rows if not {*r[:-1]} & {*ends} and (r[-1] in ends or len(r) == most)]
    scores = [
        sum(log_probabilities(model, told[0], prompt[0], r)) / ((5 + len(r)) / 6) ** 0.6
        for r in ended
    ]
    best = max(range(len(ended)), key=scores.__getitem__)
    assert found.tolist() == ended[best]
    assert float(score) == pytest.approx(scores[best], abs=1e-9)


def test_a_row_that_nothing_can_follow():
    class Nothing:
        remaining = 9

        def __call__(self, tokens):
            return torch.full((len(tokens), WORDS), -torch.inf)

        def take(self, samples):
            pass

    with pytest.raises(EdgewiseError, match="no token can follow in row 0"):
        beam(Nothing(), torch.tensor([[1]]), beams=2, most=3, stop=STOP)


@settings(max_examples=10)
@given(st.integers(0, 99))
def test_one_beam_is_greedy(seed):
    model, told = language_model(seed), memory(2, seed)
    prompt = torch.tensor([[1], [2]])
    found, _ = beam(following(model, told), prompt, beams=1, most=6, stop=STOP, alpha=0.0)
    expected = greedy(following(model, told), prompt, most=6, stop=STOP)
    width = min(found.shape[1], expected.shape[1])
    assert torch.equal(found[:, :width], expected[:, :width])


def test_more_beams_are_never_worse_than_one_row_alone():
    model, told = language_model(3), memory(3, 3)
    prompt = torch.tensor([[1], [2], [3]])
    together, scores = beam(following(model, told), prompt, beams=4, most=5, stop=STOP)
    for row in range(3):
        alone, score = beam(
            following(model, told[row : row + 1]), prompt[row : row + 1], beams=4, most=5, stop=STOP
        )
        assert float(score) == pytest.approx(float(scores[row]), abs=1e-12)
        assert together[row, : alone.shape[1]].tolist() == alone[0].tolist()


def test_samples_follow_the_probabilities():
    model, told = language_model(1), memory(1)
    prompt = torch.tensor([[1, 2]]).expand(4000, 2)
    generator = torch.Generator().manual_seed(0)
    drawn = sample(
        following(model, told.expand(4000, 3, 8)), prompt, most=1, temperature=2.0,
        generator=generator,
    )  # fmt: skip
    expected = (model(memory=told, token=numbers(prompt[:1]))[0, -1] / 2).softmax(-1)
    shares = torch.bincount(drawn[:, 0], minlength=WORDS) / 4000
    assert (shares - expected).abs().max() < 0.03


def test_samples_are_reproducible_and_one_choice_is_greedy():
    model, told, prompt = language_model(2), memory(2), torch.tensor([[1], [2]])

    def drawn(**options):
        generator = torch.Generator().manual_seed(7)
        return sample(following(model, told), prompt, most=6, generator=generator, **options)

    assert torch.equal(drawn(), drawn())
    expected = greedy(following(model, told), prompt, most=6)
    assert torch.equal(drawn(top_k=1), expected)
    assert torch.equal(drawn(top_p=1e-9), expected)
    assert torch.equal(drawn(temperature=1e-6), expected)


@pytest.mark.parametrize(
    ("search", "options"),
    [
        (greedy, {"most": 0}),
        (greedy, {"most": 1.5}),
        (greedy, {"most": 4, "stop": -1}),
        (greedy, {"most": 99}),
        (beam, {"most": 4, "stop": 0, "beams": 0}),
        (beam, {"most": 4, "stop": None, "beams": 2}),
        (beam, {"most": 4, "stop": 0, "beams": 2, "alpha": float("nan")}),
        (greedy, {"most": 4, "stop": (1, -1)}),
        (sample, {"most": 4, "temperature": 0.0}),
        (sample, {"most": 4, "temperature": float("nan")}),
        (sample, {"most": 4, "top_k": 0}),
        (sample, {"most": 4, "top_p": 1.5}),
    ],
)
def test_numbers_that_make_no_sense(search, options):
    with pytest.raises(EdgewiseError) as found:
        search(following(language_model(), memory(1)), torch.tensor([[1]]), **options)
    assert found.value.code == "bad-decoding"


@pytest.mark.parametrize(
    "prompt", [None, [[1]], torch.tensor([1]), torch.ones(1, 1), torch.zeros(1, 0).long()]
)
def test_prompts_that_are_none(prompt):
    with pytest.raises(EdgewiseError) as found:
        greedy(following(language_model(), memory(1)), prompt, most=2)
    assert found.value.code == "bad-decoding"


@pytest.mark.parametrize("seed", range(3))
def test_all_over_again_finds_the_same(seed):
    model, told = language_model(seed), memory(2, seed)
    prompt = torch.tensor([[1, 2], [3, 1]])
    search = {"beams": 3, "most": 6, "stop": STOP}
    cached = beam(following(model, told), prompt, **search)
    again = beam(RecomputingDecoder(model, "token", 16, memory=told), prompt, **search)
    assert torch.equal(cached[0], again[0])
    torch.testing.assert_close(cached[1], again[1])


@pytest.mark.parametrize("seed", range(6))
def test_any_of_several_tokens_ends_a_row(seed):
    model, told = language_model(seed), memory(3, seed)
    prompt = torch.randint(1, WORDS, (3, 2))
    free = greedy(following(model, told), prompt, most=6)
    found = greedy(following(model, told), prompt, most=6, stop=(STOP, 1))
    for row, got in zip(free.tolist(), found.tolist(), strict=True):
        end = next((k for k, token in enumerate(row) if token in (STOP, 1)), 6)
        assert got == (row[: end + 1] + [STOP] * 6)[: len(got)]
