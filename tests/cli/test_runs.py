"""The verbs on runs of recipes, as a user types them."""

import io
import json
import sys
from pathlib import Path

import pytest

import edgewise
from edgewise import zoo
from edgewise.cli import main
from edgewise.training.runs import model_files

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from tiny_runs import copied, run_of, trained


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict]:
    return [json.loads(line) for line in said(capsys, *arguments, "--json").splitlines()]


def test_generate(capsys: pytest.CaptureFixture[str]) -> None:
    run, how = str(run_of("generate")), ["--most", "12"]
    expected = zoo.from_pretrained(run).generate("to be", most=12)
    assert said(capsys, "generate", run, "to be", *how) == f"to be{expected}\n"
    found = lines(capsys, "generate", run, "to be", "not", *how)
    assert found[0] == {"prompt": "to be", "text": expected}
    assert [one["prompt"] for one in found] == ["to be", "not"]


def test_a_temperature_of_zero_is_greedy(capsys: pytest.CaptureFixture[str]) -> None:
    run, how = str(run_of("generate")), ["to be", "--most", "12"]
    plain = said(capsys, "generate", run, *how)
    assert said(capsys, "generate", run, *how, "--temperature", "0", "--seed", "1") == plain


@pytest.mark.parametrize("verb", ["generate", "translate", "classify"])
def test_every_verb_takes_a_device(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    run, text = str(run_of(verb)), {"generate": "to", "translate": "a man", "classify": "bad"}[verb]
    assert said(capsys, verb, run, text, "--device", "cpu") == said(capsys, verb, run, text)
    assert main([verb, run, text, "--device", "gpu"]) == 2
    assert "error[no-such-device]" in capsys.readouterr().err


def test_generate_says_which_words_are_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path, "generate", characters="words")
    assert main(["generate", str(run), "to zebra", "--most", "1"]) == 0
    assert "read as unknown: `zebra`" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["generate", "subwords"])
def test_a_text_begins_without_a_prompt(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(kind)
    start = "\n" if kind == "generate" else "<end>"
    expected = zoo.from_pretrained(run).generate(start, most=5)
    assert lines(capsys, "generate", str(run), "--most", "5") == [{"prompt": "", "text": expected}]


def test_translate_a_file_line_by_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, texts = str(run_of("translate")), "a man walks\n\na dog runs\n"
    (tmp_path / "texts.txt").write_text(texts)
    first, second = zoo.from_pretrained(run).translate(["a man walks", "a dog runs"])
    out = said(capsys, "translate", run, "--file", str(tmp_path / "texts.txt"))
    assert out == f"{first}\n\n{second}\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(texts.encode())))
    found = lines(capsys, "translate", run, "--file", "-")
    assert found[2] == {"text": "a dog runs", "translation": second}
    assert found[1] == {"text": "", "translation": ""}


def test_classify(capsys: pytest.CaptureFixture[str]) -> None:
    run = str(run_of("classify"))
    assert main(["classify", run, "a fine movie", "bad", "--top", "2"]) == 0
    found = capsys.readouterr()
    assert found.err == "note: not in the vocabulary, read as unknown: `movie`\n"
    assert len(found.out.splitlines()) == 2
    (one,) = lines(capsys, "classify", run, "a fine film")
    (expected,) = zoo.from_pretrained(run).classify(["a fine film"])
    assert one == {"text": "a fine film", "label": next(iter(expected)), "probabilities": expected}


def test_pairs_have_a_tab_between_them(capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = lines(capsys, "classify", str(run_of("pairs")), "a dog\tthe dog")
    assert set(one["probabilities"]) == {"same", "other"}


def test_embed_and_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(run_of("classify"))
    found = lines(capsys, "embed", run, "a film", "bad", "--batch", "1")
    vectors = zoo.from_pretrained(run).embed(["a film", "bad"])
    for one, vector in zip(found, vectors.tolist(), strict=True):
        assert one["vector"] == pytest.approx(vector, abs=1e-6)
    (tmp_path / "texts.txt").write_text("a film\nbad\n")
    out = said(capsys, "search", run, "bad", "--file", str(tmp_path / "texts.txt"))
    assert out.startswith("1.000  bad")


def test_an_untrained_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copied("generate", tmp_path)
    model_files.write_weights(run, model_files.weights_of(edgewise.load(run), True), 0)
    assert main(["generate", str(run), "to", "--most", "2"]) == 0
    assert "not trained yet" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["generate", "embed", "classify", "translate", "pairs"])
def test_evaluate_measures_what_the_end_of_training_did(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(kind)
    summary = json.loads((run / "summary.json").read_text())
    (found,) = lines(capsys, "evaluate", str(run), "--data", str(run.parent))
    assert found["loss"] == pytest.approx(summary["validation loss"], abs=1e-6)
    if "test bleu" in summary:
        (found,) = lines(capsys, "evaluate", str(run), "--data", str(run.parent), "--part", "test")
        assert found["bleu"] == pytest.approx(summary["test bleu"])


def test_evaluate_finds_the_data_that_train_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of("classify")
    expected = lines(capsys, "evaluate", str(run), "--data", str(run.parent))
    monkeypatch.chdir(tmp_path)
    assert lines(capsys, "evaluate", str(run)) == expected
    said(capsys, "train", str(run / "recipe.toml"), "--out", "again")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (
        run / "model.safetensors"
    ).read_bytes()


def test_evaluate_on_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, path = str(run_of("classify")), tmp_path / "texts.csv"
    path.write_text("text,label\na fine film,1\nbad,0\ndull,1\n")
    shares = zoo.from_pretrained(run).classify(["a fine film", "bad", "dull"])
    right = [next(iter(row)) == label for row, label in zip(shares, "101", strict=True)]
    (found,) = lines(capsys, "evaluate", run, "--file", str(path))
    assert found["accuracy"] == pytest.approx(sum(right) / 3)
    run, path = str(run_of("generate")), run_of("generate").parent / "text.txt"
    (found,) = lines(capsys, "evaluate", run, "--file", str(path))
    assert 1 < found["perplexity"] < 15
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"en": "a dog", "de": "ein hund"}))
    assert "bleu: " in said(capsys, "evaluate", str(run_of("translate")), "--file", str(path))


