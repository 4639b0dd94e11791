"""Batches of grounded samples: gathered, and equal to what is joined for each batch anew."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from edgewise import F, Program, R, V, W, ragged, rows
from edgewise.checks.evaluation import NotANumber
from edgewise.inputs.read import MissingInput
from edgewise.physical.data import BadSamples
from edgewise.physical.sampling import BadBatches
from edgewise.zoo import gat, gatv2, gcn, gin, graphsage, rgcn

D = 3


def graph(n, seed, types=0):
    """Features and edges of a random graph with n nodes."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(n, D, generator=random, dtype=torch.float64)
    held = (torch.rand(n, n, generator=random) < 0.4).nonzero().T
    if types:
        kind = torch.randint(types, (held.shape[1],), generator=random)
        held = torch.stack([held[0], kind, held[1]])
    return x, held


def pooled(program, size):
    return Program(
        [*program.statements, R.pooled <= R.out(V.I)[2, size]], domains=dict(program.domains)
    )


def message(*functions):
    """One round of messages, then one number for each sample."""
    h = (R.h(V.I) <= (R.x(V.J)[4, D], R._edge(V.I, V.J))) | list(functions)
    return Program([h, R.h / 1 | [F.tanh], (R.pooled <= R.h(V.I)[1, 4]) | [F.avg_agg]])


PROGRAMS = {
    "gin": pooled(gin.program(gin.Config(D, 4, 4)), 4),
    "gcn": pooled(gcn.program(gcn.Config(D, 4)), 4),
    "sage": pooled(graphsage.program(graphsage.Config(D, 4)), 4),
    "gat": pooled(gat.program(gat.Config(D, 2, 2)), 4),
    "gatv2": pooled(gatv2.program(gatv2.Config(D, 2, 2)), 4),
    "max": message(F.max_agg),
    "mean": message(F.avg_agg),
    "nodes": Program([(R.pooled(V.I) <= (R.x(V.J)[4, D], R._edge(V.I, V.J))) | [F.relu]]),
    "negation": Program([R.pooled <= (R.x(V.I)[2, D], ~R.edge(V.I, V.I))]),
    "weights alone": Program([R.bias(V.I) <= (W.b[2,], R._edge(V.I, V.J)), R.pooled <= W.c[2,],
                              R.pooled <= R.bias(V.I)]),
    "softmax": Program([
        (R.share(V.I, V.J) <= (R.x(V.I)[1, D], R.x(V.J)[1, D], R._edge(V.I, V.J)))
        | [F.sum, F.softmax_agg(agg_terms=[V.J])],
        (R.pooled <= (R.share(V.I, V.J), R.x(V.J))) | [F.product],
    ]),
}  # fmt: skip
PLAIN = ("gin", "gcn", "sage", "gat", "gatv2", "max", "mean", "nodes", "softmax")


def compiled(name):
    model = PROGRAMS[name].compile(R.pooled, seed=0).double()
    return model, [n for n in ("x", "edge") if n in model.inputs]


def batch_of(samples, names, numbers):
    every = {"x": [x for x, _ in samples], "edge": [edge for _, edge in samples]}
    return {name: ragged([every[name][n] for n in numbers]) for name in names}


def with_gradients(model, *data, **inputs):
    """The output as rows, and the gradients of a function of them."""
    found = model(*data, **inputs)
    values = found if isinstance(found, torch.Tensor) else found.data
    weight = torch.arange(1.0, values.numel() + 1, dtype=values.dtype).cos().view_as(values)
    total = (values * weight).sum()
    grads = torch.autograd.grad(total, list(model.parameters()), materialize_grads=True)
    keys = None if isinstance(found, torch.Tensor) else found.index
    return keys, values, grads


def assert_same(one, two):
    assert one[0] is None or torch.equal(one[0], two[0])
    torch.testing.assert_close(one[1], two[1])
    torch.testing.assert_close(one[2], two[2])


