"""A smaller model without some attention heads, with the weights of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch

from edgewise.errors import caller, safe_repr
from edgewise.language.program import Program
from edgewise.module import Model
from edgewise.pruning.errors import NoSuchHead, NotPrunable
from edgewise.pruning.layers import HeadLayer, checked_layers
from edgewise.pruning.rules import PrunedRules, pruned

Heads = Mapping[int, Sequence[int]]
AnyModel = TypeVar("AnyModel")


def prune(model: AnyModel, heads: Heads) -> AnyModel:
    """The model without some heads: `{layer: [head, ...]}`, both counted from 0.

    It equals the model in which those heads give 0, values and gradients, and has the weights of
    the others only; they are renumbered. Layers may keep different numbers of heads, or none:
    then attention adds nothing, and its bias stays. Heads that share keys and values go together.
    The layers of a compiled model are those that have heads.

    - model: a compiled model, a checkpoint of `zoo.from_pretrained`, or a run.

    >>> from edgewise.zoo import gpt2
    >>> from edgewise.language import R
    >>> config = gpt2.Config(vocabulary=9, size=8, heads=4, hidden=8, layers=2, length=5)
    >>> model = gpt2.program(config).compile(R.logits, seed=0)
    >>> small = prune(model, {0: [1, 2], 1: [0]})
    >>> [tuple(small.weight(f"layer.{i}.q.weight").shape) for i in range(2)]
    [(2, 2, 8), (3, 2, 8)]
    """
    if not isinstance(model, Model):
        own = getattr(model, "prune", None)
        if own is None:
            raise NotPrunable(
                f"{safe_repr(model)} is not a model",
                caller(),
                "give a compiled model, or what `zoo.from_pretrained` gives",
            )
        found: AnyModel = own(heads)
        return found
    made = pruned_rules(model.program, heads, [o.relation for o in model.plan.outputs])
    return compiled_like(model, made)


def compiled_like(model: Model, rules: PrunedRules) -> Any:
    """The pruned program, compiled as a model was, with what is left of its weights."""
    plan = model.plan
    outputs = list(plan.outputs) if plan.names else plan.outputs[0]
    made = rules.program.compile(
        outputs, fill=model.fill, limit=model.limit, without=model.without,
        seed=0, dtype=model._one.dtype, dense=model._dense,
    )  # fmt: skip
    made.to(model._one.device)
    with torch.no_grad():
        for name in made._paths:
            ours, theirs = made.weight(name), model.weight(name)
            ours.copy_(rules.weight(name, theirs.detach()))
            if isinstance(ours, torch.nn.Parameter):
                ours.requires_grad_(theirs.requires_grad)
    return made.train(model.training)


def pruned_rules(program: Program, heads: Heads, outputs: Sequence[str] = ()) -> PrunedRules:
    """The program without some heads."""
    layers = checked_layers(program)
    gone = checked_heads([layer.heads for layer in layers], heads)
    left = {n: _left(n, layers[n], some) for n, some in gone.items()}
    if len(left) == len(layers) and not any(left.values()):
        what = "all heads of all layers would go"
        raise NotPrunable(what, caller(), "leave at least one: a model needs some attention")
    return pruned(program, {n: layers[n] for n in left}, left, outputs)


def checked_heads(counts: Sequence[int], heads: Any) -> dict[int, list[int]]:
    """The heads to prune, by layer and its number of heads; layers that lose none are left out."""
    if not isinstance(heads, Mapping):
        raise NoSuchHead(
            f"heads are {type(heads).__name__}", caller(), "write `{layer: [head, ...]}`"
        )
    found: dict[int, list[int]] = {}
    for layer, some in heads.items():
        number = _counted(layer, len(counts), "layer")
        if isinstance(some, str) or not isinstance(some, Sequence | set | frozenset):
            raise NoSuchHead(
                f"the heads of layer {layer} are {safe_repr(some)}",
                caller(),
                "write `{layer: [head, ...]}`",
            )
        own = {_counted(h, counts[number], f"head of layer {number}") for h in some}
        if own:
            found[number] = sorted({*found.get(number, ()), *own})
    return dict(sorted(found.items()))


def _counted(number: Any, count: int, what: str) -> int:
    """A number below a count; negative ones count from the end."""
    if isinstance(number, bool) or not isinstance(number, int) or not -count <= number < count:
        raise NoSuchHead(
            f"there is no {what} {safe_repr(number)}: there are {count}",
            caller(),
            f"count from 0 to {count - 1}",
        )
    return number % count


def _left(number: int, layer: HeadLayer, gone: Sequence[int]) -> list[int]:
    """The heads, or groups of heads that share keys, that stay."""
    groups = [set(range(g * layer.each, (g + 1) * layer.each)) for g in range(len(layer.numbers))]
    left = []
    for g, group in enumerate(groups):
        some = group & set(gone)
        if some and some != group:
            raise NotPrunable(
                f"heads {min(group)} to {max(group)} of layer {number} share keys and values, "
                f"{sorted(some)} alone cannot go",
                caller(),
                f"prune all of them: `{{{number}: {sorted(group)}}}`",
            )
        left += [] if some else [g]
    return left
