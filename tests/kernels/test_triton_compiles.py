"""The block kernels compile for a Hopper GPU, which needs none: the interpreter checks no types."""

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from triton import compile as compiled
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from edgewise.kernels.attention import triton_block_kernels as kernels
from edgewise.kernels.attention.triton_passes import BLOCK, LAUNCH
from edgewise.kernels.attention.triton_score import functions
from edgewise.scores import S as S_
from edgewise.scores.library import alibi, relative, softcap
from edgewise.scores.nodes import S

TYPES = {
    "*bf16": "Out DQ DK DV_ Bias", "*i32": "Items LayerPtr Ends Sizes",
    "*i64": "Stats Work DTables DBias",
    "*fp32": "Lse PartOut PartLse Part PartK PartV Tables Unit",
    "fp32": "scale keep",
}  # fmt: skip
PASSES = {
    "forward": kernels.forward,
    "rows": kernels.backward_rows,
    "columns": kernels.backward_columns,
}


DISTANCES = S_ + relative(torch.zeros(1, 5))


@pytest.mark.parametrize("step", PASSES)
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(
    ("d", "dv", "one", "score"),
    [
        *((64, 64, True, S), (64, 32, False, S), (16, 128, True, S)),
        *((64, 64, True, score.node) for score in (softcap(9.0), S_ + alibi(2), DISTANCES)),
    ],
)
def test_a_pass_compiles(step, d, dv, one, score, batch):
    kernel, (warps, stages, registers) = PASSES[step], LAUNCH[step]
    code, more = functions(score), score != S
    constants = {"BLOCK": BLOCK, "D": d, "DV": dv, "ONE": one, "BATCH": batch}
    constants |= {"PRECISION": "tf32"}
    constants |= {"VALUE": code.value, "SLOPE": code.slope, "SPREAD": code.spread}
    constants |= {"SCORE": more, "BIAS": more, "DROP": more}
    types = dict.fromkeys(constants, "constexpr")
    types |= {name: kind for kind, names in TYPES.items() for name in names.split()}
    widths = zip("QKVG", (d, d, dv, dv), strict=True)
    types |= {x: f"tensordesc<bf16[1, 1, {BLOCK}, {width}]>" for x, width in widths}
    if step == "rows":  # which reads the output
        types["Out"] = types["V"]
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    options = {"num_warps": warps, "num_stages": stages}
    if max(d, dv) == 64 and not more:
        options["maxnreg"] = registers
    source = ASTSource(kernel, signature, places)
    made = compiled(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert "wgmma.mma_async" in made.asm["ptx"]