@pytest.mark.parametrize("name", PROGRAMS)
def test_batches_equal_what_is_joined(name):
    model, names = compiled(name)
    samples = [graph(n, seed) for seed, n in enumerate((4, 1, 6, 2, 0, 5, 3, 1, 4, 7))]
    data = model.ground(**batch_of(samples, names, range(10)))
    for numbers in ([3, 0, 5, 0], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0], [1, 7, 4]):
        batch = data[numbers]
        found = with_gradients(model, batch)
        assert_same(found, with_gradients(model, **batch_of(samples, names, numbers)))
        if name in PLAIN and numbers[0] != 1:
            assert batch.joined is None


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_random_samples(data):
    name = data.draw(st.sampled_from(list(PROGRAMS)))
    sizes = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=5))
    samples = [graph(n, seed) for seed, n in enumerate(sizes)]
    model, names = compiled(name)
    grounded = model.ground(**batch_of(samples, names, range(len(samples))))
    for _ in range(2):
        numbers = data.draw(st.lists(st.integers(0, len(samples) - 1), min_size=1, max_size=6))
        found = with_gradients(model, grounded[numbers])
        assert_same(found, with_gradients(model, **batch_of(samples, names, numbers)))


def test_the_reference_agrees():
    model, names = compiled("mean")
    samples = [graph(n, seed) for seed, n in enumerate((4, 3, 5, 6, 2, 4, 3, 5))]
    found = model(model.ground(**batch_of(samples, names, range(8)))[[5, 2]])
    weights = {n: w.detach() for n, w in model._weights().items()}
    for row, number in zip(found.data, (5, 2), strict=True):
        x, edge = samples[number]
        facts = [R.x(i)[value] for i, value in enumerate(x)]
        facts += [R.edge(*pair) for pair in edge.T.tolist()]
        solved = PROGRAMS["mean"].solve(facts, weights=weights)[R.pooled]
        torch.testing.assert_close(row.detach(), solved)


def test_facts_of_samples():
    program = Program([
        (R.h(V.I) <= (R.x(V.J)[4, D], R._bond(V.J, V.I))) | [F.relu],
        R.h(V.I) <= (R._kind(V.I, V.K), W.kind(V.K)[4,]),
        (R.out <= R.h(V.I)[1, 4]) | [F.avg_agg],
    ], domains={V.K: ["c", "n", "o"]})  # fmt: skip
    model = program.compile(R.out, seed=0, dense=True).double()

    def facts(n):
        x = torch.randn(n, D, generator=torch.manual_seed(n)).tolist()
        own = [R.x(i)[row] for i, row in enumerate(x)]
        own += [R.kind(i, "cno"[(i + n) % 3]) for i in range(n)]
        return own + [R.bond(i, (i * n + 1) % n) for i in range(n)]

    molecules = [facts(n) for n in (4, 6, 3, 5, 7, 4, 8, 3)]
    data = model.ground(facts=ragged(molecules))
    for numbers in ([5, 1, 1], [0], [7, 3, 2, 6]):
        batch = data[numbers]
        found = model(batch)
        assert batch.joined is None
        other = model(model.ground(facts=ragged([molecules[n] for n in numbers])))
        torch.testing.assert_close(found, other)


def test_typed_edges():
    model = pooled(rgcn.program(rgcn.Config(D, 4, 3)), 4).compile(R.pooled, seed=0).double()
    samples = [graph(n, n, types=3) for n in (6, 7, 8, 9, 10, 11, 12, 13)]
    data = model.ground(**batch_of(samples, ("x", "edge"), range(8)))
    for numbers in ([4, 1, 6], [2, 2]):
        other = with_gradients(model, **batch_of(samples, ("x", "edge"), numbers))
        assert_same(with_gradients(model, data[numbers]), other)


def test_shared_and_batched_inputs_beside_samples():
    program = Program([
        (R.h(V.I) <= (R.x(V.I)[4, D], R.table(V.K)[4, 2], R._edge(V.I, V.K))),
        (R.pooled <= (R.h(V.I)[1, 4], R.gate(V.G)[1, 2])),
    ])  # fmt: skip
    model = program.compile(R.pooled, seed=0).double()
    samples = [graph(n, n) for n in (4, 5, 6, 7, 4, 5, 6, 3)]
    table = torch.randn(7, 2, dtype=torch.float64)
    gate = torch.randn(8, 3, 2, dtype=torch.float64)
    data = model.ground(**batch_of(samples, ("x", "edge"), range(8)), table=table, gate=gate)
    assert data.batched == {"gate"}
    numbers = [6, 0, 3, 3]
    own = batch_of(samples, ("x", "edge"), numbers) | {"table": table, "gate": gate[numbers]}
    assert_same(with_gradients(model, data[numbers]), with_gradients(model, model.ground(**own)))


