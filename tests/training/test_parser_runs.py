"""A parser from its recipe to its trees: training, resuming, measures and `parse`."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, data, numbers, training, zoo
from edgewise.training.data.batches import IGNORED
from edgewise.training.optimiser import adam
from tests.training.treebank_files import TREES, conllu_of, small_parser


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parser")
    list(training.train(training.load(small_parser(folder)), folder / "run"))
    return folder


@pytest.fixture(scope="module")
def parser(folder):
    return zoo.from_pretrained(folder / "run")


def test_it_learns_the_trees_of_its_treebank(folder, parser):
    *_, end = training.train(training.load(folder / "parser.toml"), folder / "run")
    assert end.values["test uas"] == 1.0
    assert end.values["test las"] == 1.0
    assert end.values["test las with subtypes"] == 1.0
    (tree,) = parser.parse(["the dog sees a man"])
    assert tree.heads == [2, 3, 0, 5, 3]
    assert tree.relations == ["det", "nsubj", "root", "det", "obj"]


def test_texts_words_and_trees_are_parsed_alike(folder, parser):
    text = "the old cat finds a child"
    (tree,) = parser.parse([text])
    (read,) = parser.parse([data.DependencyTree(text.split(), ["_"] * 6)])
    assert parser.parse([text.split()]) == [tree] == [read]
    several = parser.parse([*TREES, text], batch=7)
    assert several[-1] == tree
    assert [" ".join(t.words) for t in several[:-1]] == TREES
    assert parser.parse([]) == []


def test_a_tree_is_a_graph_for_the_next_model(parser):
    (tree,) = parser.parse(["the dog sees a man"])
    graph = tree.networkx()
    assert set(graph.edges) == {(0, 1), (1, 2), (3, 4), (4, 2)}
    assert graph.edges[1, 2]["relation"] == "nsubj"
    assert graph.nodes[1]["word"] == "dog"
    assert tree.syntax().count(5) == 5 + 2 * 4
    rule = (R.below(V.J) <= (R.x(V.I), R.arc(V.I, V.J))) | [F.product]
    count = Program([rule]).compile(R.below)
    found = count(x=torch.ones(5), arc=tree.arcs())
    assert found.at([2]).tolist() == [2.0]


def test_rows_of_a_batch_say_where_words_and_heads_are(folder):
    recipe = training.load(folder / "parser.toml")
    corpus = recipe.data.read(folder)
    batch = next(corpus.validation(4))
    row = {name: tensor[0].tolist() for name, tensor in batch.items()}
    n = int((batch["head"][0] != IGNORED).sum())
    assert row["word"][: n + 2] == [0, *range(1, n + 1), -1]
    assert row["head"][0] == IGNORED
    assert row["root"] == corpus.labels.index("root")


def test_scores_are_those_of_plain_torch(parser):
    """A bilinear form of d and h, each with a 1 at its end, over means of pieces."""
    module = parser.module.double()
    token = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 9, 3, 0]])
    word = torch.tensor([[0, 1, 1, 2, -1], [0, 1, 2, -1, -1]])
    found = module(token, torch.tensor([5, 4]), word)
    rows = found_rows(parser, token)
    weight = {name: p.detach() for name, p in module.program.named_parameters()}
    for k, words in enumerate([[[0], [1, 2], [3]], [[0], [1], [2]]]):
        x = torch.stack([rows[k, w].mean(0) for w in words])
        maps = ("arc_dependent", "arc_head", "relation_dependent", "relation_head")
        d, h, a, b = (torch.relu(x @ weight[f"{m}.weight"].T + weight[f"{m}.bias"]) for m in maps)
        arc = (d @ weight["arc.weight"].T + weight["arc.bias"]) @ h.T
        assert torch.allclose(found["arc"][k, :3, :3], arc)
        query = torch.einsum("cde,ie->cid", weight["relation.weight"], a)
        query = query + weight["relation.bias"][:, None]
        own = torch.einsum("ce,ie->ci", weight["own.weight"][:, 0], a) + weight["own.bias"]
        relation = torch.einsum("cid,jd->cij", query, b) + own[..., None]
        assert torch.allclose(found["relation"][k, :, :3, :3], relation)
    assert found["arc"][1, :, 3:].eq(-torch.inf).all()
    module.float()


def found_rows(parser, token):
    model = parser.program.compile(R.out, dtype=torch.float64).eval()
    state = {n: p.double() for n, p in parser.model.state_dict().items()}
    model.load_state_dict({name: state[name] for name in model.state_dict()})
    mask = (token != 0).double()[..., None]
    return model(token=numbers(token), mask=mask, segment=numbers(torch.zeros_like(token)))


def test_an_interrupted_run_continues_bit_for_bit(folder, tmp_path):
    recipe = training.load(folder / "parser.toml", ["training.steps=6", "training.checkpoint=3"])
    list(training.train(recipe, tmp_path / "whole", data=folder))
    events = training.train(recipe, tmp_path / "parts", data=folder)
    for event in events:
        if event.kind == "checkpoint" and event.step == 3:
            events.close()
            break
    list(training.train(recipe, tmp_path / "parts", data=folder))
    whole, parts = (tmp_path / name / "model.safetensors" for name in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()


def test_new_weights_have_a_rate_of_their_own(folder):
    recipe = training.load(folder / "parser.toml")
    corpus = recipe.data.read(folder)
    model = recipe.model.build(corpus.words, corpus, 0)
    groups = adam(model, recipe.training).param_groups
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    named = dict(model.program.named_parameters())
    assert rates[id(named["arc.weight"])] == 1e-2
    assert rates[id(named["word"])] == 5e-3
    assert len(rates) == len(named)


@pytest.mark.parametrize(
    ("sentences", "code"),
    [
        ("a man", "bad-text"),
        ([""], "bad-text"),
        (["  "], "bad-text"),
        ([[]], "bad-text"),
        ([["a", ""]], "bad-text"),
        ([["a\tb"]], "bad-text"),
        ([["a", 3]], "bad-text"),
        ([7], "bad-text"),
        ([["a"] * 23], "text-too-long"),
    ],
)
def test_what_cannot_be_parsed(parser, sentences, code):
    with pytest.raises(EdgewiseError) as found:
        parser.parse(sentences)
    assert found.value.code == code


def test_the_longest_sentence_and_unknown_words(parser):
    (tree,) = parser.parse([["zebra"] * 22])
    assert tree.heads.count(0) == 1
    assert tree.relations.count("root") == 1
    (tree,) = parser.parse(["zebra"])
    assert (tree.heads, tree.relations) == ([0], ["root"])


def test_another_task_is_refused(folder, parser):
    with pytest.raises(EdgewiseError) as found:
        parser.classify(["a man"])
    assert found.value.code == "wrong-task"


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (("longest = 24", "longest = 6"), "bad-data", "longest"),
        (('"train.conllu"', '"none.conllu"'), "bad-data", "no such file"),
        (('"train.conllu"', '"broken.conllu"'), "bad-line", "head"),
        (('"train.conllu"', '"empty.conllu"'), "bad-data", "no sentences"),
    ],
)
def test_data_that_does_not_fit(folder, tmp_path, change, code, says):
    broken = conllu_of(TREES[0]).replace("\t0\troot", "\t9\troot")
    (folder / "broken.conllu").write_text(broken)
    (folder / "empty.conllu").write_text("\n")
    path = tmp_path / "other.toml"
    path.write_text((folder / "parser.toml").read_text().replace(*change))
    with pytest.raises(EdgewiseError) as found:
        list(training.train(training.load(path), tmp_path / "run", data=folder))
    assert found.value.code == code
    assert says in found.value.message
