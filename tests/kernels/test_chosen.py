"""Each thread watches its own choices."""

from concurrent.futures import ThreadPoolExecutor

import torch

from edgewise import F, Program, R, V
from edgewise.kernels.kernel_choices import Chosen, is_watched, note, watched


def test_other_threads_are_not_watched():
    def choose(name):
        assert not is_watched()
        note(Chosen("product", name))

    with watched() as seen, ThreadPoolExecutor(1) as pool:
        pool.submit(choose, "theirs").result()
        note(Chosen("product", "ours"))
        with watched() as inner:
            note(Chosen("sum", "both"))
    assert [choice.name for choice in seen] == ["ours", "both"]
    assert [choice.name for choice in inner] == ["both"]


def test_threads_call_one_model():
    rule = (R.h(V.I) <= (R.x(V.J)["w":2, 4], R.e(V.I, V.J))) | [F.product]
    model = Program([rule]).compile(R.h)

    def call(thread):
        generator = torch.Generator().manual_seed(thread)
        for turn in range(3):
            edges = torch.randint(300, (2, 2000), generator=generator).unique(dim=1)
            found = model.rows(x=torch.ones(300 + (thread + turn) % 3, 4), e=edges)
            degree = edges[0].bincount()
            torch.testing.assert_close(
                found.data, degree[degree > 0, None] * model.weight("w").sum(1)
            )

    with torch.no_grad(), ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(8)))
