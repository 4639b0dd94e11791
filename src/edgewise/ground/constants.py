"""Constants as integers: a number is itself, a string its rank among all strings, far above."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.language.nodes import Constant

STRINGS = 1 << 40  # integers stay below, strings from here on, so that keys sort as they should


class KeyOutOfRange(EdgewiseError):
    """Compiled programs keep keys in 64 bits, and an axis has no place for a negative key."""

    code = "key-out-of-range"
    example = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h).ground(facts=[R.a(1 << 50)[1.0]])"
    instead = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h).ground(facts=[R.a(1 << 30)[1.0]])"


class Constants:
    """The strings of one grounding, in key order.

    >>> names = Constants(["b", "a", 7])
    >>> [names.code(c) - STRINGS for c in ("a", "b")], names.code(7)
    ([0, 1], 7)
    """

    def __init__(self, constants: Iterable[Constant] = ()) -> None:
        self.strings = sorted({c for c in constants if isinstance(c, str)})
        self.ranks = {string: rank for rank, string in enumerate(self.strings)}

    def code(self, constant: Constant) -> int:
        if isinstance(constant, str):
            return STRINGS + self.ranks[constant]
        if not -STRINGS < constant < STRINGS:
            raise KeyOutOfRange(
                f"the key {constant} does not fit", caller(), "use keys below 2^40, or a string"
            )
        return constant

    def knows(self, constant: Constant) -> bool:
        return not isinstance(constant, str) or constant in self.ranks

    def constant(self, code: int) -> Constant:
        return self.strings[code - STRINGS] if code >= STRINGS else code

    def keys(self, keys: Iterable[tuple[Constant, ...]], arity: int) -> Tensor:
        rows, code = list(keys), self.code
        codes = [code(c) for key in rows for c in key]
        return torch.tensor(codes, dtype=torch.int64).reshape(len(rows), arity)
