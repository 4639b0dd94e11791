"""The figure that explains BigBird: `python docs/bigbird.py` writes docs/assets/bigbird.png."""

import sys
from pathlib import Path

from edgewise.graphs import compare, global_tokens, random_blocks, window


def main(path: Path) -> None:
    random, near, everywhere = random_blocks(3, 64, seed=0), window(96), global_tokens(64)
    figure = compare(random, near, everywhere, random | near | everywhere, n=4096)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/assets/bigbird.png"))
