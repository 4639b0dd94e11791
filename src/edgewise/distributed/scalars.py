"""Weights of one number beside FSDP2, which shards weights along their first axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def replicated_scalars(module: torch.nn.Module, mesh: DeviceMesh) -> set[torch.nn.Parameter]:
    """The weights of one number of a module, which become DTensors that all ranks have.

    FSDP2 refuses them otherwise: `fully_shard(module, mesh=mesh, ignored_params=scalars)`. Their
    gradients are means over the ranks, as those of sharded weights are.

    >>> from torch import distributed as dist, nn
    >>> from torch.distributed.device_mesh import init_device_mesh
    >>> from edgewise import Program, R, V
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = Program([R.h(V.I) <= R.x(V.I)["w":2.0]]).compile(R.h)
    >>> scalars = replicated_scalars(model, init_device_mesh("cpu", (1,)))
    >>> len(scalars), model.w in scalars, model(x=[1.0, 2.0]).tolist()
    (1, True, [2.0, 4.0])
    >>> dist.destroy_process_group()
    """
    from torch.distributed.tensor import distribute_tensor

    found: dict[int, torch.nn.Parameter] = {}
    for holder in module.modules():
        for name, weight in [*holder._parameters.items()]:
            if weight is None or weight.ndim:
                continue
            if id(weight) not in found:  # one that modules share stays shared
                spread = distribute_tensor(weight.detach(), mesh)
                found[id(weight)] = torch.nn.Parameter(spread, weight.requires_grad)
            holder._parameters[name] = found[id(weight)]
    return set(found.values())
