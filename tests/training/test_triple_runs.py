"""Recipes on knowledge graphs: runs end, resume, rank, explain and print the rules they learned."""

import gzip
import io
import json
import tarfile
import threading
from itertools import pairwise

import pytest
import torch

from edgewise import EdgewiseError, R, V, training
from edgewise.cli import main
from edgewise.training.data.triples import TripleData
from edgewise.training.objectives.triples import ranks, without_others

PEOPLE = ["ada", "ben", "cleo", "dora", "emil", "finn", "gus", "hope"]
FATHER = [(a, "father", b) for a, b in pairwise(PEOPLE)]
GRAND = [(a, "grandfather", b) for a, b in zip(PEOPLE, PEOPLE[2:], strict=False)]
RECIPE = """\
[data]
kind = "triples"
path = "family"
{data}
[model]
{model}
[objective]
kind = "ranking"
{objective}
[training]
steps = {steps}
batch = 8
rate = 0.1
warmup = 0
weight_decay = 0.0
clip = 0.0
log = 2
evaluate = {steps}
checkpoint = 2
"""
MODELS = {
    "distmult": 'kind = "embeddings"\nscore = "distmult"\nsize = 8\ndropout = 0.1',
    "complex": 'kind = "embeddings"\nscore = "complex"\nsize = 8',
    "rotate": 'kind = "embeddings"\nscore = "rotate"\nsize = 8\nmargin = 2.0',
    "nbfnet": 'kind = "nbfnet"\nsize = 4\nlayers = 2',
    "soft_rules": 'kind = "soft_rules"\nrank = 1',
}


def write(path, triples):
    path.write_text("".join("\t".join(triple) + "\n" for triple in triples))


def family(folder, **parts):
    base = folder / "family"
    base.mkdir()
    found = {"train": FATHER + GRAND[:4], "valid": GRAND[4:5], "test": GRAND[5:]} | parts
    for name, triples in found.items():
        write(base / f"{name}.txt", triples)
    return base


def made(folder, model="complex", steps=4, data="", objective=""):
    path = folder / "recipe.toml"
    found = {"model": MODELS[model], "steps": steps, "data": data, "objective": objective}
    path.write_text(RECIPE.format(**found))
    return training.load(path)


@pytest.mark.parametrize("model", MODELS)
def test_a_run_ends_with_ranks_and_resumes_bit_for_bit(tmp_path, model, capsys):
    family(tmp_path)
    recipe = made(tmp_path, model)
    *_, end = training.train(recipe, tmp_path / "run")
    assert 0 < end.values["test mrr"] <= 1
    assert end.values["test hits@10"] == 1  # of eight entities
    stop = threading.Event()
    for event in training.train(recipe, tmp_path / "again", stop=stop):
        if event.step == 2:
            stop.set()
    *_, again = training.train(recipe, tmp_path / "again")
    assert again.values == end.values
    assert main(["predict", str(tmp_path / "run"), "--json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["head"], row["answer"]) for row in printed] == [("finn", "hope"), ("hope", "finn")]
    assert printed[1]["relation"] == "grandfather⁻¹"
    assert main(["predict", str(tmp_path / "run"), "--part", "all"]) == 0
    assert "rank" in capsys.readouterr().out
    atom = "score(2)" if model in ("nbfnet", "soft_rules") else "anchor(0)"
    assert main(["why", str(tmp_path / "run"), atom, "--graph", "3"]) == 0
    assert "grounding" in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "run"), "--part", "test"]) == 0
    assert "mrr" in capsys.readouterr().out
    with pytest.raises(EdgewiseError, match="no example 999"):
        training.why(tmp_path / "run", R.score(0), graph=999)


def test_samples_are_an_objective_too(tmp_path):
    family(tmp_path)
    recipe = made(tmp_path, "rotate", objective='loss_over = "samples"\nnegatives = 3')
    *_, end = training.train(recipe, tmp_path / "run")
    assert 0 < end.values["test mrr"] <= 1


def test_the_rule_of_grandfathers_is_learned_and_printed(tmp_path):
    family(tmp_path)
    recipe = made(tmp_path, "soft_rules", steps=60)
    *_, end = training.train(recipe, tmp_path / "run")
    assert end.values["test mrr"] == 1
    lines = (tmp_path / "run" / "learned rules.txt").read_text().splitlines()
    best = next(line for line in lines if line.startswith("grandfather"))
    assert best.startswith("grandfather(X, Y) :- *father(X, A), *father(A, Y).")


def test_answers_that_are_known_do_not_count_in_ranks(tmp_path):
    base = family(tmp_path, test=[("ada", "father", "hope"), *GRAND[5:]])
    corpus = TripleData(path="family").read(base.parent)
    batch = corpus.of_examples(corpus.parts["test"][:1])
    scores = torch.zeros(1, corpus.entities)
    scores[0, corpus.labels.index("ben")] = 2.0  # ben is another child, known in training
    scores[0, corpus.labels.index("hope")] = 1.0
    assert ranks(scores, batch["tail"]).tolist() == [2]
    assert ranks(without_others(scores, batch["tail"], batch["known"]), batch["tail"]).tolist() == [
        1
    ]
    train = corpus.batch(99, 0, 0)
    row = (train["head"] == corpus.labels.index("ada")) & (train["relation"] == 0)
    known = train["known"]
    hope = corpus.labels.index("hope")
    assert not any(row[q] and t == hope for q, t in known.T.tolist())  # test answers are unknown


