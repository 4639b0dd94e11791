"""Models of `transformers` beside ours: built small, saved, read back as rules, and compared."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from edgewise.zoo.pretrained import Pretrained, from_pretrained
from edgewise.zoo.pretrained.model import learnable

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


class KeepDouble(TorchFunctionMode):
    """`transformers` computes norms, angles and softmaxes in float32: here they stay float64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def kept(item):
            return torch.float64 if item is torch.float32 else item

        if function is Tensor.float:
            return args[0].double()
        args = tuple(map(kept, args)) if isinstance(args, tuple) else args
        return function(*args, **{k: kept(v) for k, v in (kwargs or {}).items()})


@dataclass
class Pair:
    """A model of theirs, and ours with the same weights."""

    theirs: Any
    ours: Pretrained


def pair(model: Any, seed: int) -> Pair:
    """Their model with random weights in float64, and ours read from what it saves."""
    torch.manual_seed(seed)
    model = model.double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.tie_weights()
    return Pair(model, saved_and_read(model))


def saved_and_read(model: Any) -> Pretrained:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return from_pretrained(folder, dtype=torch.float64)


def assert_equal(
    both: Pair,
    relation: str,
    inputs: dict[str, Any],
    run: Any,
    real: Tensor | None = None,
    fixed: tuple[str, ...] = (),
    tolerance: float = 1e-9,
) -> None:
    """Outputs, the gradients of every weight, and what `transformers` loads of what we save.

    `fixed` weights are not learned there.
    """
    model = both.ours.compile(relation)
    real = torch.ones(()).bool() if real is None else real
    with KeepDouble():
        theirs = run(both.theirs)
    ours = model(**inputs)
    if theirs.shape[-1] == 1 and ours.ndim < theirs.ndim:  # a vector of one number is a number
        ours = ours.unsqueeze(-1)
    real = real.expand(theirs.shape[: real.ndim])
    close = {"atol": tolerance, "rtol": tolerance}
    torch.testing.assert_close(ours[real], theirs[real], **close)
    direction = torch.randn_like(theirs) * real.reshape(
        *real.shape, *(1,) * (theirs.ndim - real.ndim)
    )
    (ours * direction).sum().backward()
    with KeepDouble():
        (theirs * direction).sum().backward()
    assert_gradients(both, relation, fixed, 10 * tolerance)
    with tempfile.TemporaryDirectory() as folder:
        both.ours.save_pretrained(Path(folder) / "saved")
        again = type(both.theirs).from_pretrained(f"{folder}/saved", dtype=torch.float64).eval()
    if any(p.dtype == torch.float32 for p in again.parameters()):  # XLNet's, whatever is asked for
        again, close = again.double(), {"atol": 1e-5, "rtol": 1e-4}
    with torch.no_grad(), KeepDouble():
        torch.testing.assert_close(run(again), theirs, **close)


def assert_gradients(
    both: Pair, relation: str, fixed: tuple[str, ...] = (), tolerance: float = 1e-8
) -> None:
    """Their gradients, written in the place of their weights, are read under our names."""
    model = both.ours.compile(relation)
    with torch.no_grad():
        for parameter in both.theirs.parameters():
            grad = parameter.grad
            parameter.copy_(torch.zeros_like(parameter) if grad is None else grad)
    expected = saved_and_read(both.theirs).weights
    for name in set(learnable(model)) - set(fixed):
        parameter = model.weight(name)
        found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        close = {"atol": tolerance, "rtol": 10 * tolerance}
        torch.testing.assert_close(found, expected[name], **close, msg=name)


def with_exact_numbers(model: Any) -> Any:
    """Their angles and scales are stored in float32: here they are computed again."""
    for module in model.modules():
        if hasattr(module, "scalar_embed_scale"):
            module.embed_scale = torch.tensor(module.scalar_embed_scale, dtype=torch.float64)
        if hasattr(module, "create_weight"):
            count, size = module.weight.shape
            angles = torch.arange(count).double()[:, None] * 10_000.0 ** (
                -torch.arange(0, size, 2).double() / size
            )
            module.weight.data = torch.cat([angles.sin(), angles.cos()], 1)
        for name in [n for n, _ in module.named_buffers(recurse=False) if "inv_freq" in n]:
            kind = name.removesuffix("inv_freq").removesuffix("original_").removesuffix("_") or None
            own = module.config.rope_parameters
            rope = (own[kind] if kind else own)["rope_type"]
            functions = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS
            compute = functions.get(rope, module.compute_default_rope_parameters)
            setattr(module, name, compute(module.config, layer_type=kind)[0].double())
    return model


def fused(model: Any, **inputs: Any) -> bool:
    """Whether every softmax over pairs became one attention."""
    found = model.explain(json=True, stage="passes", **inputs)
    return not found["passes"]["not fused"]


__all__ = [
    "KeepDouble",
    "Pair",
    "assert_equal",
    "fused",
    "pair",
    "transformers",
    "with_exact_numbers",
]
