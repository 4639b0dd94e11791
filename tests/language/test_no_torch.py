"""The language runs in milliseconds anywhere: nothing of it loads torch."""

import subprocess
import sys

SCRIPT = """
import sys
import edgewise.language
from edgewise import F, Program, R, V
program = Program.parse("layer * 2 (x = a) -> h { h(X) :- {2,2} x(X), @leq(X, 3). [relu] }")
assert Program.parse(program.text()) == program
program._repr_html_(), repr(program), program.rules
print("torch" in sys.modules)
"""


def test_the_language_does_not_import_torch() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"
