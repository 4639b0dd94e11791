"""Recipes on graphs in tables: nodes, edges, links and graphs of databases and files."""

import json
import sqlite3

import networkx
import pytest
import torch
from graph_files import TRAINING

from edgewise import EdgewiseError, R, training
from edgewise.cli import main
from edgewise.training.data.links import LinkCorpus

CLUB = networkx.karate_club_graph()
NODES = 'path = "club.db"\nnodes = "people"\nkey = "name"\nedges = "knows"\n'
TASKS = {
    "nodes": (NODES + 'label = "club"\nfeatures = ["age"]\none_hot = ["city"]', "classes"),
    "edges": (NODES + 'of = "edges"\nlabel = "years"\nedge_one_hot = ["kind"]', "values"),
    "links": (NODES + 'of = "links"\ncandidates = 5\ndegrees = 6', "links"),
    "graphs": ('path = "rings.db"\nof = "graphs"\nlabel = "odd"\ngraph = "ring"\n'
               'graphs = "rings"\none_hot = ["colour"]', "classes"),
}  # fmt: skip


def written(folder, data, objective, layer="gcn"):
    path = folder / "recipe.toml"
    head = f'[data]\nkind = "graph-tables"\n{data}\n[model]\nkind = "graph"\nlayer = "{layer}"\n'
    path.write_text(head + f'hidden = 8\n[objective]\nkind = "{objective}"\n{TRAINING}')
    return training.load(path)


def club(folder):
    """34 people by name, of whom one in six has no label; some names are hostile."""
    names = ["Robert'); DROP TABLE people;--", 'a "b"', *(f"p{i:02}" for i in range(2, 34))]
    with sqlite3.connect(folder / "club.db") as found:
        found.execute("CREATE TABLE people (name TEXT, age REAL, city TEXT, club TEXT, part TEXT)")
        found.execute("CREATE TABLE knows (source TEXT, target TEXT, years REAL, kind TEXT)")
        for i, name in enumerate(names):
            label = CLUB.nodes[i]["club"] if i % 6 else None
            part = ("train", "Val", "test")[i % 3]
            row = (name, 20 + i, ("Brno", "it's")[i % 2], label, part)
            found.execute("INSERT INTO people VALUES (?, ?, ?, ?, ?)", row)
        for a, b in CLUB.edges:
            row = (names[a], names[b], float(a + b), ("work", "fun")[a % 2])
            found.execute("INSERT INTO knows VALUES (?, ?, ?, ?)", row)
    return names


def rings(folder):
    """12 rings whose nodes are numbered through; the last has no label."""
    with sqlite3.connect(folder / "rings.db") as found:
        found.execute("CREATE TABLE rings (id TEXT, odd INTEGER)")
        found.execute("CREATE TABLE nodes (id INTEGER, ring TEXT, colour TEXT)")
        found.execute("CREATE TABLE edges (source INTEGER, target INTEGER)")
        first = 100
        for ring in range(12):
            n = 3 + ring % 4
            odd = n % 2 if ring < 11 else None
            found.execute("INSERT INTO rings VALUES (?, ?)", (f"ring {ring:02}", odd))
            for i in range(n):
                node = (first + i, f"ring {ring:02}", "rg"[i % 2])
                found.execute("INSERT INTO nodes VALUES (?, ?, ?)", node)
                pair = (first + i, first + (i + 1) % n)
                found.execute("INSERT INTO edges VALUES (?, ?)", pair)
            first += n


def read(tmp_path, task, more="", **options):
    club(tmp_path)
    rings(tmp_path)
    data, objective = TASKS[task]
    return written(tmp_path, f"{data}\n{more}", objective, **options)


