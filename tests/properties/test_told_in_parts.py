"""Random programs: facts told in parts are facts told at once."""

import random
import warnings

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import EdgewiseError
from edgewise.errors import EdgewiseWarning
from edgewise.language import nodes
from edgewise.update import CannotUpdate
from tests.properties.evaluable import evaluable


def told(model, facts, cuts):
    """What the facts give, some at a time; the code of the error where there is one."""
    updating = model.updating(facts=facts[: cuts[0]])
    for first, last in zip(cuts, [*cuts[1:], len(facts)], strict=True):
        updating.add(facts[first:last])
    return dict(updating.output)


@given(evaluable(), st.integers(0, 1000))
@settings(deadline=None, max_examples=60)
def test_told_in_parts_is_told_at_once(case, seed):
    draw, facts = random.Random(seed), list(case.facts)
    relation = case.program.rules[-1].head.relation
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgewiseWarning)
        try:
            model = case.program.compile(nodes.Atom(relation), seed=0, dtype=torch.float64).eval()
            expected = dict(model.rows(model.ground(facts=facts)))
        except EdgewiseError:
            return
        draw.shuffle(facts)
        cuts = sorted(draw.randint(0, len(facts)) for _ in range(draw.randint(1, 3)))
        try:
            found = told(model, facts, cuts)
        except CannotUpdate:
            return
    assert set(found) == set(expected)
    for atom, value in expected.items():
        torch.testing.assert_close(
            found[atom], value.detach(), rtol=1e-9, atol=1e-9, equal_nan=True
        )
