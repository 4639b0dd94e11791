"""What the attention modules of a Hugging Face model read while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from edgewise.graphs import full
from edgewise.hf.interface import RECORDED, ModuleCall
from edgewise.hf.replace import attention_modules, restore, use
from edgewise.hf.saved import IN_USE

__all__ = ["ModuleCall", "evaluating", "run_recorded"]


def run_recorded(model: nn.Module, inputs: Mapping[str, Any]) -> list[ModuleCall]:
    """Run a model, and list the calls of its attention modules; the model is left unchanged.

    Of an encoder–decoder without inputs of the decoder, the encoder runs alone.
    """
    attention_modules(model)
    called: Any = model
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False) and not any(
        name.startswith("decoder_") for name in inputs
    ):
        called = model.get_encoder()  # type: ignore[operator]
    found: list[ModuleCall] = []
    with _in_use(model), evaluating(model), torch.no_grad():
        token = RECORDED.set(found)
        try:
            called(**inputs)
        finally:
            RECORDED.reset(token)
    return found


@contextmanager
def _in_use(model: nn.Module) -> Iterator[None]:
    """With our attention along all pairs that the model's mask allows, unless it is ours already.

    Configs are the objects that they were before: `use` changes copies of them.
    """
    from transformers import PretrainedConfig

    if any(IN_USE in vars(module) for module in model.modules()):
        yield
        return
    configs = [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()
        if isinstance(value, PretrainedConfig)
    ]
    use(model, full())
    try:
        yield
    finally:
        restore(model)
        for module, name, value in configs:
            setattr(module, name, value)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside, a model is in evaluation mode; afterwards the mode of each module is restored."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
