"""Launches of a Triton kernel that are repeated: what stays the same is bound once.

Triton looks at each of some forty arguments again for every launch, which takes longer than many
kernels run. Here the compiled kernel is cached with all that does not change, and a launch fills in
addresses. What this needs is private to Triton, so it is done for the versions in which it was
read; any other launches as usual, as does the interpreter.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

KNOWN = ("3.6.",)  # versions of Triton whose launcher is known
HERE = nullcontext()
MOST = 4096  # cached descriptors: a training step has the same addresses every time


class Launch:
    """A kernel on a grid: tensors that change, then arguments and options that do not.

    The first `tiles` tensors, of four axes, are read in blocks of (1, 1, block, features); all
    tensors start at a multiple of 16 bytes, as `readable` makes them. `fixed` and `none` are
    arguments; terms of scores, where there are some, take the place of `none`.
    """

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        options: dict[str, Any],
        fixed: tuple[Any, ...],
        none: tuple[Any, ...] = (),
        tiles: int = 0,
    ) -> None:
        self.kernel, self.grid, self.options = kernel, grid, options
        self.fixed, self.none, self.tiles = fixed, none, tiles
        self._bound: _Bound | None = None

    def __call__(self, *tensors: Tensor, terms: tuple[Any, ...] | None = None) -> None:
        if terms is not None:
            self._plainly(tensors, terms)
            return
        bound = self._bound
        if bound is None:
            bound = self._bound = _found(self, tensors)
        if (
            bound is None
            or bound.hooks.launch_enter_hook.calls
            or bound.hooks.launch_exit_hook.calls
        ):
            compiled = self._plainly(tensors, self.none)
            self._bound = bound or _bound(self, compiled, tensors)
        else:
            bound(tensors)

    def _plainly(self, tensors: tuple[Tensor, ...], terms: tuple[Any, ...]) -> Any:
        """As Triton launches; the compiled kernel, or None from its interpreter."""
        block = self.options["BLOCK"]
        arguments = [described(x, block) for x in tensors[: self.tiles]]
        rest = (*tensors[self.tiles :], *self.fixed, *terms)
        return self.kernel[self.grid](*arguments, *rest, **self.options)


class _Bound:
    """A compiled kernel with its arguments, as Triton's launcher takes them."""

    def __init__(
        self, launch: Launch, compiled: Any, start: Callable[..., None], leading: int
    ) -> None:
        from triton import knobs  # type: ignore[import-untyped]
        from triton.backends.nvidia import driver  # type: ignore[import-untyped]

        run, self.start, self.stream = compiled.run, start, _stream()
        self.grid = (*launch.grid, 1, 1)[:3]
        self.how = (
            *(compiled.function, run.launch_cooperative_grid, run.launch_pdl, None, None),
            *(compiled.packed_metadata, None, None, None),
        )
        self.block, self.tiles = launch.options["BLOCK"], launch.tiles
        self.hooks = knobs.runtime  # of launches, such as a profiler's
        self.meta = getattr(compiled.metadata, "tensordesc_meta", None) or [None] * launch.tiles
        self.expanded: dict[tuple[int, int, tuple[int, ...]], list[Any]] = {}
        self.arguments = driver.make_tensordesc_arg
        rest = (*launch.fixed, *launch.none)
        numbers = [x.data_ptr() if isinstance(x, Tensor) else x for x in rest]
        constants = len(launch.kernel.arg_names) - leading - len(rest)
        self.rest = (*numbers, *[None] * constants)

    def __call__(self, tensors: tuple[Tensor, ...]) -> None:
        arguments: list[Any] = []
        for at, x in enumerate(tensors):
            address = x.data_ptr()
            if at >= self.tiles:
                arguments.append(address)
                continue
            key = (at, address, x.stride())
            arguments += self.expanded.get(key) or self._expand(key, x)
        stream = self.stream(tensors[0].get_device())
        self.start(*self.grid, stream, *self.how, *arguments, *self.rest)

    def _expand(self, key: tuple[int, int, tuple[int, ...]], x: Tensor) -> list[Any]:
        """The arguments of one descriptor, which follow from its address and its strides."""
        if len(self.expanded) >= MOST:
            self.expanded.clear()
        meta = self.meta[key[0]]
        found: list[Any] = self.arguments(described(x, self.block), meta)
        if meta is None:
            found[0] = key[1]  # an address, not the tensor: that may go
        self.expanded[key] = found
        return found


