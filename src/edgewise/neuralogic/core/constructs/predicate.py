"""A relation's name and arity, and `R.h/1 | [...]`."""

from __future__ import annotations

import re
from typing import Any

from edgewise.errors import caller, safe_repr
from edgewise.neuralogic.core.constructs.metadata import Metadata
from edgewise.neuralogic.errors import BadTemplate

NAME = re.compile(r"_?\w[\w-]*")


class Predicate:
    """A name with an arity; one that begins with `_` is hidden."""

    __slots__ = ("arity", "hidden", "name", "special")

    def __init__(self, name: str, arity: int, hidden: bool = False, special: bool = False) -> None:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise BadTemplate(
                f"`{safe_repr(name)}` is not the name of a relation",
                caller(),
                "a name has letters, digits, `_` and `-`",
            )
        self.name = name.removeprefix("_")
        self.arity = arity
        self.hidden = hidden or name.startswith("_")
        self.special = special

    def to_str(self) -> str:
        return f"{'*' if self.hidden else ''}{'@' if self.special else ''}{self.name}"

    def __str__(self) -> str:
        return f"{self.to_str()}/{self.arity}"

    def __repr__(self) -> str:
        return str(self)

    def __or__(self, other: Any) -> PredicateMetadata:
        return PredicateMetadata(self, Metadata.of(other))


class PredicateMetadata:
    """How the rules of a relation are combined and transformed."""

    __slots__ = ("metadata", "predicate")

    def __init__(self, predicate: Predicate, metadata: Metadata) -> None:
        for key in ("aggregation", "learnable"):
            if getattr(metadata, key) is not None:
                raise BadTemplate(
                    f"`{predicate}` is a relation, and {key} belongs to a rule",
                    caller(),
                    "write it after the rule: `(head <= body) | [...]`",
                )
        self.predicate = predicate
        self.metadata = metadata

    def __str__(self) -> str:
        return f"{self.predicate} {self.metadata}"

    def __repr__(self) -> str:
        return str(self)
