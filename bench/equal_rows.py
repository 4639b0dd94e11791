"""Molecules with equal rows computed once, and row by row: the same rules, the pass switched off.

PYTHONPATH=src:bench python bench/equal_rows.py

All 188 molecules of mutagenesis in one step of training (forward and backward). Values and
gradients of both are compared in float64 first; process time, one thread.
"""

import os
from pathlib import Path

import torch
from measure import cpu_seconds, write

from edgewise import F, Program, R, V, data, ragged

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
FOLDER = Path(os.environ.get("EDGEWISE_DATA", SHARED)) / "relational" / "mutagenesis"
LIFT = "lift equal rows"


def rules(types, width, layers):
    """GIN layers over embeddings of the types of atoms, and the mean of the atoms."""
    found = [R.h0(V.A) <= R[kind](V.A)[width, 1] for kind in types]
    for n in range(layers):
        x, y = R[f"h{n}"], R[f"h{n + 1}"]
        found += [
            y(V.I)[width, width] <= (x(V.J), R._bond(V.J, V.I, V.B)),
            y(V.I)[width, width] <= x(V.I)[width, width],
            y / 1 | [F.relu],
        ]
    return [*found, (R.predict[1, width] <= R[f"h{layers}"](V.X)) | [F.avg_agg]]


def step_of(program, samples, without, dtype=None):
    """The model, and one forward and backward pass over all samples."""
    model = program.compile(R.predict, without=without, seed=0, dtype=dtype)
    grounded = model.ground(**samples)

    def step():
        model.zero_grad()
        found = model.rows(grounded).data
        found.square().mean().backward()
        return found.detach()

    return model, grounded, step


def difference(program, samples):
    """The largest difference of values and gradients, in float64."""
    both = [step_of(program, samples, without, torch.float64) for without in ((), (LIFT,))]
    values = [step() for _, _, step in both]
    apart = [float((values[0] - values[1]).abs().max())]
    for mine, theirs in zip(both[0][0].parameters(), both[1][0].parameters(), strict=True):
        if mine.grad is not None:
            apart.append(float((mine.grad - theirs.grad).abs().max()))
    return max(apart)


def main():
    torch.set_num_threads(1)
    read = data.neuralogic(FOLDER / "examples.txt").inputs["facts"].samples
    facts = [[atom for atom in sample if atom.relation[:2] != "b_"] for sample in read]
    types = sorted({a.relation for sample in facts for a in sample if len(a.terms) == 1})
    samples = {"facts": ragged(facts)}
    results = []
    for layers in (1, 2, 3, 5):
        for width in (16, 64, 256):
            program = Program(rules(types, width, layers))
            row = {"molecules": len(facts), "layers": layers, "width": width}
            row["largest_difference"] = difference(program, samples)
            model, grounded, once = step_of(program, samples, ())
            kernels = model.explain(grounded, json=True)["kernels"]["relations"]
            row["atoms"] = next(k["layouts"][0]["rows"] for k in kernels if k["relation"] == "h1")
            row["classes"] = {k["relation"]: k["classes"] for k in kernels if "classes" in k}
            each = step_of(program, samples, (LIFT,))[2]
            row["once"], row["row_by_row"] = cpu_seconds(once, 10), cpu_seconds(each, 10)
            row["times"] = round(row["row_by_row"]["cpu_s"] / row["once"]["cpu_s"], 2)
            print(row, flush=True)
            results.append(row)
    write("equal_rows", results)


if __name__ == "__main__":
    main()
