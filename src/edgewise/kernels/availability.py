"""What the machine has for kernels, as the reason of a refusal."""

import os
from importlib.util import find_spec


def no_triton(device: str) -> str | None:
    """Why Triton cannot run on a device; its interpreter, for tests, runs on a CPU."""
    if device != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"it runs on a CUDA GPU, not on {device}"
    if find_spec("triton") is None:
        return 'triton is not installed: pip install "edgewise[gpu]"'
    return None


def no_numba(device: str) -> str | None:
    """Why loops compiled by numba cannot run on a device."""
    if device != "cpu":
        return f"it runs on a CPU, not on {device}"
    if find_spec("numba") is None:
        return 'numba is not installed: pip install "edgewise[cpu]"'
    return None
