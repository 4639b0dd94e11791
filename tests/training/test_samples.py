"""Molecules as ground atoms in recipes: graphs with kinds of atoms and bonds, and their classes."""

import pytest
from graph_files import recipe

from edgewise import EdgewiseError, training
from edgewise.training.data.graphs import GraphData

RING = ", ".join(
    f"bond(a{i}, a{(i + 1) % 5}, {i}), bond(a{(i + 1) % 5}, a{i}, {i}), c(a{i}), single({i})"
    for i in range(5)
)
CHAIN = "bond(a, b, 1), bond(b, a, 1), c(a), o(b), double(1)"


def samples(folder, count=8, examples=None, queries=None):
    base = folder / "molecules"
    base.mkdir()
    lines = [f"{(RING, CHAIN)[at % 2]}." for at in range(count)] if examples is None else examples
    targets = [f"{1.0 - at % 2} predict." for at in range(count)] if queries is None else queries
    (base / "examples.txt").write_text("\n".join(lines) + "\n")
    (base / "queries.txt").write_text("\n".join(targets) + "\n")
    return base


def test_samples_become_graphs(tmp_path):
    samples(tmp_path)
    corpus = GraphData(path="molecules", held_out=0.25).read(tmp_path)
    ring, chain = corpus.graphs[:2]
    assert (ring.nodes, ring.edge.shape[1], corpus.inputs, corpus.edges) == (5, 10, 2, 2)
    assert chain.x.tolist() == [[1, 0], [0, 1]]
    assert chain.edge_x.tolist() == [[1, 0], [1, 0]]  # of double and single
    assert corpus.labels == ["0", "1"]
    assert corpus.target.tolist() == [1, 0] * 4


def test_folds_have_equal_shares_of_the_classes(tmp_path):
    samples(tmp_path, count=12)
    found = []
    for fold in range(1, 5):
        read = GraphData(path="molecules", folds="4", fold=fold, held_out=0.0).read(tmp_path)
        test = read.parts["test"]
        assert sorted(read.target[test].tolist()).count(0) in (1, 2)
        assert not set(test.tolist()) & set(read.parts["train"].tolist())
        found += test.tolist()
    assert sorted(found) == list(range(12))


def test_rings_are_learned_from_samples(tmp_path):
    samples(tmp_path)
    path = recipe(tmp_path, "molecules", "classes", "held_out = 0.25", "layer = 'lrnn'")
    *_, end = training.train(training.load(path), tmp_path / "run")
    assert "validation accuracy" in end.values


BROKEN = {
    "no bonds": ({"examples": ["c(a)."], "queries": ["1.0 predict."]}, "has no bonds"),
    "two terms": ({"examples": ["bond(a, b)."], "queries": ["1.0 predict."]}, "with 2 terms"),
    "fewer queries": ({"queries": ["1.0 predict."]}, "lines of queries"),
    "two relations": (
        {"examples": [f"{CHAIN}."] * 2, "queries": ["1.0 good.", "1.0 bad."]},
        "queries of 2 relations",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_bad_samples_are_errors(tmp_path, case):
    files, message = BROKEN[case]
    samples(tmp_path, **files)
    with pytest.raises(EdgewiseError, match=message):
        GraphData(path="molecules").read(tmp_path)


def test_a_fold_beyond_the_last_is_refused(tmp_path):
    path = recipe(tmp_path, "molecules", "classes", 'folds = "4"\nfold = 5', "layer = 'lrnn'")
    with pytest.raises(EdgewiseError, match="no fold 5 of 4"):
        training.load(path)
