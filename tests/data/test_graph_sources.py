"""Graphs of other libraries, molecules, trees, triples and samples of NeuraLogic."""

import gzip

import networkx
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from edgewise import F, Program, R, V, data
from edgewise.errors import EdgewiseError


def refused(code, read, *args, **options):
    with pytest.raises(EdgewiseError) as caught:
        read(*args, **options)
    assert caught.value.code == code
    assert caught.value.help
    return caught.value


def test_networkx():
    graph = networkx.Graph()
    graph.add_node("b", age=3.0, kind="x")
    graph.add_node("a", age=5.0)
    graph.add_edge("a", "b", years=2.0)
    graph.add_edge("a", "a", years=1.0)
    found = data.from_networkx(graph, values=["age"], edge_values=["years"], label="kind")
    assert found.names["node"] == ("a", "b")
    assert found.inputs["node"].tolist() == [5.0, 3.0]
    assert found.inputs["edge"].keys.T.tolist() == [[0, 0], [0, 1], [1, 0]]
    assert found.inputs["edge"].values.tolist() == [1.0, 2.0, 2.0]
    assert found.labels["node"].keys.tolist() == [[1]]
    directed = data.from_networkx(networkx.DiGraph([(0, 1), (2, 1)]))
    assert directed.inputs["edge"].keys.T.tolist() == [[0, 1], [2, 1]]


def test_attributes_may_be_named_as_our_columns():
    graph = networkx.DiGraph()
    graph.add_node(0, id=2.0)
    graph.add_node(1, id=3.0)
    graph.add_edge(0, 1, **{"from": 5.0})
    found = data.from_networkx(graph, values=["id"], edge_values=["from"]).inputs
    assert found["node"].tolist() == [2.0, 3.0]
    assert (found["edge"].keys.tolist(), found["edge"].values.tolist()) == ([[0], [1]], [5.0])


def test_networkx_that_is_refused():
    refused("bad-graph", data.from_networkx, networkx.path_graph(3), values=["age"])
    refused("bad-graph", data.from_networkx, networkx.Graph([(0, "a")]))
    refused("bad-graph", data.from_networkx, [(0, 1)])
    twice = networkx.MultiGraph([(0, 1, {"w": 1.0}), (0, 1, {"w": 2.0})])
    refused("duplicate-rows", data.from_networkx, twice, edge_values=["w"])
    summed = data.from_networkx(twice, edge_values=["w"], duplicates="sum")
    assert summed.inputs["edge"].values.tolist() == [3.0, 3.0]


def graph(n, **more):
    pairs = torch.tensor([[*range(n - 1)], [*range(1, n)]], dtype=torch.int64)
    return Data(x=torch.arange(2.0 * n).reshape(n, 2), edge_index=pairs, **more)


def test_pyg():
    mask = torch.tensor([True, False, True])
    found = data.from_pyg(graph(3, y=torch.tensor([0, 1, 1]), train_mask=mask))
    assert found.inputs["edge"].keys.tolist() == [[1, 2], [0, 1]]  # the receiver is first
    assert found.labels["x"].values.tolist() == [0, 1, 1]
    assert found.splits["train"].tolist() == [0, 2]
    model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.I, V.J))]).compile(R.h)
    assert model(**found.inputs).data.tolist() == [[0, 1], [2, 3]]


def test_a_dataset_of_pyg_is_a_batch():
    found = data.from_pyg([graph(2, y=torch.tensor([1])), graph(3, y=torch.tensor([0]))])
    model = Program([R.h <= R.x(V.I)]).compile(R.h)
    assert model(model.ground(x=found.inputs["x"])).data.tolist() == [[2, 4], [6, 9]]
    assert found.labels["graph"].values.tolist() == [1, 0]
    refused("bad-graph", data.from_pyg, [graph(2), Data(edge_index=torch.zeros(2, 0).long())])
    refused("bad-graph", data.from_pyg, 3)
    for wrong in (5, -1):
        ends = torch.tensor([[0], [wrong]])
        refused("bad-graph", data.from_pyg, Data(x=torch.ones(2, 3), edge_index=ends))
    refused("bad-graph", data.from_pyg, [])


