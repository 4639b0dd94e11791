"""The published vectors of the rule language, values and gradients."""

import json
import os
import warnings
from pathlib import Path

import pytest
import torch

from edgewise import C, EdgewiseError, F, Program, R, V
from edgewise.errors import EdgewiseWarning
from edgewise.language import nodes

SHARED = Path(os.environ.get("EDGEWISE_SHARED", Path(__file__).parents[3] / "shared"))
FILE = SHARED / "conformance" / "vectors.json"
VECTORS = json.loads(FILE.read_text())["vectors"] if FILE.exists() else []
NAMES = {"R": R, "V": V, "C": C, "F": F}


def read(source):
    return eval(source, dict(NAMES))


def with_gradient(atom):
    """The fact with its value as a tensor that requires a gradient."""
    if atom.weight is None:
        return atom, None
    value = torch.tensor(atom.weight.value, dtype=torch.float64, requires_grad=True)
    return nodes.Atom(atom.relation, atom.terms)[value], value


def solved(vector):
    program = Program(
        [read(rule) for rule in vector["rules"]],
        aggregation=read(vector.get("aggregation", "F.avg_agg")),
    )
    pairs = [with_gradient(read(fact)) for fact in vector["facts"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgewiseWarning)
        solution = program.solve([atom for atom, _ in pairs], dtype=torch.float64)
    leaves = {text: leaf for text, (_, leaf) in zip(vector["facts"], pairs, strict=True)}
    return solution, leaves


def assert_value(found, expected):
    torch.testing.assert_close(
        found.detach(), torch.tensor(expected, dtype=torch.float64), atol=1e-9, rtol=0
    )


def gradient(solution, leaves, source):
    """The leaf that a gradient is expected for: a weight by name or a fact by its text."""
    leaf = leaves.get(source)
    if leaf is None:
        leaf = solution.weights.get(source)
    if leaf is None:  # a fact of the program is a weight named after its atom
        leaf = solution.weights[read(source).relation]
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


@pytest.mark.skipif(not VECTORS, reason="the vectors are not beside this checkout")
def test_all_vectors_are_here():
    assert len(VECTORS) >= 169


@pytest.mark.parametrize("vector", VECTORS or [None], ids=lambda v: v["id"] if v else "none")
def test_vector(vector):
    if vector is None:
        pytest.skip("the vectors are not beside this checkout")
    queries = [read(query) for query in vector["queries"]]
    expected = vector["expected"]
    total = torch.zeros((), dtype=torch.float64)
    if len(queries) == 1 and any(isinstance(t, nodes.Variable) for t in queries[0].terms):
        solution, leaves = solved(vector)
        found = list(solution[queries[0]].values())
        assert len(found) == len(expected)
        for value, want in zip(found, expected, strict=True):
            assert_value(value, want)
            total = total + value.sum()
    else:
        solution = leaves = None
        for query, want in zip(queries, expected, strict=True):
            if isinstance(want, dict):
                with pytest.raises(EdgewiseError) as caught:
                    (solution or solved(vector)[0])[query]
                assert caught.value.code == want["error"]
                continue
            if solution is None:
                solution, leaves = solved(vector)
            assert_value(solution[query], want)
            total = total + solution[query].sum()
    if "gradient" in vector:
        total.backward()
        for source, want in vector["gradient"].items():
            assert_value(gradient(solution, leaves, source), want)
