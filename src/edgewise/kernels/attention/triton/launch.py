"""Launches of Triton kernels that are repeated: all that stays the same is bound once.

Triton looks at each of some forty arguments again for every launch, which takes longer than many
kernels run. Here the compiled kernel is cached, and so are the arguments for tensors at the same
addresses, as a training step has them every time. What this needs is private to Triton, so it is
done for the versions in which it was read; any other launches as usual, as does the interpreter.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

KNOWN = ("3.6.",)  # versions of Triton whose launcher is known
MOST = 1024  # calls whose arguments are cached
Start = tuple[Callable[..., None], tuple[Any, ...]]  # a launcher of Triton with all its arguments


class Launch:
    """A kernel on a grid: tensors that change, then arguments and options that do not.

    The first `tiles` tensors, of four axes, are read in blocks of (1, 1, block, features). `fixed`
    and `none` are arguments; terms of scores, where there are some, take the place of `none`.
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
        """As Triton launches; what it compiled is bound."""
        compiled = self._plainly(tensors, self.none if terms is None else terms)
        if terms is None and self._bound is None and _aligned(tensors):
            start = launcher(compiled)
            self._bound = None if start is None else _Bound(self, compiled, start, len(tensors))

    def _plainly(self, tensors: tuple[Tensor, ...], terms: tuple[Any, ...]) -> Any:
        """The compiled kernel, or None from Triton's interpreter."""
        block = self.options.get("BLOCK", 0)
        arguments = [described(x, block) for x in tensors[: self.tiles]]
        rest = (*tensors[self.tiles :], *self.fixed, *terms)
        return self.kernel[self.grid](*arguments, *rest, **self.options)

    def start(self, stream: int, tensors: tuple[Tensor, ...]) -> Start | None:
        """What launches it at once on these tensors. Triton compiles for addresses that are
        multiples of 16 bytes: others, as a first launch, it must look at itself."""
        return self._bound(stream, tensors) if self._bound and _aligned(tensors) else None


Steps = Sequence[tuple[Launch, tuple[Tensor, ...]]]


class Launches:
    """Launches one after another: `steps(*tensors)`, each with its tensors, of which the first
    `tiles` may have other strides at every call."""

    def __init__(self, steps: Callable[..., Steps], tiles: int = 0) -> None:
        self.steps, self.tiles = steps, tiles
        self.ready: dict[tuple[int, tuple[Any, ...]], list[Start]] = {}

    def __call__(self, *tensors: Tensor) -> None:
        strides = [x.stride() for x in tensors[: self.tiles]]
        key = (*[x.data_ptr() for x in tensors], *strides)
        device = tensors[0].get_device()
        with nullcontext() if is_current(device) else torch.cuda.device(device):
            self.at(device, key, *tensors)  # launches go to the current device

    def at(self, device: int, key: tuple[Any, ...], *tensors: Tensor) -> None:
        """The same on tensors that have been looked at, of the current device: `key` holds what
        differs between calls."""
        stream = torch._C._cuda_getCurrentRawStream(device) if device >= 0 else 0
        ready = self.ready.get((stream, key))
        if ready is None or _is_watched():
            self._first((stream, key), tensors)
            return
        for start, arguments in ready:
            start(*arguments)

    def _first(self, key: tuple[int, tuple[Any, ...]], tensors: tuple[Tensor, ...]) -> None:
        found: list[Start] = []
        watched, steps = _is_watched(), self.steps(*tensors)
        for launch, of_launch in steps:
            ready = None if watched else launch.start(key[0], of_launch)
            if ready is None:
                launch(*of_launch)
                ready = launch.start(key[0], of_launch)
            else:
                ready[0](*ready[1])
            found += [ready] if ready is not None else []
        if len(found) == len(steps):
            if len(self.ready) >= MOST:
                self.ready.clear()
            self.ready[key] = found


def _is_watched() -> bool:
    """Whether launches have hooks, such as a profiler's, which Triton calls itself."""
    hooks = sys.modules["triton"].knobs.runtime
    return bool(hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls)


