"""What the machine has for kernels, as the reason of a refusal."""

import os
from functools import lru_cache
from importlib.util import find_spec


@lru_cache
def _installed(package: str) -> bool:
    """Looked up once: a search through the path takes half a millisecond."""
    return find_spec(package) is not None


def no_triton(device: str) -> str | None:
    """Why Triton cannot run on a device; its interpreter, for tests, runs on a CPU."""
    if device != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"it runs on a CUDA GPU, not on {device}"
    if not _installed("triton"):
        return 'triton is not installed: pip install "edgewise[gpu]"'
    return None


def no_numba(device: str) -> str | None:
    """Why loops compiled by numba cannot run on a device."""
    if device != "cpu":
        return f"it runs on a CPU, not on {device}"
    if not _installed("numba"):
        return 'numba is not installed: pip install "edgewise[cpu]"'
    return None