def test_a_heterogeneous_graph_has_a_relation_for_each_type():
    mixed = HeteroData()
    mixed["paper"].x = torch.ones(2, 1)
    mixed["author"].num_nodes = 3
    mixed["author", "writes", "paper"].edge_index = torch.tensor([[2], [0]])
    mixed["paper", "cites", "paper"].edge_index = torch.tensor([[0], [1]])
    mixed["author", "cites", "paper"].edge_index = torch.tensor([[1], [1]])
    found = data.from_pyg(mixed).inputs
    assert set(found) == {"paper", "author", "writes", "paper_cites_paper", "author_cites_paper"}
    assert found["writes"].keys.tolist() == [[0], [2]]


def test_molecules():
    found = data.molecules(["[NH4+]", "C=O", "c1ccccc1"], labels=[0.5, 1.5, 2.5])
    atoms, bonds = found.inputs["atom"].samples, found.inputs["bond"].samples
    from edgewise.data.smiles import ATOM, BOND

    assert dict(zip(ATOM, atoms[0][0].tolist(), strict=True))["charge"] == 1.0
    assert dict(zip(BOND, bonds[1].values[0].tolist(), strict=True))["double"] == 1.0
    assert bonds[0].keys.shape == (2, 0)
    assert bonds[2].values[:, BOND.index("aromatic")].tolist() == [1.0] * 12
    assert found.labels["molecule"].values.tolist() == [0.5, 1.5, 2.5]
    assert len(data.molecules(["C"], hydrogens=True).inputs["atom"].samples[0]) == 5


@pytest.mark.parametrize("text", ["C1CC", "", "xyz", "C(C)(C)(C)(C)C", None, 7])
def test_smiles_that_cannot_be_read(text):
    found = refused("bad-line", data.molecules, ["CCO", text])
    assert "molecule 2" in found.message
    refused("bad-line", data.molecules, ["C"], labels=[1.0, 2.0])
    refused("bad-line", data.molecules, ["C"], labels=["a"])
    for one in ("CCO", None, 3):
        refused("bad-line", data.molecules, one)


TREE = """\
# text = Cats sleep.
1\tCats\tcat\tNOUN\t_\t_\t2\tnsubj\t_\t_
2-3\tsleep.\t_\t_\t_\t_\t_\t_\t_\t_
2\tsleep\tsleep\tVERB\t_\t_\t0\troot\t_\t_
3\t.\t.\tPUNCT\t_\t_\t2\tpunct\t_\t_

1\tGo\tgo\tVERB\t_\t_\t0\troot\t_\t_
"""


@pytest.mark.parametrize("zipped", [False, True])
def test_trees(zipped, tmp_path):
    path = tmp_path / "a.conllu"
    path.write_bytes(gzip.compress(TREE.encode()) if zipped else TREE.encode())
    found = data.conllu(path)
    arcs = found.inputs["arc"].samples
    assert [arc.keys.T.tolist() for arc in arcs] == [[[0, 1], [2, 1]], []]
    words = found.inputs["word"].samples[0].keys[1]
    assert found.decode("word", words) == ["Cats", "sleep", "."]
    again = tmp_path / "b.conllu"
    again.write_text(data.to_conllu(data.sentences(path)))
    assert data.sentences(again) == data.sentences(path)
    assert again.read_text() == TREE + "\n"


