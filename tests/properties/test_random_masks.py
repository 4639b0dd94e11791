"""Random masks as queries against a search in plain Python: values, gradients and pairs."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgewise import R, V
from tests.properties.random_masks import Maker, check, tables_of


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_masks_are_what_a_search_finds(data):
    check(lambda options: data.draw(st.sampled_from(options)))


@pytest.mark.filterwarnings("ignore")
def test_no_key_of_a_causal_mask_is_later():
    proved = 0
    for seed in range(200):
        pick = random.Random(seed).choice
        mask = Maker(pick, with_heads=False).mask()
        if mask.program().is_causal(R.out(V.I), R.h(V.J)):
            proved += 1
            assert not mask.matrix(7, tables_of(pick, 7)).triu(1).any()
    assert proved > 5
