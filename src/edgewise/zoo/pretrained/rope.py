"""Rotary positions in `config.json`: `rope_parameters`, or `rope_scaling` of older files."""

import math
from typing import Any

from edgewise.zoo import rope_scaling as kinds
from edgewise.zoo.pretrained.fields import Fields

LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor")
ORIGINAL = "original_max_position_embeddings"
TYPES = ("default", "linear", "llama3", "yarn", "dynamic", "longrope")
OLD_NAMES = ("su", "yarn")  # of longrope, in the first files of Phi-3


def parameters(fields: Fields) -> Fields:
    """The fields about rotary positions: those of `rope_scaling` come first, as in transformers."""
    scaling = fields.inside("rope_scaling")
    return scaling if scaling.table else fields.inside("rope_parameters")


def read_rotary(
    fields: Fields,
    table: Fields,
    d: int,
    *,
    base: float = 10_000.0,
    part: float = 1.0,
    original: int | None = None,
) -> dict[str, Any]:
    """`base`, `scaling` and `rotated`, which older files have outside of `rope_parameters`.

    `original`: the default of the length in training, by default that of positions.
    """
    inner = Fields({**fields.table, **table.table}, fields.problems)
    kind = inner.table.get("rope_type", inner.table.get("type", "default"))
    kind = "longrope" if kind in OLD_NAMES and "short_factor" in inner.table else kind
    found = inner.number("rope_theta", default=base)
    if found < 1 or (found == 1 and kind == "yarn"):
        fields.refuse("rope_theta", found, "greater than 1", None)
        found = base
    share = inner.number("partial_rotary_factor", default=part)
    features = int(d * share)
    if not 2 <= features <= d or features % 2:
        fields.problem(f"{features} of {d} features of a head are rotated", "rotate pairs of them")
        features = d
    made: dict[str, Any] = {"base": found, "rotated": None if features == d else features}
    return made | {"scaling": _scaling(kind, fields, inner, features, original)}


def _scaling(
    kind: Any, fields: Fields, inner: Fields, d: int, original: int | None
) -> kinds.Scaling | None:
    match kind:
        case "default":
            return None
        case "linear":
            return kinds.Linear(inner.positive("factor"))
        case "dynamic":
            length = fields.positive("max_position_embeddings")
            return kinds.Dynamic(inner.positive("factor"), length)
    longest = fields.size("max_position_embeddings")
    outer = fields if original or ORIGINAL in fields.table else inner
    length = float(outer.size(ORIGINAL, default=original or longest))
    match kind:
        case "llama3":
            factor, low, high = (inner.number(name) for name in LLAMA3)
            if not factor or not low < high:
                fields.problem(
                    "`rope_parameters` need factor > 0 and low_freq_factor < high_freq_factor",
                    "check them",
                )
                return None
            return kinds.Llama3(factor, low, high, length)
        case "yarn":
            return _yarn(fields, inner, length, longest)
        case "longrope":
            return _longrope(inner, d, length, longest)
    fields.problem(
        f"the configuration has rotary positions of the type {kind!r}"[:120],
        f"supported: {', '.join(f'`{name}`' for name in TYPES)}",
    )
    return None


def _yarn(fields: Fields, inner: Fields, length: float, longest: int) -> kinds.Yarn:
    factor = inner.positive("factor", default=longest / length)
    own, all_ = (inner.number(name, default=0.0) for name in ("mscale", "mscale_all_dim"))
    ratio = _temperature(factor, own) / _temperature(factor, all_) if own and all_ else None
    usual = _temperature(factor, 1.0) if ratio is None else ratio
    return kinds.Yarn(
        factor,
        length,
        inner.positive("attention_factor", default=usual),
        fast=inner.number("beta_fast", default=32.0) or 32.0,
        slow=inner.number("beta_slow", default=1.0) or 1.0,
        truncate=parameters(fields).flag("truncate", default=True),
    )


def _temperature(factor: float, by: float) -> float:
    return 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0


def _longrope(inner: Fields, d: int, length: float, longest: int) -> kinds.LongRope | None:
    lists = [inner.table.get(name) for name in ("short_factor", "long_factor")]
    for name, found in zip(("short_factor", "long_factor"), lists, strict=True):
        if not isinstance(found, list) or len(found) != d // 2 or not all(map(_positive, found)):
            inner.refuse(name, found, f"a list of {d // 2} numbers > 0", None)
            return None
    factor = inner.positive("factor", default=longest / length)
    usual = math.sqrt(1 + math.log(factor) / math.log(length)) if factor > 1 < length else 1.0
    short, slow = (tuple(float(number) for number in found or ()) for found in lists)
    amplitude = inner.positive("attention_factor", default=usual)
    return kinds.LongRope(short, slow, length, amplitude)


def _positive(number: Any) -> bool:
    fine = isinstance(number, int | float) and not isinstance(number, bool)
    return fine and 0 < number < math.inf


def written_rotary(config: Any) -> dict[str, Any]:
    """The `rope_parameters` that `read_rotary` reads back."""
    found: dict[str, Any] = {"rope_type": "default", "rope_theta": config.base}
    if config.rotated is not None:
        found["partial_rotary_factor"] = config.rotated / config.d
    match config.scaling:
        case kinds.Linear(factor):
            found |= {"rope_type": "linear", "factor": factor}
        case kinds.Dynamic(factor, _):
            found |= {"rope_type": "dynamic", "factor": factor}
        case kinds.Llama3(factor, low, high, length):
            numbers = zip(LLAMA3, (factor, low, high), strict=True)
            found |= {"rope_type": "llama3", **dict(numbers), ORIGINAL: int(length)}
        case kinds.Yarn(factor, length, amplitude, fast, slow, truncate):
            found |= {"rope_type": "yarn", "factor": factor, ORIGINAL: int(length)}
            found |= {"attention_factor": amplitude, "beta_fast": fast, "beta_slow": slow}
            found |= {"truncate": truncate}
        case kinds.LongRope(short, slow, length, amplitude):
            found |= {"rope_type": "longrope", "short_factor": [*short], "long_factor": [*slow]}
            found |= {ORIGINAL: int(length), "attention_factor": amplitude}
    return found
