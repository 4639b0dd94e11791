"""The pairs of an attention over rows that are there, which only the data says."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.fx import Node
from torch.fx.node import map_arg

from edgewise.kernels.attention.present_rows import SampleRun, runs_of, worth_it
from edgewise.physical.lowering import identifier
from edgewise.physical.plan import PhysicalPlan, run_node


def runs_in(node: Node, plan: PhysicalPlan, values: Mapping[str, Tensor]) -> list[SampleRun] | None:
    """The calls that are made for the values of a step; None if one call is made for all pairs."""
    q, k, _, keys, queries, _, graph, _ = node.args
    known = {identifier(name): value for name, value in values.items()}
    found: dict[Any, Any] = {}
    for item in (keys, queries):
        if isinstance(item, Node):
            found[item] = _value(item, plan, known, found)
            if found[item] is None:
                return None
    pattern = plan.constants[str(graph.target)] if isinstance(graph, Node) else graph
    like: Any = [read.meta["like"] for read in (q, k) if isinstance(read, Node)]
    batch, _, n, _ = like[0].shape
    runs = runs_of(found[keys], found.get(queries), batch, n, pattern)
    return runs if worth_it(runs, pattern, tuple(like[0].shape), like[1].shape[2]) else None


def call_pairs(runs: list[SampleRun], graph: Any, heads: int) -> int:
    """The pairs of all runs; those of a pattern along it."""
    if graph is None:
        return heads * sum(run.pairs for run in runs)
    real = ((run, run.queries[1] - run.queries[0], run.keys[1] - run.keys[0]) for run in runs)
    return heads * sum(run.samples * graph.count(n, m) for run, n, m in real if n and m)


def _value(
    node: Node, plan: PhysicalPlan, known: Mapping[str, Tensor], found: dict[Any, Any]
) -> Any:
    """What a node computes; None where that needs more than the values of inputs."""
    if node not in found:
        if node.op == "placeholder":
            found[node] = known.get(str(node.name))
        elif node.op == "get_attr":
            found[node] = plan.constants[str(node.target)]
        else:
            read = {arg: _value(arg, plan, known, found) for arg in node.all_input_nodes}
            missing = any(value is None for value in read.values())
            args, kwargs = map_arg((node.args, node.kwargs), lambda arg: read[arg])
            found[node] = None if missing else run_node(node, args, kwargs)
    return found[node]
