"""Every mask of the corpus is fused, computes the pairs that a brute-force mask allows and no
others, and has its values and gradients."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, ragged
from edgewise.graphs import ring
from edgewise.ground.masks import lower
from edgewise.layouts import bitmap
from tests.ground import mask_corpus
from tests.ground.derived_masks import DERIVED, facts_of_rules
from tests.ground.mask_corpus import MaskCase

N, D = 26, 8
CORPUS = [*mask_corpus.CORPUS, *DERIVED]


def facts(n, seed=0):
    return mask_corpus.facts(n, seed) | facts_of_rules(n, seed)


def attended(model, x, mask):
    """softmax(q kᵀ + mask) v, rows without a key left out as zeros."""
    weight = dict(model.named_parameters())
    q, k, v = (x @ weight[f"{name}.h"].T for name in "qkv")
    score = (q @ k.T).masked_fill(~mask, -torch.inf)
    some = mask.any(1, keepdim=True)
    return torch.where(some, score, 0.0).softmax(1).where(some, 0.0) @ v


def gradients(model, out, x):
    leaves = [x, *model.parameters()]
    grads = torch.autograd.grad(out.square().sum(), leaves, allow_unused=True)
    return [torch.zeros_like(a) if g is None else g for a, g in zip(leaves, grads, strict=True)]


def assert_attends(model, x, inputs, mask):
    """Values and gradients are those of a dense mask."""
    out, expected = model(**inputs), attended(model, x, mask)
    torch.testing.assert_close(out, expected)
    for got, want in zip(gradients(model, out, x), gradients(model, expected, x), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("order", ["cheapest", "sorted"])
@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_mask(case, order, monkeypatch):
    torch.manual_seed(0)
    if order == "sorted":  # where it makes blocks of two denser
        monkeypatch.setattr(lower, "LEAST_BLOCK", 2)
        monkeypatch.setattr(lower, "MOVED", 0.0)
    tables = facts(N)
    mask = case.mask(N, tables)
    assert 0 < mask.sum() < N * N
    model = case.program(D).compile(R.out, seed=0, fill=0.0).double()
    x = torch.randn(N, D, dtype=torch.float64, requires_grad=True)
    inputs = {"h": x, **case.inputs(tables)}
    assert_attends(model, x, inputs, mask)
    (relation,) = [
        r
        for r in model.explain(**inputs, stage="kernels").to_json()["kernels"]["relations"]
        if r["relation"] == "out"
    ]
    assert "not attention" not in relation
    assert relation["steps"][0]["pairs"] == mask.sum()


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_mask_as_bits(case, monkeypatch):
    """Pairs are tested in blocks of 32, of which some are known to have all pairs or none."""
    n = 70
    torch.manual_seed(0)
    monkeypatch.setattr(lower, "MOST_RUNS", 0)
    for module in (bitmap, lower):
        monkeypatch.setattr(module, "SLAB", 32)
    tables = facts(n)
    mask = case.mask(n, tables)
    model = case.program(D).compile(R.out, seed=0, fill=0.0).double()
    x = torch.randn(n, D, dtype=torch.float64, requires_grad=True)
    inputs = {"h": x, **case.inputs(tables)}
    assert_attends(model, x, inputs, mask)


@pytest.mark.parametrize("bits", [False, True])
def test_each_head_has_a_mask_of_its_own(bits, monkeypatch):
    if bits:
        monkeypatch.setattr(lower, "MOST_RUNS", 0)
    n, heads = 40, 3
    random = torch.Generator().manual_seed(0)
    kind = torch.randint(3, (heads, n), generator=random)
    rules = [
        (R.weights(V.H, V.I, V.J)
         <= (R.k(V.H, V.J).T, R.q(V.H, V.I), R._kind(V.H, V.I, V.A), R._kind(V.H, V.J, V.A),
             R.special.leq(V.J, V.I)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.out(V.H, V.I) <= (R.weights(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product],
    ]  # fmt: skip
    model = Program(rules).compile(R.out)
    q, k, v = (
        torch.randn(heads, n, D, generator=random).double().requires_grad_() for _ in range(3)
    )
    where = torch.cartesian_prod(torch.arange(heads), torch.arange(n)).T
    table = torch.cat([where, kind.reshape(1, -1)])
    out = model.double()(q=q, k=k, v=v, kind=table)
    mask = (kind[:, :, None] == kind[:, None]) & torch.ones(n, n).tril().bool()
    expected = (q @ k.mT).masked_fill(~mask, -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(out, expected)
    for got, want in zip(
        torch.autograd.grad(out.square().sum(), (q, k, v)),
        torch.autograd.grad(expected.square().sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_ragged(case):
    """Samples are packed: each has the mask of its own facts, and no pair is computed between."""
    torch.manual_seed(0)
    lengths = [9, 1, 14]
    tables = [facts(n, seed) for seed, n in enumerate(lengths)]
    masks = [case.mask(n, table) for n, table in zip(lengths, tables, strict=True)]
    model = case.program(D).compile(R.out, seed=0).double()
    x = [torch.randn(n, D, dtype=torch.float64) for n in lengths]
    each = [case.inputs(table) for table in tables]
    inputs = {"h": ragged(x), **{name: ragged([one[name] for one in each]) for name in each[0]}}
    out = model.rows(**inputs)
    expected = [attended(model, *one) for one in zip(x, masks, strict=True)]
    wanted = torch.cat([e[mask.any(1)] for e, mask in zip(expected, masks, strict=True)])
    torch.testing.assert_close(out.data, wanted)
    for got, want in zip(
        torch.autograd.grad(out.data.square().sum(), list(model.parameters())),
        torch.autograd.grad(wanted.square().sum(), list(model.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(got, want)
    step = model.explain(**inputs, stage="kernels").to_json()["kernels"]["relations"][-1]["steps"][
        0
    ]
    assert step["pairs"] == sum(int(mask.sum()) for mask in masks)


def test_a_derived_relation_may_have_facts_too():
    torch.manual_seed(0)
    case = next(case for case in CORPUS if case.name == "same speaker, derived")
    tables = facts(N)
    speaker = tables["speaker"][1]
    i, j = 0, int((speaker != speaker[0]).argmax())
    mask = case.mask(N, tables)
    mask[i, j] = True
    model = case.program(D).compile(R.out, seed=0).double()
    x = torch.randn(N, D, dtype=torch.float64)
    out = model(h=x, near=torch.tensor([[i], [j]]), **case.inputs(tables))
    torch.testing.assert_close(out, attended(model, x, mask))


def test_a_pattern_of_a_derived_relation_has_the_axes_of_its_rule():
    """`ring` depends on the number of tokens: 5 in its rule, 9 in the score."""
    near = R.near(V.I, V.J) <= (R.a(V.I), R.a(V.J), ring(1)(V.I, V.J))
    case = MaskCase("", (R._near(V.I, V.J),), lambda i, j, f: False, (near,))
    model = case.program(D).compile(R.out, seed=0, fill=0.0).double()
    x = torch.randn(9, D, dtype=torch.float64, generator=torch.manual_seed(0))
    expected = attended(model, x[:5], ring(1).dense(5))
    torch.testing.assert_close(model(h=x, a=torch.ones(5).double()), expected)


@pytest.mark.parametrize("parts", [[1] * N, [7, 1, 1, 9, 8]], ids=len)
@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_growing(case, parts):
    """Rows are appended where the mask lets none attend to later ones, and each to itself."""
    tables = facts(N)
    mask = case.mask(N, tables)
    torch.manual_seed(0)
    x = torch.randn(2, N, D, dtype=torch.float64)
    model = case.program(D).compile(R.out, seed=0, fill=0.0).double()
    growing = model.growing(N, **case.inputs(tables))
    if not mask.diagonal().all() or mask.triu(1).any():
        with pytest.raises(EdgewiseError) as error:
            growing(h=x[:, : parts[0]])
        assert error.value.code == "cannot-grow"
        return
    expected = torch.stack([attended(model, each, mask) for each in x])
    found = [growing(h=part) for part in x.split(parts, 1)]
    torch.testing.assert_close(torch.cat(found, 1), expected)


SPEAKER = R.special.leq(V.J, V.I), R._speaker(V.I, V.S), R._speaker(V.J, V.S)
OTHER_READERS = {
    "a condition on a row": R.h(V.I) <= (R.x(V.I), R._speaker(V.I, 0)),
    "a negated one": R.h(V.I) <= (R.x(V.I), ~R.speaker(V.I, 0)),
    "a value": R.h(V.I) <= (R.x(V.I), R.speaker(V.I, V.S)),
    "a value that is looked up": R.h(V.I) <= (R.x(V.I), R.speaker(V.I, V.S), R.name(V.S)),
}


@pytest.mark.parametrize("rule", OTHER_READERS.values(), ids=OTHER_READERS)
def test_growing_refuses_rules_that_read_rows_to_come(rule):
    case = MaskCase("", SPEAKER, lambda i, j, f: False, (rule,))
    model = case.program(D).compile(R.out, seed=0, fill=0.0)
    inputs = {"speaker": torch.tensor([[0, 1, 2], [0, 1, 0]]), "name": torch.ones(2, D)}
    growing = model.growing(3, **{n: t for n, t in inputs.items() if n in model.inputs})
    with pytest.raises(EdgewiseError) as error:
        growing(x=torch.randn(1, D))
    assert error.value.code == "cannot-grow"


def test_growing_crops_edits_and_takes_samples_under_a_mask():
    case = MaskCase("", SPEAKER, lambda i, j, f: f.speaker[i] == f.speaker[j] and j <= i)
    model = case.program(D).compile(R.out, seed=0).double()
    speaker = torch.stack([torch.arange(9), torch.arange(9) % 3 % 2])
    x = torch.randn(2, 9, D, dtype=torch.float64, generator=torch.manual_seed(0))
    growing = model.growing(9, speaker=speaker)
    growing(h=x[:, :7])
    growing.crop(4)
    growing.take([1, 0])
    growing(h=x.flip(0)[:, 4:])
    x[:, 2] = 1.0
    found = growing.edit(2, h=x.flip(0)[:, 2:3])
    torch.testing.assert_close(found, model(h=x, speaker=speaker).flip(0)[:, 2:])


@pytest.mark.parametrize("condition", [
    (R._role(V.I, V.R), R._role(V.J, V.R)),
    (R._a(V.I, V.R), ~R.role(V.J, V.R)),
    (R._a(V.I, V.K), R._role(V.K, V.J)),
], ids=["key", "negated", "hop"])  # fmt: skip
def test_facts_beside_the_rule_of_a_condition_count(condition):
    attends = (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), *condition)) | [
        F.product,
        F.softmax_agg(agg_terms=[V.J]),
    ]
    out = (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product]
    program = Program([R.role(V.I, V.R) <= R.a(V.I, V.R), attends, out])
    stated = [*(R.a(i, i % 3) for i in range(4)), R.role(4, 0), R.role(0, 5)]
    x = torch.randn(6, 4, dtype=torch.float64)
    model = program.compile(R.out, dtype=torch.float64)
    found = model.rows(model.ground(facts=stated, x=x))
    solved = program.solve([*stated, *(R.x(i)[row] for i, row in enumerate(x))])[R.out(V.I)]
    assert list(dict(found)) == list(solved)
    torch.testing.assert_close(found.data, torch.stack(list(solved.values())))
    assert "attention (" in str(model.explain(model.ground(facts=stated, x=x), stage="kernels"))


@pytest.mark.parametrize("rules", [
    [R.near(V.I, V.J) <= (R.a(V.I, V.S), R.a(V.J, V.S))],
    [R.near(V.I, V.J) <= R.like(V.I, V.J), R.like(V.I, V.J) <= (R.a(V.I, V.S), R.a(V.J, V.S))],
], ids=["a rule", "a rule of a rule"])  # fmt: skip
@pytest.mark.parametrize("pair", [(0, 3), (0, 1), (0, 9), (7, 9)])
def test_a_fact_of_a_condition_is_not_derived_too(rules, pair):
    attends = (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), R._near(V.I, V.J))) | [
        F.product,
        F.softmax_agg(agg_terms=[V.J]),
    ]
    out = (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product]
    program = Program([*rules, attends, out])
    stated = [*(R.a(i, i % 3) for i in range(6)), R.a(9, 1), R.a(7, 1), R.near(*pair)]
    x = torch.randn(6, 4, dtype=torch.float64)
    model = program.compile(R.out, dtype=torch.float64)
    every = [*stated, *(R.x(i)[row] for i, row in enumerate(x))]
    if pair in ((0, 3), (7, 9)):
        for run in (lambda: program.solve(every), lambda: model.ground(facts=stated, x=x)):
            with pytest.raises(EdgewiseError) as caught:
                run()
            assert caught.value.code == "fact-and-rule"
        return
    solved = torch.stack(list(program.solve(every)[R.out(V.I)].values()))
    found = model.rows(model.ground(facts=stated, x=x))
    torch.testing.assert_close(found.data, solved)
    assert "attention (" in str(model.explain(model.ground(facts=stated, x=x), stage="kernels"))


def test_explain_says_that_weights_have_facts_beside_their_rule():
    attends = (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), R._a(V.I, V.J))) | [
        F.product,
        F.softmax_agg(agg_terms=[V.J]),
    ]
    out = (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product]
    model = Program([attends, out]).compile(R.out)
    stated = [R.a(0, 1), R.a(1, 1), R.w(2, 0)[0.5]]
    shown = str(model.explain(model.ground(facts=stated, x=torch.randn(3, 4)), stage="kernels"))
    assert "not one attention: `w` has facts beside its rule" in shown
