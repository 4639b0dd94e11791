"""Inputs as Python, frames and SciPy hold them: the same model output as from facts."""

import networkx
import numpy as np
import pandas
import polars
import pyarrow
import pytest
import scipy.sparse
import torch

from edgewise import EdgewiseError, F, Program, R, V, ragged, rows

PROGRAM = Program([(R.h(V.I) <= (R.x(V.J), R.edge(V.I, V.J))) | [F.product]])
NAMES = [("a", "b"), ("a", "c"), ("c", "a")]
NUMBERS = [(0, 1), (0, 2), (2, 0)]
X = {"a": 1.0, "b": 10.0, "c": 100.0}


@pytest.fixture(scope="module")
def model():
    return PROGRAM.compile(R.h)


def shown(found):
    return {repr(atom): value.tolist() for atom, value in found.items()}


def table(pairs):
    return pandas.DataFrame(pairs, columns=["from", "to"])


FORMS = {
    "tuples": lambda pairs: pairs,
    "a set": set,
    "a mapping": lambda pairs: dict.fromkeys(pairs, 1.0),
    "rows of tuples": rows,
    "rows of columns": lambda pairs: rows([list(column) for column in zip(*pairs, strict=True)]),
    "an array": lambda pairs: np.array(pairs).T,
    "an array of objects": lambda pairs: np.array(pairs, dtype=object).T,
    "reversed": lambda pairs: np.array(pairs).T[:, ::-1],
    "pandas": table,
    "pandas strings": lambda pairs: table(pairs).astype("string" if pairs is NAMES else "int32"),
    "an index of pandas": lambda pairs: pandas.MultiIndex.from_tuples(pairs),
    "polars": lambda pairs: polars.from_pandas(table(pairs)),
    "Arrow": lambda pairs: pyarrow.Table.from_pandas(table(pairs)),
    "columns of pandas": lambda pairs: rows([table(pairs)["from"], table(pairs)["to"]]),
    "networkx": networkx.DiGraph,
}


@pytest.mark.parametrize("form", FORMS)
def test_keys_in_every_form_are_those_of_facts(model, form):
    facts = [R.x(name)[value] for name, value in X.items()] + [R.edge(*pair) for pair in NAMES]
    expected = shown(model(model.ground(facts=facts)))
    assert shown(model(x=X, edge=FORMS[form](NAMES))) == expected
    x = torch.tensor(list(X.values()))
    assert model(x=x, edge=FORMS[form](NUMBERS)).at([2, 0]).tolist() == [1.0, 110.0]


@pytest.mark.parametrize("kind", ["coo", "csr", "csc", "lil"])
def test_entries_of_sparse_matrices_are_rows(model, kind):
    x = torch.tensor([1.0, 10.0, 100.0])
    places = ([0, 0, 2, 2], [1, 2, 0, 0])
    matrix = scipy.sparse.coo_matrix((np.array([1.0, 0.5, 1.0, 1.0]), places), (3, 3))
    found = model(x=x, edge=matrix.asformat(kind))
    assert shown(found) == {"R.h(0)": 60.0, "R.h(2)": 2.0}
    mask = matrix.asformat("csr").astype(bool)
    assert shown(model(x=x, edge=mask)) == {"R.h(0)": 110.0, "R.h(2)": 1.0}
    sparse = torch.sparse_coo_tensor(
        torch.tensor(places), torch.tensor([1.0, 0.5, 1.0, 1.0]), (3, 3), check_invariants=True
    )
    assert shown(model(x=x, edge=sparse)) == shown(found)


def test_values_without_a_precision_take_that_of_the_model(model):
    double = PROGRAM.compile(R.h).double()
    for x in (X, rows(list(X), list(X.values())), rows(list(X), pandas.Series(X.values()))):
        assert double(x=x, edge=NAMES).data.dtype == torch.float64
        assert model(x=x, edge=NAMES).data.dtype == torch.float32
    assert model(x=pandas.Series([1.0, 2.0]), edge=[(0, 1)]).data.tolist() == [2.0]
    assert model(x=[[0.1], [0.2]], edge=[(0, 1)]).data.dtype == torch.float32
    with pytest.raises(EdgewiseError, match="dtype-mismatch"):
        model(x=np.array([1.0, 2.0]), edge=[(0, 1)])


