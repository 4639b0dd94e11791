"""Every dtype computes the same thing, as exactly as it can."""

import pytest
import torch
from hypothesis import assume, given, settings

from edgewise import Program, R, V, zoo
from tests.properties.evaluable import answers, evaluable

pytestmark = pytest.mark.filterwarnings("ignore::edgewise.EdgewiseWarning")

# how far a result may be from float64, in steps of its dtype at the largest value on the way
STEPS = 20
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def jumps(program: Program) -> bool:
    """Whether a function of the program is not continuous, so that rounding may show."""
    return "signum" in repr(program)


def magnitude(values) -> float:
    return max((value.abs().max().item() for value in values if value.numel()), default=0.0)


def assert_close(found, exact, dtype, scale: float) -> None:
    assert list(found) == list(exact)
    for atom, value in found.items():
        assert value.dtype == dtype
        error = (value.double() - exact[atom]).abs().max().item()
        assert error <= STEPS * torch.finfo(dtype).eps * (1 + scale), atom


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@given(case=evaluable(most_rules=3))
@settings(deadline=None, max_examples=40)
def test_a_smaller_dtype_gives_a_rounded_result(dtype, case):
    weights = {k: w.detach() for k, w in case.program.weights(seed=0).items()}
    exact = case.program.solve(case.facts, weights=weights)
    scale = magnitude(exact.values())
    assume(not jumps(case.program) and scale < 30)
    found = case.program.solve(case.facts, weights=weights, dtype=dtype)
    assert_close(answers(found, case.queries), answers(exact, case.queries), dtype, scale)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize(
    "program",
    [
        zoo.encoder.program(zoo.encoder.Config(8, 2, 8, 2)),
        zoo.gat.program(zoo.gat.Config(8, 2, 2)),
    ],
    ids=["encoder", "gat"],
)
def test_a_model_runs_in_every_dtype(program, dtype):
    rows = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    facts = [R.x(i)[row] for i, row in enumerate(rows)] + [R.edge(0, 1), R.edge(2, 1)]
    weights = {k: w.detach() for k, w in program.weights(seed=0).items()}
    found, exact = (program.solve(facts, weights=weights, dtype=d) for d in (dtype, torch.float64))
    scale = magnitude(exact.values())
    assert_close(found[R.out(V.I)], exact[R.out(V.I)], dtype, scale)
