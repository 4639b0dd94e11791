"""`rounds=k` computes exactly k rounds of minima and maxima on a cycle, and trains through them."""

import pytest
import torch

from edgewise import F, Program, R, V

EDGES = {(0, 1): 1.0, (1, 2): 1.0, (2, 0): 1.0, (2, 3): 1.0, (0, 3): 5.0, (3, 1): -4.0}
RULES = [
    (R.far(V.Y) <= (R.far(V.X), R.road(V.X, V.Y)["w":1.0])) | [F.min_agg],
    R.far / 1 | [F.min],
]
FACTS = [R.far(0)[0.0], *(R.road(*edge)[cost] for edge, cost in EDGES.items())]


def bellman_ford(rounds: int, weight: torch.Tensor) -> dict[int, torch.Tensor]:
    far = {0: torch.zeros((), dtype=torch.float64)}
    for _ in range(rounds):
        steps = {y: [] for _, y in EDGES}
        for (x, y), cost in EDGES.items():
            if x in far:
                steps[y].append(far[x] + weight * cost)
        new = {y: torch.stack(found).amin() for y, found in steps.items() if found}
        start = torch.zeros((), dtype=torch.float64)
        new[0] = torch.minimum(start, new[0]) if 0 in new else start
        far = new
    return far


@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 8])
def test_exactly_k_rounds(rounds):
    weight = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    expected = bellman_ford(rounds, weight)
    sum(expected.values()).backward()
    program = Program(RULES, rounds=rounds)
    model = program.compile(R.far, dtype=torch.float64)
    found = model.rows(model.ground(facts=FACTS))
    solved = program.solve(FACTS)
    for values in (solved[R.far(V.X)], found):
        assert {a.terms[0]: v.item() for a, v in values.items()} == pytest.approx(
            {y: v.item() for y, v in expected.items()}
        )
    found.data.sum().backward()
    sum(solved[R.far(V.X)].values()).backward()
    assert model.w.grad.item() == pytest.approx(weight.grad.item())
    assert solved.weights["w"].grad.item() == pytest.approx(weight.grad.item())
