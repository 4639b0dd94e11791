"""Mini-batches: exact ones equal the full model, sampled ones a model of the sampled graph."""

import numpy as np
import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, rows
from edgewise.physical.sampling import Sampler, drawn

N = 80
RANDOM = torch.Generator().manual_seed(0)
EDGES = torch.randint(N, (2, 900), generator=RANDOM).unique(dim=1)
X = torch.randn(N, 4, generator=RANDOM, dtype=torch.float64)


def layer(x, y, out, size):
    neighbours = (y(V.I) <= (x(V.J)[out, size], R.hidden.edge(V.J, V.I))) | [F.avg_agg]
    return [y(V.I) <= x(V.I)[out, size], neighbours]


SAGE = Program([*layer(R.x, R.h, 8, 4), R.h / 1 | [F.relu], *layer(R.h, R.o, 3, 8)])
SCORE = (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), R.hidden.edge(V.J, V.I))) | [
    F.product,
    F.softmax_agg(agg_terms=[V.J]),
]
ATTENTION = Program([SCORE, (R.o(V.I) <= (R.w(V.I, V.J), R.x(V.J)[3, 4])) | [F.product]])


def compiled(program=SAGE, **options):
    return program.compile(R.o, seed=0, dtype=torch.float64, **options)


@pytest.mark.parametrize("program", [SAGE, ATTENTION], ids=["sage", "attention"])
@pytest.mark.parametrize("workers", [0, 2])
def test_exact_batches_are_rows_of_the_full_output(program, workers):
    model = compiled(program, fill=0.0)
    data = model.ground(edge=EDGES)
    full = model(data, x=X)
    found = {}
    for batch in model.batches(torch.arange(N), data, batch=32, workers=workers, x=X):
        torch.testing.assert_close(model(batch), full[batch.seeds])
        torch.testing.assert_close(model(batch, x=X), full[batch.seeds])
        found |= dict.fromkeys(batch.seeds.tolist())
        assert torch.equal(batch.seeds, batch.index)
    assert sorted(found) == list(range(N))


def test_gradients_of_batches_add_up():
    model, other = compiled(), compiled()
    data = model.ground(edge=EDGES)
    model(data, x=X).square().sum().backward()
    held = other.ground(edge=EDGES)
    for batch in other.batches(range(N), held, batch=30, x=X):
        other(batch).square().sum().backward()
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def chosen_edges(batch):
    """The edges that each layer of a batch reads, as keys."""
    (step,) = batch.built.values()
    found = []
    keys = {n: i.keys[:, 0] for n, i in step.executable.relations.items()}
    for part in step.executable.steps:
        ground = part.steps[1].ground
        (read,) = ground.rows.values()
        read = torch.arange(ground.count) if read is None else read
        source = keys["x" if part.relation == "h" else "h"][read]
        target = ground.heads.keys[ground.segments.ids, 0]
        found.append(torch.stack([source, target]))
    return found


def test_a_sampled_batch_is_the_model_on_its_graph():
    model = compiled()
    data = model.ground(edge=EDGES)
    batches = model.batches(range(N), data, batch=10, most=[4, 2], x=X)
    listed = set(map(tuple, EDGES.T.tolist()))
    for step in range(3):
        batch = batches.at(step)
        first, second = chosen_edges(batch)
        for edges, most in ((first, 2), (second, 4)):
            assert set(map(tuple, edges.T.tolist())) <= listed
            assert edges.unique(dim=1).shape == edges.shape
            assert int(torch.bincount(edges[1]).max()) == most
        hidden = [w.detach() for w in model.parameters()]
        own, neighbour, own2, neighbour2 = hidden

        def mean(values, edges):
            sums = torch.zeros(N, values.shape[1], dtype=values.dtype).index_add(
                0, edges[1], values[edges[0]]
            )
            return sums / torch.bincount(edges[1], minlength=N).clamp(min=1)[:, None]

        h = (X @ own.T + mean(X, first) @ neighbour.T).relu()
        out = h @ own2.T + mean(h, second) @ neighbour2.T
        torch.testing.assert_close(model(batch).detach(), out[batch.seeds])


