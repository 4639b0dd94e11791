"""Heads that conditions or domains choose: attention stays one kernel, and the others cost none."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import F, Program, R, V, W, ragged, rows

SIZE, D = 4, 3
ALIVE = R._alive(V.H)


def program(where="", domain=4, pairs=(), scores=(), biased=False):
    """Attention of heads; `where` are the rules that have the condition `alive`."""

    def body(name, *items):
        return (*items, *((ALIVE,) if name in where else ()))

    def row(name):
        bias = (W[f"{name}_bias"](V.H)[D,],) if biased else ()
        return body(name, R.x(V.I)[W[name](V.H)[D, SIZE]], *bias)

    return Program(
        [
            *(R[name](V.H, V.I) <= row(name) for name in "qkv"),
            (R.w(V.H, V.I, V.J) <= body("w", R.k(V.H, V.J).T @ R.q(V.H, V.I), *scores, *pairs))
            | [F.sum, F.softmax_agg(agg_terms=[V.J])],
            (R.a(V.H, V.I) <= (R.w(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product],
            (R.o(V.I) <= R.a(V.H, V.I)) | [F.concat_agg],
        ],
        domains={V.H: domain},
    )


def solved(rules, model, x, facts):
    weights = {name: model.weight(name).detach().clone() for name in model._paths}
    for weight in weights.values():
        weight.requires_grad_()
    x = x.clone().requires_grad_()
    stated = [R.x(i)[row] for i, row in enumerate(x)]
    solution = rules.solve([*stated, *facts], weights=weights)
    found = torch.stack(list(solution[R.o(V.I)].values()))
    return found, x, {name: solution.weights[name] for name in weights if name in solution.weights}


def values_of(output):
    return output if isinstance(output, torch.Tensor) else output.data


def assert_equal(rules, heads, n=5, conditions=True):
    torch.manual_seed(0)
    model = rules.compile(R.o, seed=0, dtype=torch.float64)
    x = torch.randn(n, SIZE, dtype=torch.float64)
    given_x = x.clone().requires_grad_()
    facts = [R.alive(h) for h in heads] if conditions else []
    own = {"alive": rows(torch.tensor([heads]))} if conditions else {}
    data = model.ground(**own)
    output = values_of(model(data, x=given_x))
    expected, read, weights = solved(rules, model, x, facts)
    torch.testing.assert_close(output, expected)
    output.sin().sum().backward()
    expected.sin().sum().backward()
    torch.testing.assert_close(given_x.grad, read.grad)
    for name, weight in weights.items():
        torch.testing.assert_close(model.weight(name).grad, weight.grad)
    text = str(model.explain(data, x=x, stage="kernels"))
    assert "not one attention" not in text
    return text


@pytest.mark.parametrize("where", ["q", "k", "v", "w", "qk", "qkv", "qkvw"])
@pytest.mark.parametrize("biased", [False, True])
def test_a_condition_in_any_rule_is_fused(where, biased):
    assert_equal(program(where, biased=biased), [0, 2])


@pytest.mark.parametrize("heads", [[0], [3], [1, 3], [0, 1, 2, 3]])
def test_the_work_is_that_of_the_heads(heads):
    text = assert_equal(program("w"), heads)
    assert f"attention (dense): {25 * len(heads)} pairs" in text
    assert f"{5 * len(heads)} groundings" in text


@pytest.mark.parametrize("domain", [[0, 2], [3, 1], ["a", "b"], [5], [-2, 7]])
def test_domains_are_any_constants(domain):
    assert_equal(program(domain=domain), domain, conditions=False)


@pytest.mark.parametrize(
    "pairs",
    [
        (R.special.leq(V.J, V.I),),
        (R.special.sub(V.I, V.J, V.D), R.special.leq(V.D, 1)),
        (R.special.lt(V.J, V.I),),  # the first query has no key
    ],
    ids=["causal", "window", "before"],
)
def test_with_a_pattern(pairs):
    rules = program("w", pairs=pairs)
    model = rules.compile(R.o, seed=0, dtype=torch.float64)
    x = torch.randn(6, SIZE, dtype=torch.float64)
    data = model.ground(alive=rows(torch.tensor([[1, 3]])))
    expected, _, _ = solved(rules, model, x, [R.alive(1), R.alive(3)])
    torch.testing.assert_close(model.rows(data, x=x).data, expected)
    assert "not one attention" not in str(model.explain(data, x=x, stage="kernels"))


def test_scores_of_heads_are_those_of_their_numbers():
    slopes = [R.slope(h)[0.5 * h + 0.25].fixed() for h in range(4)]
    distance = R.slope(V.H) * R.special.sub_eval(V.I, V.J)
    rules = program("w", scores=(distance,), pairs=(R.special.leq(V.J, V.I),))
    rules = Program([*rules.statements, *slopes], domains={V.H: 4})
    model = rules.compile(R.o, seed=0, dtype=torch.float64)
    x = torch.randn(6, SIZE, dtype=torch.float64)
    data = model.ground(alive=rows(torch.tensor([[1, 3]])))
    expected, _, _ = solved(rules, model, x, [R.alive(1), R.alive(3)])
    torch.testing.assert_close(values_of(model(data, x=x)), expected)


def test_heads_with_masks_of_their_own_are_named_by_their_numbers():
    rules = program("w", pairs=(R._sees(V.H, V.J),))
    model = rules.compile(R.o, seed=0, dtype=torch.float64)
    x = torch.randn(3, SIZE, dtype=torch.float64)
    sees = [(1, 0), (1, 2), (3, 1), (0, 0), (3, 2)]
    alive = [R.alive(1), R.alive(3)]
    data = model.ground(alive=rows(torch.tensor([[1, 3]])), sees=rows(torch.tensor(sees).T))
    expected, _, _ = solved(rules, model, x, [*alive, *(R.sees(*pair) for pair in sees)])
    torch.testing.assert_close(values_of(model(data, x=x)), expected)


def test_a_batch_and_ragged_samples():
    rules = program("qkv")
    model = rules.compile(R.o, seed=0, dtype=torch.float64)
    data = model.ground(alive=rows(torch.tensor([[0, 3]])))
    xs = [torch.randn(n, SIZE, dtype=torch.float64) for n in (4, 1, 3)]
    each = [solved(rules, model, x, [R.alive(0), R.alive(3)])[0] for x in xs]
    torch.testing.assert_close(values_of(model(data, x=xs[0][None])).reshape(4, -1), each[0])
    found = model(alive=rows(torch.tensor([[0, 3]])), x=ragged(xs))
    torch.testing.assert_close(values_of(found), torch.cat(each))


def test_no_head_is_alive():
    model = program("w").compile(R.o, seed=0, dtype=torch.float64)
    data = model.ground(alive=rows(torch.zeros(1, 0, dtype=torch.int64)))
    assert len(model.rows(data, x=torch.ones(3, SIZE, dtype=torch.float64))) == 0


@settings(max_examples=15, deadline=None)
@given(
    heads=st.sets(st.integers(0, 3), min_size=1),
    where=st.sets(st.sampled_from("qkvw"), min_size=1),
    n=st.integers(1, 4),
)
def test_any_heads_in_any_rules(heads, where, n):
    assert_equal(program("".join(where)), sorted(heads), n)


def test_a_pass_does_not_decide_what_is_dense():
    alive, x = rows(torch.tensor([[1, 2]])), torch.randn(5, SIZE)
    for without in ([], ["push conditions"]):
        model = program("w").compile(R.o, seed=0, without=without)
        assert model(alive=alive, x=x).shape == (5, 2 * D)


def test_off_is_on():
    x = torch.randn(5, SIZE, dtype=torch.float64)
    found = []
    for without in ([], ["push conditions"], ["fuse attention"]):
        model = program("w").compile(R.o, seed=0, dtype=torch.float64, without=without)
        data = model.ground(alive=rows(torch.tensor([[1, 2]])))
        found.append(values_of(model(data, x=x)))
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[0], found[2])


def test_a_softmax_over_the_heads_is_left_alone():
    """The weights of all heads sum to 1: those that are not read count too."""
    rules = Program(
        [
            R.q(V.H, V.I) <= R.x(V.I)[W.q(V.H)[1, SIZE]],
            (R.s(V.H, V.I) <= R.q(V.H, V.I)) | [F.softmax_agg(agg_terms=[V.H])],
            R.o(V.I) <= (R.s(V.H, V.I), ALIVE),
        ],
        domains={V.H: 4},
    )
    model = rules.compile(R.o, seed=0, dtype=torch.float64)
    x = torch.randn(3, SIZE, dtype=torch.float64)
    data = model.ground(alive=rows(torch.tensor([[1]])))
    expected, _, _ = solved(rules, model, x, [R.alive(1)])
    torch.testing.assert_close(values_of(model(data, x=x)).reshape(-1), expected.reshape(-1))