@pytest.mark.parametrize("task", TASKS)
def test_a_run_on_tables_ends_with_measures_and_predicts_by_name(tmp_path, task, capsys):
    recipe = read(tmp_path, task, layer="gin" if task == "graphs" else "gcn")
    events = list(training.train(recipe, tmp_path / "run"))
    measure = {"edges": "mae", "links": "mrr"}.get(task, "accuracy")
    assert f"test {measure}" in events[-1].values
    corpus = recipe.data.read(tmp_path)
    found = list(training.predict(tmp_path / "run"))
    assert [row["name"] for row in found] == [corpus.name_of(row["example"]) for row in found]
    assert main(["predict", str(tmp_path / "run"), "--most", "2", "--json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["name"] for row in printed] == [row["name"] for row in found[:2]]
    assert main(["evaluate", str(tmp_path / "run"), "--part", "test"]) == 0
    if task in ("nodes", "graphs"):
        unknown = list(training.predict(tmp_path / "run", part="unlabelled"))
        assert len(unknown) == (6 if task == "nodes" else 1)


def test_graphs_have_their_own_nodes_and_edges_both_ways(tmp_path):
    corpus = read(tmp_path, "graphs").data.read(tmp_path)
    assert [graph.nodes for graph in corpus.graphs] == [3 + k % 4 for k in range(12)]
    third = corpus.graphs[2]
    assert third.edge.T.tolist() == sorted([[i, (i + d) % 5] for i in range(5) for d in (1, 4)])
    assert third.x.argmax(1).tolist() == [1, 0, 1, 0, 1]  # categories are sorted
    assert corpus.names[2] == "ring 02"
    assert corpus.labels == ["0", "1"]


def test_parts_are_those_of_a_column_and_folds_have_each_class(tmp_path):
    corpus = read(tmp_path, "nodes", 'part = "part"').data.read(tmp_path)
    assert {name: len(index) for name, index in corpus.parts.items()} == {
        "train": 6, "validation": 11, "test": 11, "unlabelled": 6
    }  # fmt: skip
    found = [read_fold(tmp_path, fold).parts["test"] for fold in range(1, 5)]
    assert torch.cat(found).sort().values.tolist() == [
        i for i in range(34) if i not in corpus.parts["unlabelled"].tolist()
    ]
    target = corpus.target
    assert all(0 < int(target[fold].sum()) < len(fold) for fold in found)


def read_fold(tmp_path, fold):
    data, objective = TASKS["nodes"]
    return written(tmp_path, f"{data}\nfolds = 4\nfold = {fold}", objective).data.read(tmp_path)


def test_links_of_other_parts_are_not_in_the_graph_and_negatives_are_no_edges(tmp_path):
    corpus = read(tmp_path, "links").data.read(tmp_path)
    assert isinstance(corpus, LinkCorpus)
    pairs = {tuple(sorted(pair)) for pair in corpus.pairs.T.tolist()}
    assert len(pairs) == CLUB.number_of_edges()
    inside = {tuple(sorted(pair)) for pair in corpus.graphs[0].edge.T.tolist()}
    train = {tuple(sorted(pair)) for pair in corpus.pairs[:, corpus.parts["train"]].T.tolist()}
    assert inside == train
    batch = corpus.batch(8, 0, 3)
    assert batch["label"].tolist() == [1.0] * 8 + [0.0] * 8
    assert all(tuple(sorted(pair)) not in pairs for pair in batch["pair"][:, 8:].T.tolist())
    again = corpus.batch(8, 0, 3 + 4 * -(-len(corpus.parts["train"]) // 8))
    assert torch.equal(again["pair"], batch["pair"])
    (ranked,) = corpus.validation(32, "test")
    count = len(corpus.parts["test"])
    source = ranked["pair"][0]
    assert torch.equal(source[count:].reshape(count, 5), source[:count, None].expand(-1, 5))
    new = corpus.new_pairs().T.tolist()
    wanted = {
        (i, j)
        for i in range(34)
        for j in range(i + 1, 34)
        if (i, j) not in pairs and near(inside, i) & near(inside, j)
    }
    assert {tuple(pair) for pair in new} == wanted


def near(pairs, i):
    return {a + b - i for a, b in pairs if i in (a, b)}


def test_new_links_are_suggested_and_why_takes_names(tmp_path):
    list(training.train(read(tmp_path, "links"), tmp_path / "run"))
    found = list(training.predict(tmp_path / "run", part="new"))
    chances = [row["probability"] for row in found]
    assert chances == sorted(chances, reverse=True)
    assert len(chances) > 20
    named = training.why(tmp_path / "run", R.degree("p03"))
    names = training.load(tmp_path / "run" / "recipe.toml").data.read(tmp_path).names
    assert str(named) == str(training.why(tmp_path / "run", R.degree(names.index("p03"))))


def test_a_graph_of_networkx_is_read_with_its_attributes(tmp_path):
    networkx.write_graphml(CLUB, tmp_path / "club.graphml")
    data = 'path = "club.graphml"\nlabel = "club"\nedge_features = ["weight"]'
    corpus = written(tmp_path, data, "classes").data.read(tmp_path)
    assert corpus.labels == ["Mr. Hi", "Officer"]
    assert corpus.graphs[0].edge.shape == (2, 156)
    assert float(corpus.graphs[0].edge_x.mean()) == pytest.approx(0, abs=1e-6)


MISTAKES = {
    "no table `poeple`": ("nodes", 'nodes = "poeple"'),
    "no column `aeg`": ("nodes", 'features = ["aeg"]'),
    "is not a number": ("nodes", 'features = ["city"]'),
    "says 'Mr. Hi'": ("nodes", 'part = "club"'),
    "needs numbers as labels": ("edges", 'label = "kind"'),
    "or store them as floating point numbers": ("edges", 'label = "kind"'),
    "needs edges that are held out": ("links", 'of = "edges"\nlabel = "kind"'),
    "nothing is left": ("nodes", "test = 0.95"),
    "links have no label": ("links", 'label = "kind"'),
    "one of 1 to `folds`": ("nodes", "folds = 3\nfold = 4"),
    "names of columns": ("nodes", "features = [3]"),
    "there is no": ("nodes", 'path = "gone.db"'),
    "not a graphml file": ("nodes", 'path = "club.graphml"'),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_an_error_that_names_it(tmp_path, what):
    task, more = MISTAKES[what]
    (tmp_path / "club.graphml").write_text("<graph")
    club(tmp_path)
    data, objective = TASKS[task]
    keys = {line.partition(" =")[0] for line in more.splitlines()}
    lines = [line for line in data.splitlines() if line.partition(" =")[0] not in keys]
    with pytest.raises(EdgewiseError, match=what):
        list(
            training.train(written(tmp_path, "\n".join([*lines, more]), objective), tmp_path / "r")
        )


def test_an_edge_to_nobody_and_one_between_graphs_are_refused_or_dropped(tmp_path):
    club(tmp_path)
    rings(tmp_path)
    with sqlite3.connect(tmp_path / "club.db") as found:
        found.execute("INSERT INTO knows VALUES ('p03', 'ghost', 1, 'fun')")
    data, objective = TASKS["nodes"]
    with pytest.raises(EdgewiseError, match="ghost"):
        written(tmp_path, data, objective).data.read(tmp_path)
    dropped = written(tmp_path, f'{data}\ndangling = "drop"', objective).data.read(tmp_path)
    assert dropped.graphs[0].edge.shape == (2, 156)
    with sqlite3.connect(tmp_path / "rings.db") as found:
        found.execute("INSERT INTO edges VALUES (100, 103)")
    with pytest.raises(EdgewiseError, match="leaves its graph"):
        written(tmp_path, *TASKS["graphs"]).data.read(tmp_path)


def test_batches_of_nodes_read_some_of_their_neighbours(tmp_path):
    every = read(tmp_path, "nodes", "neighbours = [50, 50]", layer="graphsage")
    corpus = every.data.read(tmp_path)
    model = every.model.build(0, corpus, 0).eval()
    batch, all_of_it = corpus.batch(3, 0, 1), corpus.of_examples(corpus.batch(3, 0, 1)["example"])
    assert len(batch["x"]) <= len(all_of_it["x"])
    torch.testing.assert_close(model(batch), model(all_of_it))  # no node has 50 neighbours
    corpus.neighbours = [2, 1]
    some = corpus.batch(3, 0, 1)
    counts = torch.bincount(some["edge"][0])
    assert counts[some["index"]].max() <= 2
    assert len(some["edge"][0]) <= 3 * 2 + 3 * 2 * 1
    assert torch.equal(some["edge"], corpus.batch(3, 0, 1)["edge"])
    assert any(
        not torch.equal(some["x"], other)
        for other in (corpus.batch(3, 1, step)["x"] for step in range(3))
    )
    part = corpus.part(some, 1, 3)
    torch.testing.assert_close(model(part), model(some)[1:])
    data, objective = TASKS["nodes"]
    recipe = written(tmp_path, f"{data}\nneighbours = [2, 1]", objective, layer="graphsage")
    events = list(training.train(recipe, tmp_path / "run"))
    assert "test accuracy" in events[-1].values


@pytest.mark.parametrize(
    ("task", "said", "why"),
    [("nodes", "[0, 5]", "numbers of edges"), ("links", "[5]", "are not nodes")],
)
def test_neighbours_that_mean_nothing_are_refused(tmp_path, task, said, why):
    with pytest.raises(EdgewiseError, match=why):
        read(tmp_path, task, f"neighbours = {said}").data.read(tmp_path)
