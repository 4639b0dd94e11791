"""The error for an input of an unknown kind."""

from __future__ import annotations

from edgewise.errors import EdgewiseError


class BadInput(EdgewiseError):
    """An input is a tensor, `rows(...)`, `ragged(...)`, facts, or a collection of keys or values:
    tuples, a mapping, a frame, a sparse matrix."""

    code = "bad-input"
    example = 'Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a="x")'
    instead = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a=torch.ones(3))"