def test_values_of_edges_and_keys_in_any_order():
    program = Program([
        (R.h(V.I) <= (R.edge(V.I, V.J), R.x(V.J)[2, D])) | [F.product],
        R.pooled <= R.h(V.I),
    ])  # fmt: skip
    model = program.compile(R.pooled, seed=0).double()
    samples = []
    for n in range(3, 12):
        x, edge = graph(n, n)
        order = torch.randperm(edge.shape[1], generator=torch.manual_seed(n))
        values = torch.randn(edge.shape[1], dtype=torch.float64)
        samples.append((x, rows(edge[:, order], values)))
    data = model.ground(**batch_of(samples, ("x", "edge"), range(9)))
    batch = data[[7, 2, 2, 0]]
    found = with_gradients(model, batch)
    assert batch.joined is None
    assert_same(found, with_gradients(model, **batch_of(samples, ("x", "edge"), [7, 2, 2, 0])))


def test_values_written_or_trained_after_grounding():
    model, names = compiled("gin")
    samples = [graph(n, n) for n in (4, 5, 6, 7, 4, 5, 6, 3)]
    data = model.ground(**batch_of(samples, names, range(8)))
    batch = data[[1, 4]]
    before = model(batch).data
    samples[4][0].mul_(2)
    after = model(batch).data
    torch.testing.assert_close(after, model(**batch_of(samples, names, [1, 4])).data)
    assert not torch.equal(before, after)
    samples[1][0].requires_grad_()
    batch = data[[1, 4]]
    for _ in range(2):
        (gradient,) = torch.autograd.grad(model(batch).data.sum(), samples[1][0])
    assert gradient.abs().sum() > 0
    assert batch.joined == "`x` is trained"


def test_modes_precisions_and_copies():
    program = Program([
        (R.h(V.I) <= (R.x(V.J)[8, D], R._edge(V.I, V.J))) | [F.relu, F.dropout(0.5)],
        (R.out <= R.h(V.I)[1, 8]) | [F.avg_agg],
    ])  # fmt: skip
    model = program.compile(R.out, seed=0, dense=True)
    samples = [tuple(t.float() if t.is_floating_point() else t for t in graph(n, n))
               for n in (4, 5, 6, 7, 4, 5, 6, 3)]  # fmt: skip
    data = model.ground(**batch_of(samples, ("x", "edge"), range(8)))
    assert not torch.equal(model(data[[1, 2]]), model(data[[1, 2]]))  # dropout
    model.eval()
    assert torch.equal(model(data[[1, 2]]), model(data[[1, 2]]))
    one = model(data[[1, 2]])
    torch.testing.assert_close(model(deepcopy(data)[[1, 2]]), one)
    torch.testing.assert_close(deepcopy(model)(deepcopy(model).ground(**batch_of(
        samples, ("x", "edge"), [1, 2]))), one)  # fmt: skip
    torch.testing.assert_close(model.rows(data[[1, 2]]).data, one)
    torch.testing.assert_close(torch.compile(model, backend="eager")(data[[1, 2]]), one)


def test_training_on_batches():
    model, names = compiled("gin")
    other = deepcopy(model)
    samples = [graph(n, n) for n in (4, 5, 6, 7, 4, 5, 6, 3)]
    data = model.ground(**batch_of(samples, names, range(8)))
    for trained, batches in ((model, data), (other, None)):
        optimiser = torch.optim.SGD(trained.parameters(), lr=0.01)
        for step in range(6):
            numbers = torch.randperm(8, generator=torch.manual_seed(step))[:4]
            own = {} if batches is not None else batch_of(samples, names, numbers)
            found = trained(batches[numbers]) if batches is not None else trained(**own)
            optimiser.zero_grad()
            found.data.square().mean().backward()
            optimiser.step()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two)
    assert isinstance(model, nn.Module)


def test_indices():
    model, names = compiled("nodes")
    samples = [graph(n, n) for n in (3, 4, 5)]
    data = model.ground(**batch_of(samples, names, range(3)))
    assert len(data) == 3
    assert bool(data)
    for numbers in ([2], [-1], torch.tensor([2]), slice(2, 3), 2):
        assert len(data[numbers]) == 1
        assert torch.equal(model(data[numbers]).data, model(data[[2]]).data)
    assert len(list(data)) == 3
    for wrong in ([3], [-4], "a", [0.5], [True, False, True]):
        with pytest.raises(BadSamples):
            data[wrong]
    plain = Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)
    with pytest.raises(BadSamples, match="not a ragged batch"):
        plain.ground(a=torch.ones(3))[[0]]
    with pytest.raises(BadSamples, match="not a ragged batch"):
        len(plain.ground(a=torch.ones(3)))


