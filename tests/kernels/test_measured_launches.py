"""Cases that were measured on an H200 are launched as they were: see bench/results."""

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from edgewise.graphs import bigbird, causal, global_tokens, window
from edgewise.kernels.attention import Case, choose
from edgewise.kernels.attention.triton import settings as triton_settings
from edgewise.kernels.attention.triton.lists import LAYERS, ONE
from edgewise.kernels.attention.triton.passes import BackwardPass, ForwardPass

N = 4096
GRAPHS = [
    window(256),
    window(255) & causal(),
    bigbird(64),
    window(256) | global_tokens(2),
    (window(1024) | global_tokens(4)) & causal(),
]
MEASURED = {
    64: {
        "forward": {"num_warps": 4, "num_stages": 2, "maxnreg": 128},
        "backward_rows": {"num_warps": 4, "num_stages": 2, "maxnreg": 128},
        "backward_columns": {"num_warps": 4, "num_stages": 3, "maxnreg": 168},
    },
    128: {
        name: {"num_warps": 4, "num_stages": 2}
        for name in ("forward", "backward_rows", "backward_columns")
    },
}
PLAIN = {"SCORE": False, "BIAS": False, "DROP": False, "PRECISION": "tf32"}


@pytest.mark.parametrize("d", MEASURED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
def test_launches_of_measured_cases(graph, d, dtype, monkeypatch):
    monkeypatch.setattr(triton_settings, "has_engine", lambda: True)
    case = Case(8, 1, N, N, d, d, dtype, "cuda", graph, 0.125)
    assert choose(case).name == "triton_blocks"
    made = (case, (1, 8, 8), (False, False, False), "cpu")
    ahead, back = ForwardPass(*made), BackwardPass(*made)
    sizes = {"BLOCK": 64, "D": d, "DV": d, "WD": d, "WV": d, "BATCH": False}
    functions = {"VALUE": None, "SLOPE": None, "SPREAD": None}
    for launch in (ahead._forward, back._rows, back._columns):
        expected = {**sizes, **functions, **PLAIN, **MEASURED[d][launch.kernel.__name__]}
        found = dict(launch.options)
        assert found.pop("FORM") in (LAYERS, ONE)
        assert found == expected
    for launch, widths in (
        (ahead._merge, ("DV", "WV")),
        (back._add, ("D", "WD")),
        (back._add_both, ("D", "WD", "DV", "WV")),
    ):
        assert launch.options == {"BLOCK": 64, **dict.fromkeys(widths, d), "num_warps": 4}
