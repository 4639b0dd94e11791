"""The block kernels compile for a Hopper GPU, which needs none: the interpreter checks no types."""

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from triton import compile as compiled
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from edgewise.kernels.attention import triton_block_kernels as kernels
from edgewise.kernels.attention.triton_blocks import BLOCK, LAUNCH

POINTERS = {
    "Out": "*bf16", "Lse": "*fp32", "PartOut": "*fp32", "PartLse": "*fp32", "Stats": "*i64",
    "DQ": "*bf16", "DK": "*bf16", "DV_": "*bf16", "Part": "*fp32", "PartK": "*fp32",
    "PartV": "*fp32", "Items": "*i32", "Work": "*i64", "LayerPtr": "*i32", "Ends": "*i32",
    "scale": "fp32",
}  # fmt: skip
PASSES = {
    "forward": kernels.forward,
    "rows": kernels.backward_rows,
    "columns": kernels.backward_columns,
}


@pytest.mark.parametrize("step", PASSES)
@pytest.mark.parametrize(("d", "dv", "one"), [(64, 64, True), (64, 32, False), (16, 128, True)])
def test_a_pass_compiles(step, d, dv, one):
    kernel, (warps, stages, registers) = PASSES[step], LAUNCH[step]
    constants = {"BLOCK": BLOCK, "D": d, "DV": dv, "ONE": one, "PRECISION": "tf32"}
    tiles = {
        x: f"tensordesc<bf16[1, {BLOCK}, {w}]>" for x, w in zip("QKVG", (d, d, dv, dv), strict=True)
    }
    types = {**dict.fromkeys(constants, "constexpr"), **POINTERS, **tiles}
    if step == "rows":  # which reads the output
        types["Out"] = tiles["V"]
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    options = {"num_warps": warps, "num_stages": stages}
    if max(d, dv) == 64:
        options["maxnreg"] = registers
    source = ASTSource(kernel, signature, places)
    made = compiled(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert "wgmma.mma_async" in made.asm["ptx"]
