"""A run that is killed and resumed in another process ends with the same bits.

PYTHONPATH=src:bench python3 bench/resume.py [recipe ...]

Each recipe runs for a few steps with `deterministic = true`: twice, and once killed half-way. The
texts are read from the folder in EDGEWISE_TEXTS.
"""

import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
from measure import skip, write

from edgewise import training

STEPS = int(os.environ.get("STEPS", 120))
ROOT = pathlib.Path(__file__).resolve().parents[1]
RECIPES, SHARED = ROOT / "recipes", ROOT.parent / "shared" / "data" / "text"
DATA = os.environ.get("EDGEWISE_TEXTS", str(SHARED))
CHANGES = {"steps": STEPS, "checkpoint": STEPS // 2, "evaluate": STEPS // 2, "warmup": STEPS // 6,
           "seed": 3, "deterministic": "true"}  # fmt: skip


def changed(recipe, folder):
    """The recipe with few steps."""
    text = (RECIPES / f"{recipe}.toml").read_text()
    for key, value in CHANGES.items():
        text, found = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
        text += "" if found else f"{key} = {value}\n"
    path = folder / f"{recipe}.toml"
    path.write_text(text)
    return path


def run(path, out, killed, resume):
    """In this process, which dies half-way if it is to be killed."""
    for event in training.train(training.load(path), out, data=DATA, resume=resume):
        if killed and event.kind == "checkpoint" and event.step == STEPS // 2:
            os._exit(9)


def in_another_process(*arguments):
    return subprocess.run([sys.executable, __file__, "--run", *arguments], check=False).returncode


def bits(out):
    """What the last checkpoint holds."""
    last = out / "checkpoints" / f"step-{STEPS:08d}"
    files = sorted(last.glob("*.safetensors"))
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def compare(recipe, folder):
    path = changed(recipe, folder)
    plain, again, cut = (str(folder / f"{recipe}-{x}") for x in ("plain", "again", "cut"))
    for out in (plain, again):
        assert in_another_process(str(path), out, "", "") == 0
    assert in_another_process(str(path), cut, "killed", "") == 9
    assert in_another_process(str(path), cut, "", "resume") == 0
    right = bits(pathlib.Path(plain))
    row = {"recipe": recipe, "steps": STEPS, "killed_at": STEPS // 2, "files": sorted(right)}
    row["same_again"] = bool(right) and right == bits(pathlib.Path(again))
    row["same_resumed"] = bool(right) and right == bits(pathlib.Path(cut))
    print(row, flush=True)
    return row


def main():
    if sys.argv[1:2] == ["--run"]:
        path, out, killed, resume = sys.argv[2:]
        run(path, out, bool(killed), bool(resume))
        return
    if not pathlib.Path(DATA).is_dir():
        skip(f"there is no folder {DATA}: name one in EDGEWISE_TEXTS")
    on = "gpu" if torch.cuda.is_available() else "cpu"
    asked = sys.argv[1:] or [f"shakespeare-{on}", f"shakespeare-{on}-sparse"]
    with tempfile.TemporaryDirectory() as folder:
        rows = [compare(x, pathlib.Path(folder)) for x in asked]
    write("resume" if on == "gpu" else "resume_cpu", rows)
    sys.exit(not all(row["same_again"] and row["same_resumed"] for row in rows))


if __name__ == "__main__":
    main()
