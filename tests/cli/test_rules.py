"""`edgewise check`, `solve`, `draw` and `explain`, as a user types them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgewise.cli import main

RULES = """\
far(Y) :- far(X), road(X, Y). [min_agg]
far/1 [min].
"""
FACTS = """\
<0.0> far(home).
<4.0> road(home, mill), <1.0> road(home, lake), <2.0> road(lake, mill).
"""


@pytest.fixture
def files(tmp_path):
    rules, facts = tmp_path / "roads.rules", tmp_path / "village.rules"
    rules.write_text(RULES)
    facts.write_text(FACTS)
    return str(rules), str(facts)


def run(capsys, *arguments):
    code = main(list(arguments))
    found = capsys.readouterr()
    return code, found.out, found.err


def test_check(files, capsys):
    code, out, _ = run(capsys, "check", files[0], "--facts", files[1])
    assert (code, out) == (0, f"{files[0]}: 1 rule, 4 facts; derives far\n")


def test_check_prints_every_error(tmp_path, capsys):
    path = tmp_path / "bad.rules"
    path.write_text("h(X) :- a(Y).\ng(X) :- b(Z).\n")
    code, _, err = run(capsys, "check", str(path))
    assert code == 2
    assert err.count("error[unbound-variable]") == 2
    assert f"{path}:2:" in err


def test_solve(files, capsys):
    code, out, _ = run(capsys, "solve", files[0], "far(X)", "--facts", files[1])
    assert code == 0
    assert out.split() == ["far(home)", "0", "far(lake)", "1", "far(mill)", "3"]
    code, out, _ = run(capsys, "solve", files[0], "--facts", files[1], "--json")
    assert json.loads(out)["far(mill)"] == 3.0
    assert "road(lake, mill)" in json.loads(out)
    code, out, _ = run(capsys, "solve", files[0], "far(mill)", "--facts", files[1], "--why")
    assert "min_agg over 2 groundings" in out


def test_solve_in_json_is_json_where_a_value_is_infinite(tmp_path, capsys):
    path = tmp_path / "a.rules"
    path.write_text("<1e400> a(1). <[0, -1e400]> b(1).")
    _, out, _ = run(capsys, "solve", str(path), "--json")
    found = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert found == {"a(1)": "inf", "b(1)": [0.0, "-inf"]}


def test_solve_says_that_no_atom_is_like_the_one_asked_for(files, capsys):
    code, out, err = run(capsys, "solve", files[0], "road(X, X)", "--facts", files[1])
    assert (code, out) == (0, "")
    assert "no atom like `road(X, X)` holds" in err


def test_solve_prints_reasons_or_json(files, capsys):
    code, _, err = run(capsys, "solve", files[0], "--facts", files[1], "--why", "--json")
    assert code == 2
    assert "choose one" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_is_no_traceback(files):
    command = [sys.executable, "-m", "edgewise", "solve", files[0], "--facts", files[1]]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[0] == "error: No space left on device"
    assert "Traceback" not in ended.stderr


def test_draw(files, tmp_path, capsys):
    out = tmp_path / "a.svg"
    assert run(capsys, "draw", files[0], "--out", str(out))[0] == 0
    assert out.read_text().startswith("<svg")
    one = tmp_path / "b.svg"
    options = ["far(mill)", "--facts", files[1], "--out", str(one)]
    assert run(capsys, "draw", files[0], *options)[0] == 0
    assert "mill" in one.read_text()


def test_explain(files, capsys):
    code, out, _ = run(capsys, "explain", files[0], "far", "--facts", files[1])
    assert code == 0
    assert out.startswith("rules\n")
    code, out, _ = run(capsys, "explain", files[0], "far", "--stage", "plan")
    assert code == 0
    assert out.startswith("plan\n")


def test_what_no_other_rule_reads_is_explained(files, tmp_path, capsys):
    named = run(capsys, "explain", files[0], "far", "--facts", files[1])
    assert run(capsys, "explain", files[0], "--facts", files[1]) == named
    two = tmp_path / "two.rules"
    two.write_text("a(X) :- b(X).\nc(X) :- d(X), ~a(X).\ne(X) :- e(X), d(X).\ne(X) :- b(X).\n")
    named = run(capsys, "explain", str(two), "c", "e")
    assert named[0] == 0
    assert run(capsys, "explain", str(two)) == named
    two.write_text("a(X) :- b(X).\nb(X) :- a(X).\n")
    assert run(capsys, "explain", str(two))[:2] == run(capsys, "explain", str(two), "a", "b")[:2]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["check", "none.rules"], "syntax-error"),
        (["solve", "{rules}", "far(X"], "not-an-atom"),
        (["solve", "{rules}", "far(a), far(b)"], "not-an-atom"),
        (["solve", "{rules}", "near(a)", "--facts", "{facts}"], "not-derivable"),
        (["solve", "{rules}", "--facts", "{rules}"], "not-facts"),
        (["solve", "{rules}", "--facts", "roads.csv"], "not-facts"),
        (["check", "model.py"], "not-rules"),
        (["explain", "{rules}", "near"], "unknown-output"),
        (["explain", "{facts}"], "unknown-output"),
        (["explain", "{rules}", "far", "--stage", "code"], None),
        (["draw", "{rules}", "--out", "no/such/folder/a.svg"], "cannot-write"),
        (["draw", "{rules}", "--out", "a.png"], None),
    ],
)
def test_mistakes_are_our_errors(arguments, code, files, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = [text.format(rules=files[0], facts=files[1]) for text in arguments]
    status, _, err = run(capsys, *shown)
    assert status == 2
    assert f"error[{code}]" in err if code else "error[" in err
    assert "Traceback" not in err
