"""Why has an atom its value? `why` gives the groundings with their shares; `draw` the network."""

import math
from pathlib import Path

from edgewise import F, Program, R, V

attention = Program(
    [
        R.d_k[1 / math.sqrt(2)].fixed(),
        (R.weights(V.I, V.J) <= (R.d_k, R.x(V.J).T, R.x(V.I), R.special.leq(V.J, V.I)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.attention(V.I) <= (R.weights(V.I, V.J), R.x(V.J))) | [F.product],
    ]
)

facts = [R.x(0)[[1.0, 0.0]], R.x(1)[[0.0, 2.0]], R.x(2)[[1.0, 2.0]]]
solution = attention.solve(facts)

reason = solution.why(R.attention(2))
print(reason)

folder = Path("demo")
folder.mkdir(exist_ok=True)
print("drawn:", attention.draw().save(folder / "rules.svg"))
print("drawn:", solution.draw(R.attention(2)).save(folder / "network.svg"))

parts = [grounding.contribution for grounding in reason.derivations[0].groundings]
assert len(parts) == 3
assert (sum(parts) - solution[R.attention(2)]).abs().max() < 1e-12
assert (folder / "network.svg").read_text(encoding="utf-8").startswith("<svg")
