"""Grounded data: what a model was given, checked and joined once for many steps."""

from __future__ import annotations

from typing import Any

from edgewise.errors import EdgewiseError
from edgewise.ground.inputs import Given, ragged
from edgewise.language import nodes
from edgewise.run.step import Step


class ForeignData(EdgewiseError):
    """Data is joined for the rules of one model and holds nothing that another could use."""

    code = "foreign-data"
    example = """\
one, two = (Program([R.h(V.X) <= R.a(V.X)]).compile(R.h) for _ in range(2))
two(one.ground(a=torch.ones(3)))"""
    instead = """\
one, two = (Program([R.h(V.X) <= R.a(V.X)]).compile(R.h) for _ in range(2))
two(two.ground(a=torch.ones(3)))"""


class Data:
    """Grounded inputs: keys and facts, and what has been built for the shapes seen so far."""

    def __init__(
        self,
        model: int,
        given: dict[str, Given],
        facts: tuple[nodes.Atom, ...] | ragged = (),
        open: bool = True,
    ) -> None:
        self.model = model
        self.given = given
        self.facts = facts
        self.open = open  # whether relations that are not given may still come with a call
        self.built: dict[Any, Step] = {}

    @property
    def stated(self) -> set[str]:
        """The relations that facts give."""
        facts = self.facts
        samples = facts.samples if isinstance(facts, ragged) else (facts,)
        return {atom.relation for sample in samples for atom in sample}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"built": {}}  # a copy builds its own when it needs it

    def __repr__(self) -> str:
        return f"<data: {', '.join(self.given) or 'facts'}>"
