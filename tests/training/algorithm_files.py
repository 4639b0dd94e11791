"""Small runs of breadth-first search and of choosing nodes, in the arrays of CLRS."""

import numpy as np


def search(n, graphs, seed, steps=4):
    """Breadth-first search on random graphs, with reach and parents as hints."""
    draw = np.random.default_rng(seed)
    adj = draw.random((graphs, n, n)) < 0.4
    adj = adj | adj.transpose(0, 2, 1) | np.eye(n, dtype=bool)
    s = np.eye(n, dtype=np.int8)[draw.integers(n, size=graphs)]
    reach, pi = s.astype(bool), np.tile(np.arange(n), (graphs, 1))
    reaches, pointers = [reach], [pi]
    for _ in range(steps - 1):
        open_ = adj & reach[:, None, :]
        parent = np.where(open_.any(2), open_.argmax(2), np.arange(n))
        pi = np.where(reach, pi, parent)
        reach = reach | open_.any(2)
        reaches.append(reach)
        pointers.append(pi)
    return {
        "in:pos:node:scalar": np.tile(np.arange(n) / n, (graphs, 1)).astype(np.float32),
        "in:s:node:mask_one": s,
        "in:A:edge:scalar": adj.astype(np.float32),
        "in:adj:edge:mask": adj.astype(np.int8),
        "hint:reach_h:node:mask": np.stack(reaches).astype(np.int8),
        "hint:pi_h:node:pointer": np.stack(pointers).astype(np.int8),
        "out:pi:node:pointer": pi,
        "lengths": np.full(graphs, steps, dtype=np.float64),
    }


def chosen(n, graphs, seed):
    """The same, with a number and a choice of one node at every step."""
    found = search(n, graphs, seed)
    found["hint:d:node:scalar"] = found["hint:reach_h:node:mask"].astype(np.float32) / 2
    found["hint:u:node:mask_one"] = np.tile(found["in:s:node:mask_one"], (4, 1, 1))
    return found


def write(folder, make=search, name="bfs", **changes):
    for part, n, graphs, seed in (("train", 5, 12, 0), ("val", 5, 4, 1), ("test", 8, 4, 2)):
        arrays = make(n, graphs, seed) | changes
        np.savez(
            folder / f"{name}_{part}.npz", **{k: v for k, v in arrays.items() if v is not None}
        )
