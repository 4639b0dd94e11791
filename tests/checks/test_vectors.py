"""The published vectors: what has values passes, what is wrong before data is refused."""

import json
import os
from pathlib import Path

import pytest

from edgewise import C, EdgewiseError, F, Program, R, V

SHARED = Path(os.environ.get("EDGEWISE_SHARED", Path(__file__).parents[3] / "shared"))
FILE = SHARED / "conformance" / "vectors.json"
VECTORS = json.loads(FILE.read_text())["vectors"] if FILE.exists() else []
STATIC = {"unbound-variable", "arity-mismatch", "duplicate-fact", "shape-mismatch"}
MEET_IN_DATA = {"e_err_aggregate_lengths"}  # shapes that meet in a sum over facts
WARNED = {"agg_F_sum_is_combination"}


def read(source):
    return eval(source, {"R": R, "V": V, "C": C, "F": F})


@pytest.mark.skipif(not VECTORS, reason="the vectors are not on this machine")
def test_every_vector_is_checked():
    for vector in VECTORS:
        expected = {e["error"] for e in vector["expected"] if isinstance(e, dict)} & STATIC
        default = read(vector.get("aggregation", "F.avg_agg"))
        program = Program([read(rule) for rule in vector["rules"]], aggregation=default)
        facts = [read(fact) for fact in vector["facts"]]
        if expected and vector["id"] not in MEET_IN_DATA:
            with pytest.raises(EdgewiseError) as caught:
                program.check(facts)
            assert {caught.value.code} == expected, vector["id"]
            continue
        program.check()
        assert bool(program.check(facts)) == (vector["id"] in WARNED), vector["id"]
