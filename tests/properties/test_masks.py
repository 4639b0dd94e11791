"""Random masks as queries against a search in plain Python: values, gradients and pairs."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.properties.random_masks import check


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_masks_are_what_a_search_finds(data):
    check(lambda options: data.draw(st.sampled_from(options)))
