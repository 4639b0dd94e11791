"""Recipes on graphs: nodes, graphs, values; runs that resume, predict and explain."""

import json
import threading

import numpy as np
import pytest
import torch
from graph_files import one_graph, recipe, rings, values

from edgewise import EdgewiseError, R, training
from edgewise.cli import main
from edgewise.training.data.graph_corpus import Graph, GraphCorpus
from edgewise.training.objectives.objective import Average, roc_auc

FILES = {
    "nodes": (one_graph, "classes", "", "layer = 'gcn'\ndropout = 0.1"),
    "graphs": (rings, "classes", "held_out = 0.25", "layer = 'gin'\nnorm = 'batch'\njump = true"),
    "values": (values, "values", "", "layer = 'gat'\nheads = 2\nhead = 2\nencode = true"),
}


def made(tmp_path, kind):
    write, objective, data, model = FILES[kind]
    return training.load(recipe(tmp_path, write(tmp_path).name, objective, data, model))


@pytest.mark.parametrize("kind", FILES)
def test_a_run_ends_with_measures_and_predicts(tmp_path, kind, capsys):
    events = list(training.train(made(tmp_path, kind), tmp_path / "run"))
    assert events[-1].kind == "end"
    measure = "mae" if kind == "values" else "accuracy"
    assert f"validation {measure}" in events[-1].values
    part = "validation" if kind == "graphs" else "test"
    found = list(training.predict(tmp_path / "run", part=part))
    corpus = made(tmp_path, kind).data.read(tmp_path)
    assert [row["example"] for row in found] == corpus.parts[part].tolist()
    if kind != "values":
        assert all(sum(row["probabilities"].values()) == pytest.approx(1) for row in found)
    assert main(["predict", str(tmp_path / "run"), "--part", "all", "--json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(printed) == len(corpus.target)
    assert main(["evaluate", str(tmp_path / "run"), "--part", part]) == 0
    atom = "logits(2)" if kind == "nodes" else "logits"
    assert main(["why", str(tmp_path / "run"), atom]) == 0
    assert "grounding" in capsys.readouterr().out


def test_why_is_about_the_graph_that_is_named(tmp_path):
    list(training.train(made(tmp_path, "values"), tmp_path / "run"))
    found = [training.why(tmp_path / "run", R.pooled, graph=g) for g in (0, 2)]
    assert [str(w).count("state(") for w in found] == [1, 3]
    with pytest.raises(EdgewiseError, match="no graph 99"):
        training.why(tmp_path / "run", R.pooled, graph=99)


@pytest.mark.parametrize("kind", FILES)
def test_a_resumed_run_ends_as_if_it_had_not_stopped(tmp_path, kind):
    found = made(tmp_path, kind)
    list(training.train(found, tmp_path / "straight"))
    stop = threading.Event()
    for event in training.train(found, tmp_path / "stopped", stop=stop):
        if event.kind == "step":
            stop.set()
    list(training.train(found, tmp_path / "stopped"))
    straight, stopped = (tmp_path / n / "model.safetensors" for n in ("straight", "stopped"))
    assert straight.read_bytes() == stopped.read_bytes()


def test_averages_of_batch_norm_are_weights_of_the_run(tmp_path):
    list(training.train(made(tmp_path, "graphs"), tmp_path / "run"))
    from edgewise.training.runs.run import read_run

    weights = read_run(tmp_path / "run").model.state_dict()
    mean = next(t for name, t in weights.items() if name.endswith("norm.mean"))
    assert float(mean.abs().sum()) > 0


def test_folds_are_the_test_part(tmp_path):
    rings(tmp_path)
    (tmp_path / "folds").mkdir()
    (tmp_path / "folds" / "test_idx-2.txt").write_text("3\n5\n")
    more = "folds = 'folds'\nfold = 2\nheld_out = 0.0"
    corpus = training.load(recipe(tmp_path, "rings.txt", data=more)).data.read(tmp_path)
    assert corpus.parts["test"].tolist() == corpus.parts["validation"].tolist() == [3, 5]
    assert len(corpus.parts["train"]) == 10


def test_every_graph_comes_once_in_an_epoch_and_batches_come_again():
    graphs = [Graph(torch.ones(1, 1), torch.zeros(2, 0, dtype=torch.int64)) for _ in range(10)]
    corpus = GraphCorpus(graphs, torch.zeros(10), 2, {"train": torch.arange(10)}, partitions=2)
    epochs = [[corpus.batch(4, 0, 3 * e + k)["example"] for k in range(3)] for e in range(4)]
    for epoch in epochs:
        assert torch.cat(epoch).sort().values.tolist() == list(range(10))
    sets = [{tuple(b.tolist()) for b in epoch} for epoch in epochs]
    assert sets[0] == sets[2] != sets[1] == sets[3]


def test_roc_auc_counts_ties_half():
    assert roc_auc(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1, 0, 0])) == 0.75
    assert roc_auc(torch.tensor([1.0, 0.0]), torch.tensor([1, 1])) is None
    found = Average()
    found.add_scores("area", torch.tensor([0.2]), torch.tensor([0]))
    found.add_scores("area", torch.tensor([0.9]), torch.tensor([1]))
    assert found.means() == {"area": 1.0}


BAD = {
    "no array `y`": {"y": None},
    "3 rows, `x` has 12": {"y": np.zeros(3, dtype=np.int64)},
    "not between nodes": {"edge_index": np.array([[0], [12]])},
    "not of nodes": {"train": np.array([99])},
    "test part and the train part share 2 nodes": {"test": np.array([4, 6, 8])},
    "validation part and the train part share 1 node": {"val": np.arange(12) == 0},
}


@pytest.mark.parametrize("what", BAD)
def test_a_file_that_does_not_fit_is_refused(tmp_path, what):
    one_graph(tmp_path, **BAD[what])
    found = training.load(recipe(tmp_path, "graph.npz"))
    with pytest.raises(EdgewiseError, match=what) as caught:
        found.data.read(tmp_path)
    assert caught.value.code == "bad-data"


TEXTS = {"2\n1 0\n0 0\n": "ends inside", "x\n": "not an integer", "1\n2 0\n0 1 7\n0 0\n": "neighb"}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_is_damaged_is_refused(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(EdgewiseError, match=TEXTS[text]):
        training.load(recipe(tmp_path, "a.txt")).data.read(tmp_path)


@pytest.mark.parametrize(
    ("model", "what"),
    [
        ("layer = 'gcnn'", "did you mean `gcn`"),
        ("layer = 'gcn'\nheads = 2", "`gcn` has no `heads`"),
        ("layer = 'gat'\nheads = 3", "not divisible"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(tmp_path, model, what):
    with pytest.raises(EdgewiseError, match=what):
        training.load(recipe(tmp_path, "graph.npz", model=model))
