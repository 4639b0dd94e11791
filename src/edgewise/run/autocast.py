"""Whether torch converts the precision of operations by itself."""

from __future__ import annotations

import torch


def lowered(device: torch.device) -> torch.dtype | None:
    """The precision of autocast, where it is on."""
    return torch.get_autocast_dtype(device.type) if autocasts(device) else None


def autocasts(device: torch.device) -> bool:
    """Whether autocast is on for a device; shapes alone have none."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)
