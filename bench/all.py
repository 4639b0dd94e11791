"""Every benchmark that this machine can run, one after the other: `make bench`.

It says what it leaves out and why. `python bench/all.py window_cpu two_hop` runs those alone.
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import torch

HERE = Path(__file__).parent
PARTS = {"all", "grid_cells", "measure", "models_papers", "page", "plots", "pyneuralogic_peer",
         "pyneuralogic_rules"}  # fmt: skip
TUNING = {"tune_attention_gpu": "it profiles kernels: run it by hand",
          "tune_blocks_gpu": "it tries launch settings: run it by hand",
          "training": "it trains for minutes on a GPU: run it by hand"}  # fmt: skip
PACKAGES = {"gnn_gpu": ["torch_geometric"], "gnn_pyg": ["torch_geometric"],
            "hetero_pyg": ["torch_geometric"],
            "minibatch": ["torch_geometric"], "shuffled": ["torch_geometric"],
            "graph_attention_cpu": ["torch_geometric"], "hf_long": ["transformers"],
            "relational_attention": ["torch_geometric"],
            "joins": ["duckdb"], "partitions": ["pymetis"], "view": ["playwright"],
            "generate": ["transformers", "gguf"], "models": ["transformers"]}  # fmt: skip


def scripts() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem not in PARTS)


def left_out(name: str) -> str | None:
    """Why this machine does not run a script."""
    if ("_gpu" in name or name == "attention_sweep") and not torch.cuda.is_available():
        return "there is no CUDA GPU here"
    missing = [package for package in PACKAGES.get(name, []) if find_spec(package) is None]
    return f"{' and '.join(missing)} is not installed" if missing else TUNING.get(name)


def main() -> int:
    failed = []
    for name in sys.argv[1:] or scripts():
        if reason := left_out(name):
            print(f"== {name}: left out, {reason}", flush=True)
            continue
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, str(HERE / f"{name}.py")], check=False).returncode:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "results are in bench/results")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
