"""Models whose weights FSDP2 shards over ranks compute, save and grow as others do."""

import pytest
import torch
from rank_cases import sharded_models
from rank_harness import on_ranks

from edgewise import Program, R, V


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_sharded_model_is_that_of_one_process(tmp_path):
    for found in on_ranks(sharded_models, 2, str(tmp_path)):
        assert len(found) == 4
        assert max(found.values()) <= 1e-12, found


def test_weights_after_to_empty_are_those_of_the_seed():
    program = Program([R.h(V.I) <= R.x(V.I)["w":3, 4], R.h(V.I) <= R.x(V.I)[W_FIXED]])
    expected = program.compile(R.h, seed=7)
    with torch.device("meta"):
        model = program.compile(R.h, seed=7)
    model = model.to_empty(device="cpu")
    model.reset_parameters()
    for name, weight in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight)
    x = torch.ones(2, 4)
    assert torch.equal(model(x=x), expected(x=x))


W_FIXED = torch.eye(3, 4)