def test_other_trees_are_written_into_the_lines_of_a_file(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text(TREE.replace("nsubj\t_\t_", "nsubj\t2:nsubj\tNote=1\u2028"))
    first, _ = data.sentences(path, heads=False)
    assert first.heads == [0, 0, 0]
    text = data.to_conllu([first.parsed([3, 1, 0], ["a", "b", "root"])])
    assert [line.split("\t")[6:] for line in text.split("\n") if "\t" in line] == [
        ["3", "a", "_", "Note=1\u2028"],
        ["_", "_", "_", "_"],
        ["1", "b", "_", "_"],
        ["0", "root", "_", "_"],
    ]
    assert text.startswith("# text = Cats sleep.\n")
    assert text.endswith("\n\n")
    assert data.to_conllu([]) == ""


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("\t2\tnsubj", "\t7\tnsubj", 2),
        ("\t2\tnsubj", "\tx\tnsubj", 2),
        ("\t2\tnsubj", "\t0\tnsubj", 2),
        ("1\tCats\t", "2\tCats\t", 2),
        ("Cats\tcat\t", "Cats cat\t", 2),
        ("\tCats\tcat", "\t \tcat", 2),
        ("2-3\t", "2-x\t", 3),
        ("\t2\tpunct", "\t3\tpunct", 5),  # below itself
    ],
)
def test_trees_that_are_refused(old, new, line, tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text(TREE.replace(old, new, 1))
    found = refused("bad-line", data.conllu, path)
    assert found.span.line == line
    refused("unreadable-source", data.conllu, tmp_path / "none.conllu")


def test_triples(tmp_path):
    (tmp_path / "train.txt").write_text("ann\tknows\tbob\nbob\tknows\tann\nann\tknows\tbob\n")
    (tmp_path / "test.txt").write_text("cid\tlikes\tann\n")
    found = data.triples(train=tmp_path / "train.txt", test=tmp_path / "test.txt")
    assert found.names == {"entity": ("ann", "bob", "cid"), "relation": ("knows", "likes")}
    assert found.inputs["train"].keys.T.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert found.inputs["test"].keys.T.tolist() == [[2, 1, 0]]
    one = data.triples(tmp_path / "test.txt").inputs
    assert one["triple"].keys.T.tolist() == [[1, 0, 0]]
    refused("bad-schema", data.triples)
    (tmp_path / "bad.txt").write_text("a\tb\tc\n\nd\te\n")
    assert refused("bad-line", data.triples, tmp_path / "bad.txt").span.line == 3


def test_n_triples(tmp_path):
    path = tmp_path / "a.nt"
    path.write_text(
        '# facts\n<http://x/a> <http://x/p> "caf\\u00e9"@fr .\n_:b <http://x/p> <http://x/a>.\n'
    )
    found = data.triples(path)
    assert found.names["entity"] == ('"café"@fr', "_:b", "http://x/a")
    path.write_text('"a" <http://x/p> <http://x/a> .\n')
    refused("bad-line", data.triples, path)


def test_samples_of_neuralogic(tmp_path):
    examples, queries = tmp_path / "examples.txt", tmp_path / "queries.txt"
    examples.write_text("bond(a, b), <2.0> bond(b, b).\nbond(a, c), bond(c, a)\n")
    queries.write_text("1.0 predict.\n0.0 predict.\n")
    found = data.neuralogic(examples, queries)
    assert found.labels["predict"].keys.tolist() == [[0, 1]]
    assert found.labels["predict"].values.tolist() == [1.0, 0.0]
    model = Program([(R.predict <= R.bond(V.X, V.Y)) | [F.identity]]).compile(R.predict)
    assert model(model.ground(facts=found.inputs["facts"])).data.tolist() == [3.0, 2.0]
    together = tmp_path / "train.txt"
    together.write_text("0.5 p(b) :- bond(a, b).\n1.0 p(a) :- bond(b, a).\n")
    found = data.neuralogic(together)
    assert found.names["constant"] == ("a", "b")
    assert found.labels["p"].keys.tolist() == [[0, 1], [1, 0]]


def test_samples_that_are_refused(tmp_path):
    path, queries = tmp_path / "a.txt", tmp_path / "q.txt"
    for text in ("p(a), q(X).\n", "1.0 p :- q(X).\n", "p(a\n", "h :- a(x). g :- a(y).\n"):
        path.write_text("ok(a).\n" + text)
        assert refused("bad-line", data.neuralogic, path).span.line == 2
    path.write_text("ok(a).\n")
    queries.write_text("1.0 p.\n1.0 p.\n")
    refused("bad-line", data.neuralogic, path, queries)


def test_samples_of_several_lines_and_links(tmp_path):
    examples, queries = tmp_path / "examples.txt", tmp_path / "queries.txt"
    examples.write_text("one :- bond(a, b), % first\n  bond(b, a).\ntwo :- bond(a, woman:c).\n")
    queries.write_text("two :- 0.5 p(c).\none :- 1.0 p(a), 0.0 p(b).\n")
    found = data.neuralogic(examples, queries)
    assert [len(atoms) for atoms in found.inputs["facts"].samples] == [2, 2]
    assert found.labels["p"].keys.tolist() == [[1, 0, 0], [2, 0, 1]]
    assert found.labels["p"].values.tolist() == [0.5, 1.0, 0.0]
    queries.write_text("three :- 0.5 p(c).\n")
    assert refused("bad-line", data.neuralogic, examples, queries).span.line == 1


def test_targets_of_one_relation_have_one_shape(tmp_path):
    path = tmp_path / "samples.txt"
    path.write_text("[1.0, 2.0] p :- a(1).\n1.0 p :- a(2).\n")
    with pytest.raises(EdgewiseError, match=r"shapes \(2,\) and, of sample 2, \(\)") as caught:
        data.neuralogic(path)
    assert caught.value.code == "bad-line"


def test_labels_of_graphs_of_pyg():
    """As many as there are: none is lost, and none is made up."""
    several = data.from_pyg(graph(3, y=torch.tensor([[1.0, 2.0, 3.0]]))).labels["graph"]
    assert several.values.tolist() == [[1.0, 2.0, 3.0]]
    one, two = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])
    found = data.from_pyg([graph(3, y=one), graph(2), graph(4, y=two)]).labels["graph"]
    assert (found.keys.tolist(), found.values.tolist()) == ([[0, 2]], [[1.0, 2.0], [3.0, 4.0]])
    found = data.from_pyg([graph(2, y=torch.tensor([0, 1])), graph(1, y=torch.tensor([2]))])
    assert found.labels["x"].keys.T.tolist() == [[0, 0], [0, 1], [1, 0]]
    assert found.labels["x"].values.tolist() == [0, 1, 2]
    assert not data.from_pyg([graph(2), graph(3)]).labels
    five = torch.zeros(5)
    assert "(5,), of 3 nodes" in refused("bad-graph", data.from_pyg, graph(3, y=five)).message
    wrong = refused("bad-graph", data.from_pyg, [graph(2, y=torch.zeros(2)), graph(3, y=five)])
    assert "graph 1" in wrong.message
    refused("bad-graph", data.from_pyg, [graph(2, y=one), graph(2, y=torch.zeros(1, 3))])


