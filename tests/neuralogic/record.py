"""Writes what PyNeuraLogic 0.9.2 computes for `cases.py`; run it where that is installed.

pip install neuralogic==0.9.2, then: python tests/neuralogic/record.py
"""

import json
import subprocess
import sys
from pathlib import Path

import neuralogic
import neuralogic.core
import neuralogic.dataset
import neuralogic.nn.module
import neuralogic.nn.optim.lr_scheduler
from cases import CASES, computed

GOLDEN = Path(__file__).parents[1] / "golden" / "neuralogic.json"


def main():
    if sys.argv[1:2] == ["one"]:
        print("\n" + json.dumps(computed(neuralogic, CASES[sys.argv[2]])))
        return
    before = json.loads(GOLDEN.read_text())["cases"] if GOLDEN.exists() else {}
    cases = {name: before[name] for name in CASES if name in before}
    # each in a process of its own: values of one model stay behind in the virtual machine
    for name in sys.argv[1:] or CASES:
        command = [sys.executable, __file__, "one", name]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            sys.exit(f"{name}: {run.stderr[-500:]}")
        cases[name] = json.loads(run.stdout.splitlines()[-1])
    cases = {name: cases[name] for name in CASES}
    GOLDEN.write_text(json.dumps({"neuralogic": neuralogic.__version__, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
