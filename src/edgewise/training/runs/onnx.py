"""A model as an ONNX file, for any number of texts up to a length.

Attention along a sparsity pattern is one operator in a trace; here it is masked attention, the
mask a constant. The rules are grounded for one shape, and so is the graph that torch exports:
`Scan` runs it for every text, `Pad` makes shorter texts as long as it wants them.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgewise.errors import caller
from edgewise.graphs import Pattern
from edgewise.graphs.drawing import require_package
from edgewise.inputs.kinds import numbers
from edgewise.kernels.attention.calls.trace_names import thing_of
from edgewise.save.archive import write
from edgewise.training.errors import NotExportable
from edgewise.zoo.pretrained.model import Pretrained

PACKAGES = ("onnx", "onnxscript")
MASKED = -1e30
INTEGERS = ("token", "segment", "source", "target")  # inputs that are token ids
SAFETENSORS = "`--to safetensors` writes every model"
SCORE = "('leaf', 's')"  # q · k alone
BATCH, ROWS = "batch", "_tokens"
ONE = ".text"  # names inside the loop over texts


def to_onnx(model: Pretrained, path: Path, *, length: int | None = None) -> str:
    """Write a model as ONNX for any number of texts of up to `length` tokens; says what it reads.

    Inputs have the names that the rules read; a mask is 1 at tokens and 0 at padding. Where padding
    would change a result, since the graph of the attention depends on the number of tokens or there
    is no mask, texts have exactly `length` tokens.
    """
    if model.architecture == "recurrent":
        what = "a recurrent model cannot be written as ONNX: its rules are a loop over the tokens"
        raise NotExportable(what, caller(), SAFETENSORS)
    for package in PACKAGES:
        require_package(package)
    n = min(model.config.length, 128) if length is None else length
    module = _Named(model)
    inputs = tuple(module.example(1, n))
    names, padded = list(model.model.inputs), _ignores_padding(module, n)
    problem: Any
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            made = _translated(torch.export.export(module, inputs), inputs, names)
            rows = made.graph.output[0].type.tensor_type.shape.dim[1].dim_value == n
            follows = next((name for name in ("target", "token") if rows and name in names), None)
            made = batched(made, n, padded=padded, follows=follows)
            write(path, made.SerializeToString())
    except torch.onnx.errors.OnnxExporterError as found:
        problem = found
        while problem.__cause__ is not None:
            problem = problem.__cause__
        raise NotExportable(
            f"the model cannot be written as ONNX: {str(problem)[:160]}",
            caller(),
            SAFETENSORS,
        ) from None
    return f"inputs {', '.join(names)}; any number of texts of {'up to ' * padded}{n} tokens"


@torch.no_grad()
def _ignores_padding(module: _Named, n: int) -> bool:
    """Whether texts of fewer than n tokens give the same when they are padded to n."""
    draws = torch.Generator().manual_seed(0)
    for short in sorted({1, n // 3, n - 1} - {0, n}):
        inputs = module.example(1, short)
        for x in inputs:
            if not x.is_floating_point():
                x.random_(module.words, generator=draws)
        wide = [torch.cat([x, x.new_zeros(1, n - short, *x.shape[2:])], 1) for x in inputs]
        expected, found = module(*inputs), module(*wide)
        found = found[:, :short] if found.shape[1:] != expected.shape[1:] else found
        if found.shape != expected.shape or not torch.allclose(found, expected, atol=1e-4):
            return False
    return True


class _Named(nn.Module):
    """The model with its inputs in order, as tensors."""

    def __init__(self, model: Pretrained) -> None:
        super().__init__()
        self.program = model.model
        self.dtype: torch.dtype = model.dtype
        self.words: int = model.config.vocabulary

    def forward(self, *inputs: Tensor) -> Tensor:
        named = zip(self.program.inputs, inputs, strict=True)
        out: Tensor = self.program(**{n: numbers(x) if n in INTEGERS else x for n, x in named})
        return out

    def example(self, batch: int, n: int) -> list[Tensor]:
        ones = torch.ones(batch, n, 1, dtype=self.dtype)
        known = dict.fromkeys(INTEGERS, torch.zeros(batch, n, dtype=torch.int64))
        floats = {"mask": ones, "share": ones / n, "end": ones}
        return [(known | floats)[name].clone() for name in self.program.inputs]


def _translated(traced: Any, inputs: Sequence[Tensor], names: list[str]) -> Any:
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)  # packages that it does not find
    try:
        made = torch.onnx.export(
            traced,
            tuple(inputs),
            dynamo=True,
            verbose=False,
            input_names=names,
            output_names=["output"],
            custom_translation_table={torch.ops.edgewise.attend.default: _attend},
        )
    finally:
        log.setLevel(level)
    assert made is not None
    return made.model_proto


def _attend(q: Any, k: Any, v: Any, *rest: Any) -> tuple[Any, Any]:
    """The operator `edgewise::attend` in ONNX: softmax over the pairs of a pattern."""
    from onnxscript import opset18

    op: Any = opset18
    bias, *terms, tables, seed, graph, score, scale, offset, _, _, _ = rest
    pattern = thing_of(graph)
    plain = score == SCORE and isinstance(pattern, Pattern) and not (tables or offset)
    if not plain or seed is not None or any(term is not None for term in terms):
        raise NotImplementedError(
            f"the scores of its attention are more than q · k, along {pattern}"
        )
    here = pattern.dense(q.shape[2], k.shape[1])
    one, last = op.Constant(value_ints=[1]), op.Constant(value_ints=[-1])
    mask, hidden = _constant(here.float()), _constant(torch.where(here, 0.0, MASKED))
    factor = op.CastLike(op.Constant(value_float=float(scale)), q)
    keys = op.Transpose(op.Unsqueeze(k, one), perm=[0, 1, 3, 2])
    scores = op.Add(op.Mul(op.MatMul(q, keys), factor), op.CastLike(hidden, q))
    present = op.CastLike(mask, q)
    if bias is not None:  # -∞ where a token is padding
        least, added = op.CastLike(op.Constant(value_float=MASKED), q), op.CastLike(bias, q)
        scores = op.Max(op.Add(scores, added), least)
        present = op.Mul(present, op.CastLike(op.Greater(added, least), q))
    shares = op.Mul(op.Softmax(scores, axis=-1), present)  # rows without keys: 0
    return op.MatMul(shares, op.Unsqueeze(v, one)), op.ReduceLogSumExp(scores, last, keepdims=0)


def _constant(values: Tensor) -> Any:
    from onnx import numpy_helper
    from onnxscript import opset18 as op

    return op.Constant(value=numpy_helper.from_array(values.numpy()))


def batched(model: Any, longest: int, *, padded: bool, follows: str | None) -> Any:
    """The ONNX model that reads (texts, tokens) for one that reads (1, `longest`).

    `padded`: texts may be shorter, and are padded with 0. `follows` is the input whose tokens the
    rows of the output follow, if it has rows.
    """
    from onnx import helper, numpy_helper

    inner, names = model.graph, [value.name for value in model.graph.input]
    (output,) = inner.output
    outer = [
        *(_padding(names) if padded else ()),
        *_loop(inner, names, [f"{name}.padded" if padded else name for name in names]),
        *_cut(output.name, follows if padded else None),
    ]
    constants = {"first": [0], "axis": [1], "left": np.arange(longest, -1, -1)}
    made = helper.make_graph(
        outer,
        inner.name,
        [
            _renamed(value, value.name, BATCH, f"{value.name}{ROWS}" if padded else None)
            for value in inner.input
        ],
        [_renamed(output, output.name, BATCH, f"{follows}{ROWS}" if padded and follows else None)],
        [
            *inner.initializer,
            *(numpy_helper.from_array(np.array(v, np.int64), n) for n, v in constants.items()),
        ],
    )
    model.graph.CopyFrom(made)
    return model


def _padding(names: list[str]) -> list[Any]:
    """`name`.padded for each input; more tokens than the longest text are out of `left`."""
    from onnx.helper import make_node

    found = []
    for name in names:
        count, left, pads = (f"{name}.{part}" for part in ("count", "left", "pads"))
        found += [
            make_node("Shape", [name], [count], start=1, end=2),
            make_node("Gather", ["left", count], [left]),
            make_node("Concat", ["first", left], [pads], axis=0),
            make_node("Pad", [name, pads, "", "axis"], [f"{name}.padded"]),
        ]
    return found


def _loop(inner: Any, names: list[str], read: list[str]) -> list[Any]:
    """The graph of one text for every text; its weights stay outside."""
    from onnx import helper

    (output,) = inner.output
    known = {name: f"{name}{ONE}" for name in (*names, output.name)}
    nodes = [helper.make_node("Unsqueeze", [f"{n}.row", "first"], [known[n]]) for n in names]
    for node in inner.node:
        node.input[:] = [known.get(name, name) for name in node.input]
        node.output[:] = [known.get(name, name) for name in node.output]
        nodes.append(node)
    nodes.append(helper.make_node("Squeeze", [known[output.name], "first"], ["output.row"]))
    body = helper.make_graph(
        nodes,
        "text",
        [_row(value, f"{value.name}.row") for value in inner.input],
        [_row(output, "output.row")],
    )
    return [helper.make_node("Scan", read, ["output.rows"], body=body, num_scan_inputs=len(read))]


def _cut(output: str, follows: str | None) -> list[Any]:
    from onnx.helper import make_node

    if follows is None:
        return [make_node("Identity", ["output.rows"], [output])]
    return [make_node("Slice", ["output.rows", "first", f"{follows}.count", "axis"], [output])]


def _row(value: Any, name: str) -> Any:
    """A value of one text, without the batch."""
    from onnx import helper

    shape = value.type.tensor_type.shape.dim[1:]
    return helper.make_tensor_value_info(
        name, value.type.tensor_type.elem_type, [dim.dim_value for dim in shape]
    )


def _renamed(value: Any, name: str, batch: str, tokens: str | None) -> Any:
    """A value of a batch, whose number of tokens has a name if it is not fixed."""
    from onnx import helper

    sizes: list[Any] = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    sizes[0] = batch
    sizes[1:2] = [tokens or size for size in sizes[1:2]]
    return helper.make_tensor_value_info(name, value.type.tensor_type.elem_type, sizes)