def test_batches_of_samples_seen_before():
    model, names = compiled("gin")
    samples = [graph(n, n) for n in (4, 5, 6, 7, 4, 5, 6, 3)]
    other = deepcopy(model)
    for epoch in range(4):
        order = torch.randperm(8, generator=torch.manual_seed(epoch)).tolist()
        for numbers in (order[:4], order[4:]):
            own = batch_of([tuple(t.clone() for t in sample) for sample in samples], names, numbers)
            found = with_gradients(model, **own)
            assert_same(found, with_gradients(other, other.ground(**own)))
    assert model._samples.joined is None
    assert len(model._samples.data) == len({edge.numpy().tobytes() for _, edge in samples})
    assert model._last.chosen is not None
    new = batch_of([graph(9, 9), *samples], names, [0, 2])
    assert_same(with_gradients(model, **new), with_gradients(other, other.ground(**new)))
    samples[0][0][0, 0] = torch.nan
    with pytest.raises(NotANumber, match="`x`"):
        model(**batch_of(samples, names, [0, 1]))
    with pytest.raises(MissingInput, match="`edge`"):
        model(x=ragged([samples[1][0]]))


def test_recursion():
    program = Program([
        R.far(V.I) <= R.start(V.I),
        (R.far(V.J) <= (R.far(V.I), R._step(V.I, V.J))) | [F.tanh],
        R.out <= R.far(V.I)[1, 1],
    ])  # fmt: skip
    model = program.compile(R.out, seed=0)
    chains = [torch.stack([torch.arange(n), torch.arange(n) + 1]) for n in (2, 3, 4, 1)]
    starts = [rows(torch.tensor([[0]]), torch.ones(1)) for _ in chains]
    data = model.ground(start=ragged(starts), step=ragged(chains))
    for numbers in ([2, 0], [1], [2, 0]):
        own = {"start": ragged([starts[n] for n in numbers])}
        own["step"] = ragged([chains[n] for n in numbers])
        batch = data[numbers]
        for found in (model(batch), model(**own), model(**own)):
            torch.testing.assert_close(found.data, model(model.ground(**own)).data)


def test_attention_is_joined():
    causal = R.special.leq(V.J, V.I)
    program = Program([
        R.k(V.I) <= R.x(V.I)[D, D],
        (R.w(V.I, V.J) <= (R.k(V.J).T, R.x(V.I), causal))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ])  # fmt: skip
    model = program.compile(R.out, seed=0).double()
    texts = [graph(n, n)[0] for n in (4, 2, 5, 3)]
    data = model.ground(x=ragged(texts))
    for numbers in ([2, 0], [1, 1, 3]):
        batch, own = data[numbers], ragged([texts[n] for n in numbers])
        for found in (model(batch), model(x=own), model(x=own)):
            torch.testing.assert_close(found.data, model(model.ground(x=own)).data)
        assert "depends on the batch" in batch.joined


def test_epochs():
    model, names = compiled("mean")
    samples = [graph(n, n) for n in range(3, 13)]
    data = model.ground(**batch_of(samples, names, range(10)))
    batches = model.batches(data, batch=4, seed=3)
    epochs = [[batch.index.tolist() for batch in batches] for _ in range(2)]
    assert [len(b) for b in epochs[0]] == [4, 4, 2]
    assert all(sorted(n for b in epoch for n in b) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    again = model.batches(data, batch=4, seed=3, workers=2)
    assert [batch.index.tolist() for batch in again] == epochs[0]
    batch = again.at(4)
    assert (batch.step, batch.index.tolist()) == (4, epochs[1][1])
    found = with_gradients(model, batch)
    assert_same(found, with_gradients(model, **batch_of(samples, names, epochs[1][1])))
    with pytest.raises(BadBatches, match="take no other data"):
        model.batches(data, batch=4, most=[3])
    with pytest.raises(BadSamples):
        model.batches(model.ground())


def test_models_with_selections():
    program = Program([
        R.score(V.I) <= R.x(V.I)[1, D],
        R.out <= (R.x(V.I), R.score(V.I) > 0.0),
    ])  # fmt: skip
    model = program.compile(R.out, seed=0).double()
    texts = [graph(n, n)[0] for n in (4, 6, 5, 7)]
    data = model.ground(x=ragged(texts))
    for _ in range(3):
        own = ragged([texts[2], texts[0]])
        torch.testing.assert_close(model(data[[2, 0]]).data, model(x=own).data)
