"""Neighbourhoods of image patches as the graph of a vision model."""

from __future__ import annotations

from typing import Any

from torch import nn

from edgewise.errors import caller
from edgewise.graphs import extra_global_tokens, grid, window
from edgewise.graphs.checks import integer
from edgewise.graphs.pattern import Pattern
from edgewise.hf.architectures import SPECIAL_TOKENS
from edgewise.hf.errors import NotAnImageModel


def neighbourhood(
    model: nn.Module, radius: int, *, image_size: int | tuple[int, int] | None = None
) -> Pattern:
    """Patches at most `radius` rows and columns apart, and the model's class and register tokens,
    which attend to all and are attended to by all.

    Where the model attends inside windows (Swin), the neighbourhood is inside each window.

    >>> from transformers import ViTConfig, ViTModel
    >>> from edgewise import hf
    >>> model = ViTModel(ViTConfig(num_hidden_layers=1))
    >>> neighbourhood(model, 2)
    extra_global_tokens(1, grid(14, 14)(window(2), window(2)))
    >>> model = hf.use(model, neighbourhood(model, 2))

    - image_size: height and width in pixels, if not those of the config.
    """
    radius = integer(radius, "radius")
    config: Any = getattr(model, "config", None)
    config = getattr(config, "vision_config", config)
    near = window(radius)
    inside = getattr(config, "window_size", None)
    if isinstance(inside, int):
        return grid(inside, inside)(near, near)
    size = getattr(config, "image_size", None) if image_size is None else image_size
    patch = getattr(config, "patch_size", None)
    if size is None or patch is None:
        raise NotAnImageModel(
            f"the config of `{type(model).__name__}` has no `image_size` and `patch_size`",
            caller(),
            "give a vision model, or write the graph, such as `grid(14, 14)(window(2), window(2))`",
        )
    height, width = (a // b for a, b in zip(_both(size), _both(patch), strict=True))
    patches = grid(height, width)(near, near)
    tokens = sum(_tokens(name, one) for name, one in model.named_parameters())
    return extra_global_tokens(tokens, patches) if tokens else patches


def _both(size: int | tuple[int, int]) -> tuple[int, int]:
    """Height and width."""
    sizes = (size, size) if isinstance(size, int) else tuple(size)
    height, width = (integer(one, "image_size", 1) for one in sizes)
    return height, width


def _tokens(name: str, parameter: nn.Parameter) -> int:
    """How many tokens precede the patches by a parameter: (1, tokens, d), or (d,)."""
    if name.rpartition(".")[2] not in SPECIAL_TOKENS:
        return 0
    return parameter.shape[1] if parameter.ndim == 3 else 1
