"""Facts that are added to a computed program: what they reach is computed, all else is kept."""

from edgewise.update.updating import CannotUpdate, Updating

__all__ = ["CannotUpdate", "Updating"]
