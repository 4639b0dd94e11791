"""The same language as text: for files, for other tools, for reading aloud."""

from pathlib import Path
from tempfile import TemporaryDirectory

from edgewise import F, Program, R, V

SOURCE = """
% messages along bonds: a star makes a condition that carries no value
{4,2} h(X) :- {2,2} a(Y), *bond(X, Y). [transformation=tanh]
{1,4} good :- h(X).
"""

program = Program.parse(SOURCE)
print(program)
print(program.text())

same = Program(
    [
        (R.h(V.X)[4, 2] <= (R.a(V.Y)[2, 2], R._bond(V.X, V.Y))) | [F.tanh],
        R.good[1, 4] <= R.h(V.X),
    ]
)
facts = [R.a(1)[[1.0, 2.0]], R.a(2)[[0.5, -1.0]], R.bond(1, 2), R.bond(2, 1)]

with TemporaryDirectory() as folder:
    path = Path(folder) / "molecule.rules"
    path.write_text(program.text(), encoding="utf-8")
    loaded = Program.load(path)

one, two = (p.solve(facts, seed=0)[R.good].item() for p in (loaded, same))
print(f"from the file {one:.6f}, from Python {two:.6f}")

assert Program.parse(program.text()) == program
assert loaded == program == same
assert one == two