def test_kinds_of_nodes_that_only_edges_name():
    found = HeteroData()
    found["author"].x = torch.ones(2, 3)
    found["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [0, 5]])
    assert data.from_pyg(found).inputs["writes"].keys.tolist() == [[0, 5], [0, 1]]
    assert found.node_types == ["author"]  # a graph that is read stays as it is
    assert "`paper`" in refused("bad-graph", data.typed_graph, found).message


def test_splits_of_several_kinds_are_refused():
    found = HeteroData()
    for kind in ("author", "paper"):
        found[kind].x = torch.ones(2, 3)
        found[kind].train_mask = torch.tensor([True, False])
    found["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [0, 1]])
    assert "`typed_graph`" in refused("bad-graph", data.from_pyg, found).help
    assert data.typed_graph(found).splits["train"].tolist() == [0, 2]


def test_queries_of_one_name_with_several_numbers_of_terms(tmp_path):
    """As in NeuraLogic's own Nations."""
    (tmp_path / "e.txt").write_text("a(1).\n")
    (tmp_path / "q.txt").write_text("1.0 p(1), 0.5 p(1, 2), 2.0 q.\n")
    found = data.neuralogic(tmp_path / "e.txt", tmp_path / "q.txt").labels
    assert {name: item.values.tolist() for name, item in found.items()} == {
        "p/1": [1.0], "p/2": [0.5], "q": [2.0],
    }  # fmt: skip
