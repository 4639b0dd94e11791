"""Whether torch converts the precision of operations by itself."""

from __future__ import annotations

import torch


def autocasts(device: torch.device) -> bool:
    """Whether autocast is on for a device; it is off for those that have none."""
    kind = device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
