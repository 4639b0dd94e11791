"""The gradients of aggregation: the same operations along the entries turned round.

Each is written once, over the operations of `Operations`: functions of autograd outside of a
trace, operators of torch in one.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from edgewise.kernels.aggregate.index import Gather

Found = tuple[Tensor | None, ...]


class Operations(Protocol):
    def total(
        self, x: Tensor, scale: Tensor | None, back_scale: Tensor | None, which: Gather
    ) -> Tensor: ...
    def dots(self, y: Tensor, x: Tensor, which: Gather) -> Tensor: ...
    def equal_total(self, a: Tensor, x: Tensor, y: Tensor, which: Gather) -> Tensor: ...


def of_total(
    run: Operations,
    needs: tuple[bool, ...],
    grad: Tensor,
    saved: tuple[Tensor | None, Tensor | None, Tensor | None],
    which: Gather,
) -> Found:
    """For x and the scale."""
    x, scale, back_scale = saved
    for_x = for_scale = None
    if needs[0]:
        if scale is not None and back_scale is None:
            back_scale = scale.index_select(0, which.forth.turn)
        for_x = run.total(grad, back_scale, scale, which.turned)
    if needs[1]:
        assert x is not None
        for_scale = run.dots(grad, x, which)
    return for_x, for_scale


def of_dots(
    run: Operations, needs: tuple[bool, ...], grad: Tensor, y: Tensor, x: Tensor, which: Gather
) -> Found:
    """For y and x."""
    for_y = for_x = None
    if needs[0]:
        for_y = run.total(x, grad, None, which)
    if needs[1]:
        back = grad.index_select(0, which.forth.turn)
        for_x = run.total(y, back, grad, which.turned)
    return for_y, for_x


def of_extreme(
    run: Operations, grad: Tensor, x: Tensor, top: Tensor, ties: Tensor, which: Gather
) -> Tensor:
    """For x: entries that are equal share."""
    return run.equal_total(grad / ties.clamp(min=1), top, x, which.turned)


def of_equal_total(run: Operations, grad: Tensor, x: Tensor, y: Tensor, which: Gather) -> Tensor:
    """For a."""
    return run.equal_total(grad, y, x, which.turned)