_COMPILED: dict[Any, Any] = {}  # a new graph or length is another launch of what is compiled


def _found(launch: Launch, tensors: tuple[Tensor, ...]) -> _Bound | None:
    """A launch of what another launch has compiled, if there is one."""
    compiled = _COMPILED.get(_kind(launch, tensors)) if _COMPILED else None
    return None if compiled is None else _bound(launch, compiled, tensors)


def _bound(launch: Launch, compiled: Any, tensors: tuple[Tensor, ...]) -> _Bound | None:
    """None where Triton is not the one that is known, or interprets."""
    start = launcher(compiled)
    if start is None or any(x.data_ptr() % 16 for x in tensors):
        return None
    _COMPILED[_kind(launch, tensors)] = compiled
    return _Bound(launch, compiled, start, len(tensors))


def _kind(launch: Launch, tensors: tuple[Tensor, ...]) -> Any:
    """All that Triton compiles a kernel for: what tensors hold and whether they are aligned, the
    width of numbers, and those that it may take for constants."""
    arguments = (*tensors, *launch.fixed, *launch.none)
    parts: list[Any] = []
    for name, x in zip(launch.kernel.arg_names, arguments, strict=False):
        if isinstance(x, Tensor):
            parts.append((x.dtype, x.data_ptr() % 16 == 0, x.shape[-1:] if x.ndim == 4 else None))
        elif isinstance(x, int):
            parts.append((abs(x) < 1 << 31, None if name in _unspecial(launch.kernel) else x))
        else:
            parts.append(type(x))
    options = tuple([(name, x) for name, x in launch.options.items()])
    return launch.kernel, tensors[0].device, options, tuple(parts)


@lru_cache(maxsize=64)
def _unspecial(kernel: Any) -> frozenset[str]:
    """The numbers of a kernel for which it is compiled once, whatever they are."""
    listed = getattr(kernel, "params", ())
    return frozenset([param.name for param in listed if param.do_not_specialize])


def launcher(compiled: Any) -> Callable[..., None] | None:
    """The function in C that starts a compiled kernel, which takes descriptors expanded."""
    import triton

    if compiled is None or not triton.__version__.startswith(KNOWN):
        return None
    run = compiled.run
    if run.global_scratch_size or run.profile_scratch_size:
        return None
    found: Callable[..., None] = run.launch
    names = found.__code__.co_freevars if hasattr(found, "__code__") else ()
    if "launcher" in names:  # wrapped in one that makes descriptors
        found = found.__closure__[names.index("launcher")].cell_contents  # type: ignore
    return found


def on_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Launches go to the device that is current: make it that of `x`."""
    if not x.is_cuda or x.get_device() == torch._C._cuda_getDevice():
        return HERE
    return torch.cuda.device(x.device)


def _stream() -> Callable[[int], int]:
    from triton.runtime import driver  # type: ignore[import-untyped]

    found: Callable[[int], int] = driver.active.get_current_stream
    return found


def described(x: Tensor, block: int) -> Any:
    """(batch, heads, tokens, features) as the copy engine reads it: a block of one head."""
    from triton.tools.tensor_descriptor import (  # type: ignore[import-untyped]
        TensorDescriptor,
    )

    steps, _ = _layout(x.shape, x.stride(), x.dtype)
    return TensorDescriptor(x, list(x.shape), steps, [1, 1, block, x.shape[-1]])


def has_readable_strides(x: Tensor) -> bool:
    return _layout(x.shape, x.stride(), x.dtype)[1]


def readable(x: Tensor) -> Tensor:
    """`x`, or a copy where the chip could not read it in blocks."""
    if x.data_ptr() % 16 or not has_readable_strides(x):
        return torch.empty_like(x, memory_format=torch.contiguous_format).copy_(x)
    return x


@lru_cache(maxsize=1024)
def _layout(
    size: torch.Size, stride: tuple[int, ...], dtype: torch.dtype
) -> tuple[list[int], bool]:
    """The strides, where axes of one element have any, and whether the chip can read them."""
    steps = [step if count > 1 else size[-1] for step, count in zip(stride, size, strict=True)]
    steps[-1] = 1
    fits = stride[-1] == 1 and all(x > 0 and x * dtype.itemsize % 16 == 0 for x in steps[:-1])
    return steps, fits
