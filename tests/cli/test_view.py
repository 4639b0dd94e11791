"""`edgewise view`: a page of a checkpoint or a pattern; each mistake its own error."""

import json
import sys
from pathlib import Path

import pytest
import torch

from edgewise.cli import main

sys.path.insert(0, str(Path(__file__).parents[1] / "hf"))
import hf_models as models

WORDS = ("the", "cat", "sat", "on", "it")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A small BERT with a tokenizer of words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    folder = tmp_path_factory.mktemp("checkpoint")
    models.built(models.bert, torch.float32).save_pretrained(folder)
    vocabulary = {word: k for k, word in enumerate(("[UNK]", *WORDS))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_checkpoint_and_a_pattern(checkpoint, tmp_path, capsys):
    out = tmp_path / "page.html"
    text = "the cat sat on it"
    made = ["view", str(checkpoint), text, "--beside", "window(1)", "--out", str(out)]
    assert main(made) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert 40_000 < out.stat().st_size < 1_000_000
    assert main(["view", "window(3) | global_tokens(1)", "--n", "4096", "--out", str(out)]) == 0


def broken(checkpoint, folder):
    folder.mkdir()
    for path in checkpoint.iterdir():
        data = path.read_bytes()
        (folder / path.name).write_bytes(
            data[: len(data) // 2] if "safetensors" in path.name else data
        )
    return folder


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["nothing-here", "a text"], "bad-pretrained"),
        (["windw(3)"], "bad-pattern"),
        (["per_head(window(1), window(2))"], "several-graphs"),
        (["window(3)", "a text"], "cannot-show"),
        (["window(3)", "--n", "0"], "bad-size"),
        (["window(3)", "--out", "no/such/folder/page.html"], "cannot-save"),
        (["CHECKPOINT"], "no-tokens"),
        (["CHECKPOINT", ""], "no-tokens"),
        (["CHECKPOINT", "the cat " * 40], "text-too-long"),
        (["BROKEN", "the cat"], "bad-pretrained"),
    ],
)
def test_mistakes(checkpoint, tmp_path, monkeypatch, capsys, arguments, code):
    monkeypatch.chdir(tmp_path)
    if "BROKEN" in arguments:
        broken(checkpoint, tmp_path / "broken")
    places = {"CHECKPOINT": str(checkpoint), "BROKEN": str(tmp_path / "broken")}
    assert main(["view", *(places.get(word, word) for word in arguments)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error[{code}]"), said
    assert not (tmp_path / "attention.html").exists()


def test_a_model_without_attention(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nothing"}))
    assert main(["view", str(tmp_path), "a text"]) == 2
    assert "error[" in capsys.readouterr().err
