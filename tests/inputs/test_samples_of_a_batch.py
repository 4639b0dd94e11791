"""A ragged batch is its samples: also where rules read nothing that differs between them."""

import pytest
import torch

from edgewise import F, Program, R, V, W, ragged, rows

X, H = V.X, V.H
FACTS = [
    [R.a(0)[1.0], R.a(2)[2.0], R.b(1)[4.0]],
    [R.a(0)[0.5]],
    [],
]
PROGRAMS = {
    "a family alone": [R.h(H) <= W.p(H)[2,]],
    "a family beside facts": [R.h(H) <= W.p(H)[2,], R.h(X) <= R.a(X)],
    "through another rule": [R.g(H) <= W.p(H)[2,], R.h(H) <= R.g(H)],
    "empty in some samples": [R.h(X) <= R.b(X)],
    "empty in all samples": [R.h(X) <= R.c(X)],
    "facts of the program": [R.s(0)[0.5], R.s(7)[2.0], R.h(X) <= R.s(X)],
    "no keys": [R.h <= W.p(H)[2,]],
    "recursion": [R.s(0)[1.0], R.h(X) <= R.s(X), R.h(1) <= R.h(0)],
}


def solved(program, facts, weights):
    found = program.solve(facts, weights=weights)
    arity = len(program.rules[-1].head.terms)
    terms = tuple(V[f"A{i}"] for i in range(arity))
    if not arity:
        return {(): found[R.h]}
    return {atom.terms: value for atom, value in found[R.h(*terms)].items()}


@pytest.mark.filterwarnings("ignore::edgewise.errors.EdgewiseWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_keys_of_an_output_begin_with_the_sample(name):
    program = Program(PROGRAMS[name], domains={H: 3})
    read = {atom.relation for rule in program.rules for atom in rule.body if hasattr(atom, "terms")}
    batch = [[fact for fact in sample if fact.relation in read] for sample in FACTS]
    model = program.compile(R.h, seed=0, dtype=torch.float64)
    weights = program.weights(seed=0)
    expected = {
        (n, *key): value
        for n, sample in enumerate(batch)
        for key, value in solved(program, sample, weights).items()
    }
    found = {a.terms: v for a, v in model.rows(model.ground(facts=ragged(batch))).items()}
    assert list(found) == list(expected)
    for key, value in found.items():
        torch.testing.assert_close(value, expected[key])
    if found and weights:
        grads = [
            torch.autograd.grad(sum(v.square().sum() for v in values.values()), list(used))
            for values, used in ((found, model.parameters()), (expected, weights.values()))
        ]
        torch.testing.assert_close(*grads)


@pytest.mark.parametrize(
    "shared", [rows(torch.tensor([[5, 0]]), torch.tensor([3.0, 4.0])), torch.tensor([4.0, 0, 0, 0])]
)
@pytest.mark.parametrize("late", [False, True])
def test_a_relation_that_rules_add_to_holds_in_every_sample(shared, late):
    model = Program([R.h(X) <= R.a(X), R.h / 1 | [F.max]]).compile(R.h)
    samples = [torch.ones(2), torch.full((3,), 2.0)]
    if late and isinstance(shared, torch.Tensor):
        found = model.rows(model.ground(a=ragged(samples)), h=shared)
    else:
        found = model.rows(a=ragged(samples), h=shared)
    apart = [model.rows(a=sample, h=shared) for sample in samples]
    expected = {(n, *a.terms): v for n, one in enumerate(apart) for a, v in one.items()}
    assert {atom.terms: value for atom, value in found.items()} == expected
    assert next(iter(expected)) == (0, 0)


def test_a_relation_without_keys_holds_in_every_sample():
    model = Program([R.h <= R.a(X), R.h / 0 | [F.max]]).compile(R.h)
    found = model(a=ragged([torch.ones(2), torch.ones(5)]), h=torch.tensor(3.0))
    assert found.tolist() == [3.0, 5.0]


def test_the_standard_deviation_of_equal_values_has_no_slope():
    program = Program([(R.h <= R.a(X)["w":1.3]) | [F.std_agg]])
    model = program.compile(R.h, dtype=torch.float64)
    batch = [[R.a(i)[0.1] for i in range(n)] for n in (3, 1, 7, 10)]
    batch.append([R.a(0)[0.1], R.a(1)[0.4], R.a(2)[-1.0]])
    found = model.rows(model.ground(facts=ragged(batch))).data
    alone = [model(model.ground(facts=facts)) for facts in batch]
    solved = [program.solve(facts) for facts in batch]
    torch.testing.assert_close(found, torch.stack(alone))
    for at, one in enumerate(solved):
        (slope,) = torch.autograd.grad(found[at], model.weight("w"), retain_graph=True)
        torch.testing.assert_close(found[at], one[R.h])
        torch.testing.assert_close(slope, torch.autograd.grad(one[R.h], one.weights["w"])[0])
        assert (slope == 0) == (at < 4)
