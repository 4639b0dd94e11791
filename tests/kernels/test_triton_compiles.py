"""The block kernels compile for a Hopper GPU, which needs none: the interpreter checks no types."""

import re
import subprocess
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from triton import compile as compiled
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from edgewise.graphs import window
from edgewise.kernels.attention.contract import Case
from edgewise.kernels.attention.triton import block_kernels as kernels
from edgewise.kernels.attention.triton import decoding as triton_decoding
from edgewise.kernels.attention.triton import decoding_kernels as decoding
from edgewise.kernels.attention.triton import settings as triton_settings
from edgewise.kernels.attention.triton.launch import width
from edgewise.kernels.attention.triton.lists import BITS, LAYERS, ONE
from edgewise.kernels.attention.triton.score import functions
from edgewise.kernels.attention.triton.settings import (
    SETTINGS,
    block_of,
    launch_options,
    precision_of,
)
from edgewise.scores import S as S_
from edgewise.scores.library import alibi, relative, softcap
from edgewise.scores.nodes import S

TYPES = {
    "*i32": "Items LayerPtr Sizes",
    "*i64": "Stats Work DTables DBias",
    "*fp32": "Lse PartOut PartLse Part PartK PartV Tables Unit",
    "fp32": "scale keep",
}  # fmt: skip
PASSES = {
    "forward": kernels.forward,
    "rows": kernels.backward_rows,
    "columns": kernels.backward_columns,
}


SHARED = 227 << 10  # bytes of shared memory of a multiprocessor of an H200
DISTANCES = S_ + relative(torch.zeros(1, 5))


@pytest.fixture(autouse=True)
def hopper(monkeypatch):
    monkeypatch.setattr(triton_settings, "has_engine", lambda: True)


def compiled_pass(step, case, form=ONE, batch=False):
    """A pass as it is launched for a case; its terms are all or none."""
    kernel, kind = PASSES[step], {torch.bfloat16: "bf16", torch.float32: "fp32"}[case.dtype]
    code, more, block = functions(case.score), case.score != S, block_of(case, step)
    wide = [width(x) for x in (case.d, case.dv)]
    constants = {"BLOCK": block, "D": case.d, "DV": case.dv, "WD": wide[0], "WV": wide[1]}
    constants |= {"FORM": form, "BATCH": batch, "PRECISION": precision_of(case, step)}
    constants |= {"VALUE": code.value, "SLOPE": code.slope, "SPREAD": code.spread}
    constants |= {"SCORE": more, "BIAS": more, "DROP": more}
    types = dict.fromkeys(constants, "constexpr")
    types |= {name: found for found, names in TYPES.items() for name in names.split()}
    types["Ends"] = "*i64" if form == BITS else "*i32"
    types |= {name: f"*{kind}" for name in ("Out", "DQ", "DK", "DV_", "Bias")}
    tiles = zip("QKVG", (wide[0], *wide, wide[1]), strict=True)
    types |= {x: f"tensordesc<{kind}[1, 1, {block}, {size}]>" for x, size in tiles}
    if step == "rows":  # which reads the output
        types["Out"] = types["V"]
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source, options = ASTSource(kernel, signature, places), launch_options(step, case)
    return compiled(source, target=GPUTarget("cuda", 90, 32), options=options)


def case_of(d, dv, dtype=torch.bfloat16, score=S):
    features = frozenset() if score == S else frozenset({"score", "bias", "dropout"})
    return Case(1, 1, 512, 512, d, dv, dtype, "cuda", window(9), 0.1, features, score)


@pytest.mark.parametrize("step", PASSES)
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(
    ("d", "dv", "form", "score"),
    [
        *((64, 64, ONE, S), (64, 32, LAYERS, S), (16, 128, ONE, S), (64, 64, BITS, S)),
        *((64, 64, ONE, score.node) for score in (softcap(9.0), S_ + alibi(2), DISTANCES)),
    ],
)
def test_a_pass_compiles(step, d, dv, form, score, batch):
    made = compiled_pass(step, case_of(d, dv, score=score), form, batch)
    assert "wgmma.mma_async" in made.asm["ptx"]


