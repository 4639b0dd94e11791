"""Recursion with a minimum is evaluated to its fixed point: shortest paths, with gradients.

The gradient of a distance by a road is 1 if the shortest way uses that road.
"""

import torch

from edgewise import F, Program, R, V

shortest = Program(
    [
        (R.far(V.Y) <= (R.far(V.X), R.road(V.X, V.Y))) | [F.min_agg],
        R.far / 1 | [F.min],
    ]
)

ROADS = {("home", "mill"): 4.0, ("home", "lake"): 1.0, ("lake", "mill"): 2.0}
ROADS |= {("mill", "town"): 5.0, ("lake", "town"): 9.0, ("town", "home"): 1.0}
length = {pair: torch.tensor(km, requires_grad=True) for pair, km in ROADS.items()}

facts = [R.far("home")[0.0], *(R.road(*pair)[km] for pair, km in length.items())]
solution = shortest.solve(facts)

for atom, km in solution[R.far(V.X)].items():
    print(f"{atom}: {km:.0f} km")

solution[R.far("town")].backward()
way = [pair for pair, km in length.items() if km.grad == 1]
print("the way to town:", way)

assert solution[R.far("town")] == 8
assert way == [("home", "lake"), ("lake", "mill"), ("mill", "town")]
