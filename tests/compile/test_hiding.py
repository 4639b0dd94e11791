"""Keys beside grounded data: what a step hides is as if it had been grounded so."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W, ragged, rows

N, KINDS = 20, 3
RANDOM = torch.Generator().manual_seed(0)
EDGES = torch.randint(N, (2, 70), generator=RANDOM).unique(dim=1)
EDGES = torch.cat([EDGES, torch.stack([torch.arange(N), torch.arange(N)])], 1).unique(dim=1)
TYPED = torch.stack([EDGES[0], torch.arange(EDGES.shape[1]) % KINDS, EDGES[1]])
X = torch.randn(N, 3, generator=RANDOM, dtype=torch.float64)
EDGE, HIDE = R.hidden.edge(V.J, V.I), ~R.hidden.hide(V.J, V.I)


def network(*functions, own=True):
    rules = []
    for x, y in ((R.x, R.h), (R.h, R.o)):
        rules += [(y(V.I) <= (x(V.J)[3, 3], EDGE, HIDE)) | [*functions]]
        rules += [y(V.I) <= x(V.I)[3, 3]] if own else []
        rules += [y / 1 | [F.tanh]]
    return Program(rules)


def attention():
    body = (R.x(V.J).T, R.x(V.I), EDGE, HIDE)
    weights = (R.w(V.I, V.J) <= body) | [F.product, F.softmax_agg(agg_terms=[V.J])]
    return Program([weights, (R.o(V.I) <= (R.w(V.I, V.J), R.x(V.J)[2, 3])) | [F.product]])


def by_condition():
    near = R.near(V.J, V.I) <= (EDGE, HIDE)
    return Program([near, (R.o(V.I) <= (R.x(V.J)[2, 3], R.hidden.near(V.J, V.I))) | [F.avg_agg]])


def recursion():
    step = (R.o(V.I) <= (R.o(V.J)["w":0.5], EDGE, HIDE)) | [F.sum]
    return Program([R.o(V.I) <= R.x(V.I)[1, 3], step], rounds=2)


def two():
    both = (R.x(V.J)[2, 3], EDGE, HIDE, ~R.hidden.gone(V.J), ~R.hidden.hide(V.I, 3))
    return Program([(R.o(V.I) <= both) | [F.avg_agg], R.o(V.I) <= R.x(V.I)[2, 3]])


PROGRAMS = {
    "mean": (network(F.avg_agg), True),
    "sum": (network(F.sum_agg), True),
    "mean alone": (network(F.avg_agg, own=False), True),
    "max": (network(F.max_agg), False),
    "attention": (attention(), False),
    "condition": (by_condition(), True),  # but joined where an atom does not hold any more
    "recursion": (recursion(), False),
    "two": (two(), True),
}
SOME = torch.randperm(EDGES.shape[1], generator=RANDOM)[:15]
CASES = {
    "some": EDGES[:, SOME],
    "none": EDGES[:, :0],
    "others": torch.tensor([[0, 99, 4], [77, 0, 1 << 39]]),
    "in any order": EDGES[:, [30, 3, 8]],
    "all of one": EDGES[:, EDGES[1] == 4],
    "all": EDGES,
}


def is_masked(data):
    steps = [step for held in data._hiding.values() for step in held.built.values()]
    return any(step.masked for step in steps)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("case", CASES)
def test_hidden_keys_are_those_of_a_new_grounding(name, case):
    program, masks = PROGRAMS[name]
    model = program.compile(R.o, seed=0, dtype=torch.float64, fill=0.0)
    hide = {"hide": CASES[case]}
    hide |= {"gone": torch.tensor([[5, 6, 99]])} if "gone" in model.inputs else {}
    data, found = model.ground(edge=EDGES), []
    for at_step in (True, False):
        x = X.clone().requires_grad_()
        held = data if at_step else model.ground(edge=EDGES, **hide)
        out = model.rows(held, x=x, **(hide if at_step else {}))
        leaves = [x, *model.parameters()]
        found.append([out.index, out.data])
        if len(out):
            found[-1] += torch.autograd.grad(out.data.square().sum(), leaves, allow_unused=True)
    for mine, theirs in zip(*found, strict=True):
        assert (mine is None) == (theirs is None) or not (mine if theirs is None else theirs).any()
        if mine is not None and theirs is not None:
            torch.testing.assert_close(mine, theirs)
    assert is_masked(data) == masks


def test_the_reference_says_the_same():
    program = network(F.avg_agg)
    model = program.compile(R.o, seed=0, dtype=torch.float64)
    hide = CASES["some"]
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    facts = [R.edge(*key) for key in EDGES.T.tolist()] + [R.hide(*key) for key in hide.T.tolist()]
    facts += [R.x(i)[row] for i, row in enumerate(X)]
    solved = program.solve(facts, weights=weights)[R.o(V.I)]
    found = model(model.ground(edge=EDGES), x=X, hide=hide)
    torch.testing.assert_close(found, torch.stack(list(solved.values())))


def test_edges_of_kinds_batches_and_precisions():
    along = (R.x(V.J)[W.a(V.K)[2, 3]], R.hidden.edge(V.J, V.K, V.I), ~R.hidden.hide(V.J, V.K, V.I))
    rules = [(R.o(V.I) <= along) | [F.avg_agg], R.o(V.I) <= R.x(V.I)[2, 3]]
    model = Program(rules, domains={V.K: KINDS}).compile(R.o, seed=0)
    hide, data = TYPED[:, SOME], model.ground(edge=TYPED)
    batch = torch.stack([X, -X, X * 2]).float()
    expected = model(model.ground(edge=TYPED, hide=hide), x=batch)
    torch.testing.assert_close(model(data, x=batch, hide=hide), expected)
    torch.testing.assert_close(model(data, x=batch, hide=rows(hide, torch.ones(15))), expected)
    assert is_masked(data)
    half = model.bfloat16()(data, x=batch.bfloat16(), hide=hide)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, rtol=0.05, atol=0.1)


def test_keys_of_samples_are_joined_with_each():
    model = network(F.avg_agg).compile(R.o, seed=0, dtype=torch.float64)
    inputs = {"x": ragged([X[:9], X]), "edge": ragged([EDGES[:, (EDGES < 9).all(0)], EDGES])}
    hide = ragged([EDGES[:, :0], CASES["some"]])
    expected = model.rows(model.ground(**inputs, hide=hide))
    torch.testing.assert_close(model.rows(model.ground(**inputs), hide=hide).data, expected.data)


MODEL = network(F.avg_agg).compile(R.o, seed=0, dtype=torch.float64)
DATA = MODEL.ground(edge=EDGES)
WRONG = {
    "grounded and hidden": (
        lambda: MODEL(MODEL.ground(edge=EDGES, hide=EDGES), x=X, hide=EDGES),
        "bad-input",
    ),
    "terms": (lambda: MODEL(DATA, x=X, hide=EDGES[:1]), "arity-mismatch"),
    "edges": (lambda: MODEL(MODEL.ground(hide=EDGES), x=X, edge=EDGES), "keys-at-step"),
    "wanted": (lambda: MODEL(MODEL.ground(edge=EDGES, want=[1]), x=X, hide=EDGES), "keys-at-step"),
    "twice": (lambda: MODEL(DATA, x=X, hide=EDGES[:, [3, 3]]), "duplicate-fact"),
    "negative": (lambda: MODEL(DATA, x=X, hide=-EDGES), "key-out-of-range"),
}


@pytest.mark.parametrize(("mistake", "code"), WRONG.values(), ids=WRONG)
def test_mistakes_have_a_code(mistake, code):
    with pytest.raises(EdgewiseError) as caught:
        mistake()
    assert caught.value.code == code
