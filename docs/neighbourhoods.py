"""Receptive fields of one pixel: `python docs/neighbourhoods.py` writes their picture."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from edgewise.graphs import blocks, clamped_window, dilated, full, grid, window

SIDE, PIXEL = 16, (1, 9)
IMAGE = grid(SIDE, SIDE)
FIELDS = {
    "near": IMAGE(window(3), window(3)),
    "NATTEN's border": IMAGE(clamped_window(3), clamped_window(3)),
    "dilated": IMAGE(dilated(3, 2), dilated(3, 2)),
    "axial": IMAGE(full(), window(0)) | IMAGE(window(0), full()),
    "Swin, shifted": IMAGE(blocks(7, offset=3), blocks(7, offset=3)),
}


def main(path: Path) -> None:
    figure, axes = plt.subplots(1, len(FIELDS), figsize=(11, 2.5), layout="constrained")
    tokens, here = torch.arange(SIDE**2), PIXEL[0] * SIDE + PIXEL[1]
    for axis, (name, graph) in zip(axes, FIELDS.items(), strict=True):
        seen = graph.contains(torch.full_like(tokens, here), tokens, SIDE**2).view(SIDE, SIDE)
        axis.imshow(seen, cmap="Blues", vmin=0, vmax=1.4, interpolation="nearest")
        axis.plot(PIXEL[1], PIXEL[0], "o", color="#d9480f", ms=4)
        axis.set(title=name, xticks=[], yticks=[])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/assets/neighbourhoods.png"))
