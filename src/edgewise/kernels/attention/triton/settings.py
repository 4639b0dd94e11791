"""How the passes of the block kernels are launched: tables of what was measured on an H200.

`bench/tune_blocks_gpu.py` times others beside them.
"""

from functools import lru_cache
from typing import NamedTuple

import torch

from edgewise.kernels.attention.contract import Case
from edgewise.kernels.attention.triton.launch import width


class Setting(NamedTuple):
    """Queries, and keys, of a block; warps, pipeline stages, and the most registers of a thread.

    Products of float32 are computed with `precision`: "ieee", in sums of one thread each; "tf32x3",
    on tensor cores in three parts, as exact but for the last bits; or "tf32", rounded.
    """

    block: int
    warps: int
    stages: int
    registers: int | None = None
    precision: str = "tf32"


Passes = dict[str, Setting]
# By precision and by features, each filled up to a power of two; rows and columns of one case have
# the same block. In 16 bits so few registers that four (four, three) programs share a
# multiprocessor. In three parts of TF32 a pass of float32 takes a half to an eighth of the time
# that it takes in sums of one thread, with errors of the same size.
SETTINGS: dict[tuple[str, int], Passes] = {
    ("half", 64): {
        "forward": Setting(64, 4, 2, 128),
        "rows": Setting(64, 4, 2, 128),
        "columns": Setting(64, 4, 3, 168),
    },
    ("half", 128): dict.fromkeys(("forward", "rows", "columns"), Setting(64, 4, 2)),
    ("half", 256): {
        "forward": Setting(128, 8, 1),
        "rows": Setting(64, 8, 2),
        "columns": Setting(64, 8, 2),
    },
    ("float32", 64): {
        "forward": Setting(64, 4, 2, precision="tf32x3"),
        "rows": Setting(64, 4, 1, precision="tf32x3"),
        "columns": Setting(64, 4, 1, precision="tf32x3"),
    },
    ("float32", 128): dict.fromkeys(
        ("forward", "rows", "columns"), Setting(64, 4, 1, precision="tf32x3")
    ),
    ("float32", 256): dict.fromkeys(
        ("forward", "rows", "columns"), Setting(64, 8, 1, precision="tf32x3")
    ),
    # where torch allows TF32: tensor cores, on tiles of twice the bytes
    ("rounded", 64): dict.fromkeys(("forward", "rows", "columns"), Setting(64, 4, 2)),
    ("rounded", 128): dict.fromkeys(("forward", "rows", "columns"), Setting(64, 8, 2)),
    ("rounded", 256): dict.fromkeys(("forward", "rows", "columns"), Setting(32, 8, 1)),
}
WIDEST = 256  # features of a row of the tables
WRITTEN_OUT = 2  # stages, at most, where scores have terms


@lru_cache
def has_engine() -> bool:
    """From Hopper on a chip copies tiles by itself; desktop chips have other tensor cores."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] in (9, 10)


def kind_of(case: Case) -> tuple[str, int]:
    """Its key in the tables. The gradient of the log-sum-exp has one more feature than the case."""
    kind = "rounded" if case.tf32 else "float32" if case.dtype == torch.float32 else "half"
    return kind, min(max(width(max(case.d, case.dv)), 64), WIDEST)


def setting(case: Case, step: str) -> Setting:
    """That of a pass: "forward", or "rows" or "columns" of the backward pass."""
    kind, wide = kind_of(case)
    found = SETTINGS[kind, wide][step]
    if not has_engine() and kind != "float32":  # fewest spills, in the memory of a desktop chip
        return Setting(64 if kind == "half" and wide <= 128 else 32, 8, 1)
    if kind == "half" and case.written_out:
        return found._replace(stages=min(found.stages, WRITTEN_OUT), registers=None)
    return found


def block_of(case: Case, step: str = "forward") -> int:
    """Queries, and keys, of a block."""
    return setting(case, step).block


def launch_options(step: str, case: Case) -> dict[str, int]:
    found = setting(case, step)
    options = {"num_warps": found.warps, "num_stages": found.stages}
    return options if found.registers is None else {**options, "maxnreg": found.registers}


def precision_of(case: Case, step: str = "forward") -> str:
    """Of products of float32; of others it says nothing."""
    return setting(case, step).precision
