"""The command itself: help without torch, its version, completion, verbs that do not exist."""

import os
import subprocess
import sys

import pytest

from edgewise.cli import VERBS, main, summary

HELP = """
import sys
from edgewise.cli import main
code = main(sys.argv[1:])
heavy = [name for name in ("torch", "numpy", "edgewise.graphs") if name in sys.modules]
sys.exit(code or ", ".join(heavy) or 0)
"""


def run(*arguments: str, code: str = HELP, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


def test_help_imports_no_torch() -> None:
    done = run("--help")
    assert done.returncode == 0, done.stderr
    assert all(verb in done.stdout for verb in VERBS)


def test_help_of_every_verb_imports_no_torch() -> None:
    code = HELP.replace(
        "code = main(sys.argv[1:])", f"code = sum(main([v, '--help']) for v in {VERBS})"
    )
    done = run(code=code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_summary(verb: str) -> None:
    assert summary(verb).endswith(".")


def test_completion_knows_verbs_and_their_options() -> None:
    code = "import sys; sys.argv = ['edgewise']; from edgewise.cli import main; main()"
    how = {"_EDGEWISE_COMPLETE": "complete_bash"}
    assert run(code=code, **how, COMP_WORDS="edgewise tra", COMP_CWORD="1").stdout.split() == [
        "train",
        "translate",
    ]
    found = run(code=code, **how, COMP_WORDS="edgewise train --dr", COMP_CWORD="2")
    assert found.stdout.split() == ["--dry-run"]


def test_a_verb_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "did you mean `train`?" in capsys.readouterr().err


def test_errors_are_coloured_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["check", "nothing-there.rules"]) == 2
    plain = capsys.readouterr().err
    assert plain.startswith("error[")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["check", "nothing-there.rules"]) == 2
    assert capsys.readouterr().err.startswith("\x1b[1;31merror[")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["check", "nothing-there.rules"]) == 2
    assert capsys.readouterr().err == plain