def test_repeated_keys_are_refused_counted_or_summed(model):
    twice = [("a", "b"), ("a", "b")]
    with pytest.raises(EdgewiseError, match=r"\('a', 'b'\) twice") as caught:
        model(x=X, edge=twice)
    assert "duplicates='count'" in caught.value.help
    assert shown(model(x=X, edge=rows(twice, duplicates="count"))) == {"R.h('a')": 20.0}
    assert shown(model(x=X, edge=rows(twice, duplicates="once"))) == {"R.h('a')": 10.0}
    values = torch.tensor([2.0, 3.0], requires_grad=True)
    found = model(x=X, edge=rows(twice, values, duplicates="sum"))
    assert shown(found) == {"R.h('a')": 50.0}
    found.data.sum().backward()
    assert values.grad.tolist() == [10.0, 10.0]
    assert rows([], duplicates="count").keys.shape[1] == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rows([(0, 1)], duplicates="summ"), "did you mean 'sum'"),
        (lambda: rows([(0, 1)], duplicates="sum"), "with values"),
        (lambda: rows([(0, 1)], [1.0], duplicates="once"), "without values"),
        (lambda: rows([(0, 1), (2,)]), "1 terms"),
        (lambda: rows([(0, True)]), "`True` is not a key"),
        (lambda: rows([(0, 0.5)]), "`0.5` is not a key"),
        (lambda: rows([(0, None)]), "a key is missing"),
        (lambda: rows(pandas.DataFrame({"a": [1.0, None]})), "a key is missing"),
        (lambda: rows(polars.DataFrame({"a": ["x", None]})), "a key is missing"),
        (lambda: rows([(1 << 41,)]), "2\\^40"),
        (lambda: rows([["a", "b"], ["a"]]), "columns of keys"),
    ],
)
def test_what_is_no_key_is_refused(make, words):
    with pytest.raises(EdgewiseError, match=words):
        make()


@pytest.mark.parametrize(
    "item",
    [
        [[0, 1], [2, 0]],
        [0, 1],
        table(NAMES).assign(weight=1.0),
        scipy.sparse.eye_array(3, format="csr")[[0]].reshape(3),
        {("a", "b"): None},
        {("a", "b"): 1.0, ("b", "a"): [1.0]},
        [0.5, [1.0]],
    ],
)
def test_what_could_mean_two_things_is_refused(model, item):
    with pytest.raises(EdgewiseError, match="bad-input") as caught:
        model(x=X, edge=item)
    assert caught.value.help


def test_nothing_is_no_rows(model):
    for nothing in ([], {}, set(), table([]), np.empty((2, 0), dtype=object)):
        assert len(model(x=X, edge=nothing)) == 0


def test_strings_of_rules_facts_and_inputs_are_one_vocabulary():
    program = Program([R.h(V.I) <= (R.x(V.I), R._likes(V.I, "bob"))])
    model = program.compile(R.h)
    facts = [R.x("ann")[1.0], R.x("zoe")[2.0]]
    data = model.ground(facts=facts, likes=[("zoe", "bob"), ("ann", "carl"), ("ann", "bob")])
    assert shown(model(data)) == {"R.h('ann')": 1.0, "R.h('zoe')": 2.0}
    assert "zoe" in str(model.why(R.h("zoe"), data))


def test_samples_have_names_of_their_own(model):
    x = ragged([{"a": 1.0, "b": 2.0}, {"z": 3.0}, {0: 5.0}])
    edge = ragged([[("a", "b")], [("z", "z")], [(0, 0)]])
    expected = {"R.h(0, 'a')": 2.0, "R.h(1, 'z')": 3.0, "R.h(2, 0)": 5.0}
    for _ in range(4):  # calls with samples that were seen before
        assert shown(model(x=x, edge=edge)) == expected
    data = model.ground(x=x, edge=edge)
    assert shown(model(data[[1, 0]])) == {"R.h(0, 'z')": 3.0, "R.h(1, 'a')": 2.0}
    assert [len(model(batch)) for batch in model.batches(data, batch=2)] == [2, 1]


def test_edits_know_the_strings_of_inputs(model):
    updating = model.updating(x=X, edge=NAMES)
    updating.add(R.edge("b", "b"))
    assert shown(updating.output)["R.h('b')"] == 10.0


def test_values_stand_beside_labels_in_their_order(model):
    found = model(x=X, edge=NAMES)
    assert repr(found) == "<h: 2 rows h('a'), h('c'); values (2,)>"
    assert found.at(["c", "a", "c"]).tolist() == [1.0, 110.0, 1.0]
    assert found.at([R.h("a")]).tolist() == model(x=X, edge=NAMES, want=["a"]).tolist()
    with pytest.raises(EdgewiseError, match="nothing derives"):
        found.at(["b"])
    batch = model(x=torch.rand(2, 3, 1), edge=NUMBERS)
    assert batch.at([2, 0]).equal(batch.data.flip(1))


def test_gradients_reach_the_tensors_of_a_mapping(model):
    x = {name: torch.tensor([value], requires_grad=True) for name, value in X.items()}
    model(x=x, edge=NAMES).data.sum().backward()
    assert [x[name].grad.item() for name in "abc"] == [1.0, 1.0, 1.0]


FRAME = pandas.DataFrame({"a": [0, 0, 2], "b": [1, 2, 0]})
UNSIGNED = ["uint8", "uint16", "uint32", "uint64", "int8", "int32"]


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_integers_of_every_size_are_keys(model, dtype):
    x = torch.tensor([1.0, 10.0, 100.0])
    expected = {"R.h(0)": 110.0, "R.h(2)": 1.0}
    for edge in (
        FRAME.astype(dtype),
        FRAME.to_numpy(dtype).T,
        polars.from_pandas(FRAME.astype(dtype)),
    ):
        assert shown(model(x=x, edge=edge)) == expected
    assert shown(model(x=x, edge=torch.tensor(FRAME.to_numpy(dtype).T))) == expected


