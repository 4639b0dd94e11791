"""An ONNX graph of one text as one of a batch: texts are padded, and computed one by one.

The rules are grounded for one shape, so a graph that is exported has it, too. `Scan` runs it for
every text; `Pad` makes shorter texts as long as the graph wants them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BATCH, ROWS = "batch", "_tokens"
ONE = ".text"  # names inside the loop over texts


def batched(model: Any, longest: int, *, padded: bool, follows: str | None) -> Any:
    """A model that reads (texts, tokens) for one that reads (1, `longest`).

    `padded`: texts may be shorter, and are padded with 0. `follows` is the input whose tokens the
    rows of the output follow, if it has rows.
    """
    from onnx import helper, numpy_helper

    inner, names = model.graph, [value.name for value in model.graph.input]
    (output,) = inner.output
    outer = [
        *(_padding(names, longest) if padded else ()),
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


def _padding(names: list[str], longest: int) -> list[Any]:
    """`name`.padded for each input; more tokens than `longest` are out of the bounds of `left`."""
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
