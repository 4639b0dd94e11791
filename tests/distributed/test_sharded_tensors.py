"""Attention on DTensors that are sharded by samples or heads."""

from rank_cases import every_placement, learned_terms, refused_placements
from rank_harness import on_ranks


def test_samples_and_heads_may_be_sharded():
    for found in on_ranks(every_placement, 2):
        assert len(found) == 24
        assert max(found.values()) <= 1e-12, found


def test_terms_that_all_ranks_have_are_learned():
    for found in on_ranks(learned_terms, 2):
        assert len(found) == 9
        assert max(found.values()) <= 1e-12, found


def test_other_placements_are_refused_on_all_ranks():
    for found in on_ranks(refused_placements, 2):
        assert len(found) == 9
        assert set(found.values()) == {"not-distributed"}, found
