"""The kernels along graphs compile for a Hopper GPU, which needs none: the interpreter checks no
types, and takes what a compiler refuses."""

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from triton import compile as compiled
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from edgewise.kernels.attention.triton.score import functions
from edgewise.kernels.edges import triton_attention_kernels as attention
from edgewise.kernels.edges import triton_segment_kernels as segments
from edgewise.scores import relative, softcap
from edgewise.scores.nodes import S

INDICES = "Pieces Rows Index Owner Slot Perm Order Ptr Member Low Sizes"
NUMBERS = "slope scale sign keep"


def ptx(kernel, constants, floats="fp32"):
    """The code of a kernel whose pointers are to `floats`, except to indices and wide sums."""
    kinds = {}
    for name in kernel.arg_names:
        if name in constants:
            kinds[name] = "constexpr"
        elif name == "DTables":
            kinds[name] = "*i64"
        elif name in INDICES.split():
            kinds[name] = "*i32"
        elif name in (
            "Lse",
            "Delta",
            "Stats",
            "DVector",
            "Share",
            "Unit",
            "DEdgeKey",
            "DEdgeValue",
        ) or name.startswith("Part"):
            kinds[name] = "*fp32"
        elif name[0].isupper():
            kinds[name] = f"*{floats}"
        else:
            kinds[name] = "fp32" if name in NUMBERS.split() else "i32"
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, kinds, places)
    made = compiled(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})
    return made.asm["ptx"]


@pytest.mark.parametrize("floats", ["fp32", "bf16"])
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    "kernel", ["segment_sum", "segment_sum_short", "edge_dots", "segment_extreme", "equal_sum"]
)
def test_rows(kernel, cut, floats):
    function = getattr(segments, kernel)
    constants = {"SPLIT": cut, "SCALE": cut, "E": 32, "D": 4 if cut else 64}
    constants = {name: value for name, value in constants.items() if name in function.arg_names}
    code = ptx(function, constants, floats)
    assert "st.global" in code
    assert "atom" not in code  # sums are in one order


@pytest.mark.parametrize("precision", ["ieee", "tf32", "tf32x3"])
@pytest.mark.parametrize("kernel", ["linear", "outer"])
def test_grouped(kernel, precision):
    function = getattr(segments, f"grouped_{kernel}")
    constants = {"R": 64, "N": 64, "K": 32, "CHUNK": 4096, "PRECISION": precision}
    constants = {name: value for name, value in constants.items() if name in function.arg_names}
    assert ("mma" in ptx(function, constants)) == (precision != "ieee")


FLAGS = ("SCORE", "BIAS", "FACTOR", "DROP", "EDGE_KEY", "EDGE_VALUE")


@pytest.mark.parametrize("floats", ["fp32", "fp16"])
@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize(
    "kernel", ["forward", "backward_numbers", "backward_columns", "backward_rows"]
)
def test_additive_attention(kernel, kind, floats):
    if kernel == "backward_rows" and kind == 1:
        return  # their gradients need no pass over rows
    function = getattr(attention, kernel)
    for more in (False, True):
        constants = dict.fromkeys(("VALUE", "SLOPE", "SPREAD")) | dict.fromkeys(FLAGS, False)
        constants |= {"KIND": kind, "DROP": more, "SPLIT": more, "E": 4, "D": 16, "DV": 32}
        constants |= {"H": 4 if more else 1, "R": 16}
        constants = {name: x for name, x in constants.items() if name in function.arg_names}
        code = ptx(function, constants, floats)
        assert "st.global" in code
        assert "atom" not in code


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("terms", [False, True])
@pytest.mark.parametrize("kernel", ["forward", "backward_rows", "backward_columns"])
def test_attention(kernel, terms, heads):
    function = getattr(attention, kernel)
    score = softcap(2.0) + relative(torch.zeros(1, 5))
    code = functions(score.node if terms else S)
    constants = {"VALUE": code.value, "SLOPE": code.slope, "SPREAD": code.spread}
    constants |= dict.fromkeys(FLAGS, terms) | {"E": 4, "H": heads, "D": 16, "DV": 32}
    constants |= {"KIND": 0, "SPLIT": terms}
    constants = {name: value for name, value in constants.items() if name in function.arg_names}
    assert "st.global" in ptx(function, constants, "bf16" if terms else "fp32")
