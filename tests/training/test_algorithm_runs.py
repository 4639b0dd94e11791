"""Recipes on runs of algorithms: a step is learned from hints and repeated on larger graphs."""

import json
import threading

import numpy as np
import pytest
import torch
from algorithm_files import chosen, search, write

from edgewise import EdgewiseError, training
from edgewise.cli import main
from edgewise.training.data.algorithms import AlgorithmData

RECIPE = """\
[data]
kind = "algorithms"
algorithm = "bfs"
[model]
kind = "algorithm"
size = 16
[objective]
kind = "hints"
[training]
steps = {steps}
batch = 6
rate = 0.01
warmup = 0
weight_decay = 0.0
log = 2
evaluate = {steps}
checkpoint = 2
"""


def made(folder, steps=4):
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(steps=steps))
    return training.load(path)


@pytest.mark.parametrize("make", [search, chosen])
def test_a_run_ends_resumes_and_predicts_pointers(tmp_path, make, capsys):
    write(tmp_path, make)
    recipe = made(tmp_path)
    *_, end = training.train(recipe, tmp_path / "run")
    assert 0 <= end.values["test exact match"] <= end.values["test accuracy"] <= 1
    stop = threading.Event()
    for event in training.train(recipe, tmp_path / "again", stop=stop):
        if event.step == 2:
            stop.set()
    *_, again = training.train(recipe, tmp_path / "again")
    assert again.values == end.values
    assert main(["predict", str(tmp_path / "run"), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["example"] for row in rows] == [16, 17, 18, 19]
    assert all(0 <= pointer < 8 for row in rows for pointer in row["values"])
    assert main(["predict", str(tmp_path / "run")]) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert printed == [[str(v) for v in (row["name"], *row["values"])] for row in rows]
    assert main(["why", str(tmp_path / "run"), "most(1)", "--graph", "2"]) == 0
    assert "max_agg" in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "run"), "--part", "test"]) == 0
    assert "exact match" in capsys.readouterr().out


def test_breadth_first_search_is_learned(tmp_path):
    write(tmp_path)
    *_, end = training.train(made(tmp_path, steps=150), tmp_path / "run")
    assert end.values["test accuracy"] > 0.85


def test_hints_after_a_step_are_the_targets(tmp_path):
    write(tmp_path)
    corpus = AlgorithmData().read(tmp_path)
    batch = corpus.of_examples(torch.tensor([12, 13]))
    run, n = corpus.runs["validation"], 5
    pointer = batch["keys"][1, batch["row"]].reshape(2, n) % n
    steps = run.arrays["hint:pi_h:node:pointer"]
    assert all(any(torch.equal(p, s) for s in steps[1:, g].long()) for g, p in enumerate(pointer))
    assert batch["answer"].tolist() == run.arrays["out:pi:node:pointer"][:2].long().tolist()


def test_a_graph_that_ends_at_once_stays(tmp_path):
    write(tmp_path)
    arrays = search(5, 12, 0)
    arrays["lengths"][:] = 1
    np.savez(tmp_path / "bfs_train.npz", **arrays)
    corpus = AlgorithmData().read(tmp_path)
    batch = corpus.batch(6, 0, 0)
    assert torch.equal(batch["target"][:, 0], batch["x"][:, 2])


BAD_POINTER = np.full((4, 12, 5), 9)
BROKEN = {
    "a missing file": (lambda f: (f / "bfs_train.npz").unlink(), "cannot read the file"),
    "no validation": (lambda f: (f / "bfs_val.npz").unlink(), "no such file"),
    "not an archive": (lambda f: (f / "bfs_test.npz").write_bytes(b"PK no"), "not an archive"),
    "no edges": (lambda f: write(f, **{"in:adj:edge:mask": None}), "no array `in:adj"),
    "no pointers": (lambda f: write(f, **{"hint:pi_h:node:pointer": None}), "its hints are"),
    "another output": (lambda f: write(f, **{"out:pi:node:pointer": None}), "its output is"),
    "wrong shape": (lambda f: write(f, **{"in:A:edge:scalar": np.zeros((1, 1, 1))}), "the shape"),
    "a pointer to nobody": (
        lambda f: np.savez(
            f / "bfs_train.npz", **(search(5, 12, 0) | {"hint:pi_h:node:pointer": BAD_POINTER})
        ),
        "not a node from 0 to 4",
    ),
    "a pointer along no edge": (
        lambda f: np.savez(
            f / "bfs_train.npz", **(search(5, 12, 0) | {"in:adj:edge:mask": np.zeros((12, 5, 5))})
        ),
        "not along an edge",
    ),
    "other hints in a part": (
        lambda f: np.savez(f / "bfs_test.npz", **chosen(8, 4, 2)),
        "not those of the training part",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_bad_files_are_errors(tmp_path, case):
    write(tmp_path)
    spoil, message = BROKEN[case]
    spoil(tmp_path)
    with pytest.raises(EdgewiseError, match=message) as found:
        AlgorithmData().read(tmp_path)
    assert found.value.help
