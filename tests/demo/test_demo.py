"""The parts of the demo; `make demo` tells the whole story and checks what it claims."""

from itertools import islice

import torch

from edgewise.demo import checkpoint, story
from edgewise.demo.model import (
    LONGEST,
    RADIUS,
    SAME_SPEAKER,
    STORY,
    accuracy,
    attention,
    compile_model,
    corpus,
    grounded,
    long_step,
    names,
    positions,
    speakers,
    targets,
    tokens,
    train,
)
from edgewise.graphs import window
from edgewise.language import R, V


def test_training_lowers_the_loss_and_is_the_same_every_time():
    first, again = (list(islice(train(compile_model()), 12)) for _ in range(2))
    assert first == again
    assert first[-1] < 0.8 * first[0]


def test_the_compiled_program_gives_what_the_reference_gives():
    model = compile_model()
    weights = {name: model.weight(name).detach() for name in attention().weights()}
    facts = tokens([STORY]) + positions(LONGEST) + names()
    solution = attention().solve(facts, weights=weights)
    theirs = torch.stack(list(solution[R.attention(0, V.I)].values()))
    ours = model(grounded(model, [STORY])).data
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


def test_every_word_aims_at_one_word():
    sentences = corpus(5, seed=3)
    aim = targets(sentences)
    torch.testing.assert_close(aim.sum(1), torch.ones(len(aim), dtype=torch.float64))
    assert 0 <= accuracy(compile_model(), sentences) <= 1


def test_a_long_text_computes_the_pairs_of_its_window_only():
    took = long_step(compile_model(), length=2048)
    assert took.pairs == window(RADIUS).count(2048)
    assert took.finite
    assert took.peak_gib > 0


def test_a_long_text_with_speakers_computes_the_pairs_of_both_conditions_only():
    length, said = 1024, speakers(1024)
    took = long_step(compile_model(), length, SAME_SPEAKER, said)
    speaker = torch.tensor([fact.terms[2] for fact in said])
    near = (torch.arange(length)[:, None] - torch.arange(length)).abs() <= RADIUS
    assert took.pairs == int((near & (speaker[:, None] == speaker)).sum())
    assert took.finite


def test_without_a_network_the_demo_says_so_and_goes_on(monkeypatch, tmp_path):
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert "pip could not fetch" in checkpoint.run()


def test_a_checkpoint_is_shown_with_its_answers():
    found = {
        query: [(0.9, checkpoint.LINES[k]), (0.1, checkpoint.LINES[0])]
        for query, k in checkpoint.QUERIES.items()
    }
    answer = checkpoint.CheckpointResult(1, 3, 72, {"music": 0.4, "it": 0.1}, found)
    assert answer.hits == len(checkpoint.QUERIES)
    console = story.console()
    with console.capture() as shown:
        console.print(story.checkpoint_panel(answer))
    assert "layer 2, head 4" in shown.get()
    assert all(query in shown.get() for query in checkpoint.QUERIES)


def test_the_lines_are_different():
    assert len(set(checkpoint.LINES)) == len(checkpoint.LINES) == 30
