"""Compiled models on several ranks give what they give on one."""

import pytest
import torch
from rank_cases import every_model, refused_models
from rank_harness import RANKS, on_ranks
from zoo_cases import every_transformer, joined_transformers

from edgewise.distributed import Shards, on_mesh, scale
from edgewise.distributed.errors import BadMesh, BadShards, NotDistributed
from edgewise.explain import UnknownStage
from edgewise.graphs.errors import BadSize
from edgewise.inputs.kinds import numbers
from edgewise.language import R
from edgewise.zoo import gpt2

# what other tokens are part of outside of attention; `model.ground(mesh=...)` shares such rules
JOINED = {"deberta", "deberta_v2", "xlnet", "longformer", "adaptive_span", "reformer"}


@pytest.mark.parametrize("ranks", RANKS)
def test_every_transformer_gives_what_it_gives_on_one_process(ranks):
    for found in on_ranks(every_transformer, ranks):
        assert len(found) >= 25
        refused = {name for name, one in found.items() if one == "not-distributed"}
        assert refused == JOINED
        assert max(far for name, far in found.items() if name not in refused) <= 1e-12, found


def test_rules_in_which_tokens_meet_are_shared_text_by_text():
    for found in on_ranks(joined_transformers, 2, JOINED):
        assert found.keys() == JOINED
        assert max(found.values()) <= 1e-12, found


@pytest.mark.parametrize("ranks", RANKS)
def test_models_give_what_they_give_on_one_process(ranks):
    for found in on_ranks(every_model, ranks):
        assert len(found) == 5
        assert max(found.values()) <= 1e-12, found


def test_rules_in_which_tokens_of_ranks_meet_are_refused_on_all():
    refused = "not-distributed"
    for found in on_ranks(refused_models, 2):
        assert found == [refused, refused, "ranks-differ", "bad-shards", "bad-shards"]


def test_only_a_compiled_model_of_one_output_is_taken():
    with pytest.raises(NotDistributed):
        on_mesh(torch.nn.Linear(2, 2), 4)


def test_explain_has_a_stage_for_ranks():
    config = gpt2.Config(vocabulary=9, size=8, heads=2, hidden=8, layers=2, length=64, dropout=0.0)
    model = gpt2.program(config).compile(R.logits, seed=0)
    token = numbers(torch.zeros(1, 40, dtype=torch.int64))
    found = model.explain(mesh=4, token=token, json=True)["ranks"]
    assert (found["tokens"], found["ranks"], found["attentions"][0]["count"]) == (40, 4, 2)
    assert found["received"] == 2 * found["attentions"][0]["worst"] > 0
    more = model.explain(mesh=Shards(1 << 20, 512), stage="ranks", token=token)
    assert "1,048,576 tokens on 512 ranks" in str(more)
    assert "all-gather" in str(more)
    assert "computed, not measured" in str(more)
    assert "ranks" not in model.explain(token=token).to_json()
    with pytest.raises(UnknownStage):
        model.explain(stage="ranks", token=token)
    for mesh, wrong in ((0, BadSize), (True, BadSize), ("cp", BadMesh)):
        with pytest.raises(wrong):
            model.explain(mesh=mesh, token=token)
    with pytest.raises(BadShards):
        model.explain(mesh=4)


def test_a_model_without_numbers_is_scaled():
    with torch.device("meta"):
        config = gpt2.Config(graph="window(256)")
        model = gpt2.program(config).compile(R.logits).to("meta")
        token = numbers(torch.zeros(1, 8, dtype=torch.int64))
    found = scale(model, tokens=1 << 20, ranks=64, token=token)
    ((name, count, plan),) = found.attentions
    assert (name, count) == ("layer.0.context", 12)
    assert plan.worst == 256 * 2 * 12 * 64 * 2
    assert found.received == 12 * plan.worst
    assert found.weights == 2 * sum(p.numel() for p in model.parameters())
    assert "layer.0.context and 11 more like it" in found.show()
    assert found.to_json()["received"] == found.received
