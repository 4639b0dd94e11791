"""Masks beside the corpus, each against the reference: values, gradients, and no other pairs."""

import numpy as np
import pytest
import torch

from edgewise import F, Program, R, V, W, ragged
from edgewise.graphs import blocks, causal, global_tokens, strided, window
from edgewise.ground.masks import lower, pair_tests, pattern
from tests.ground.mask_corpus import facts

I, J, K = V.I, V.J, V.K  # noqa: E741
A, B, C, D, H, P, Q = V.A, V.B, V.C, V.D, V.H, V.P, V.Q
AT = R.special
EARLIER = J <= I
WIDTH = 4


def attention(conditions, rules=()):
    size = (WIDTH, WIDTH)
    return Program([
        R.q(I) <= R.h(I)[size], R.k(I) <= R.h(I)[size], R.v(I) <= R.h(I)[size], *rules,
        (R.weights(I, J) <= (R.k(J).T, R.q(I), *conditions))
        | [F.product, F.softmax_agg(agg_terms=[J])],
        (R.out(I) <= (R.weights(I, J), R.v(J))) | [F.product],
    ])  # fmt: skip


def near(*bodies):
    return tuple(R.near(I, J) <= body for body in bodies)


REACHED = (R.reached(I, J) <= R._edge(I, J), R.reached(I, J) <= (R._reached(I, A), R._edge(A, J)))
SCOPES = (R._scope(I, A, B), R._scope(J, C, D))
TIMES = (R._time(I, A), R._time(J, B))
TAGS = (R._tag(I, A), R._tag(J, B))
CASES = {
    "neither token": ((R._flag(3),),),
    "neither token, false": ((R._flag(4),),),
    "a limit from a table": ((R._limit(A), J <= A),),
    "a distance from a table": ((R._limit(A), AT.sub(I, J, D), AT.leq(D, A)),),
    "a limit of a sum": (
        (R._limit(A), R._level(I, B), R._level(J, C), AT.add(B, C, D), AT.leq(D, A)),
    ),
    "no pairs are listed": ((R._none(I, J),),),
    "no pairs are banned": ((~R.none(I, J),),),
    "a self-loop of the query": ((R._edge(I, I), EARLIER),),
    "a repeated variable": ((R._triple(I, J, J),),),
    "a constant": ((R._triple(I, J, 2),),),
    "a third term": ((R._triple(A, I, B), R._triple(A, J, C)),),
    "several values differ": ((R._several(I, A), R._several(J, B), A != B),),
    "several values, in a band": ((R._several(I, A), R._several(J, B), A - B >= 1, A - B <= 2),),
    "not of a derived negation": (
        (~R.other(I, J),),
        (R.shares(I, J) <= (R.several(I, A), R.several(J, A)),
         R.other(I, J) <= (R.h(I), R.h(J), ~R.shares(I, J))),
    ),
    "two unions": (
        (R._near(I, J), R._far(I, J)),
        (*near((R.level(I, A), R.level(J, A)), R.edge(I, J)),
         R.far(I, J) <= (R.role(I, A), R.role(J, A)), R.far(I, J) <= R.edge(J, I)),
    ),
    "between in order": ((R._edge(I, A), R._edge(A, J), I < A, A < J),),
    "a span around both": ((R._span(A, B), A <= I, I < B, A <= J, J < B),),
    "a span around the query": ((R._span(A, B), A <= I, I < B, EARLIER),),
    "overlapping scopes": ((*SCOPES, A < D, C < B),),
    "nested scopes": ((*SCOPES, C <= A, B <= D),),
    "earlier by hour and minute": (
        (R._near(I, J),),
        near((R._clock(I, A, V._B), R._clock(J, C, V._D), C < A),
             (R._clock(I, A, B), R._clock(J, A, D), D <= B)),
    ),
    "reached along cycles": ((R._reached(I, J),), REACHED),
    "reach of both": (
        (R._reach(I, A), R._reach(J, B), AT.add(A, B, C), AT.sub(I, J, D), AT.leq(D, C)),
    ),
    "reach of the key": ((R._reach(J, A), abs(I - J) <= A),),
    "beyond the reach": ((R._reach(I, A), abs(I - J) > A),),
    "outside of a distance of values": ((*TIMES, R._reach(I, C), abs(A - B) >= C),),
    "two tables of positions": ((I * 2 <= J * 3,),),
    "a sum of values": ((R._level(I, A), R._level(J, B), A + B <= 3),),
    "a product of values": ((R._level(I, A), R._level(J, B), A * B == 2),),
    "values of one residue": ((*TIMES, (A - B) % 3 == 0),),
    "values of other residues": ((*TIMES, (A + 2 * B) % 3 != 1),),
    "a rounded difference": ((*TIMES, (A - B) // 2 <= 0),),
    "a difference of two": ((*TIMES, abs(A - B) == 2),),
    "a computed difference": ((*TIMES, A - B == C, C <= 4, C != 0),),
    "a pattern of values": ((*TIMES, blocks(5)(A, B)),),
    "a stride of values": ((*TIMES, (~strided(3))(A, B)),),
    "not near in values": ((*TIMES, ~window(3)(A, B)),),
    "not a band of values": ((*TIMES, (~(causal() & window(4)))(A, B)),),
    "not earlier values": ((*TIMES, ~causal()(A, B)),),
    "strings are not near": ((*TAGS, ~window(1)(A, B)),),
    "not a difference": ((~(I - J <= 3),),),
    "not at most": ((R._level(I, A), R._level(J, B), ~AT.leq(A, B)),),
    "a computed key": ((R._parent(I, P), J == P - 1),),
    "a shared value in a test": ((R._level(I, A), R._level(J, A), J - I <= A),),
    "several values in a test": ((R._several(I, A), R._several(J, A), J - I <= A),),
    "all different": ((R._level(I, A), R._level(J, B), AT.alldiff(A, B, I)),),
    "one of": ((R._level(I, A), getattr(AT, "in")(J, A, 3)),),
    "classes and a pattern": (
        (R._level(I, A), R._level(J, A), (window(2) | global_tokens(1))(I, J)),
    ),
    "two comparisons of data": (
        (*TIMES, R._level(I, C), R._level(J, D), B <= A, C <= D, R._clock(J, P, Q), P <= I),
    ),
    "strings, equal": ((*TAGS, R._follows(A, B)),),
    "strings are not ordered": ((*TAGS, A <= B),),
    "strings have no difference": ((*TAGS, ~(A - B <= 0)),),
    "a value beyond another": ((R.score(I) > R.score(J),),),
    "a value, earlier": ((R.score(J) >= R.score(I), EARLIER),),
    "not beyond another": ((~(R.score(I) > R.score(J)),),),
    "a value of a relation beside edges": ((R._edge(I, J), 2 * R.score(I) >= R.score(J)),),
    "a sum of two values": ((R.score(I) + R.score(J) > 0.3,),),
}  # fmt: skip


def tables(n, seed=0):
    """The tables of the corpus, and more: integers (arity, rows), and numbers of tokens."""
    found = dict(facts(n, seed))
    random = np.random.default_rng(seed)
    found["triple"] = np.unique(random.integers(0, n, (3, 4 * n)), axis=1)
    several = np.stack([np.repeat(np.arange(n), 2), random.integers(0, 5, 2 * n)])
    found["several"] = np.unique(several, axis=1)
    found["span"] = np.unique(np.sort(random.integers(0, n, (2, n // 4)), axis=0), axis=1)
    found |= {"flag": np.array([[3]]), "limit": np.array([[4]]), "none": np.zeros((2, 0), int)}
    hours = random.integers(0, 4, n), random.integers(0, 5, n)
    found["clock"] = np.stack([np.arange(n), *hours])
    made = {name: torch.from_numpy(np.ascontiguousarray(t)) for name, t in found.items()}
    generator = torch.Generator().manual_seed(seed)
    made["h"] = torch.randn(n, WIDTH, dtype=torch.float64, generator=generator)
    made["score"] = torch.randn(n, dtype=torch.float64, generator=generator)
    return made


def read(program, found, n):
    """The inputs that a program reads, and as facts: tags are strings and integers."""
    from edgewise.language.statements import atoms

    names = {a.relation for rule in program.rules for a in atoms(rule) if hasattr(a, "relation")}
    inputs = {name: table for name, table in found.items() if name in names}
    tags = [R.tag(i, ("noun", "verb", 2, 3)[i % 4]) for i in range(n)] if "tag" in names else []
    more = [R.follows("noun", "verb"), R.follows(2, "noun")] if "follows" in names else []
    return inputs, [*tags, *more]


def stated(inputs):
    for name, table in inputs.items():
        of = getattr(R, name)
        if table.is_floating_point():
            yield from (of(i)[row] for i, row in enumerate(table))
        else:
            yield from (of(*key) for key in table.T.tolist())


def gradients(value, leaves):
    found = torch.autograd.grad(value.square().sum(), leaves, allow_unused=True)
    return [torch.zeros_like(a) if g is None else g for a, g in zip(leaves, found, strict=True)]


def assert_as_reference(program, n, seed=0):
    inputs, facts = read(program, tables(n, seed), n)
    model = program.compile(R.out, seed=0, fill=0.0).double()
    numbers = {a: t.requires_grad_() for a, t in inputs.items() if t.is_floating_point()}
    keys = {name: table for name, table in inputs.items() if name not in numbers}
    data = model.ground(facts=facts or None, **keys)
    out = model(data, **numbers)
    weights = {name: w.detach().clone().requires_grad_() for name, w in model.named_parameters()}
    solution = program.solve([*facts, *stated(inputs)], weights=weights)
    expected = torch.zeros_like(out)
    for atom, value in solution[R.out(V.X)].items():
        expected = expected.index_put((torch.tensor(atom.terms[0]),), value)
    torch.testing.assert_close(out, expected)
    if expected.requires_grad:
        ours = gradients(out, [*model.parameters(), numbers["h"]])
        theirs = gradients(expected, [*weights.values(), numbers["h"]])
        torch.testing.assert_close(ours, theirs)
    relations = model.explain(data, **numbers, stage="kernels").to_json()["kernels"]["relations"]
    (relation,) = [r for r in relations if r["relation"] == "out"]
    step = relation["steps"][0]
    pairs = step["pairs"] if "pairs" in step else step["groundings"]
    assert pairs == solution.computed.get("weights", 0)
    assert not pairs or "not attention" not in relation


@pytest.mark.filterwarnings("ignore::edgewise.checks.lint.UnknownRelation")  # no pairs are listed
@pytest.mark.parametrize("name", CASES)
def test_as_the_reference(name):
    for n in (9, 4):
        assert_as_reference(attention(*CASES[name]), n)


@pytest.mark.parametrize("name", ["a limit from a table", "overlapping scopes", "reach of both"])
def test_of_one_token(name):
    assert_as_reference(attention(*CASES[name]), 1)


LISTED = {"no pairs are listed", "all different", "one of"}
BY_VALUE = {"a difference of two", "strings have no difference", "strings are not near"}


@pytest.mark.parametrize("name", sorted(CASES.keys() - LISTED - BY_VALUE))
def test_pairs_are_not_tested_one_by_one(name, monkeypatch):
    """Comparisons that come apart are intervals, in time of their tokens."""

    def refuse(*_):
        raise AssertionError("a test of single pairs")

    monkeypatch.setattr(pair_tests.OtherTest, "__init__", refuse)
    n = 300
    program = attention(*CASES[name])
    inputs, facts = read(program, tables(n), n)
    numbers = {a: t.float() for a, t in inputs.items() if t.is_floating_point()}
    keys = {name: table for name, table in inputs.items() if name not in numbers}
    model = program.compile(R.out, seed=0, fill=0.0)
    model(model.ground(facts=facts or None, **keys), **numbers)


@pytest.mark.parametrize(
    "name", ["a limit from a table", "reach of the key", "overlapping scopes", "a value, earlier"]
)
def test_ragged(name):
    program, lengths = attention(*CASES[name]), (5, 1, 8)
    each = [read(program, tables(n, seed), n)[0] for seed, n in enumerate(lengths)]
    model = program.compile(R.out, seed=0).double()
    out = model.rows(**{a: ragged([one[a] for one in each]) for a in each[0]})
    weights = {name: w.detach() for name, w in model.named_parameters()}
    expected = []
    for one in each:
        found = program.solve(list(stated(one)), weights=weights)[R.out(V.X)]
        expected += [found[atom] for atom in sorted(found, key=lambda atom: atom.terms)]
    torch.testing.assert_close(out.data, torch.stack(expected))


HEADS = {
    "a distance for each head": (
        (R._span(H, A), I - J <= A, J <= I), {"span": [[0, 1, 2], [1, 3, 8]]},
    ),
    "by the number of the head": (((I + J + H) % 2 == 0,), {}),
    "not for a head": ((~R.ban(H, J),), {"ban": [[0, 1], [2, 3]]}),
    "some heads": ((R._on(H), J <= I), {"on": [[0, 2]]}),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
def test_each_head(name):
    conditions, keys = HEADS[name]
    size = (WIDTH, WIDTH)
    program = Program([
        R.q(H, I) <= R.h(I)[W.q(H)[size]], R.k(H, I) <= R.h(I)[W.k(H)[size]],
        (R.weights(H, I, J) <= (R.k(H, J).T, R.q(H, I), *conditions))
        | [F.product, F.softmax_agg(agg_terms=[J])],
        (R.out(H, I) <= (R.weights(H, I, J), R.h(J))) | [F.product],
    ], domains={H: range(3)})  # fmt: skip
    inputs = {a: torch.tensor(table) for a, table in keys.items()}
    inputs["h"] = torch.randn(9, WIDTH, dtype=torch.float64, generator=torch.manual_seed(0))
    model = program.compile(R.out, seed=0, fill=0.0, dense=True).double()
    weights = {name: w.detach() for name, w in model.named_parameters()}
    solution = program.solve(list(stated(inputs)), weights=weights)
    out = model(**inputs)
    expected = torch.zeros_like(out)
    for atom, value in solution[R.out(V.X, V.Y)].items():
        expected[atom.terms] = value
    torch.testing.assert_close(out, expected)
    relation = model.explain(**inputs, stage="kernels").to_json()["kernels"]["relations"][-1]
    assert relation["steps"][0]["pairs"] == solution.computed["weights"]


def test_listed_pairs_without_runs_are_bits(monkeypatch):
    monkeypatch.setattr(pattern, "MOST_RUNS", 100)
    n = 60
    edge = (torch.rand(n, n, generator=torch.manual_seed(0)) < 0.4).nonzero().T.contiguous()
    h = torch.randn(n, WIDTH, dtype=torch.float64, requires_grad=True)
    model = attention((R._edge(I, J),)).compile(R.out, seed=0).double()
    bits = model(h=h, edge=edge)
    monkeypatch.setattr(pattern, "MOST_RUNS", 1 << 40)
    runs = attention((R._edge(I, J),)).compile(R.out, weights=model, dtype=torch.float64)
    expected = runs(h=h, edge=edge)
    torch.testing.assert_close(bits, expected)
    leaves = [h, *model.parameters()]
    torch.testing.assert_close(gradients(bits, leaves), gradients(expected, leaves))


@pytest.mark.parametrize("sizes", [(7, 7), (5, 4)])
def test_a_list_of_all_pairs_is_no_condition(sizes):
    h = torch.randn(7, WIDTH)
    edge = torch.cartesian_prod(*map(torch.arange, sizes)).T
    model = attention((R._edge(I, J),)).compile(R.out, seed=0, fill=0.0)
    weight = dict(model.named_parameters())
    q, k, v = (h @ weight[f"{name}.h"].T for name in "qkv")
    some = slice(sizes[0]), slice(sizes[1])
    expected = torch.zeros(7, WIDTH)
    expected[some[0]] = (q[some[0]] @ k[some[1]].T).softmax(1) @ v[some[1]]
    torch.testing.assert_close(model(h=h, edge=edge), expected)
    relation = model.explain(h=h, edge=edge, stage="kernels").to_json()["kernels"]["relations"][-1]
    assert relation["steps"][0]["pairs"] == sizes[0] * sizes[1]


def test_the_rows_of_a_closure_are_added_in_time_of_their_number():
    """A cycle of n has n² pairs in n rounds: each round may not look at all pairs so far."""
    from edgewise.ground.key_runs import KeyRuns

    runs, rounds, most = KeyRuns(None), 200, 0
    for at in range(rounds):
        keys = torch.stack([torch.full((50,), at), torch.arange(50)], 1)
        assert not runs.knows(keys).any()
        runs.add(keys)
        assert runs.knows(keys).all()
        most = max(most, len(runs.runs))
    assert runs.rows == 50 * rounds == runs.merged().rows
    assert most <= 9


def test_classes_beside_a_pattern_meet_only_where_it_has_pairs(monkeypatch):
    """A window over 2,000 short runs of two classes has two runs of keys for each query or so, not
    one for each pair of runs."""
    n = 4000
    found = []
    plain = lower.of_classes
    monkeypatch.setattr(lower, "of_classes", lambda *a: found.append(plain(*a)) or found[-1])
    kind = torch.stack([torch.arange(n), torch.arange(n) // 2 % 2])
    model = attention((R._kind(I, A), R._kind(J, A), window(100)(I, J))).compile(R.out, seed=0)
    model(h=torch.randn(n, WIDTH), kind=kind)
    assert found
    assert max(len(cells) for cells in found) < 60 * n
