"""Names of the hub: the cache is enough; without it and without a connection, a clear error."""

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
from transformers import GPT2Config, GPT2LMHeadModel

from edgewise import EdgewiseError, numbers, zoo

NAME = "somebody/tiny-gpt2"


def test_a_model_in_the_cache_needs_no_connection(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    commit = "0" * 40
    folder = tmp_path / "models--somebody--tiny-gpt2"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    small = GPT2Config(
        vocab_size=9, n_embd=8, n_head=2, n_layer=1, n_positions=8, bos_token_id=0, eos_token_id=0
    )
    theirs = GPT2LMHeadModel(small).eval()
    theirs.save_pretrained(folder / "snapshots" / commit)
    tokens = torch.tensor([[1, 2, 3]])
    ours = zoo.from_pretrained(NAME).model(token=numbers(tokens))
    torch.testing.assert_close(ours, theirs(tokens).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (LocalEntryNotFoundError("no network"), "cannot be reached"),
        (HFValidationError("a bad name\nmore"), "on the hub: a bad name"),
    ],
)
def test_a_name_that_is_nowhere_is_refused_in_words(monkeypatch, problem, words):
    def fails(*_, **__):
        raise problem

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fails)
    with pytest.raises(EdgewiseError, match=words) as caught:
        zoo.from_pretrained(NAME)
    assert caught.value.code == "cannot-fetch"
    assert caught.value.help


def test_paths_are_never_looked_up(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", None)
    for path in ("./runs/a", "runs/a/b", "/runs/a", "runs"):
        with pytest.raises(EdgewiseError, match="there is no folder"):
            zoo.from_pretrained(path)
