"""Random programs: data that was saved and loaded gives the same numbers, and joins nothing."""

import warnings
from unittest.mock import patch

import torch
from hypothesis import HealthCheck, Phase, given, settings

from edgewise import EdgewiseError
from edgewise.errors import EdgewiseWarning
from edgewise.ground.grounder import Grounder
from edgewise.language import nodes
from edgewise.save import NotSavable
from tests.properties.evaluable import evaluable
from tests.properties.test_compiled import EXAMPLES


def outputs(model, data):
    """Values and gradients of all weights."""
    found = model.rows(data)
    values = {atom.terms: value for atom, value in found.items()}
    total = sum((v.sum() for v in values.values()), torch.zeros((), dtype=torch.float64))
    weights = [p for p in model.parameters() if p.requires_grad]
    grads = torch.autograd.grad(total, weights, allow_unused=True) if total.requires_grad else ()
    return values, grads


def assert_same(ours, theirs):
    assert list(ours[0]) == list(theirs[0])
    for one, other in zip(
        [*ours[0].values(), *ours[1]], [*theirs[0].values(), *theirs[1]], strict=True
    ):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, atol=0, rtol=0, equal_nan=True)


def grounded(case, relation):
    """A model with its data, and what it computes; nothing where it is refused."""
    try:
        model = case.program.compile(nodes.Atom(relation), dtype=torch.float64, seed=0).eval()
        data = model.ground(facts=case.facts)
        return model, data, outputs(model, data)
    except EdgewiseError:
        return None


def saved(data, path):
    """Whether data has a file: programs with code and selections have none."""
    try:
        data.save(path)
    except NotSavable as error:
        if "text" in error.message or "selections" in error.message:
            return False
        raise
    return True


@settings(
    max_examples=EXAMPLES,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(evaluable())
def test_loaded_data_is_the_same(tmp_path, case):
    path = tmp_path / "data"
    for query in case.queries[-2:]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EdgewiseWarning)
            found = grounded(case, query.relation)
            if found is None or not saved(found[1], path):
                continue
            with patch.object(Grounder, "bindings", side_effect=AssertionError("joined")):
                loaded = found[0].load_data(path)
            assert_same(outputs(found[0], loaded), found[2])
