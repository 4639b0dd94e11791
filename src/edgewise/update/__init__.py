"""Facts that are added to a computed program: what they reach is recomputed, all else stays."""

from edgewise.update.updating import CannotUpdate, Updating

__all__ = ["CannotUpdate", "Updating"]
