"""Sums of products of two rows along edges as an operation with gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from edgewise.kernels.edges.operators import Operation
from edgewise.kernels.edges.products import ProductIndex


def _gradients(*saved: Any) -> Iterable[Callable[[], Tensor]]:
    x, w, scale, index, grad = saved
    return (
        lambda: product_along(grad, w, scale, index=index.turned),
        lambda: product_along(grad, x, scale, index=index.last_first),
        lambda: product_dots(grad, x, w, index=index),
    )


product_along: Operation = Operation(
    "segment_product(Tensor x, Tensor w, Tensor? scale, Tensor[] index) -> Tensor",
    ProductIndex,
    lambda x, w, scale, index: x.new_empty(index.ways[0].rows.segments, x.shape[1]),
    _gradients,
)
product_dots: Operation = Operation(
    "product_dots(Tensor grad, Tensor x, Tensor w, Tensor[] index) -> Tensor",
    ProductIndex,
    lambda grad, x, w, index: x.new_empty(index.edges),
)


def segment_product(
    x: Tensor, w: Tensor, index: ProductIndex, scale: Tensor | None = None
) -> Tensor:
    """The sum of x_j ⊙ w_k over each segment: x is (rows, d), w (others, d), scale (edges,).

    >>> import torch
    >>> from edgewise.kernels.edges.products import product_index
    >>> ends = [torch.tensor(e) for e in ([0, 0, 1], [2, 0, 2], [0, 1, 1])]
    >>> x, w = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[10.0], [100.0]])
    >>> segment_product(x, w, product_index(ends, (2, 3, 2))).tolist()
    [[130.0], [300.0]]
    """
    found: Tensor = product_along(x, w, scale, index=index)
    return found
