"""Small graphs in the formats of recipes, and recipes on them."""

import numpy as np

TRAINING = """
[training]
steps = 4
batch = 4
rate = 0.01
warmup = 0
log = 2
evaluate = 2
checkpoint = 2
"""
RECIPE = (
    """\
[data]
kind = "graphs"
path = "{path}"
{data}
[model]
kind = "graph"
hidden = 8
{model}
[objective]
kind = "{objective}"
"""
    + TRAINING
)


def recipe(folder, path, objective="classes", data="", model=""):
    found = folder / "recipe.toml"
    found.write_text(RECIPE.format(path=path, objective=objective, data=data, model=model))
    return found


def rings(folder, count=12, seed=0):
    """Rings with tags, of two classes: even and odd; half of them have a chord."""
    draw = np.random.default_rng(seed)
    lines = [str(count)]
    for at in range(count):
        n = 4 + at % 3 * 2 + at % 2
        lines.append(f"{n} {at % 2}")
        for i in range(n):
            near = [(i - 1) % n, (i + 1) % n]
            lines.append(f"{draw.integers(3)} {len(near)} {' '.join(map(str, near))}")
    path = folder / "rings.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def one_graph(folder, **changes):
    """A graph of 12 nodes of three classes, each class a triangle of neighbours."""
    y = np.arange(12) // 4
    pairs = [(i, j) for i in range(12) for j in range(12) if i != j and y[i] == y[j]]
    arrays = {
        "x": np.eye(12, dtype=np.float32) + 0.1 * y[:, None].astype(np.float32),
        "y": y,
        "edge_index": np.array(pairs).T,
        "train": np.array([0, 4, 8, 1]),
        "val": np.array([5, 9]),
        "test": np.array([2, 6, 10]),
    }
    path = folder / "graph.npz"
    np.savez(path, **{name: a for name, a in (arrays | changes).items() if a is not None})
    return path


def _path(n):
    ahead = np.stack([np.arange(n - 1), np.arange(1, n)])
    return np.concatenate([ahead, ahead[::-1]], 1)


def values(folder):
    """Graphs of one, two and three nodes in parts, with types of edges and a value each."""
    arrays = {"atom_types": np.array(["C", "N"])}
    for part, count in (("train", 6), ("val", 3), ("test", 3)):
        nodes = np.arange(count) % 3 + 1
        arrays |= {
            f"{part}_num_nodes": nodes.astype(np.uint8),
            f"{part}_num_edges": (2 * (nodes - 1)).astype(np.uint8),
            f"{part}_x": np.concatenate([np.arange(n) % 2 for n in nodes]).astype(np.uint8),
            f"{part}_edge_index": np.concatenate([_path(n) for n in nodes], 1).astype(np.uint8),
            f"{part}_edge_type": np.ones(int((2 * (nodes - 1)).sum()), dtype=np.uint8),
            f"{part}_y": nodes.astype(np.float32),
        }
    path = folder / "values.npz"
    np.savez(path, **arrays)
    return path
