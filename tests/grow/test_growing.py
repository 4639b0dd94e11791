"""Rows appended a few at a time are the rows computed at once."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import EdgewiseError, F, Program, R, V, W, numbers
from edgewise.graphs import blocks, causal, full, global_tokens, random_edges, strided, window
from edgewise.physical import plan
from edgewise.zoo import encoder
from edgewise.zoo.parts import attention, linear, residual

CAUSAL = causal()
GRAPHS = [
    causal(),
    window(3) & causal(),
    (window(2) | strided(4)) & causal(),
    (window(1) | global_tokens(2)) & causal(),
    full() - causal().T | (full() & causal()),
    blocks(4) & causal(),
]


def decoder(graph=CAUSAL, heads=2, layers=2):
    config = encoder.Config(size=8, heads=heads, hidden=16, layers=layers, graph=graph)
    return encoder.program(config).compile(R.out, seed=0, dtype=torch.float64).eval()


def cuts(draw_from, n):
    inner = draw_from(st.sets(st.integers(1, n - 1), max_size=n)) if n > 1 else set()
    ends = [0, *sorted(inner), n]
    return list(pairwise(ends))


@settings(max_examples=30)
@given(st.data())
def test_appended_is_at_once(data):
    model = decoder(data.draw(st.sampled_from(GRAPHS)), heads=data.draw(st.sampled_from([1, 2, 4])))
    n = data.draw(st.integers(1, 17))
    shape = data.draw(st.sampled_from([(n, 8), (1, n, 8), (3, n, 8)]))
    x = torch.randn(shape, dtype=torch.float64)
    growing = model.growing(n + data.draw(st.integers(0, 5)))
    parts = [growing(x=x[..., a:b, :]) for a, b in cuts(data.draw, n)]
    assert growing.length == n
    torch.testing.assert_close(torch.cat(parts, -2), model(x=x).detach(), rtol=1e-12, atol=1e-12)


def test_code_is_written_once_for_all_weights(monkeypatch):
    """One for each number of new rows; its constants follow the weights."""
    model, x = decoder(), torch.randn(5, 8, dtype=torch.float64)
    sources, written = [], plan.source_of
    monkeypatch.setattr(plan, "source_of", lambda *a: sources.append(a) or written(*a))
    for _ in range(3):
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1.1)
        growing = model.growing(5)
        found = torch.cat([growing(x=x[:3]), growing(x=x[3:4]), growing(x=x[4:])])
        torch.testing.assert_close(found, model(x=x).detach(), rtol=1e-12, atol=1e-12)
    assert len(sources) == 2


def test_what_was_computed_is_not_computed_again(monkeypatch):
    model, rows = decoder(layers=1), []
    linear = torch.nn.functional.linear

    def counted(x, *rest):
        rows.append(x.shape[-2])
        return linear(x, *rest)

    growing = model.growing(64)
    growing(x=torch.randn(40, 8, dtype=torch.float64))
    monkeypatch.setattr(torch.nn.functional, "linear", counted)
    growing(x=torch.randn(1, 8, dtype=torch.float64))
    assert rows
    assert set(rows) == {1}


GROUPED = [
    (R.q(V.G, V.H, V.I) <= R.x(V.I)[W.q(V.G, V.H)[4, 8]]),
    (R.k(V.G, V.I) <= R.x(V.I)[W.k(V.G)[4, 8]]),
    (R.v(V.G, V.I) <= R.x(V.I)[W.v(V.G)[3, 8]]),
    (R.s(V.G, V.H, V.I, V.J) <= (R.k(V.G, V.J).T, R.q(V.G, V.H, V.I), causal()(V.I, V.J)))
    | [F.product, F.softmax_agg(agg_terms=[V.J])],
    (R.out(V.G, V.H, V.I) <= (R.s(V.G, V.H, V.I, V.J), R.v(V.G, V.J))) | [F.product],
]


def test_heads_that_share_keys_keep_them_once():
    program = Program(GROUPED, domains={V.G: 2, V.H: 3})
    model = program.compile(R.out, seed=0, dtype=torch.float64)
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    growing = model.growing(16)
    parts = [growing(x=x[:, a:b]) for a, b in [(0, 4), (4, 5), (5, 6), (6, 9)]]
    torch.testing.assert_close(torch.cat(parts, 3), model(x=x).detach())
    assert growing.cache.buffers["out", "key"].shape == (2, 2, 1, 16, 4)


CROSS = [
    *attention(R.x, R.self_heads, 8, 2, where=(causal()(V.I, V.J),)),
    *residual(R.x, R.self_heads, R.y, 8, 8, 0.0),
    (R.cross(V.I, V.J) <= (R.memory(V.J).T, R.y(V.I)))
    | [F.product, F.softmax_agg(agg_terms=[V.J])],
    (R.heard_memory(V.I) <= (R.cross(V.I, V.J), R.memory(V.J)[W.m[8, 8]])) | [F.product],
    *linear(R.heard_memory, R.out, 8, 8),
]


def crossing():
    return Program(CROSS, domains={V.H: 2}).compile(R.out, seed=0, dtype=torch.float64)


def test_a_memory_is_fixed_and_batches_are_chosen_from():
    model = crossing()
    memory = torch.randn(2, 5, 8, dtype=torch.float64)
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    growing = model.growing(6, memory=memory)
    growing(x=x[:, :4])
    chosen = torch.tensor([1, 0, 1])
    growing.take(chosen)
    rest = torch.cat([growing(x=x[chosen, 4:5]), growing(x=x[chosen, 5:])], 1)
    expected = model(memory=memory[chosen], x=x[chosen])[:, 4:]
    torch.testing.assert_close(rest, expected.detach())


@pytest.mark.parametrize("samples", [[0, 0, 0], torch.tensor([0, 0, 0])], ids=["list", "tensor"])
def test_one_sample_may_become_several(samples):
    model, x = decoder(), torch.randn(1, 6, 8, dtype=torch.float64)
    growing = model.growing(6)
    growing(x=x[:, :5])
    growing.take(samples)
    rest = growing(x=x[:, 5:].expand(3, 1, 8))
    torch.testing.assert_close(rest, model(x=x)[:, 5:].detach().expand(3, 1, 8))


def test_cropped_rows_are_forgotten():
    model, x = decoder(window(2) & causal()), torch.randn(8, 8, dtype=torch.float64)
    growing = model.growing(8)
    growing(x=torch.cat([x[:3], torch.randn(4, 8, dtype=torch.float64)]))
    growing.crop(3)
    torch.testing.assert_close(growing(x=x[3:]), model(x=x)[3:].detach())
    assert growing.length == 8


def test_a_bias_of_keys_is_kept():
    score = F.product(R.x(V.J).T, R.x(V.I)) + R.b(V.J)[0.5] + R.b(V.I)
    rules = [
        (R.s(V.I, V.J) <= (score, causal()(V.I, V.J))) | [F.softmax_agg(agg_terms=[V.J])],
        (R.h(V.I) <= (R.s(V.I, V.J), R.x(V.J))) | [F.product],
    ]
    model = Program(rules).compile(R.h, dtype=torch.float64)
    x, b = torch.randn(2, 7, 3, dtype=torch.float64), torch.randn(2, 7, 1, dtype=torch.float64)
    growing = model.growing(9)
    parts = [growing(x=x[:, a:z], b=b[:, a:z]) for a, z in [(0, 3), (3, 4), (4, 6), (6, 7)]]
    assert ("h", "bias") in growing.cache.buffers
    torch.testing.assert_close(torch.cat(parts, 1), model(x=x, b=b))


TOKENS = [
    R.x(V.I) <= F.lookup(W.word[11, 8], R.token(V.I)) + F.lookup(W.place[20, 8], R.place(V.I)),
    *attention(R.x, R.heads, 8, 2, where=(causal()(V.I, V.J),)),
    *linear(R.heads, R.out, 8, 11),
]


def test_tokens_and_places_come_row_by_row():
    model = Program(TOKENS, domains={V.H: 2}).compile(R.out, seed=0, dtype=torch.float64)
    token, place = torch.randint(0, 11, (2, 7)), torch.arange(7).expand(2, 7)
    growing = model.growing(7)
    parts = [
        growing(token=numbers(token[:, a:b]), place=numbers(place[:, a:b]))
        for a, b in [(0, 3), (3, 4), (4, 7)]
    ]
    expected = model(token=numbers(token), place=numbers(place))
    torch.testing.assert_close(torch.cat(parts, 1), expected.detach())


PLACES = [
    R.x(V.I) <= R.e(V.I) + W.place(V.I)[8,] + F.sin(R.special.add_eval(V.I, 1) * W.turn[8,]),
    R.y(V.H, V.I) <= (R.x(V.I)[W.head(V.H)[4, 8]], R.special.mul_eval(V.I, V.H)),
    (R.out(V.I) <= R.y(V.H, V.I)) | [F.concat_agg],
]


def test_places_go_on_where_the_rows_before_ended():
    program = Program(PLACES, domains={V.H: 2, V.I: 12})
    model = program.compile(R.out, seed=0, dtype=torch.float64)
    e = torch.randn(3, 9, 8, dtype=torch.float64)
    growing = model.growing(12)
    parts = [growing(e=e[:, a:b]) for a, b in [(0, 4), (4, 5), (5, 9)]]
    torch.testing.assert_close(torch.cat(parts, 1), model(e=e).detach())


def test_there_is_no_room_beyond_the_places_that_have_weights():
    model = Program(PLACES, domains={V.H: 2, V.I: 5}).compile(R.out, seed=0)
    with pytest.raises(EdgewiseError, match="not in the domain") as found:
        model.growing(9)(e=torch.randn(2, 8))
    assert found.value.code == "out-of-domain"


def in_pairs(*where):
    return [
        (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), *where))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ]


def scored(score):
    return [
        (R.w(V.I, V.J) <= (score, R.special.leq(V.J, V.I))) | [F.softmax_agg(agg_terms=[V.J])],
        (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ]


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ([R.h <= R.x(V.I)], "sums over all positions"),
        ([R.h(V.I) <= (R.x(V.I), R.x(V.J))], "joins different positions"),
        ([R.h(V.I) <= (R.x(V.I), R.x(0))], "reads one position"),
        ([R.h(V.I) <= (R.x(V.I), R.special.lt(V.I, 3))], "condition on the position"),
        ([R.h(V.I) <= R.x(V.I)[W.place(V.I)[4, 4]]], "matrix for each position"),
        (in_pairs(), "later"),
        (in_pairs(window(2)(V.I, V.J)), "later"),
        (in_pairs((random_edges(2, seed=0) & causal())(V.I, V.J)), "depend on the number of rows"),
        (in_pairs(R.special.lt(V.J, V.I)), "no key"),
        (scored(R.x(V.J).T @ R.x(V.I) + R.special.sub_eval(V.J, V.I)), "computed from positions"),
        ([(R.h(V.I) <= R.x(V.I)) | [F.softmax_agg(agg_terms=[V.I])]], "over all positions"),
    ],
)
def test_what_cannot_grow_says_why(rules, reason):
    program = Program(rules, domains={V.I: 9} if "matrix" in reason else {})
    growing = program.compile(R.h, seed=0).growing(8)
    with pytest.raises(EdgewiseError, match=reason) as found:
        growing(x=torch.ones(2, 4))
    assert found.value.code == "cannot-grow"
    assert growing.length == 0


@pytest.mark.parametrize("graph", [causal(), causal() & window(2)])
@pytest.mark.parametrize("steps", [(7,), (1,) * 7, (3, 1, 2, 1)])
def test_scores_that_are_a_function_of_the_dot_product_grow(graph, steps):
    score = F.tanh(R.x(V.J).T @ R.x(V.I)) * 2.0
    rules = [
        R.bias(V.I) <= R.x(V.I)[1, 4],
        (R.w(V.I, V.J) <= (score, R.bias(V.J), graph(V.I, V.J)))
        | [F.sum, F.softmax_agg(agg_terms=[V.J])],
        (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ]
    model = Program(rules).compile(R.h, seed=0, dtype=torch.float64).eval()
    x = torch.randn(2, 7, 4, dtype=torch.float64)
    growing = model.growing(9)
    found = torch.cat([growing(x=part) for part in x.split(steps, 1)], 1)
    torch.testing.assert_close(found, model(x=x), atol=1e-12, rtol=0)


def test_a_relation_beside_the_axis_must_grow_with_it():
    model = Program([R.h(V.I) <= (R.x(V.I), R.mask(V.I))]).compile(R.h)
    with pytest.raises(EdgewiseError, match="does not grow with it"):
        model.growing(8, mask=torch.ones(2))(x=torch.ones(2, 4))


@pytest.mark.parametrize("capacity", [0, -1, 1.5, None, True, "8"])
def test_a_capacity_is_an_integer(capacity):
    with pytest.raises(EdgewiseError, match="integer of at least 1"):
        decoder().growing(capacity)


def test_wrong_appends_change_nothing():
    model = decoder()
    growing = model.growing(4)
    x = torch.randn(2, 4, 8, dtype=torch.float64)
    growing(x=x[:, :2])
    for wrong, code in [
        (x[:, 2:2], "bad-append"),
        (x[:1, 2:], "bad-append"),
        (torch.cat([x, x], 1), "cache-full"),
    ]:
        with pytest.raises(EdgewiseError) as found:
            growing(x=wrong)
        assert found.value.code == code
    with pytest.raises(EdgewiseError, match="crop to fewer"):
        growing.crop(3)
    assert growing.length == 2
    torch.testing.assert_close(growing(x=x[:, 2:]), model(x=x)[:, 2:].detach())


def test_rows_of_another_width_change_nothing():
    rules = [
        (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), V.J <= V.I))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ]
    model, x = Program(rules).compile(R.h), torch.randn(3, 4)
    growing = model.growing(4)
    growing(x=x[:2])
    with pytest.raises(EdgewiseError, match=r"shape \(1, 5\), those so far .* \(2, 4\)"):
        growing(x=torch.randn(1, 5))
    torch.testing.assert_close(growing(x=x[2:]), model(x=x)[2:])


def test_one_row_after_another():
    model = crossing()
    memory = torch.randn(3, 5, 8, dtype=torch.float64)
    x = torch.randn(3, 9, 8, dtype=torch.float64)
    growing = model.growing(9, memory=memory)
    order, found = torch.arange(3), []
    for i in range(9):
        found.append(growing(x=x[order, i : i + 1]))
        if i in (4, 6):
            order = order.roll(1)
            growing.take(torch.arange(3).roll(1))
    at = 0
    for i, got in enumerate(found):
        order = torch.arange(3).roll(at)
        expected = model(memory=memory[order], x=x[order, : i + 1])[:, -1:].detach()
        torch.testing.assert_close(got, expected)
        at += i in (4, 6)


def test_two_that_grow_side_by_side_do_not_mix():
    model = decoder()
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    one, other = model.growing(9), model.growing(9)
    found = [[], []]
    for i in range(9):
        found[0].append(one(x=x[:1, i : i + 1]))
        found[1].append(other(x=x[1:, i : i + 1]))
    expected = model(x=x).detach()
    torch.testing.assert_close(torch.cat([torch.cat(rows, 1) for rows in found]), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 3])
def test_matrices_large_enough_for_loops_of_our_own(dtype, batch):
    config = encoder.Config(size=128, heads=4, hidden=256, layers=2, graph=CAUSAL)
    model = encoder.program(config).compile(R.out, seed=0, dtype=dtype).eval()
    x = torch.randn(batch, 9, 128, dtype=dtype)
    growing = model.growing(9)
    parts = [growing(x=x[:, a:b]) for a, b in ((0, 3), *pairwise(range(3, 10)))]
    close = 1e-12 if dtype == torch.float64 else 2e-5
    expected = model(x=x).detach()
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=close, atol=close)


def test_other_weights_before_the_first_row_are_those_that_count():
    model = decoder()
    x = torch.randn(1, 4, 8, dtype=torch.float64)
    growing = model.growing(4)
    for i in range(4):
        growing(x=x[:, i : i + 1])
    growing.crop(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)
    found = [growing(x=x[:, i : i + 1]) for i in range(4)]
    torch.testing.assert_close(torch.cat(found, 1), model(x=x).detach())
    with torch.no_grad():
        next(model.parameters()).add_(1)
    growing.crop(3)
    with pytest.raises(EdgewiseError, match="weights changed"):
        growing(x=x[:, 3:])


@pytest.mark.parametrize("graph", GRAPHS)
def test_as_many_rows_again_and_again(graph):
    model = decoder(graph)
    x = torch.randn(2, 15, 8, dtype=torch.float64)
    expected = model(x=x).detach()
    growing = model.growing(15)
    parts = [growing(x=x[:, a : a + 3]) for a in range(0, 15, 3)]
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=1e-12, atol=1e-12)
    again = model.growing(15)
    parts = [again(x=x[:, a : a + 3]) for a in range(0, 15, 3)]
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=1e-12, atol=1e-12)


def test_a_weight_may_have_the_name_of_an_input():
    rules = [
        R.memory(V.M) <= R.w(V.M)[W.w[4, 8]],
        (R.s(V.I, V.M) <= (R.memory(V.M).T, R.x(V.I)))
        | [F.product, F.softmax_agg(agg_terms=[V.M])],
        (R.h(V.I) <= (R.s(V.I, V.M), R.memory(V.M))) | [F.product],
    ]
    model = Program(rules).compile(R.h, seed=0, dtype=torch.float64)
    w, x = torch.randn(5, 8, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
    growing = model.growing(6, w=w)
    parts = [growing(x=x[:4]), growing(x=x[4:])]
    torch.testing.assert_close(torch.cat(parts), model(w=w, x=x).detach())


def test_training_and_evaluation_have_plans_of_their_own():
    rules = [(R.h(V.I) <= R.x(V.I)[W.w[64, 8]]) | [F.dropout(p=0.5)]]
    model = Program(rules).compile(R.h, seed=0).train()
    x = torch.randn(3, 8)
    assert (model.growing(4)(x=x) == 0).any()
    torch.testing.assert_close(model.eval().growing(4)(x=x), model(x=x).detach())
    assert (model.train().growing(4)(x=x) == 0).any()
