"""A call like an earlier one: what shapes decide is looked up, and nothing is checked again.

Checks, the case and the choice take longer than the launch of a kernel, and a training step makes
the same call every time. Only calls without options are kept.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import arguments
from edgewise.kernels.attention.call import run, scale_of
from edgewise.kernels.attention.contract import Case, Implementation, Terms
from edgewise.kernels.attention.registry import choose

MOST = 256
NO_TERMS = Terms()


class Key(NamedTuple):
    """All that decides a call without options."""

    shapes: tuple[torch.Size, ...]
    kinds: tuple[torch.dtype | torch.device, ...]
    graph: Pattern | None
    scale: float | None
    kernel: str | None


_DECIDED: dict[Key, tuple[Case, Implementation]] = {}


def key_of(
    q: Tensor, k: Tensor, v: Tensor, graph: object, scale: object, kernel: str | None
) -> Key | None:
    """None where there is more to look at: traces, autocast, and what may be a mistake."""
    for x in (q, k, v):
        if type(x) not in (Tensor, Parameter) or x.layout is not torch.strided or x.is_nested:
            return None
    device = q.device
    if device.type not in ("cpu", "cuda") or torch.is_autocast_enabled(device.type):
        return None
    if not isinstance(graph, Pattern | None) or not isinstance(scale, float | None):
        return None
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return None
    if not isinstance(kernel, str | None):
        return None
    kinds = (q.dtype, k.dtype, v.dtype, device, k.device, v.device)
    return Key((q.shape, k.shape, v.shape), kinds, graph, scale, kernel)


def again(key: Key, q: Tensor, k: Tensor, v: Tensor) -> Tensor | None:
    """The output, if a call of this key went well before."""
    found = _DECIDED.get(key)
    if found is None:
        return None
    return run(*found, arguments.grouped(q, k, v), NO_TERMS, q.shape[:-1], lse=False)[0]


def remember(key: Key, q: Tensor, k: Tensor, v: Tensor, graph: Pattern) -> None:
    """A call of this key went well. Graphs that warn and scores that are turned are not kept."""
    scale = scale_of(q, key.scale)
    if scale <= 0 or graph.counts_twice:
        return
    case = arguments.build_case(arguments.grouped(q, k, v), graph, scale, 0)
    if len(_DECIDED) >= MOST:
        _DECIDED.pop(next(iter(_DECIDED)), None)
    _DECIDED[key] = case, choose(case, key.kernel).implementation
