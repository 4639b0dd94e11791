"""`edgewise parse`: texts and CoNLL-U in; a tree, JSON, CoNLL-U or a picture out."""

import json
import xml.etree.ElementTree as xml

import pytest

from edgewise import data, training
from edgewise.cli import main
from tests.training.tiny_runs import run_of
from tests.training.treebank_files import TREES, conllu_of, small_parser


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parse")
    list(training.train(training.load(small_parser(folder)), folder / "run"))
    return str(folder / "run")


def said(capsys, *arguments, fails=False):
    assert main(["parse", *arguments]) == (2 if fails else 0)
    out, err = capsys.readouterr()
    return err if fails else out


def test_a_tree_is_printed(run, capsys):
    lines = said(capsys, run, "the dog sees a man").splitlines()
    assert lines[0] == "the dog sees a man"
    assert lines[1] == "sees root"
    assert [line.strip("│├└─ ") for line in lines[2:]] == [
        "dog nsubj", "the det", "man obj", "a det",
    ]  # fmt: skip


def test_a_file_of_texts_as_json(run, capsys, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TREES[:3]) + "\n\n")
    lines = said(capsys, run, "--file", str(tmp_path / "texts.txt"), "--json").splitlines()
    assert [" ".join(json.loads(line)["words"]) for line in lines] == TREES[:3]
    assert json.loads(lines[0])["relations"].count("root") == 1


def test_conllu_in_is_conllu_out(run, capsys, tmp_path):
    """Comments, ranges, empty nodes and other fields stay; the tree may be missing."""
    read = conllu_of(TREES[0]).splitlines()[:-1]
    gold = list(read)
    for lines in (read, gold):
        lines.insert(1, "1-2\taman\t_\t_\t_\t_\t_\t_\t_\t_")
        lines.insert(4, "2.1\tgone\t_\t_\t_\t_\t_\t_\t_\t_")
    for at, line in enumerate(read):
        fields = line.split("\t")
        if fields[0].isdigit():
            read[at] = "\t".join([*fields[:6], "_", "_", *fields[8:]])
    (tmp_path / "in.conllu").write_text("\n".join(read) + "\n")
    assert said(capsys, run, "--conllu", str(tmp_path / "in.conllu")) == "\n".join(gold) + "\n\n"
    text = said(capsys, run, TREES[0], "--to-conllu")
    (tmp_path / "out.conllu").write_text(text)
    (again,) = data.sentences(tmp_path / "out.conllu")
    assert " ".join(again.words) == TREES[0]


def test_a_picture_shows_every_word_and_harmless_text(run, capsys, tmp_path):
    path = tmp_path / "tree.svg"
    said(capsys, run, "the dog sees </svg><script>", "--svg", str(path))
    shown = [e.text for e in xml.fromstring(path.read_text()).iter() if e.tag.endswith("text")]
    assert {"the", "dog", "sees", "script", "root"} <= set(shown)
    assert "<script" not in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([""], "no-texts"),
        (["a " * 30], "text-too-long"),
        (["--conllu", "none.conllu"], "unreadable-source"),
        (["a", "dog", "--svg", "tree.svg"], "cannot-write"),
        (["a", "--svg", "no/such/tree.svg"], "cannot-write"),
        (["a", "--svg", "tree.png"], "unknown-picture-format"),
        (["a", "--device", "gpu"], "no-such-device"),
    ],
)
def test_what_is_refused(run, capsys, tmp_path, monkeypatch, arguments, code):
    monkeypatch.chdir(tmp_path)
    assert f"error[{code}]" in said(capsys, run, *arguments, fails=True)


def test_damaged_conllu_shows_its_line(run, capsys, tmp_path):
    path = tmp_path / "bad.conllu"
    path.write_text("# a comment\n1\ta\tb\n")
    found = said(capsys, run, "--conllu", str(path), fails=True)
    assert "error[bad-line]: 3 fields, not 10" in found
    assert "bad.conllu:2:1" in found


def test_a_file_in_conllu_is_evaluated(run, capsys, tmp_path):
    """Another relation of a subtype counts for `las`, another head for neither."""
    path = tmp_path / "gold.conllu"
    path.write_text(conllu_of("the dog sees a man").replace("\tobj\t", "\tobj:x\t"))
    assert main(["evaluate", run, "--file", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr()[0])
    assert (found["uas"], found["las"], found["las with subtypes"]) == (1.0, 1.0, 0.8)


def test_a_run_that_is_no_parser(capsys):
    assert "error[wrong-task]" in said(capsys, str(run_of("classify")), "a man", fails=True)


def test_texts_and_a_file_of_trees_exclude_each_other(run, capsys, tmp_path):
    (tmp_path / "a.conllu").write_text(conllu_of(TREES[0]))
    assert main(["parse", run, "a", "--conllu", str(tmp_path / "a.conllu")]) == 2
