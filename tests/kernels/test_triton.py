"""The GPU kernels in Triton's interpreter; on a GPU, bench/attention_gpu_checks.py does."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch

from edgewise.graphs import window
from edgewise.kernels.attention import attention
from edgewise.kernels.attention.contract import Case
from edgewise.kernels.attention.errors import KernelRefuses
from edgewise.kernels.attention.triton import blocks as triton_blocks

FILES = ["triton_checks.py", "edges_triton_checks.py", "decoding_triton_checks.py"]


@pytest.mark.parametrize("file", FILES)
def test_interpreted_kernels_are_as_exact_as_the_reference(file):
    """Triton must know that it interprets before it is imported, so this is another process."""
    pytest.importorskip("triton", reason="triton is not installed")
    checks = pathlib.Path(__file__).with_name(file)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(checks)]
    command += ["-W", "ignore::DeprecationWarning"]  # numpy's, in the interpreter
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.parametrize("kernel", ["triton_blocks", "triton_csr", "triton_decoding"])
def test_it_runs_on_a_gpu_only(kernel):
    x = torch.zeros(1, 8, 4)
    with pytest.raises(KernelRefuses, match="CUDA GPU, not on cpu"):
        attention(x, x, x, window(1), kernel=kernel)


def test_more_heads_than_one_launch_takes_are_refused():
    pytest.importorskip("triton", reason="triton is not installed")
    case = Case(65536, 1, 9, 9, 16, 16, torch.float16, "cuda", window(1), 1.0)
    assert triton_blocks.refuses(case) == "65,536 heads, over the batch, are more than 65,535"
