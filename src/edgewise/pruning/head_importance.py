"""How important each attention head is: by the gradient of its gate, or by the loss without it.

    gradient   I_h = mean over samples |∂L / ∂ξ_h|,   where ξ_h = 1 multiplies what head h gives
    ablation   I_h = mean over samples (L without h) − L

Papers: https://arxiv.org/abs/1905.10650 (gradient), https://arxiv.org/abs/1905.09418.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from edgewise.errors import caller, safe_repr, suggest
from edgewise.module import Model
from edgewise.pruning.errors import BadImportance, NotPrunable
from edgewise.pruning.layers import HeadLayer, checked_layers

METHODS = ("gradient", "ablation")
Loss = Callable[..., Tensor]
Sample = tuple[dict[str, Any], tuple[Any, ...]]  # inputs by name, and the target, if there is one


@dataclass(frozen=True)
class HeadImportance:
    """`scores[layer][head]`, `loss` of all heads; `each` heads of a layer share keys, and a score.

    >>> found = HeadImportance(((0.5, 0.1), (0.2, 0.3)), (1, 1), 2.0, "gradient")
    >>> found.least(keep=0.5)
    {0: [1], 1: [0]}
    >>> found.json()["method"]
    'gradient'
    """

    scores: tuple[tuple[float, ...], ...]
    each: tuple[int, ...]
    loss: float
    method: str

    def least(self, *, keep: float) -> dict[int, list[int]]:
        """The least important heads of all layers, for `prune`, so that a share `keep` stays."""
        number = isinstance(keep, int | float) and not isinstance(keep, bool)
        if not number or not 0 < keep <= 1:
            raise BadImportance(
                f"`keep` is {safe_repr(keep)}", caller(), "give a share above 0, at most 1"
            )
        groups = [
            (self.scores[layer][g * each], layer, g)
            for layer, each in enumerate(self.each)
            for g in range(len(self.scores[layer]) // each)
        ]
        gone = sorted(groups)[: len(groups) - max(1, math.ceil(keep * len(groups) - 1e-9))]
        found: dict[int, list[int]] = {}
        for _, layer, g in sorted(gone, key=lambda one: one[1:]):
            each = self.each[layer]
            found.setdefault(layer, []).extend(range(g * each, (g + 1) * each))
        return found

    def json(self) -> dict[str, object]:
        """The same as numbers, lists and names."""
        return {"method": self.method, "loss": self.loss, "scores": [list(s) for s in self.scores]}

    def __repr__(self) -> str:
        most = max((abs(s) for row in self.scores for s in row), default=1.0) or 1.0
        width = max(map(len, self.scores))
        head = "layer  " + " ".join(f"{h:>7}" for h in range(width))
        rows = [
            f"{layer:>5}  " + " ".join(f"{s / most:>7.3f}" for s in row)
            for layer, row in enumerate(self.scores)
        ]
        said = f"importance by {self.method}, 1 is {most:.3g}; the loss is {self.loss:.4g}"
        return "\n".join([said, head, *rows])


def importance(
    model: object,
    data: Sequence[object],
    *,
    loss: Loss | None = None,
    method: str = "gradient",
) -> HeadImportance:
    """How important each head is for the loss on samples.

    - data: inputs by name for a compiled model, texts for a checkpoint; `(inputs, target)` where
      the loss reads a target.
    - loss: of the output, or of the output and the target. Without it a language model predicts
      the next token, a classifier the label that is the target, and an embedding is compared with
      that of all heads (by ablation: the gradient of a distance from itself is 0).

    >>> from edgewise.zoo import gpt2
    >>> from edgewise import R, numbers
    >>> config = gpt2.Config(vocabulary=9, size=8, heads=2, hidden=8, layers=2, length=5)
    >>> model = gpt2.program(config).compile(R.logits, seed=0)
    >>> samples = [({"token": numbers([1, 2, 3])}, 4), ({"token": numbers([5, 6])}, 7)]
    >>> found = importance(model, samples, loss=lambda y, to: -y[-1].log_softmax(-1)[to])
    >>> len(found.scores), len(found.scores[0])
    (2, 2)
    """
    if method not in METHODS:
        raise BadImportance(
            f"there is no method {safe_repr(method)}", caller(), suggest(str(method), list(METHODS))
        )
    compiled = model if isinstance(model, Model) else getattr(model, "model", None)
    if not isinstance(compiled, Model):
        raise NotPrunable(f"{safe_repr(model)} is not a model", caller(), "give a compiled model")
    layers = checked_layers(compiled.program)
    for layer in layers:
        _refuse_values(layer)
    samples = _samples(model, data)
    loss = _default_loss(model, method) if loss is None else loss
    training = compiled.training
    try:
        compiled.eval()
        measure = _by_gradient if method == "gradient" else _by_ablation
        full, scores = measure(compiled, layers, samples, loss)
    finally:
        compiled.train(training)
    _refuse_numbers(full, scores)
    each = tuple(layer.each for layer in layers)
    spread = zip(scores, each, strict=True)
    found = tuple(tuple(s.repeat_interleave(n).tolist()) for s, n in spread)
    return HeadImportance(found, each, full, method)


def _refuse_values(layer: HeadLayer) -> None:
    if not layer.values:
        raise NotPrunable(
            f"the values of `{layer.relation}` are not one linear map of each head",
            caller(),
            "write them as `R.v(V.H, V.I) <= R.x(V.I)[W.v(V.H)[16, 64]]`",
        )


def _refuse_numbers(full: float, scores: Sequence[Tensor]) -> None:
    bad = [(layer, int(h)) for layer, s in enumerate(scores) for h in (~s.isfinite()).nonzero()]
    if bad or not math.isfinite(full):
        where = f"of head {bad[0][1]} in layer {bad[0][0]} " if math.isfinite(full) else ""
        raise BadImportance(
            f"the importance {where}is not a number: the loss of all heads is {full}",
            caller(),
            "look at the loss of each sample, and at the weights",
        )


# what is measured


def _samples(model: Any, data: Any) -> list[Sample]:
    if isinstance(data, str | Mapping) or not isinstance(data, Sequence):
        what = f"samples are {type(data).__name__}"
        raise BadImportance(what, caller(), "give a list of them")
    if not data:
        raise BadImportance("there are no samples", caller(), "give at least one")
    found = []
    for number, item in enumerate(data):
        inputs, *target = item if isinstance(item, tuple) else (item,)
        if isinstance(inputs, str) and not isinstance(model, Model):
            if model.read_by_text != model.output:
                raise BadImportance(
                    f"`{model.architecture}` writes a text of its own: sample {number} has no loss",
                    caller(),
                    "in Python, give `importance` inputs by name with a target, "
                    '`({"source": ..., "target": ..., "mask": ...}, target)`, and a `loss`',
                )
            inputs = model.inputs(model.tokens([inputs], which=[number]))
        if not isinstance(inputs, Mapping):
            raise BadImportance(
                f"sample {number} is {safe_repr(inputs)}",
                caller(),
                "give inputs by name, or `(inputs, target)`; a checkpoint reads texts too",
            )
        found.append((dict(inputs), tuple(target)))
    return found


def _default_loss(model: Any, method: str) -> Loss:
    output = None if isinstance(model, Model) else model.output
    if output == "classes" or getattr(model, "task", "") == "classify":
        return lambda scores, label: cross_entropy(scores.reshape(1, -1), torch.tensor([label]))
    if output == "logits" and "token" in model.model.inputs:
        return next_tokens
    if output == "embedding" and method == "ablation":
        return distance
    raise BadImportance(
        f"what is the loss of `{output or 'the output'}`"
        + (": the distance from itself has no gradient" if output == "embedding" else "?"),
        caller(),
        "give `loss=`" + (" or `method='ablation'`" if output == "embedding" else ""),
    )


def next_tokens(logits: Tensor, inputs: Mapping[str, Any]) -> Tensor:
    """The mean cross entropy of each token, predicted from those before it."""
    token = torch.as_tensor(getattr(inputs["token"], "values", inputs["token"]))
    token = token.reshape(logits.shape[:-1]).long().to(logits.device)
    return cross_entropy(logits[..., :-1, :].flatten(0, -2), token[..., 1:].flatten())


def distance(output: Tensor, full: Tensor) -> Tensor:
    """The squared distance from what all heads give."""
    return (output - full).square().sum()


def _loss_of(model: Model, loss: Loss, sample: Sample, full: Tensor | None = None) -> Tensor:
    inputs, target = sample
    output: Any = model(**inputs)
    if loss is next_tokens:
        return loss(output, inputs)
    if loss is distance:
        return loss(output, output.detach() if full is None else full)
    found = loss(output, *target)
    if not isinstance(found, Tensor) or found.numel() != 1:
        raise BadImportance(
            f"the loss is {safe_repr(found)}", caller(), "return one number, such as a mean"
        )
    return found.reshape(())


# gradient


def _by_gradient(
    model: Model, layers: Sequence[HeadLayer], samples: Sequence[Sample], loss: Loss
) -> tuple[float, list[Tensor]]:
    """Values are linear in their weights W: ∂L / ∂ξ_h = ⟨W_h, ∂L / ∂W_h⟩, for a gate ξ_h = 1."""
    names = list(dict.fromkeys(name for layer in layers for name, _ in layer.values))
    weights = [model.weight(name) for name in names]
    frozen = [w for w in weights if not w.requires_grad]
    total, scores = 0.0, [torch.zeros(len(layer.numbers)) for layer in layers]
    try:
        for weight in frozen:
            weight.requires_grad_()
        with torch.enable_grad():
            for sample in samples:
                found = _loss_of(model, loss, sample)
                gradients = dict(zip(names, _gradients(found, weights), strict=True))
                total += found.item()
                for layer, score in zip(layers, scores, strict=True):
                    score += _gates(model, layer, gradients).abs().float().cpu()
    finally:
        for weight in frozen:
            weight.requires_grad_(False)
    return total / len(samples), [score / len(samples) for score in scores]


def _gradients(loss: Tensor, weights: Sequence[Tensor]) -> Sequence[Tensor | None]:
    if not loss.requires_grad:
        what = "the loss does not depend on the weights"
        raise BadImportance(what, caller(), "compute it from the output, without `detach`")
    return torch.autograd.grad(loss, weights, allow_unused=True)


def _gates(model: Model, layer: HeadLayer, gradients: Mapping[str, Tensor | None]) -> Tensor:
    total: Any = torch.zeros(len(layer.numbers))
    for name, axis in layer.values:
        gradient = gradients[name]
        if gradient is not None:
            each = (model.weight(name).detach() * gradient).movedim(axis, 0).flatten(1).sum(1)
            total = total.to(each) + each
    return total


# ablation


def _by_ablation(
    model: Model, layers: Sequence[HeadLayer], samples: Sequence[Sample], loss: Loss
) -> tuple[float, list[Tensor]]:
    with torch.no_grad():
        outputs: list[Any] = [None] * len(samples)
        if loss is distance:
            outputs = [model(**inputs) for inputs, _ in samples]

        def mean() -> float:
            found = zip(samples, outputs, strict=True)
            return sum(_loss_of(model, loss, s, o).item() for s, o in found) / len(samples)

        full = mean()
        scores = []
        for layer in layers:
            each = []
            for head in range(len(layer.numbers)):
                with without_head(model, layer, head):
                    each.append(mean() - full)
            scores.append(torch.tensor(each, dtype=torch.float64))
    return full, scores


@contextmanager
def without_head(model: Model, layer: HeadLayer, head: int) -> Iterator[None]:
    """The model with a head (of grouped ones: a group) whose values are 0."""
    parts = [model.weight(name).data.select(axis, head) for name, axis in layer.values]
    before = [part.clone() for part in parts]
    try:
        for part in parts:
            part.zero_()
        yield
    finally:
        for part, old in zip(parts, before, strict=True):
            part.copy_(old)