PAIR = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.I, V.J))]).compile(R.h)
GOOD = np.array([1.0, 10.0, 100.0], np.float32)


@pytest.mark.parametrize(
    ("x", "edge", "words"),
    [
        # what is missing, in every kind of column
        (pandas.Series([1.0, None, 2.0]), NUMBERS, "missing values"),
        (pandas.Series([1, None], dtype="Int64"), NUMBERS, "missing values"),
        (pandas.Series([1.5, None], dtype="Float64"), NUMBERS, "missing values"),
        (polars.Series([1.5, None]), NUMBERS, "missing values"),
        (pyarrow.array([1.5, None]), NUMBERS, "missing values"),
        (pyarrow.chunked_array([[1], [None]]), NUMBERS, "missing values"),
        (GOOD, pandas.DataFrame({"a": [0.0, None], "b": [1, 2]}), "missing values"),
        (GOOD, polars.DataFrame({"a": [0, None], "b": [1, 2]}), "missing values"),
        # what is not a number
        ([1.0, float("nan")], NUMBERS, "not a number"),
        (np.array([1.0, np.nan], np.float32), NUMBERS, "not a number"),
        ({0: float("nan")}, NUMBERS, "not a number"),
        ([1.0, None], NUMBERS, "other things than numbers"),
        (np.array([1.5, 2.5], object), NUMBERS, "`1.5` is not a key"),
        (np.array(["2020-01-01"], "datetime64[D]"), NUMBERS, "datetime64"),
        (pandas.Series(pandas.to_datetime(["2020-01-01"])), NUMBERS, "datetime64"),
        (np.array([1j]), NUMBERS, "complex"),
        (np.array([True, False]), NUMBERS, "bool"),
        (np.ma.array(GOOD, mask=[0, 1, 0]), NUMBERS, "masked"),
        # what could mean two things
        (pandas.Series([1.0, 2.0], index=[5, 7]), NUMBERS, "keys or places"),
        (pandas.Series([1.0, 2.0], index=["a", "b"]), NUMBERS, "keys or places"),
        ([1, 2, 3], NUMBERS, "keys or values"),
        ([torch.ones(1), torch.ones(1)], NUMBERS, "torch.stack"),
        (GOOD, {"a": [0], "b": [1]}, "a key is a tuple"),
        (GOOD, polars.from_pandas(FRAME).lazy(), "collect"),
        # keys that are not integers, and values that no rule would read
        (GOOD, [(0.0, 1.0)], "`0.0` is not a key"),
        (GOOD, FRAME.astype(float), "`0.0` is not a key"),
        (GOOD, torch.tensor(NUMBERS).T.float(), "all pairs hold"),
        (GOOD, torch.eye(3), "all pairs hold"),
        (GOOD, torch.eye(3).bool(), "mask.nonzero"),
        (GOOD, rows([(0, 1), (0, 1)], duplicates="count"), "holds once"),
        (GOOD, rows([(0, 1), (0, 1)], [1.0, 2.0], duplicates="sum"), "holds once"),
        (GOOD, np.array([[2**63], [0]], np.uint64), "does not fit"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(x, edge, words):
    with pytest.raises(EdgewiseError, match=words):
        PAIR(x=x, edge=edge)


@pytest.mark.parametrize(
    "x",
    [
        GOOD[::-1][::-1],
        GOOD.astype(">f4"),
        np.ma.array(GOOD),
        [np.float32(one) for one in GOOD],
        [np.array(one) for one in GOOD],
        pandas.Series(GOOD, dtype="Float64"),
        polars.Series(GOOD),
        pyarrow.array(GOOD),
        scipy.sparse.dok_array(GOOD),
    ],
    ids=lambda x: f"{type(x).__module__}.{type(x).__name__}",
)
def test_values_in_every_form_are_read(x):
    assert shown(PAIR(x=x, edge=NUMBERS)) == {"R.h(0)": 110.0, "R.h(2)": 1.0}


def test_keys_and_values_of_different_rows_do_not_meet():
    ages = pandas.DataFrame({"name": ["a", "b"], "age": [1.0, 2.0]})
    assert rows(ages["name"], ages["age"]).values.tolist() == [1.0, 2.0]
    with pytest.raises(EdgewiseError, match="different indices"):
        rows(ages["name"], ages["age"].sort_values(ascending=False))


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame, pyarrow.table])
def test_a_frame_of_one_column_of_reals_is_dense(model, frame):
    x = frame({"age": [1.0, 10.0, 100.0]})
    assert shown(model(x=x, edge=NUMBERS)) == {"R.h(0)": 110.0, "R.h(2)": 1.0}


@pytest.mark.parametrize("kind", ["U1", object])
def test_wanted_names_in_an_array(model, kind):
    want = np.array(["c", "a", "c"], dtype=kind)
    assert model(x=X, edge=NAMES, want=want).tolist() == [1.0, 110.0, 1.0]


def test_the_precision_of_an_array_is_changed_by_numpy(model):
    with pytest.raises(EdgewiseError) as caught:
        model(x=np.ones(3), edge=NUMBERS)
    assert '`x.astype("float32")`' in caught.value.help
