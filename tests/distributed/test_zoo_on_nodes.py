"""Every model of the zoo runs on ranks that share its rows, or is listed with its refusal."""

import pytest
from rank_harness import RANKS, on_ranks
from zoo_on_nodes import every_model

from edgewise import zoo

RECURSIVE = "not-distributed: the model cannot be partitioned: its rules are recursive"
REFUSED = dict.fromkeys(("rnn", "tree_lstm"), RECURSIVE)
ON_ALL = {"clip", "vit"}  # one vector of a text or an image is computed on every rank


@pytest.mark.parametrize("ranks", RANKS)
def test_every_model_gives_what_it_gives_on_one_process(ranks):
    for found in on_ranks(every_model, ranks):
        assert found.keys() == {module.__name__.rpartition(".")[2] for module in zoo.MODELS}
        assert {name: one for name, one in found.items() if isinstance(one, str)} == REFUSED
        ran = {name: one for name, one in found.items() if name not in REFUSED}
        assert max(far for far, _ in ran.values()) <= 1e-12, ran
        shares = {name: ranks if name in ON_ALL else 1 for name in ran}
        assert {name: share for name, (_, share) in ran.items()} == shares
