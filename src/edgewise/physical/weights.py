"""Weights in a module: a tree of modules that follows the parts of their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller

Path = tuple[str, ...]


class WeightsChanged(EdgewiseError):
    """What is cached was computed with earlier weights, so it would be wrong with these."""

    code = "weights-changed"
    example = """\
model = Program([R.h(V.X) <= R.a(V.X)["w":1.0]]).compile(R.h)
updating = model.updating(facts=[R.a(0)[1.0]])
torch.nn.init.constant_(model.w, 2.0)
updating.add([R.a(1)[1.0]])"""
    instead = """\
model = Program([R.h(V.X) <= R.a(V.X)["w":1.0]]).compile(R.h)
torch.nn.init.constant_(model.w, 2.0)
updating = model.updating(facts=[R.a(0)[1.0]])
updating.add([R.a(1)[1.0]])"""


class NotALayer(EdgewiseError):
    """A layer is a part of a model with a number in its name, such as `layer.0`, whose weights
    nothing else reads: it runs as a module of its own."""

    code = "not-a-layer"
    example = """\
program = Program([R.h(V.X) <= R.a(V.X)["embed.w":2, 2]])
model = program.compile(R.h)
model.embed.forward = print"""
    instead = """\
program = Program([R.h(V.X) <= R.a(V.X)["layer.0.w":2, 2]])
model = program.compile(R.h)
model.layer.get_submodule("0").register_forward_hook(lambda *seen: print(len(seen)))
model(a=torch.ones(3, 2))"""


class Scope(torch.nn.Module):
    """The weights whose names begin alike; it computes nothing by itself."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "forward" and not isinstance(self, Layer):
            raise NotALayer(
                "weights with a common name are not a layer: they are never called",
                caller(),
                "take a part with a number in its name, such as `layer.0`",
            )
        super().__setattr__(name, value)


class Layer(Scope):
    """The weights of a layer, such as `layer.0`. Called with the part of a plan that reads them, it
    runs it, so that what is done to a module is done to that part: FSDP2, checkpointing, hooks."""

    def forward(self, part: Any, *values: Tensor) -> Any:
        """What the part gives, of values and the weights of the layer."""
        return part.function(*values, *(at(self, path) for path in part.paths))

    @property
    def is_called(self) -> bool:
        """Whether something waits for its call: a hook, or another forward."""
        return bool(self._forward_hooks or self._forward_pre_hooks) or "forward" in self.__dict__


def layer_of(path: Path) -> Path | None:
    """The layer of a weight: its path up to the first number.

    >>> layer_of(("layer", "0", "q", "weight"))
    ('layer', '0')
    """
    number = next((at for at, part in enumerate(path[:-1]) if part.isdigit()), None)
    return None if number is None else path[: number + 1]


def called_layers(module: torch.nn.Module, layers: Iterable[Path]) -> bool:
    """Whether something waits for the call of a layer: FSDP2, a wrapper, a hook or a split."""
    for path in layers:
        layer = module
        for part in path:
            layer = getattr(layer, part)
        if type(layer) is not Layer or layer.is_called:
            return True
    return False


def mark(tensors: Iterable[Tensor]) -> tuple[object, ...]:
    """What changes when a weight is trained, replaced, moved or converted."""
    return tuple(
        (id(t), 0 if t.is_inference() else t._version, t.dtype, t.device, t.data_ptr())
        for t in tensors
    )


def weights_changed(restart: str) -> WeightsChanged:
    return WeightsChanged(
        "the weights changed after values were computed with them",
        caller(),
        f"start again: `{restart}`",
    )


def register(module: torch.nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Path]:
    """Put weights into a module by the parts of their names; give the path of each."""
    return {name: _register(module, name, tensor) for name, tensor in tensors.items()}


