"""What the examples of docstrings may read: those of `edgewise.training` run beside two recipes."""

from pathlib import Path

import numpy as np
import pytest

GRAPH = """\
[data]
kind = "graphs"
path = "graph.npz"
[model]
kind = "graph"
hidden = 8
[objective]
kind = "classes"
[training]
steps = 2
batch = 1
"""


@pytest.fixture(autouse=True)
def beside_recipes(request: pytest.FixtureRequest) -> None:
    """A folder with `recipe.toml`, a GPT of characters, and `graph.toml`, a network on 12 nodes."""
    is_example = isinstance(request.node, pytest.DoctestItem)
    if is_example and request.node.name.startswith("edgewise.training."):
        from tests.training.tiny_recipe import RECIPE, put

        folder: Path = request.getfixturevalue("tmp_path")
        request.getfixturevalue("monkeypatch").chdir(folder)
        short = RECIPE.replace("steps = 12", "steps = 2")
        put(folder, short.replace('graph = ["window(2)", "strided(3)"]', ""))
        (folder / "graph.toml").write_text(GRAPH)
        pairs = np.array([(i, i ^ 1) for i in range(12)]).T
        features = np.eye(12, dtype="float32")
        np.savez(folder / "graph.npz", x=features, y=np.arange(12) // 6, edge_index=pairs)
