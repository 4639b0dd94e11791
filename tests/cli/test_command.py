"""The command itself: help without torch, its version, completion, verbs that do not exist."""

import os
import subprocess
import sys
from pathlib import Path

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


def test_bash_completes_by_the_script_that_is_installed(tmp_path: Path) -> None:
    command = tmp_path / "edgewise"
    start = "import sys; sys.argv[0] = 'edgewise'; from edgewise.cli import main; sys.exit(main())"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{start}" "$@"\n')
    command.chmod(0o755)
    script = """
        source <(edgewise --show-completion)
        COMP_WORDS=(edgewise ex) COMP_CWORD=1; _edgewise_completion edgewise
        echo "${COMPREPLY[@]}"
        COMP_WORDS=(edgewise solve --f) COMP_CWORD=2; _edgewise_completion edgewise
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert done.stdout == "export explain\n--facts\n", done.stderr


MORE = {  # what a verb needs beside its first argument
    "draw": ["--out", "a.svg"],
    "explain": ["h"],
    "why": ["h(1)"],
    "export": ["--to", "hf"],
    "push": ["--to", "pushed"],
    "search": ["a", "--file", "texts"],
    "prune": ["--data", "texts", "--out", "pruned"],
    **{verb: ["a"] for verb in ("generate", "translate", "classify", "embed", "parse", "view")},
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", ["missing", "folder", "binary", "option", "nothing"])
def test_every_verb_refuses_bad_arguments(
    verb: str,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("binary").write_bytes(bytes(range(128, 256)))
    Path("texts").write_text("a\nb\n")
    given = {"option": ["texts", "--no-such-option"], "nothing": []}.get(kind, [kind])
    if (verb, kind) == ("models", "nothing"):
        return  # lists them
    assert main([verb, *given, *(MORE.get(verb, []) if given else [])]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert said.startswith("Usage:" if kind in ("option", "nothing") else "error[")


@pytest.mark.parametrize(
    "arguments",
    [
        ["scale", "window(3)", "--gigabytes", "0"],
        ["scale", "window(3)", "--gigabytes", "nan"],
        ["scale", "window(3)", "--ranks", "0"],
        ["graph", "window(3)", "--n", "-5"],
        ["graph", "window(3", "--stats"],
        ["view", "window(3)", "--n", "0"],
    ],
)
def test_a_number_or_a_pattern_that_means_nothing_is_refused(arguments, capsys) -> None:
    assert main(arguments) == 2
    assert "help: " in capsys.readouterr().err


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