def _register(module: torch.nn.Module, name: str, tensor: Tensor) -> Path:
    *scopes, leaf = name.split(".")
    path = []
    for part in scopes:
        while hasattr(module, part) and not isinstance(module._modules.get(part), torch.nn.Module):
            part += "_"
        path.append(part)
        if part not in module._modules:
            is_layer = layer_of((*path, "")) == tuple(path)
            module.add_module(part, Layer() if is_layer else Scope())
        module = getattr(module, part)
    while hasattr(module, leaf) or not leaf:
        leaf += "_"
    if isinstance(tensor, torch.nn.Parameter):
        module.register_parameter(leaf, tensor)
    else:
        module.register_buffer(leaf, tensor)
    return (*path, leaf)


PLAIN = frozenset({Tensor, torch.nn.Parameter})


def gathered(weight: Tensor) -> Tensor:
    """A weight that is sharded over ranks, complete: all ranks call this together. Its gradient is
    the mean of theirs, as FSDP gives it."""
    full = getattr(weight, "full_tensor", None)  # of a DTensor: else its module is not loaded
    if full is None:
        return weight
    from torch.distributed.tensor import Partial

    mesh = weight.device_mesh  # type: ignore[attr-defined]
    found: Tensor = full(grad_placements=[Partial()] * mesh.ndim)
    if found.requires_grad:
        found.register_hook(lambda gradient: gradient / mesh.size())
    return found


def sharded_like(weight: Any, value: Tensor) -> Tensor:
    """A value that all ranks have, sharded over them as a weight is."""
    if not hasattr(weight, "full_tensor"):
        return value
    local = value.to(weight.device)
    from torch.distributed.tensor import DTensor

    found = DTensor.from_local(local, weight.device_mesh, run_check=False)
    return found.redistribute(placements=weight.placements)


class Slots:
    """Where a module holds its weights: read without a look at the tree of modules."""

    def __init__(self, module: torch.nn.Module, paths: Iterable[Path]) -> None:
        self.places: list[tuple[dict[str, Any], str]] = []
        self.tree: dict[int, tuple[dict[str, Any], str, torch.nn.Module]] = {}
        for path in paths:
            holder = module
            for part in path[:-1]:
                inner = getattr(holder, part)
                self.tree[id(inner)] = holder._modules, part, inner
                holder = inner
            held = holder._parameters if path[-1] in holder._parameters else holder._buffers
            self.places.append((held, path[-1]))
        self.modules = list(self.tree.values())
        self.layers = [one for _, _, one in self.modules if isinstance(one, Layer)]

    def tensors(self) -> list[Tensor] | None:
        """The current weights; None where a module was replaced, a layer is to be called, or a
        weight made a function or sharded."""
        try:
            if not all([held[name] is module for held, name, module in self.modules]):
                return None
            if any([layer._forward_hooks or layer._forward_pre_hooks for layer in self.layers]):
                return None
            found = [held[name] for held, name in self.places]
        except KeyError:
            return None
        return found if PLAIN.issuperset(map(type, found)) else None


def owner(module: torch.nn.Module, path: Path) -> torch.nn.Module:
    """The module that holds the weight at a path."""
    for part in path[:-1]:
        module = getattr(module, part)
    return module


def at(module: torch.nn.Module, path: Path) -> Tensor:
    """The weight at a path; where it is sharded over ranks, complete."""
    found = held_at(module, path)
    return found if type(found) in PLAIN else gathered(found)


def like(module: torch.nn.Module, paths: Mapping[str, Path]) -> dict[str, Tensor]:
    """Weights for their shapes: what is sharded over ranks stays so, since only some may ask."""
    found = {name: held_at(module, path) for name, path in paths.items()}
    if all(type(weight) in PLAIN for weight in found.values()):
        return found
    return {n: torch.empty(w.shape, dtype=w.dtype, device="meta") for n, w in found.items()}


def held_at(module: torch.nn.Module, path: Path) -> Tensor:
    """The weight at a path as the module holds it."""
    if not torch.compiler.is_compiling():  # as `getattr` finds it, in a tenth of the time
        holder: torch.nn.Module | None = module
        for part in path[:-1]:
            holder = holder._modules.get(part) if holder is not None else None
        if holder is not None:
            for held in (holder._parameters, holder._buffers):
                if (known := held.get(path[-1])) is not None:
                    return known
    found = getattr(owner(module, path), path[-1])
    assert isinstance(found, Tensor)
    return found
