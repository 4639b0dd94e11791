"""Bad input: each mistake has its own code, message and next step, and changes nothing."""

import copy
import tracemalloc

import networkx
import numpy as np
import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W, ragged, rows
from edgewise.graphs import full, window

NAN = float("nan")
EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


def layer(**options):
    """A graph layer: h hears its neighbours."""
    program = Program(
        [
            R.w <= R.a(V.I),
            (R.h(V.I) <= (R.x(V.J)[4, 3], R._edge(V.J, V.I))) | [F.relu],
            R.out(V.I) <= R.h(V.I)[2, 4],
        ]
    )
    return program.compile(R.out, seed=0, **options)


def pairs(**options):
    return Program([R.out(V.I) <= (R.x(V.I), R.y(V.I))]).compile(R.out, **options)


def x(n=3, d=3, **options):
    return torch.ones(n, d, **options)


def assert_refused(code, call, *words):
    with pytest.raises(EdgewiseError) as caught:
        call()
    error = caught.value
    shown = str(error)
    assert error.code == code, shown
    assert error.help
    assert "^" in shown
    assert __file__ in shown  # the place is the user's line
    for word in words:
        assert word in shown, shown
    return error


CASES = {
    "a fact that is not a number": (
        "not-a-number",
        lambda m: m.ground(facts=[R.x(0)[torch.tensor([1.0, NAN, 2.0])], R.edge(0, 0)]),
        ("x(0)",),
    ),
    "a tensor with a value that is not a number": (
        "not-a-number",
        lambda m: m.ground(x=torch.full((3, 3), NAN), edge=EDGES),
        ("`x`", "nan_to_num"),
    ),
    "rows with a value that is not a number": (
        "not-a-number",
        lambda m: m(x=rows(torch.arange(3), torch.full((3, 3), NAN)), edge=EDGES),
        ("`x`",),
    ),
    "a sample with a value that is not a number": (
        "not-a-number",
        lambda m: m(x=ragged([x(), x() * NAN]), edge=ragged([EDGES, EDGES])),
        ("`x`",),
    ),
    "a ragged fact that is not a number": (
        "not-a-number",
        lambda m: m.ground(facts=ragged([[R.x(0)[torch.tensor([1.0, NAN, 2.0])]]])),
        ("x(0)",),
    ),
    "another precision": (
        "dtype-mismatch",
        lambda m: m(m.ground(edge=EDGES), x=x(dtype=torch.float64)),
        ("torch.float64", "torch.float32", "model.to"),
    ),
    "another precision in rows": (
        "dtype-mismatch",
        lambda m: m.ground(x=rows(torch.arange(3), x(dtype=torch.float64)), edge=EDGES),
        ("torch.float64", "torch.float32"),
    ),
    "another precision in a sample": (
        "dtype-mismatch",
        lambda m: m.ground(x=ragged([x(), x(dtype=torch.float64)]), edge=ragged([EDGES, EDGES])),
        ("torch.float64", "torch.float32"),
    ),
    "another device": (
        "device-mismatch",
        lambda m: m(m.ground(edge=EDGES), x=x(device="meta")),
        ("meta", "cpu"),
    ),
    "keys on another device": (
        "device-mismatch",
        lambda m: m.ground(edge=EDGES.to("meta")),
        ("meta", "cpu"),
    ),
    "a key beyond a dense axis": (
        "key-out-of-range",
        lambda m: m(m.ground(edge=EDGES), x=x(2)),
        ("`edge`", "2", "length 2"),
    ),
    "a key beyond the axis of its sample": (
        "key-out-of-range",
        lambda m: m(x=ragged([x(3), x(2)]), edge=ragged([EDGES, EDGES])),
        ("`edge`", "length 2"),
    ),
    "a fact beyond a dense axis": (
        "key-out-of-range",
        lambda m: m(m.ground(facts=[R.edge(7, 0)]), x=x()),
        ("`edge`", "7", "length 3"),
    ),
    "a negative key": (
        "key-out-of-range",
        lambda m: m.ground(edge=torch.tensor([[0, -1], [1, -1]]), x=x()),
        ("-1", "padding"),
    ),
    "a key that does not fit": (
        "key-out-of-range",
        lambda m: m.ground(edge=torch.tensor([[0], [1 << 41]]), x=rows(torch.arange(3), x())),
        ("2^40",),
    ),
    "a fact that does not fit": (
        "key-out-of-range",
        lambda m: m(m.ground(facts=[R.edge(0, 1 << 41), R.x(0)[[1.0, 2.0, 3.0]]])),
        ("2^40",),
    ),
    "a key twice": (
        "duplicate-fact",
        lambda m: m.ground(edge=torch.tensor([[0, 1, 0], [1, 2, 1]]), x=x()),
        ("`edge`", "(0, 1)"),
    ),
    "a key twice in one sample": (
        "duplicate-fact",
        lambda m: m(x=ragged([x()]), edge=ragged([torch.tensor([[0, 0], [1, 1]])])),
        ("`edge`",),
    ),
    "a fact twice": (
        "duplicate-fact",
        lambda m: m.ground(facts=[R.edge(0, 1), R.edge(0, 1)]),
        ("edge(0, 1)",),
    ),
    "an input missing": (
        "missing-input",
        lambda m: m(x=x()),
        ("`edge`",),
    ),
    "an input missing at a step": (
        "missing-input",
        lambda m: m(m.ground(edge=EDGES)),
        ("`x`",),
    ),
    "a misspelt input": (
        "unknown-input",
        lambda m: m.ground(edgse=EDGES),
        ("`edgse`", "did you mean `edge`?"),
    ),
    "an input that has nothing to do with it": (
        "unknown-input",
        lambda m: m.ground(zebra=EDGES),
        ("`zebra`", "edge", "x"),
    ),
    "an input of another output": (
        "unknown-input",
        lambda m: m.ground(a=EDGES),
        ("does not read `a`",),
    ),
    "facts of no relation": (
        "unknown-input",
        lambda m: m.ground(facts=[R.edgse(0, 1)]),
        ("`edgse`", "did you mean `edge`?"),
    ),
    "ragged facts of no relation": (
        "unknown-input",
        lambda m: m.ground(facts=ragged([[R.edge(0, 1)], [R.edgse(0, 1)]])),
        ("`edgse`",),
    ),
    "keys of another arity": (
        "arity-mismatch",
        lambda m: m.ground(edge=torch.tensor([[0, 1], [1, 2], [2, 0]]), x=x()),
        ("`edge`", "2 terms", "(3, 2)"),
    ),
    "keys of another arity in a sample": (
        "arity-mismatch",
        lambda m: m(x=ragged([x(), x()]), edge=ragged([EDGES, torch.arange(3)])),
        ("`edge`", "2 terms"),
    ),
    "facts of another arity": (
        "arity-mismatch",
        lambda m: m.ground(facts=[R.edge(0, 1, 2)]),
        ("`edge`",),
    ),
    "too many axes": (
        "arity-mismatch",
        lambda m: m(m.ground(edge=EDGES), x=torch.ones(1, 1, 1, 3, 3)),
        ("`x`", "5 axes"),
    ),
    "too few axes": (
        "arity-mismatch",
        lambda m: m(m.ground(edge=EDGES), x=torch.ones(())),
        ("`x`", "0 axes"),
    ),
    "values of the wrong length for a weight": (
        "shape-mismatch",
        lambda m: m(m.ground(edge=EDGES), x=x(3, 5)),
        ("`x`", "5", "3"),
    ),
    "ragged of different lengths": (
        "batch-mismatch",
        lambda m: m(x=ragged([x(), x()]), edge=ragged([EDGES])),
        ("x: 2", "edge: 1"),
    ),
    "a dense batch of another size": (
        "batch-mismatch",
        lambda m: m(m.ground(edge=ragged([EDGES, EDGES])), x=torch.ones(3, 3, 3)),
        ("2", "x: 3"),
    ),
    "samples with values of different shapes": (
        "shape-mismatch",
        lambda m: m(x=ragged([x(), x(3, 2)]), edge=ragged([EDGES, EDGES])),
        ("`x`",),
    ),
    "keys at a step": (
        "keys-at-step",
        lambda m: m(m.ground(), x=x(), edge=EDGES),
        ("`edge`", "model.ground(edge=...)"),
    ),
    "rows at a step": (
        "keys-at-step",
        lambda m: m(m.ground(edge=EDGES), x=rows(torch.arange(3), x())),
        ("`x`",),
    ),
    "data of another model": (
        "foreign-data",
        lambda m: m(layer().ground(edge=EDGES), x=x()),
        ("model.ground",),
    ),
    "data that is none": ("bad-input", lambda m: m(x(), edge=EDGES), ("model.ground",)),
    "an input twice": (
        "bad-input",
        lambda m: m(m.ground(facts=[R.x(0)[[1.0, 2.0, 3.0]]], edge=EDGES), x=x()),
        ("`x`",),
    ),
    "a string": ("bad-input", lambda m: m.ground(edge="0 1"), ("`edge`", "str")),
    "a list": ("bad-input", lambda m: m.ground(edge=[[0], [1]]), ("`edge`", "list")),
    "words that do not fit a dense axis": (
        "key-out-of-range",
        lambda m: m.ground(x=x(), edge=np.array([["a"], ["b"]])),
        ("`edge`", "'a'"),
    ),
    "dates": (
        "bad-input",
        lambda m: m.ground(edge=np.array([["2024-01-01"], ["2024-01-02"]], "datetime64[D]")),
        ("`edge`", "numbers"),
    ),
    "a mask": (
        "bad-input",
        lambda m: m.ground(edge=torch.ones(3, 3, dtype=torch.bool)),
        ("nonzero",),
    ),
    "complex numbers": (
        "bad-input",
        lambda m: m.ground(x=torch.ones(3, 3, dtype=torch.complex64)),
        ("complex",),
    ),
    "a batch of batches": (
        "bad-input",
        lambda m: m.ground(edge=ragged([ragged([EDGES])])),
        ("`edge`",),
    ),
    "a batch of nothing like samples": (
        "bad-input",
        lambda m: m.ground(edge=ragged(3)),
        ("ragged([",),
    ),
    "more values than keys": (
        "bad-input",
        lambda m: m.ground(x=rows(torch.arange(3), torch.ones(4, 3))),
        ("3 keys", "(4, 3)"),
    ),
    "a graph of names": (
        "bad-input",
        lambda m: m.ground(edge=networkx.Graph([(("a",), ("b",))])),
        ("`edge`", "integers or strings"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input(case):
    code, call, words = CASES[case]
    model = layer()
    good = model.ground(edge=EDGES)
    before = model(good, x=x()).data
    state, generator = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    cached = len(model._cache.built)
    assert_refused(code, lambda: call(model), *words)
    # nothing changed
    assert torch.equal(generator, torch.get_rng_state())
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in state.items())
    assert len(model._cache.built) == cached
    assert torch.equal(model(good, x=x()).data, before)


def test_dense_batches_of_different_sizes():
    a, b = torch.ones(2, 3, 4), torch.ones(3, 3, 4)
    assert_refused("batch-mismatch", lambda: pairs()(x=a, y=b), "x: 2", "y: 3")
    assert_refused("batch-mismatch", lambda: pairs()(x=a[:1], y=b), "x: 1", "y: 3")


def test_an_unbatched_relation_holds_in_every_sample():
    a, b = torch.rand(2, 3, 4), torch.rand(3, 4)
    assert torch.equal(pairs()(x=a, y=b), a + b)


def test_values_that_do_not_meet():
    assert_refused(
        "shape-mismatch", lambda: pairs()(x=torch.ones(3, 2), y=torch.ones(3, 4)), "2", "4"
    )


def test_lengths_intersect_and_never_broadcast():
    found = pairs()(x=torch.ones(3, 2), y=torch.ones(5, 2))
    assert found.shape == (3, 2)
    assert pairs()(x=torch.ones(1, 2), y=torch.ones(5, 2)).shape == (1, 2)


def test_an_output_that_is_not_total():
    program = Program([R.out(V.I) <= (R.x(V.I), R.special.lt(V.I, 2))])
    given = torch.ones(3, 4)
    assert_refused("not-total", lambda: program.compile(R.out)(x=given), "2 of 3", "fill=0.0")
    assert program.compile(R.out, fill=7.0)(x=given)[2].tolist() == [7.0] * 4
    assert len(program.compile(R.out).rows(x=given)) == 2


def test_a_key_outside_of_the_domain():
    program = Program([R.out(V.I) <= R.x(V.I)[W.e(V.I)[2,]]], domains={V.I: 3})
    assert_refused("out-of-domain", lambda: program.compile(R.out)(x=torch.ones(5)), "`I` = 3")


def test_a_value_is_asked_with_an_atom_of_the_relation():
    found = layer()(x=rows(torch.arange(3), x()), edge=EDGES)
    assert found[R.out(1)].shape == (2,)
    assert_refused("bad-query", lambda: found["out"])
    assert_refused("bad-query", lambda: found[R.h(1)])
    assert_refused("not-derivable", lambda: found[R.out(9)])


# nothing at all


@pytest.mark.parametrize("batch", [(), (2,)])
def test_no_rows(batch):
    program = Program(
        [
            (R.h(V.I) <= (R.x(V.J)[4, 3], R._x(V.I), window(1)(V.I, V.J))) | [F.relu, F.max_agg],
            (R.out(V.I) <= R.h(V.I)[2, 4]) | [F.norm],
        ]
    )
    model = program.compile(R.out)
    assert model(x=torch.ones(*batch, 0, 3)).shape == (*batch, 0, 2)
    assert model(x=torch.ones(*batch, 1, 3)).shape == (*batch, 1, 2)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("given", ["dense", "batch", "rows", "ragged", "no edges"])
def test_nothing_has_gradients_that_are_zero(given, compiled):
    program = Program(
        [
            R.q(V.I) <= R.x(V.I)["q":3, 3],
            (R.p(V.I, V.J) <= (R.q(V.I).T, R.x(V.J), window(1)(V.I, V.J)))
            | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.a(V.I) <= (R.p(V.I, V.J), R.x(V.J))) | [F.product],
            (R.out(V.I) <= (R.a(V.J)["w":2, 3], R._edge(V.I, V.J))) | [F.relu],
        ]
    )
    model = program.compile(R.out, fill=0.0)
    run = torch.compile(model, fullgraph=True, backend="aot_eager") if compiled else model
    none = torch.zeros(2, 0, dtype=torch.int64)
    shape = {"batch": (2, 0, 3), "no edges": (4, 3)}.get(given, (0, 3))
    values = torch.ones(shape, requires_grad=True)
    asked = {
        "rows": lambda: {"x": rows(torch.arange(0), values), "edge": none},
        "ragged": lambda: {"x": ragged([values, values]), "edge": ragged([none, none])},
    }.get(given, lambda: {"x": values, "edge": none})
    data = model.ground(**asked()) if compiled else None
    for _ in range(3):
        found = run(data) if compiled else run(**asked())
        found = found if isinstance(found, torch.Tensor) else found.data
        found.sum().backward()
        for one in (values, *model.parameters()):
            assert one.grad is not None
            assert one.grad.shape == one.shape
            assert (one.grad == 0).all()
            one.grad = None


def test_no_edges():
    none = torch.zeros(2, 0, dtype=torch.int64)
    model = layer()
    assert len(model(model.ground(edge=none), x=x())) == 0
    assert len(model(edge=none, x=torch.ones(0, 3))) == 0
    assert len(model(edge=rows(none), x=rows(torch.arange(0), torch.ones(0, 3)))) == 0
    assert len(model(model.ground(facts=[R.x(0)[[1.0, 2.0, 3.0]]]))) == 0
    assert len(model(model.ground(facts=[]))) == 0


def test_no_samples_and_empty_samples():
    model = layer()
    none = torch.zeros(2, 0, dtype=torch.int64)
    assert len(model(edge=ragged([]), x=ragged([]))) == 0
    found = model(edge=ragged([none, EDGES, none]), x=ragged([x(), x(), torch.ones(0, 3)]))
    assert {atom.terms[0] for atom in found} == {1}
    assert len(model(model.ground(facts=ragged([[], []])))) == 0


# too large


def test_an_input_without_a_name():
    assert_refused("bad-input", lambda: layer()(x()), "Tensor", "x=...")


def test_a_weight_that_is_not_there():
    assert_refused("unknown-weight", lambda: layer().weight("out.hh"), "`out.hh`", "`out.h`")
    assert_refused("unknown-weight", lambda: layer().weight("nothing"), "h.x, out.h")


@pytest.mark.parametrize(
    "make",
    [
        lambda: x().to_sparse(),
        lambda: rows(torch.arange(3), x().to_sparse()),
        lambda: ragged([x().to_sparse()]),
        lambda: EDGES.to_sparse(),
    ],
)
def test_sparse_tensors_are_refused(make):
    assert_refused(
        "bad-input", lambda: layer().ground(x=make(), edge=EDGES), "sparse_coo", "to_dense"
    )


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused():
    nested = torch.nested.nested_tensor([x(2), x(3)])
    assert_refused("bad-input", lambda: layer().ground(x=nested, edge=EDGES), "nested", "ragged")


@pytest.mark.parametrize("size", [10**9, 10**10])
def test_a_weight_that_does_not_fit(size):
    program = Program([R.out <= R.a["w":size, size]])
    for build in (lambda: program.compile(R.out), lambda: program.solve([R.a[1.0]])):
        assert_refused("weight-too-large", build, "`w`", "GiB", str(size))
    filled = Program([R.out <= R.a[W.w[size, size].filled(0.5)]])
    assert_refused("weight-too-large", lambda: filled.compile(R.out), "GiB")


def test_facts_of_different_shapes_are_named():
    facts = [R.a(0)[[1.0, 2.0]], R.a(1)[1.0]]
    model = Program([R.out(V.X) <= R.a(V.X)]).compile(R.out)
    assert_refused("shape-mismatch", lambda: model.ground(facts=facts), "`a`", "test_bad_input.py")


@pytest.mark.parametrize(
    "facts",
    [
        [R.a(0)[[1.0, 2.0]], R.a(1)[1.0]],
        [R.a(0)[[1.0, 2.0]], R.a(1)],
        [R.a(0)[torch.ones(2)], R.a(1)[torch.ones(3)]],
        ragged([[R.a(0)[1.0]], [R.a(0)[[1.0, 2.0]]]]),
    ],
    ids=["a number", "none", "tensors", "samples"],
)
def test_they_are_named_before_all_inputs_are_there(facts):
    model = Program([R.out(V.X) <= (R.a(V.X), R.x(V.X))]).compile(R.out)
    assert_refused("shape-mismatch", lambda: model.ground(facts=facts), "`a`", "test_bad_input.py")
    own = Program([R.out(V.X) <= (R.a(V.X), R.x(V.X)), R.a(7)[2.0]]).compile(R.out)
    vector = [R.a(0)[[1.0, 2.0]]]
    assert_refused("shape-mismatch", lambda: own.ground(facts=vector), "`a`", "[(), (2,)]")
    own.ground(facts=[R.a(7)[[3.0, 3.0]], *vector])  # replaces the program's own


def test_numbers_of_a_call_are_checked_where_asked():
    wrong = torch.full((3, 3), NAN)
    plain, checked = layer(), layer(check=True)
    data = plain.ground(edge=EDGES)
    assert plain(data, x=wrong).data.isnan().any()  # looking at every number would take as long
    data = checked.ground(edge=EDGES)
    for _ in range(3):
        assert_refused("not-a-number", lambda: checked(data, x=wrong), "`x`")
        checked(data, x=x())


@pytest.mark.parametrize("conditions", [(), (full()(V.I, V.J),)], ids=["join", "pattern"])
def test_a_plan_too_large_says_so_before_it_allocates(conditions):
    n = 200_000
    program = Program([R.out <= (R.x(V.I), R.x(V.J), *conditions)])
    model = program.compile(R.out, limit=1 << 20, without=["push sums"])
    given = rows(torch.arange(n), torch.ones(n))
    tracemalloc.start()
    before = torch_bytes()
    assert_refused("plan-too-large", lambda: model.ground(x=given), "`out`", "1.0 MiB", "limit")
    assert tracemalloc.get_traced_memory()[1] < 50 << 20
    tracemalloc.stop()
    assert torch_bytes() - before < 400 << 20  # one pair in eight bytes would be 320 GB
    assert not model._cache.built


def torch_bytes():
    """The most memory this process has held, in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def test_facts_of_a_call_are_sent_to_ground():
    model = Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)
    calls = (lambda: model(facts=[R.a(0)]), lambda: model([R.a(0)]))
    for call in (*calls, lambda: model.why(R.h(0), facts=[R.a(0)])):
        with pytest.raises(EdgewiseError) as caught:
            call()
        assert "model.ground(facts=...)" in caught.value.help
    assert model(model.ground(facts=[R.a(0)[2.0]])).data.tolist() == [2.0]


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_trace_shows_the_error_of_the_model(fullgraph):
    torch._dynamo.reset()
    program = Program([R.h(V.X) <= (R.a(V.X)[3, 2], R.b(V.X)[3, 2])])
    model = torch.compile(program.compile(R.h), backend="eager", fullgraph=fullgraph)
    a, b = torch.ones(4, 2), torch.ones(4, 2)
    assert_refused("missing-input", lambda: model(a=a), "`b` is missing")
    assert_refused("unknown-input", lambda: model(a=a, b=b, c=a), "no relation `c`")
    assert_refused("shape-mismatch", lambda: model(a=torch.ones(4, 5), b=b), "length 5")
    assert_refused("dtype-mismatch", lambda: model(a=a.double(), b=b), "`a` is torch.float64")
    assert_refused("device-mismatch", lambda: model(a=a.to("meta"), b=b), "`a` is on meta")
    assert_refused(
        "bad-input", lambda: model(a, b=b), "an input of type Tensor was passed without a name"
    )
    assert model(a=a, b=b).shape == (4, 3)  # nothing is left behind
    with torch.autocast("cpu", torch.bfloat16):
        assert model(a=a.bfloat16(), b=b).shape == (4, 3)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_models_in_precisions_that_torch_only_stores(dtype):
    model = Program([R.h(V.X) <= R.a(V.X)["w":2, 2]]).compile(R.h)
    model(a=torch.ones(3, 2))
    model.to(dtype)
    for x in (torch.ones(3, 2), torch.ones(3, 2).to(dtype)):
        for call in (model, model.ground):
            with pytest.raises(EdgewiseError) as caught:
                call(a=x)
            assert caught.value.code == "dtype-mismatch"
            assert "does not compute" in caught.value.message


@pytest.mark.parametrize(
    ("weight", "code"),
    [
        (torch.full((2, 2), torch.nan), "not-a-number"),
        ([[1.0, 2.0], [3.0, torch.nan]], "not-a-number"),
        (torch.ones(2, 2, dtype=torch.complex64), "not-a-number"),
        (torch.ones(3, 2), "shape-mismatch"),
        (torch.ones(2), "shape-mismatch"),
        ([[1.0, 2.0], [3.0]], "unknown-weight"),
        (None, "unknown-weight"),
    ],
)
def test_weights_that_solve_refuses(weight, code):
    program = Program([R.h(V.X) <= R.a(V.X)["w":2, 2]])
    with pytest.raises(EdgewiseError) as caught:
        program.solve([R.a(0)[[1.0, 2.0]]], weights={"w": weight})
    assert caught.value.code == code
    assert "`w`" in caught.value.message


SCALARS = Program([R.h(V.I) <= R.x(V.I)["w":3, 1]])


def test_a_batch_of_scalars_without_its_axis_is_refused_where_it_can_be_told():
    model = SCALARS.compile(R.h)
    assert model(x=torch.ones(2, 4, 1)).shape == (2, 4, 3)
    with pytest.raises(EdgewiseError, match="weights take 1") as caught:
        model(x=torch.ones(2, 4))
    assert "`x.unsqueeze(-1)`" in caught.value.help


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_a_weight_of_one_number_takes_vectors(shape):
    assert Program([R.h(V.I) <= R.x(V.I)[shape]]).compile(R.h)(x=torch.ones(2, 4)).shape == (2, 4)


def test_a_batch_of_matrices_is_taken_by_its_rows():
    program = Program([R.h(V.I) <= R.x(V.I)["w":2, 3]])
    model = program.compile(R.h, seed=0).double()
    x = torch.randn(2, 1, 3, 5, dtype=torch.float64)
    weights = {"w": model.state_dict()["w"]}
    expected = [program.solve([R.x(0)[one[0]]], weights=weights)[R.h(0)] for one in x]
    torch.testing.assert_close(model(x=x)[:, 0], torch.stack(expected))


def test_keys_are_joined_before_an_export():
    model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.I, V.J))]).compile(R.h, fill=0.0)
    edge = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(EdgewiseError, match="not exported") as caught:
        torch.export.export(model, (), {"x": torch.ones(3, 1), "edge": edge})
    assert "model.ground(edge=...)" in caught.value.help


def test_an_input_beside_facts_of_the_program_is_sent_to_facts():
    model = Program([R["b c"](1)[2.0], R.h(V.X) <= R["b c"](V.X)]).compile(R.h)
    with pytest.raises(EdgewiseError, match="the program has facts of it") as caught:
        model(**{"b c": torch.ones(2)})
    assert '`ground(facts=[R["b c"](...)])`' in caught.value.help
    found = model.rows(model.ground(facts=[R["b c"](1)[5.0]]))
    assert found[R.h(1)].item() == 5.0
