"""Attention in a browser: one offline HTML file, from the script built of `web/`."""

from edgewise.viewer.page import View, view

__all__ = ["View", "view"]