class _Bound:
    """A compiled kernel with the arguments that stay the same, as Triton's launcher takes them."""

    def __init__(
        self, launch: Launch, compiled: Any, start: Callable[..., None], leading: int
    ) -> None:
        run, self.start, self.launch = compiled.run, start, launch
        self.grid = (*launch.grid, 1, 1)[:3]
        self.how = (
            *(compiled.function, run.launch_cooperative_grid, run.launch_pdl, None, None),
            *(compiled.packed_metadata, None, None, None),
        )
        self.meta = getattr(compiled.metadata, "tensordesc_meta", None) or [None] * launch.tiles
        self.expanded: dict[tuple[int, int, tuple[int, ...]], list[Any]] = {}
        rest = (*launch.fixed, *launch.none)
        numbers = [x.data_ptr() if isinstance(x, Tensor) else x for x in rest]
        constants = len(launch.kernel.arg_names) - leading - len(rest)
        self.rest = (*numbers, *[None] * constants)

    def __call__(self, stream: int, tensors: tuple[Tensor, ...]) -> Start:
        from triton.backends.nvidia.driver import (  # type: ignore[import-untyped]
            make_tensordesc_arg,
        )

        arguments: list[Any] = []
        tiles, block = self.launch.tiles, self.launch.options.get("BLOCK", 0)
        for at, x in enumerate(tensors[:tiles]):
            key = (at, x.data_ptr(), x.stride())
            if key not in self.expanded:
                if len(self.expanded) >= MOST:
                    self.expanded.clear()
                expanded = make_tensordesc_arg(described(x, block), self.meta[at])
                expanded[0] = key[1] if self.meta[at] is None else expanded[0]  # `x` may go
                self.expanded[key] = expanded
            arguments += self.expanded[key]
        arguments += [x.data_ptr() for x in tensors[tiles:]]
        return self.start, (*self.grid, stream, *self.how, *arguments, *self.rest)


class Floats:
    """Arrays of float32 in one tensor, each aligned to 16 bytes as kernels assume."""

    def __init__(self, *sizes: int) -> None:
        self.sizes, self.at = sizes, [0]
        for size in sizes:
            self.at.append(self.at[-1] + -(-size // 4) * 4)
        self.size = self.at[-1]

    def part(self, x: Tensor, number: int) -> Tensor:
        """One of them; where it has no elements the first, which is not read."""
        at, size = self.at[number], self.sizes[number]
        return x[at : at + size] if size else x


Empty = Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], Tensor]


def empty_on(device: int) -> Empty:
    """`torch.empty_strided` without dispatch, which takes most of its time, as Inductor's code has
    it: on a CPU (-1), or on a GPU that must be the current one."""
    name = "_empty_strided_cpu" if device < 0 else "_empty_strided_cuda"
    found: Empty | None = getattr(torch._C._dynamo.guards, name, None)
    if found is not None:
        return found
    place = torch.device("cpu") if device < 0 else torch.device("cuda", device)
    return lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device=place)


def is_current(device: int) -> bool:
    return device < 0 or device == torch._C._cuda_getDevice()


def _aligned(tensors: tuple[Tensor, ...]) -> bool:
    return not any(x.data_ptr() % 16 for x in tensors)


def launcher(compiled: Any) -> Callable[..., None] | None:
    """The function in C that starts a compiled kernel, which takes descriptors expanded; None where
    Triton is not the one that is known, or interprets."""
    if compiled is None or not sys.modules["triton"].__version__.startswith(KNOWN):
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
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


def described(x: Tensor, block: int) -> Any:
    """(batch, heads, tokens, features) as the copy engine reads it: a block of one head."""
    from triton.tools.tensor_descriptor import (  # type: ignore[import-untyped]
        TensorDescriptor,
    )

    steps, _ = _layout(x.shape, x.stride(), x.dtype)
    return TensorDescriptor(x, list(x.shape), steps, [1, 1, block, width(x.shape[-1])])


def width(features: int) -> int:
    """Of the tile that they lie in: a power of two of at least 16."""
    return max(16, 1 << (features - 1).bit_length())


def has_readable_strides(x: Tensor) -> bool:
    return _layout(x.shape, x.stride(), x.dtype)[1]


def readable(x: Tensor) -> Tensor:
    """`x`, or a copy where the chip could not read it in blocks."""
    if x.data_ptr() % 16 or not has_readable_strides(x):
        d, unit = x.shape[-1], 16 // x.itemsize  # rows are multiples of 16 bytes apart
        return x.new_empty(*x.shape[:-1], -(-d // unit) * unit)[..., :d].copy_(x)
    return x


@lru_cache(maxsize=1024)
def _layout(
    size: torch.Size, stride: tuple[int, ...], dtype: torch.dtype
) -> tuple[list[int], bool]:
    """The strides, where axes of one element have any, and whether the chip can read them."""
    unit = 16 // dtype.itemsize
    steps = [step if count > 1 else unit for step, count in zip(stride, size, strict=True)]
    steps[-1] = 1
    fits = stride[-1] == 1 and all(x > 0 and x * dtype.itemsize % 16 == 0 for x in steps[:-1])
    return steps, fits