@pytest.mark.parametrize("step", PASSES)
def test_the_widest_heads_fit_on_the_chip(step):
    made = compiled_pass(step, case_of(256, 192))
    assert "wgmma.mma_async" in made.asm["ptx"]
    assert made.metadata.shared <= SHARED


def compiled_decoding(d, dtype, rows=16, score=S, layers=0, ragged=False):
    """The kernel that splits keys, with strides that are multiples of 16, as caches have them."""
    kernel, kind = decoding.split_keys, {torch.bfloat16: "bf16", torch.float32: "fp32"}[dtype]
    case = replace(case_of(d, d, dtype, score), n=rows)
    code = triton_decoding.code_of(case, layers, ragged)
    options = {name: code.pop(name) for name in ("num_warps", "num_stages")}
    constants = code | {"ROWS": rows, "DV": d, "WV": width(d)}
    types = dict.fromkeys(constants, "constexpr") | {"scale": "fp32"}
    types |= dict.fromkeys(["PartOut", "PartLse", "Tables"], "*fp32")
    types |= dict.fromkeys(["Runs", "Layers", "Sizes"], "*i32") | {"Lengths": "*i64"}
    types |= dict.fromkeys(["Q", "K", "V", "Bias"], f"*{kind}")
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    wide = ("Q", "K", "V", "PartOut", "qb", "qh", "qn", "kb", "kh", "km", "vb", "vh", "vm")
    hints = {(kernel.arg_names.index(x),): [["tt.divisibility", 16]] for x in wide}
    source = ASTSource(kernel, signature, places, hints)
    return compiled(source, target=GPUTarget("cuda", 90, 32), options=options)


@pytest.mark.parametrize(
    ("d", "dtype", "score"),
    [
        *((128, torch.bfloat16, S), (80, torch.bfloat16, softcap(9.0).node)),
        *((256, torch.bfloat16, S), (64, torch.float32, S)),
    ],
)
def test_decoding_compiles_and_fits(d, dtype, score):
    made = compiled_decoding(d, dtype, score=score, ragged=score == S)
    assert made.metadata.shared <= SHARED
    assert "ld.global.v4" in made.asm["ptx"] or "cp.async.cg" in made.asm["ptx"]


@pytest.mark.parametrize("step", PASSES)
@pytest.mark.parametrize("d", [64, 80, 256])
def test_rounded_float32_runs_on_tensor_cores(step, d):
    """Where torch allows TF32."""
    made = compiled_pass(step, replace(case_of(d, d, torch.float32), tf32=True))
    assert "wgmma.mma_async" in made.asm["ptx"] or "mma.sync" in made.asm["ptx"]
    assert made.metadata.shared <= SHARED


@pytest.mark.parametrize(("step", "most"), [("forward", 0), ("rows", 512), ("columns", 1152)])
def test_bytes_that_float32_spills(step, most, tmp_path):
    """For each thread; blocks of 32 spill less in the backward passes, and take longer or as long
    (bench/results/tune_blocks_gpu.json)."""
    file = tmp_path / "pass.cubin"
    file.write_bytes(compiled_pass(step, case_of(64, 64, torch.float32)).asm["cubin"])
    command = [knobs.nvidia.cuobjdump.path, "-res-usage", str(file)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(re.search(r"STACK:(\d+)", found)[1]) <= most


@pytest.mark.parametrize("step", PASSES)
def test_float32_in_three_parts_runs_on_tensor_cores(step, monkeypatch):
    setting = SETTINGS["float32", 64][step]._replace(block=32, precision="tf32x3")
    monkeypatch.setitem(SETTINGS["float32", 64], step, setting)
    made = compiled_pass(step, case_of(64, 64, torch.float32))
    assert "wgmma.mma_async" in made.asm["ptx"] or "mma.sync" in made.asm["ptx"]
    assert made.metadata.shared <= SHARED


def test_passes_over_rows_and_columns_have_one_block():
    for passes in SETTINGS.values():
        assert passes["rows"].block == passes["columns"].block
