"""A call like an earlier one: what shapes decide is looked up, and nothing is checked again.

Checks, the case and the choice take longer than the launch of a kernel, and a training step makes
the same call every time. Only calls without options are kept.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention import arguments, direct
from edgewise.kernels.attention.autocast import without_autocast
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


class Decided(NamedTuple):
    """What follows from a key."""

    case: Case
    implementation: Implementation
    kept: direct.Kept


_DECIDED: dict[Key, Decided] = {}


def key_of(
    q: Tensor, k: Tensor, v: Tensor, graph: object, scale: object, kernel: str | None
) -> Key | None:
    """None where there is more to look at: traces, and what may be a mistake."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return None
    if torch._C._are_functorch_transforms_active():
        return None
    for x in (q, k, v):
        if type(x) not in (Tensor, Parameter) or x.layout is not torch.strided or x.is_nested:
            return None
    device = q.device
    if device.type not in ("cpu", "cuda"):
        return None
    if not isinstance(graph, Pattern | None) or not isinstance(scale, float | None):
        return None
    if not isinstance(kernel, str | None):
        return None
    kinds = (q.dtype, k.dtype, v.dtype, device, k.device, v.device)
    return Key((q.shape, k.shape, v.shape), kinds, graph, scale, kernel)


def again(key: Key, q: Tensor, k: Tensor, v: Tensor) -> Tensor | None:
    """The output, if a call of this key was decided before."""
    found = _DECIDED.get(key)
    if found is None:
        return None
    if direct.takes(found.implementation, q):
        return direct.attend(found.case, found.kept, q, k, v)
    tensors = arguments.grouped(q, k, v)
    with without_autocast(q):
        return run(*found[:2], tensors, NO_TERMS, q.shape[:-1], lse=False)[0]


def decide(key: Key, q: Tensor, k: Tensor, v: Tensor, graph: Pattern) -> None:
    """Keep what follows from the key. Graphs that warn and scores that are turned are not kept."""
    scale = scale_of(q, key.scale)
    if scale <= 0 or graph.counts_twice:
        return
    case = arguments.build_case(arguments.grouped(q, k, v), graph, scale, 0)
    chosen = choose(case, key.kernel).implementation
    if len(_DECIDED) >= MOST:
        _DECIDED.pop(next(iter(_DECIDED)), None)
    _DECIDED[key] = Decided(case, chosen, {})
