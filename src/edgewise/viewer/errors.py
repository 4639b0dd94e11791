"""Errors about pages: what cannot be shown, and where a page cannot be written."""

from edgewise.errors import EdgewiseError


class ViewTooLarge(EdgewiseError):
    """A page has at most 1 MB: up to 65,536 tokens of a model; a pattern alone has no limit."""

    code = "view-too-large"
    example = """\
from edgewise.attention_graphs import attention_graph
graph = attention_graph([torch.zeros(1, 0, 0)])
view(type(graph)(("word",) * 70_000, graph.calls))"""
    instead = "view(window(2), n=70_000)"


class CannotShow(EdgewiseError):
    """A page shows a model with a text, weights, an attention graph, or a pattern of n tokens."""

    code = "cannot-show"
    example = "view(window(2), 'a pattern reads no text')"
    instead = "view(window(2), n=16)"


class CannotSave(EdgewiseError):
    """A page is one HTML file, in a folder that exists."""

    code = "cannot-save"
    example = "view(window(2), n=16).save('no/such/folder/page.html')"
    instead = "view(window(2), n=16).save('page.html')"


class MissingAssets(EdgewiseError):
    """The script and style of pages are files of the package, made from `web/` by `make viewer`."""

    code = "missing-assets"
    example = """\
from edgewise.viewer.page import read_asset
read_asset("no-such-file.js")"""
    instead = """\
from edgewise.viewer.page import read_asset
read_asset("viewer.js")"""
