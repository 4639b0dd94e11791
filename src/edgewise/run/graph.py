"""A grounded step as a `torch.fx.GraphModule`: straight tensor operations, nothing to look up.

`torch.compile` and `torch.export` read it at once, where following every rule would cost them
seconds a layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.fx.experimental.proxy_tensor import make_fx

from edgewise.errors import EdgewiseError
from edgewise.run.recursion import Rounds
from edgewise.run.step import Step
from edgewise.run.traced import as_operators

aten = torch.ops.aten
# these give their first argument back where shape, strides and precision stay
IDLE = {
    *(aten.to.dtype, aten.to.dtype_layout, aten.reshape.default, aten.view.default),
    *(aten.expand.default, aten.flatten.using_ints, aten.contiguous.default),
    aten.permute.default,
}


RESHAPES = {
    *(aten.reshape.default, aten.view.default, aten.flatten.using_ints, aten.unflatten.int),
    *(aten.unsqueeze.default, aten.squeeze.dim),
}
# written down around attention, whose operator needs neither
NOTES = {aten._assert_tensor_metadata.default, _enter_autocast, _exit_autocast}


def graph_of(
    step: Step,
    names: Sequence[str],
    tensors: Sequence[Tensor],
    weights: Mapping[str, Tensor],
    dtype: torch.dtype,
    training: bool,
) -> torch.fx.GraphModule | None:
    """The step on inputs like these, by position: the tensors of `names`, then the weights.

    None where it cannot be written down: a fixed point takes as many rounds as its values need,
    and a module of somebody else may do anything.
    """
    if any(isinstance(part, Rounds) and part.count is None for part in step.executable.steps):
        return None
    unit = tensors[0] if tensors else next(iter(weights.values()), None)
    if unit is None:
        return None
    device = unit.device

    def run(*given: Tensor) -> Tensor:
        inputs = dict(zip(names, given[: len(names)], strict=True))
        held = dict(zip(weights, given[len(names) :], strict=True))
        return step(inputs, held, dtype, device, training).data

    try:
        with as_operators():
            traced = make_fx(
                run, tracing_mode="fake", pre_dispatch=True, _allow_non_fake_inputs=True
            )
            return _tidy(traced(*tensors, *(w.detach() for w in weights.values())))
    except EdgewiseError:
        raise
    except Exception:  # whatever a trace does not take
        return None


def _tidy(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Without operations that change nothing, and what a trace only notes."""
    module.graph.set_codegen(torch.fx.graph.CodeGen())
    for node in list(reversed(module.graph.nodes)):
        if node.target in NOTES:
            module.graph.erase_node(node)
    for node in list(module.graph.nodes):
        if node.target in IDLE and _same(node.meta.get("val"), node.args[0].meta.get("val")):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
        elif node.target in RESHAPES:
            _straighten(node)
    _own_output(module.graph)
    module.graph.eliminate_dead_code()
    return torch.fx.GraphModule(module, module.graph)  # not one that is written out later


def _straighten(node: torch.fx.Node) -> None:
    """Let those that read a value in the shape it once had read it from there."""
    base = node
    while base.target in RESHAPES:
        base = base.all_input_nodes[0]
        if base.meta["val"].shape == node.meta["val"].shape:
            node.replace_all_uses_with(base)
            return


def _own_output(graph: torch.fx.Graph) -> None:
    """Copy an output that is a view of what the graph is given or holds."""
    last = graph.output_node()
    made = last.all_input_nodes[0]
    node = made
    while getattr(node.target, "is_view", False):
        node = node.all_input_nodes[0]
    if node.op in ("placeholder", "get_attr"):
        with graph.inserting_before(last):
            last.replace_input_with(made, graph.call_function(aten.clone.default, (made,)))


def _same(one: object, other: object) -> bool:
    return (
        isinstance(one, Tensor)
        and isinstance(other, Tensor)
        and (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())
    )
