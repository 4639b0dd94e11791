"""Constants of scores, such as ALiBi's slopes, where the call is: they are copied there once."""

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

_COPIES = WeakTensorKeyDictionary()  # table → device → (its version, the copy)


def constants_at(tables: tuple[Tensor, ...], device: torch.device) -> tuple[Tensor, ...]:
    """Tables of a score on a device; those that are learned are there already."""
    return tuple([x if x.device == device else _copied(x, device) for x in tables])


def _copied(table: Tensor, device: torch.device) -> Tensor:
    copies = _COPIES.setdefault(table, {})
    version, copy = copies.get(device, (-1, table))
    if version != table._version:
        version, copy = copies[device] = (table._version, table.to(device))
    return copy
