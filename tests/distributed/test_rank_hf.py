"""A Hugging Face model on the tokens of a rank gives what it gives on one process."""

import pytest
from rank_cases import hugging_face_model
from rank_harness import on_ranks

pytest.importorskip("transformers", reason="transformers is not installed")


def test_a_llama_attends_over_ranks():
    for far, refused in on_ranks(hugging_face_model, 2):
        assert far <= 1e-12
        assert refused == "not-distributed"
