"""Sequences that are sharded over processes are refused: one process does not see all keys."""

import pytest
import torch
import torch.distributed as dist

from edgewise import R, V
from edgewise.distributed.errors import NotDistributed
from edgewise.graphs import window
from edgewise.kernels.attention import attention, prepare
from edgewise.kernels.attention.errors import UnsupportedDevice


@pytest.fixture
def mesh(tmp_path):
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_context_parallel_is_refused(mesh):
    from torch.distributed.tensor.experimental import context_parallel

    x = torch.randn(1, 2, 8, 4)
    call, right = prepare(x, x, x, window(1)), attention(x, x, x, window(1))
    with context_parallel(mesh, buffers=[x], buffer_seq_dims=[2]):
        for run in (lambda: attention(x, x, x, window(1)), lambda: attention(x, x, x)):
            with pytest.raises(UnsupportedDevice, match="context_parallel"):
                run()
        with pytest.raises(UnsupportedDevice, match="context_parallel"):
            call(x, x, x)
    torch.testing.assert_close(attention(x, x, x, window(1)), right)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("condition", [[], [window(1)(V.I, V.J)]], ids=["dense", "window"])
def test_a_compiled_model_refuses_it_too(mesh, condition):
    from torch.distributed.tensor.experimental import context_parallel

    from edgewise import F, Program

    weights = R.weights(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), *condition)
    model = Program(
        [
            weights | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.out(V.I) <= (R.weights(V.I, V.J), R.x(V.J))) | [F.product],
        ]
    ).compile(R.out)
    x = torch.randn(1, 8, 4)
    for _ in range(4):  # later calls run what was recorded
        model(x=x)
    with (
        context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]),
        pytest.raises(UnsupportedDevice, match="context_parallel"),
    ):
        model(x=x)


def test_somebody_elses_patch_of_torch_is_none_of_ours(monkeypatch):
    x = torch.randn(1, 2, 8, 4)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", lambda *_, **__: None)
    assert attention(x, x, x).shape == x.shape


def test_dtensors_and_plain_tensors_do_not_mix(mesh):
    from torch.distributed.tensor import Replicate, distribute_tensor

    x = torch.randn(1, 2, 8, 4)
    spread = distribute_tensor(x, mesh, [Replicate()])
    with pytest.raises(NotDistributed, match="`k` is not one"):
        attention(spread, x, x)
    with pytest.raises(UnsupportedDevice, match="`bias` is a DTensor"):
        attention(x, x, x, bias=spread[..., :1])
