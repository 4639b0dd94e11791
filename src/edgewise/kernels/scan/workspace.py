"""Memory that is used again: the first use of a page costs more than what is computed in it."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

from edgewise.kernels.tape.recording import current_recorder

SPARE = 1 << 26  # bytes that wait for their next use

Kind = tuple[int, torch.dtype, torch.device]
_SPARE: dict[Kind, list[Tensor]] = defaultdict(list)
_waiting = [0]


class Workspace:
    """`numbers` of any value, for as long as this object lives."""

    def __init__(self, count: int, dtype: torch.dtype, device: torch.device) -> None:
        self.kind: Kind = (count, dtype, device)
        self.own = current_recorder() is None
        waiting = _SPARE[self.kind] if self.own else None
        if waiting:
            self.numbers = waiting.pop()
            _waiting[0] -= self.numbers.nbytes
        else:
            make = torch.empty if self.own else torch.zeros
            with torch.inference_mode(False):  # training may use it next
                self.numbers = make(count, dtype=dtype, device=device)

    def __del__(self) -> None:
        if self.own and _waiting[0] + self.numbers.nbytes <= SPARE:
            _waiting[0] += self.numbers.nbytes
            _SPARE[self.kind].append(self.numbers)