def test_ranks_of_equal_scores_and_of_what_is_not_a_number():
    scores = torch.tensor([[1.0, 1.0, 1.0], [torch.nan, 2.0, 1.0], [3.0, 2.0, torch.nan]])
    assert ranks(scores, torch.tensor([0, 0, 1])).tolist() == [2.0, 3.0, 3.0]


def test_queries_are_hidden_from_the_graph_unless_there_are_facts(tmp_path):
    family(tmp_path, facts=FATHER)
    corpus = TripleData(path="family").read(tmp_path)
    hidden = corpus.batch(2, 0, 0)["hide"]
    assert hidden.shape[0] == 3
    edges = set(map(tuple, corpus.graph.T.tolist()))
    assert set(map(tuple, hidden.T.tolist())) <= edges
    with_facts = TripleData(path="family", facts="facts").read(tmp_path)
    assert "hide" not in with_facts.batch(2, 0, 0)
    assert with_facts.graph.shape[1] == 2 * len(FATHER)


def test_an_archive_is_read_like_a_folder(tmp_path):
    base = family(tmp_path)
    with tarfile.open(tmp_path / "family.tar.gz", "w:gz") as archive:
        for file in sorted(base.iterdir()):
            archive.add(file, f"./deep/{file.name}")
    read = [TripleData(path=path).read(tmp_path) for path in ("family", "family.tar.gz")]
    assert read[0].fingerprint == read[1].fingerprint
    (base / "train.txt.gz").write_bytes(gzip.compress((base / "train.txt").read_bytes()))
    (base / "train.txt").unlink()
    assert TripleData(path="family").read(tmp_path).fingerprint == read[0].fingerprint


def test_duplicate_triples_count_once_and_hostile_names_are_names(tmp_path):
    odd = [("'; DROP TABLE x; --", "../../etc", "a\u202eb"), ("{0}", "%s", "ada")] * 2
    base = family(tmp_path, train=FATHER + GRAND[:4] + odd)
    corpus = TripleData(path="family").read(base.parent)
    assert len(corpus.parts["train"]) == 2 * (len(FATHER) + 4 + 2)
    assert {"{0}", "a\u202eb"} <= set(corpus.labels)
    *_, end = training.train(made(tmp_path, "soft_rules"), tmp_path / "run")
    assert end.kind == "end"
    assert len(list(training.predict(tmp_path / "run", part="all"))) == len(corpus.queries)


def damaged(folder):
    data = io.BytesIO(b"\x1f\x8b not an archive")
    (folder / "broken.tar.gz").write_bytes(data.getvalue())
    return "broken.tar.gz"


BROKEN = {
    "no folder": (lambda f: "nowhere", {}, "no file `train`"),
    "no archive": (lambda f: "nowhere.tar", {}, "cannot read the archive"),
    "a damaged archive": (damaged, {}, "truncated or corrupt archive"),
    "no such part": (lambda f: "family", {"test": "tests"}, "no file `tests`"),
    "an empty file": (lambda f: write(f / "family/test.txt", []) or "family", {}, "no triples"),
    "an unknown entity": (
        lambda f: write(f / "family/test.txt", [("ada", "father", "zoe")]) or "family",
        {},
        "the entity `zoe` of the test part",
    ),
    "an unknown relation": (
        lambda f: write(f / "family/test.txt", [("ada", "likes", "ben")]) or "family",
        {},
        "the relation `likes` of the test part",
    ),
    "two fields": (
        lambda f: (f / "family/test.txt").write_text("ada\tfather\n") and "family",
        {},
        "2 fields, not 3",
    ),
    "none held out": (
        lambda f: (f / "family/valid.txt").unlink() or "family",
        {"held_out": 0.0},
        "no validation part",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_bad_files_are_errors_that_say_what_is_wrong(tmp_path, case):
    family(tmp_path)
    spoil, options, message = BROKEN[case]
    with pytest.raises(EdgewiseError, match=message) as found:
        TripleData(path=spoil(tmp_path), **options).read(tmp_path)
    assert found.value.help


def test_an_unseen_entity_may_stay_untrained(tmp_path):
    family(tmp_path, test=[("ada", "father", "zoe")])
    corpus = TripleData(path="family", unseen="untrained").read(tmp_path)
    assert "zoe" in corpus.labels


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ('kind = "embeddings"\nscore = "distmult"\nmargin = 1.0', "`distmult` has no `margin`"),
        ('kind = "embeddings"\nscore = "rotate"\nsize = 3', "3 numbers"),
        ('kind = "soft_rules"\nlength = 9', "`length` is 9"),
        ('kind = "graph"', "does not support this model"),
    ],
)
def test_models_that_do_not_fit_are_refused(tmp_path, model, message):
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(model=model, steps=1, data="", objective=""))
    with pytest.raises(EdgewiseError, match=message):
        training.load(path)


def test_rules_of_a_run_are_rules_of_the_language(tmp_path):
    from edgewise import Program

    family(tmp_path)
    list(training.train(made(tmp_path, "soft_rules", steps=60), tmp_path / "run"))
    text = (tmp_path / "run" / "learned rules.txt").read_text()
    rules = [line.partition("  #")[0] for line in text.splitlines()]
    learned = Program.parse(next(r for r in rules if r.startswith("grandfather")))
    found = learned.solve([R.father(a, b) for a, _, b in FATHER])
    assert R.grandfather("finn", "hope") in found[R.grandfather(V.X, V.Y)]
