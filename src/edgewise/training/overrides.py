"""Keys of a recipe that are changed for one run: `section.key=value`, as `--set` takes them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from edgewise.errors import Span
from edgewise.training.errors import BadRecipe

SETTING = re.compile(r"\s*([A-Za-z_]+)\.([A-Za-z_0-9]+)\s*=(.*)", re.DOTALL)
LONGEST_NAME = 80
Places = dict[tuple[str, str], Span]


def overridden(tables: Mapping[str, Any], settings: Iterable[str]) -> tuple[dict[str, Any], Places]:
    """The tables of a recipe with some keys changed, and where each change was written.

    >>> overridden({"model": {"heads": 2}}, ["model.heads=4", "model.graph=window(8)"])[0]
    {'model': {'heads': 4, 'graph': 'window(8)'}}
    """
    found = {name: dict(t) if isinstance(t, Mapping) else t for name, t in tables.items()}
    places: Places = {}
    for setting in settings:
        span = Span("<--set>", 1, 1, len(setting) + 1, source=setting)
        matched = SETTING.fullmatch(setting)
        if matched is None:
            help = "write section, key and value: `--set training.seed=2`"
            raise BadRecipe(f"`{setting}` does not set a key", span, help)
        section, key, text = matched.groups()
        places[section, key] = places[section, ""] = span
        table = found.setdefault(section, {})
        if isinstance(table, dict):
            table[key] = value_of(text.strip())
    return found, places


def value_of(text: str) -> Any:
    """A value as TOML writes it; what is not TOML is a string.

    >>> value_of("2"), value_of("true"), value_of("window(3) | causal()")
    (2, True, 'window(3) | causal()')
    """
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if len(found) == 1 else text


def folder_name(stem: str, settings: Iterable[str]) -> str:
    """A name for the run of a recipe with settings.

    >>> folder_name("sst2", ["model.graph=window(8)", "training.seed=2"])
    'sst2-graph=window-8-seed=2'
    """
    keys = [setting.partition(".")[2].strip() for setting in settings]
    words = [re.sub(r"[^A-Za-z0-9=.]+", "-", key).strip("-.") for key in keys]
    return "-".join([stem, *words])[:LONGEST_NAME]
