"""Sequences that are sharded over devices, which no kernel here attends across."""

from torch import Tensor
from torch.nn import functional

from edgewise.errors import caller
from edgewise.kernels.attention.errors import UnsupportedDevice

SDPA = functional.scaled_dot_product_attention
PARALLEL = "torch.distributed.tensor"


def refuse_context_parallel() -> None:
    """Inside `context_parallel` every process holds a part of the sequence, and torch replaces its
    own attention by one that passes keys around; another one would attend to its own part alone."""
    now = functional.scaled_dot_product_attention
    if now is not SDPA and getattr(now, "__module__", "").startswith(PARALLEL):
        raise UnsupportedDevice(
            "attention inside `context_parallel` would attend to the keys of its own process alone",
            caller(),
            "shard the batch or the heads, or call it outside of `context_parallel`",
        )


def refuse_dtensor(x: Tensor, name: str) -> None:
    """A `DTensor` is told by its type: torch.distributed need not be loaded for it."""
    kinds = [(kind.__name__, kind.__module__) for kind in type(x).__mro__]
    if any(kind == "DTensor" and module.startswith(PARALLEL) for kind, module in kinds):
        raise UnsupportedDevice(
            f"`{name}` is a DTensor, and attention runs on one device",
            caller(),
            f"give `{name}.to_local()` where each process has complete sequences, or "
            f"`{name}.full_tensor()`",
        )