def test_sampled_attention_normalises_over_what_is_sampled():
    for without in ((), ("fuse attention",)):
        model = ATTENTION.compile(R.o, seed=0, dtype=torch.float64, fill=0.0, without=without)
        data = model.ground(edge=EDGES)
        for batch in model.batches(range(N), data, batch=20, most=[3], x=torch.ones_like(X)):
            value = model(batch)  # of equal rows, whatever is sampled
            expected = next(model.parameters()).sum(1)
            has = torch.isin(batch.seeds, EDGES[1])
            torch.testing.assert_close(value[has], expected.expand(int(has.sum()), 3))


def test_a_batch_follows_from_seed_and_step():
    def drawn_at(step, seed=0, workers=0):
        model = compiled()
        data, options = model.ground(edge=EDGES), {"seed": seed, "workers": workers, "x": X}
        batches = model.batches(range(N), data, batch=16, most=[3, 2], **options)
        if not workers:
            return model(batches.at(step))
        epochs = [model(batch) for _ in range(2) for batch in batches]
        return epochs[step]

    one = drawn_at(7)
    torch.testing.assert_close(drawn_at(7), one, rtol=0, atol=0)
    torch.testing.assert_close(drawn_at(7, workers=3), one, rtol=0, atol=0)
    assert not torch.allclose(drawn_at(7, seed=1), one)
    assert not torch.allclose(drawn_at(2), one)


def test_order_and_number_of_batches():
    model = compiled()
    data = model.ground(edge=EDGES, x=rows(torch.arange(N)[None], X))
    batches = model.batches([5, 3, 9, 5, 1], data, batch=2, shuffle=False)
    assert len(batches) == 3
    assert [batch.seeds.tolist() for batch in batches] == [[5, 3], [9, 5], [1]]
    assert [batch.index.tolist() for batch in batches] == [[0, 1], [2, 3], [4]]
    assert len(model.batches([1, 2, 3], data, batch=2, drop_last=True)) == 1
    shuffled = model.batches(range(9), data, batch=3)
    first, second = ([batch.index.tolist() for batch in shuffled] for _ in range(2))
    assert first != second


def test_inputs_of_every_kind():
    model = compiled()
    full = model(model.ground(edge=EDGES), x=X)
    listed = {"x": rows(torch.arange(N)[None], X)}
    facts = [R.x(i)[row] for i, row in enumerate(X.tolist())]
    facts += [R.edge(*pair) for pair in EDGES.T.tolist()]
    for data, inputs in (
        (model.ground(edge=EDGES), listed),
        (model.ground(facts=facts), {}),
        (None, {"edge": rows(EDGES), "x": X}),
    ):
        batch = model.batches([3, 1], data, shuffle=False, **inputs).at(0)
        torch.testing.assert_close(model(batch), full[[3, 1]])


def test_numbers_are_drawn_without_replacement_and_evenly():
    random = np.random.default_rng(0)
    sizes = np.full(20_000, 6)
    found = drawn(sizes, 3, random)
    assert (np.diff(found, axis=1) > 0).all()
    _, counts = np.unique(found @ [1, 6, 36], return_counts=True)
    assert len(counts) == 20
    assert abs(counts - 1000).max() < 150
    start, count = np.array([0, 10, 14]), np.array([10, 4, 1])
    which, taken = Sampler([4], random)(start, count, 0)
    assert taken.tolist() == [4, 4, 1]
    assert which[4:].tolist() == [10, 11, 12, 13, 14]


@pytest.mark.parametrize(
    "mistake",
    [
        lambda m, d: next(iter(m.batches([0], d, most=[3], x=X))),
        lambda m, d: next(iter(m.batches([0], d, most=[3, 2, 1], x=X))),
        lambda m, d: m.batches([0], d, most=[0, 1], x=X),
        lambda m, d: m.batches([0], d, most=3, x=X),
        lambda m, d: m.batches([0], d, batch=0, x=X),
        lambda m, d: m.batches([0], d, workers=-1, x=X),
        lambda m, d: m.batches([0], d, prefetch=0, x=X),
        lambda m, d: m.batches([0], d, seed=None, x=X),
        lambda m, d: m.batches(["a"], d, x=X).at(-1),
    ],
)
def test_bad_options(mistake):
    model = compiled()
    with pytest.raises(EdgewiseError) as caught:
        mistake(model, model.ground(edge=EDGES))
    assert caught.value.code == "bad-batches"
