"""Checkpoints without some heads: `pruned_heads` of `config.json`, and tensors that are smaller.

Hugging Face's layout has `pruned_heads` for some model types (transformers reads it up to version
4); decoders of Llama's family say how many heads all layers have, beside the size of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.language.program import Program
from edgewise.pruning.layers import HeadLayer, checked_layers
from edgewise.pruning.rules import PrunedRules
from edgewise.pruning.smaller_models import checked_heads, pruned_rules
from edgewise.zoo.pretrained.fields import BadPretrained
from edgewise.zoo.pretrained.tensors import TensorEntry, shapes_of

PrunedHeads = dict[int, tuple[int, ...]]
FIELD = "pruned_heads"
WITH_FIELD = frozenset(("bert", "roberta", "distilbert", "electra", "gpt2", "openai-gpt", "vit"))
IN_SCORES = ("alibi", "relative")  # positions for which a head's number counts


def with_pruned(
    before: PrunedHeads, heads: Mapping[int, Sequence[int]], layers: Sequence[HeadLayer]
) -> PrunedHeads:
    """Heads that are pruned now, counted among those that are left, beside those `before`."""
    found = dict(before)
    counts = [layer.heads - len(before.get(n, ())) for n, layer in enumerate(layers)]
    for layer, gone in checked_heads(counts, heads).items():
        old = set(before.get(layer, ()))
        left = [head for head in range(layers[layer].heads) if head not in old]
        found[layer] = tuple(sorted(old | {left[head] for head in gone}))
    return found


def left_of(weights: Mapping[str, Tensor], old: PrunedRules, new: PrunedRules) -> dict[str, Tensor]:
    """What is left of weights, some of which were smaller already."""
    found = {}
    for name in shapes_of(new.program):
        cut, before = new.cuts.get(name), old.cuts.get(name)
        if cut is not None and before is not None:
            place = {k: n for n, k in enumerate(before.left)}
            cut = replace(cut, left=tuple(place[k] for k in cut.left))
        if name in weights:
            found[name] = weights[name] if cut is None else cut(weights[name])
    return found


def read_pruned(table: Mapping[str, Any]) -> PrunedHeads:
    """The field of `config.json`, layers to lists of heads; JSON has layers as text."""
    said = table.get(FIELD) or {}
    try:
        found = {int(layer): tuple(sorted(map(int, heads))) for layer, heads in said.items()}
    except (AttributeError, TypeError, ValueError):
        raise BadPretrained(
            f"`{FIELD}` is {said!r}"[:120], help='give `{"0": [1, 2]}`: heads of layers'
        ) from None
    return {layer: heads for layer, heads in found.items() if heads}


def pruned_entries(
    program: Program, entries: Sequence[TensorEntry], pruned: PrunedHeads
) -> tuple[Program, list[TensorEntry]]:
    """The program without some heads, and its tensors: those of a layer without heads are fewer."""
    layers = checked_layers(program)
    try:
        made = pruned_rules(program, pruned).program
    except EdgewiseError as problem:
        raise BadPretrained(f"`{FIELD}`: {problem.message}", help=problem.help or "") from None
    shapes, found = shapes_of(made), []
    for entry in entries:
        layer = next((n for n in pruned if _is_of(entry, layers[n])), None)
        if entry.ours in shapes:
            found.append(entry if layer is None else _smaller(entry, layers[layer], pruned[layer]))
    return made, found


def _is_of(entry: TensorEntry, layer: HeadLayer) -> bool:
    """Whether a tensor holds queries, keys or values of a layer."""
    return any(entry.ours.startswith(f"{layer.scope}.{name}.") for name in "qkv")


def _smaller(entry: TensorEntry, layer: HeadLayer, gone: Sequence[int]) -> TensorEntry:
    if entry.view is not None or entry.shape is not None:
        what = f"the tensor `{entry.theirs}` holds heads inside of others"
        raise BadPretrained(what, caller(), "save it with `model.save(path)`")
    if entry.part is None:
        return entry
    axis, *places = entry.part
    start, size = (n * (layer.heads - len(gone)) // layer.heads for n in places)
    return replace(entry, part=(axis, start, size))


def pruned_config(
    kind: str, config: Any, program: Program, pruned: PrunedHeads
) -> tuple[Any, dict[str, Any]]:
    """The configuration of a pruned model, and fields of `config.json`; refuses what has none."""
    if kind in WITH_FIELD:
        return config, {FIELD: {str(layer): list(heads) for layer, heads in pruned.items()}}
    layers = checked_layers(program)
    left = [layer.heads - len(pruned.get(n, ())) for n, layer in enumerate(layers)]
    numbered = hasattr(config, "d") and config.positions not in IN_SCORES
    if not numbered or len(set(left)) > 1 or not left[0]:
        each = ", ".join(map(str, left[:8])) + (", ..." if len(left) > 8 else "")
        why = "the same number of heads in all layers" if numbered else "no pruned heads"
        raise BadPretrained(
            f"the layout of `{kind}` in transformers has {why}, the layers have {each}",
            caller(),
            "save the compiled model, which `edgewise.load` reads: `model.model.save(path)`",
        )
    names = {"num_attention_heads": left[0]}
    if hasattr(config, "groups"):
        names["num_key_value_heads"] = left[0] * config.groups // config.heads
    return config, names