def test_a_run_is_exported_and_pushed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copied("generate", tmp_path)
    assert "from_pretrained" in said(capsys, "export", str(run), "--to", "safetensors")
    assert main(["generate", f"{run}-safetensors", "to", "--most", "2"]) == 0
    capsys.readouterr()
    out = said(capsys, "push", str(run), "--to", str(tmp_path / "hub"), "--name", "me/small")
    assert f"hf upload me/small {tmp_path / 'hub'}" in out


MISTAKES = {
    "a folder of something else": (["generate", "EMPTY", "a"], "bad-pretrained", "config.json"),
    "no such folder": (["translate", "no/such/folder", "a"], "bad-pretrained", "no folder"),
    "another task": (["translate", "classify", "a"], "wrong-task", "use `classify`"),
    "no vectors": (["embed", "generate", "to be"], "wrong-task", "use `generate`"),
    "no weights": (["generate", "NONE", "to be"], "bad-run", "no weights yet"),
    "damaged": (["generate", "DAMAGED", "to be"], "bad-run", "rules.txt"),
    "an unknown character": (["generate", "generate", "Zoë"], "unknown-character", "'Z'"),
    "too long": (["classify", "classify", "a " * 9], "text-too-long", "9 tokens"),
    "too long a prompt": (["generate", "generate", "to be or not"], "text-too-long", "12 tokens"),
    "empty": (["classify", "classify", ""], "no-texts", "empty"),
    "an empty translation": (["translate", "translate", "  "], "no-texts", "empty"),
    "no texts": (["classify", "classify"], "no-texts", "--file"),
    "no file": (["classify", "classify", "--file", "none.txt"], "no-texts", "none.txt"),
    "no such format": (["export", "generate", "--to", "onx"], "not-exportable", "`onnx`"),
    "no layout": (["export", "generate", "--to", "gguf"], "not-exportable", "byte-level"),
    "data that was moved": (["evaluate", "MOVED"], "bad-data", "--data"),
    "a damaged path": (["evaluate", "LOCAL"], "bad-run", "--data"),
    "no such file": (["evaluate", "generate", "--file", "no.txt"], "bad-data", "check `--file`"),
    "no such part": (["evaluate", "pairs", "--data", "HERE", "--part", "x"], "bad-data", "x"),
    "no measure": (["evaluate", "embed", "--file", "EMPTY"], "bad-data", "EMPTY"),
    "not a run": (["push", "EMPTY", "--to", "hub"], "bad-pretrained", "config.json"),
    "no pair": (["classify", "pairs", "a dog"], "bad-text", "with a tab"),
    "a bad number": (["generate", "generate", "to", "--most", "0"], "bad-decoding", "most"),
    "a bad beam": (["translate", "translate", "a", "--beams", "0"], "bad-decoding", "beams"),
}
BROKEN: dict[str, tuple[str, str | None]] = {  # a file of a run, and its text
    "NONE": ("model.safetensors", None),
    "DAMAGED": ("rules.txt", None),
    "MOVED": ("local.json", '{"data": "/no/such/folder"}'),
    "LOCAL": ("local.json", "[]"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_shown_without_a_traceback(
    what: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (verb, model, *rest), code, words = MISTAKES[what]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "EMPTY").mkdir()
    if model in BROKEN:
        name, text = BROKEN[model]
        path = copied("generate", tmp_path).rename(tmp_path / model) / name
        path.unlink() if text is None else path.write_text(text)
    elif model.islower() and "/" not in model:
        model = str(run_of(model))
    here = str(Path(model).parent)
    assert main([verb, model, *(here if word == "HERE" else word for word in rest)]) == 2
    error = capsys.readouterr().err
    assert f"error[{code}]" in error
    assert words in error
    assert "\nhelp: " in error
    assert "Traceback" not in error


@pytest.mark.parametrize("verb", ["export", "push", "train"])
def test_other_verbs_have_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "folder" in said(capsys, verb, "--help")


@pytest.mark.parametrize(
    "verb", ["generate", "translate", "classify", "embed", "search", "evaluate"]
)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, verb, "--help")
    assert "--json" in out
    assert "--file" in out


def test_prune_of_a_classifier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, texts = str(run_of("classify")), tmp_path / "texts.tsv"
    texts.write_text("a fine film\t1\na bad film\t0\n")
    given = ["prune", run, "--data", str(texts), "--keep", "0.5", "--json"]
    for method in ("gradient", "ablation"):
        out = tmp_path / method
        assert main([*given, "--method", method, "--out", str(out)]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["weights"][1] < said["weights"][0]
        assert len(zoo.from_pretrained(out).classify(["a fine film"])) == 1


def test_prune_of_a_translator_says_what_to_give(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("a man walks\n")
    how = ["--data", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "small")]
    assert main(["prune", str(run_of("translate")), *how]) == 2
    said = capsys.readouterr().err
    assert "`translator` writes a text of its own: sample 0 has no loss" in said
    assert not (tmp_path / "small").exists()


def test_a_pair_is_two_texts_in_every_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of("pairs")
    model = zoo.from_pretrained(run)
    assert model.tokens(["a dog\tthe dog"]).numbers.tolist() == model.rows([("a dog", "the dog")])
    assert main(["why", str(run), "a dog\tthe dog", "--without", "token:1"]) == 0
    capsys.readouterr()
    assert main(["view", str(run), "a dog", "--out", str(tmp_path / "page.html")]) == 2
    assert "the model reads pairs of texts" in capsys.readouterr().err


def test_view_and_why_of_a_translator_show_its_encoder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(run_of("translate"))
    page = tmp_path / "page.html"
    said(capsys, "view", run, "a man walks", "--out", str(page))
    assert page.stat().st_size < 1_000_000
    model = zoo.from_pretrained(run)
    graph = edgewise.attention_graph(model, "a man walks")
    assert graph.tokens[-1] == "<end>"
    assert [model.tokenizer.token_to_id(token) for token in graph.tokens] == model.rows(
        ["a man walks"]
    )[0]
    assert [call.name for call in graph.calls] == ["encoder.layer.0.self.context"]
    found = json.loads(said(capsys, "why", run, "a man", "--without", "head:0,1", "--json"))
    assert found["without"] == "head:0,1"
    assert found["change"] > 0


def test_the_folder_of_a_run_has_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of("generate")
    assert "derives" in said(capsys, "check", str(run))
    as_file = said(capsys, "explain", str(run / "rules.txt"), "--stage", "rules")
    assert said(capsys, "explain", str(run), "--stage", "rules") == as_file
    assert main(["explain", str(tmp_path)]) == 2
    assert "error[not-rules]" in capsys.readouterr().err


def test_why_of_a_text_says_what_to_leave_out(capsys: pytest.CaptureFixture[str]) -> None:
    for asked in ("to be", "logits(0)"):
        assert main(["why", str(run_of("generate")), asked]) == 2
        assert "--without token:0" in capsys.readouterr().err


def test_a_file_of_another_format_is_no_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    assert main(["generate", str(tmp_path / "model.onnx"), "to be"]) == 2
    assert "onnxruntime runs it" in capsys.readouterr().err


def test_view_and_why_of_a_classifier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its mean over the tokens follows from the text."""
    run, out = str(run_of("classify")), tmp_path / "page.html"
    assert main(["view", run, "a fine film", "--out", str(out)]) == 0
    assert out.stat().st_size > 40_000
    assert main(["why", run, "a fine film", "--without", "token:1"]) == 0
    assert "without token 1 `fine`" in capsys.readouterr().out
