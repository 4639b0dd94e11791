"""Options that a function does not have are refused with what to write."""

import inspect

import pytest
import torch

from edgewise import Program, R, V, hf, zoo
from edgewise.errors import UnknownOption
from edgewise.graphs import window
from edgewise.hf import long_context, replace
from edgewise.language import program
from edgewise.zoo.pretrained import loading

RULES = Program([R.h(V.I) <= R.x(V.I)[2.0]])
LAYER = torch.nn.Linear(2, 2)
HABITS = {
    "a device": (lambda: RULES.compile(R.h, device="cpu"), ".to(device)"),
    "torch.compile": (lambda: RULES.compile(R.h, fullgraph=True), "torch.compile("),
    "a misspelling": (lambda: RULES.compile(R.h, sead=0), "did you mean `seed`?"),
    "two outputs": (lambda: RULES.compile(R.h, R.x), "compile([R.out, R.memory])"),
    "by position": (lambda: hf.use(LAYER, window(3), None), "by name: mesh, shards"),
    "nothing near": (lambda: RULES.compile(R.h, verbosity=2), "choose one of fill, limit, without"),
    "a window": (lambda: hf.use(LAYER, window_size=256), "hf.use(model, window(256))"),
    "a graph by name": (lambda: hf.use(LAYER, graph=window(3)), "second"),
    "transformers' own": (lambda: hf.use(LAYER, 3, attn_implementation="eager"), "leave it out"),
    "a length": (lambda: hf.longer(LAYER, max_length=4096), "hf.longer(model, 4096, "),
    "a precision": (lambda: zoo.from_pretrained("x", torch_dtype=torch.half), "`dtype="),
    "a map": (lambda: zoo.from_pretrained("x", device_map="auto"), ".to("),
}


@pytest.mark.parametrize(("call", "help"), HABITS.values(), ids=HABITS)
def test_an_unknown_option_is_refused_with_what_to_write(call, help):
    with pytest.raises(UnknownOption) as caught:
        call()
    assert help in caught.value.help
    assert caught.value.span.file == __file__


@pytest.mark.parametrize(
    ("function", "instead"),
    [
        (Program.compile, program.INSTEAD),
        (hf.use, replace.INSTEAD),
        (hf.longer, long_context.INSTEAD),
        (zoo.from_pretrained, loading.INSTEAD),
    ],
)
def test_what_is_an_option_here_is_not_refused(function, instead):
    assert not instead.keys() & inspect.signature(function).parameters.keys()
