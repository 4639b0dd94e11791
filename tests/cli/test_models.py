"""`edgewise models`, `embed` and `search`, as a user types them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewise import zoo
from edgewise.cli import main

tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A small BERT with a word for each of its tokens."""
    config = zoo.bert.Config(8, 4, 2, 6, 1, 6, dropout=0.0)
    words = {word: k for k, word in enumerate(["?", "a", "cat", "dog", "sat", "on", "the", "mat"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    weights = zoo.bert.program(config).weights(seed=0, dtype=torch.float32)
    zoo.save_pretrained(tmp_path / "model", zoo.bert, config, weights, tokenizer=made)
    return str(tmp_path / "model")


def test_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    assert "bert" in out
    assert "all-minilm-l6-v2" in out
    assert main(["models", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {m["name"]: m["model_types"] for m in found["models"]}["gpt2"] == ["gpt2"]
    assert len(found["models"]) == len(zoo.MODELS)


def test_a_model_is_printed_as_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "gpt2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("GPT-2: a causal decoder")
    assert "R.special.leq(V.J, V.I)" in out


def test_texts_become_vectors(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("a dog sat\n\nthe mat\n")
    arguments = ["embed", checkpoint, "a cat", "--file", str(tmp_path / "texts.txt")]
    assert main(arguments) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["text"] for one in found] == ["a cat", "a dog sat", "the mat"]
    assert main([*arguments, "--out", str(tmp_path / "v.npy")]) == 0
    vectors = np.load(tmp_path / "v.npy")
    np.testing.assert_allclose(vectors, [one["vector"] for one in found], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_the_nearest_come_first(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("the mat\na cat sat\na dog\n")
    options = ["--file", str(tmp_path / "texts.txt"), "--top", "2", "--json"]
    assert main(["search", checkpoint, "a cat sat", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found[0] == {"cosine": 1.0, "text": "a cat sat"}
    assert found[0]["cosine"] >= found[1]["cosine"]
    assert len(found) == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["models", "brt"], "unknown-model"),
        (["embed", "MODEL"], "no-texts"),
        (["embed", "MODEL", "--file", "none.txt"], "no-texts"),
        (["embed", "no/such/model", "a"], "bad-pretrained"),
        (["embed", "MODEL", "a cat sat on the mat a"], "text-too-long"),
        (["embed", "MODEL", "a", "--out", "v.png"], "cannot-write"),
        (["embed", "MODEL", "a", "--out", "no/such/v.npy"], "cannot-write"),
        (["embed", "MODEL", "a", "--out", "/proc/v.npy"], "cannot-write"),
        (["embed", "MODEL", "a", "--out", "/proc/v.json"], "cannot-write"),
        (["search", "MODEL", "a", "--file", "texts.txt", "--top", "0"], "bad-size"),
    ],
)
def test_a_mistake_is_shown_without_a_traceback(
    arguments: list[str],
    code: str,
    checkpoint: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([checkpoint if a == "MODEL" else a for a in arguments]) == 2
    error = capsys.readouterr().err
    assert f"error[{code}]" in error
    assert "Traceback" not in error
