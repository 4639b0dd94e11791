"""The 12-layer encoder of the zoo against `torch.nn.TransformerEncoder`, eager and compiled.

PYTHONPATH=src python bench/encoder_torch.py
"""

import json
import os

import torch
from measure import RESULTS, commit, cpu_seconds, gpu_ms, machine, write
from torch import nn

from edgewise import R
from edgewise.zoo import encoder

SIZES = {  # the encoder, samples, tokens
    "cpu": (encoder.Config(size=256, heads=4, hidden=1024, layers=12, dropout=0.0), 2, 256),
    "cuda": (encoder.Config(size=512, heads=8, hidden=2048, layers=12, dropout=0.0), 16, 512),
}


def torch_encoder(config):
    layer = nn.TransformerEncoderLayer(
        config.size, config.heads, config.hidden, config.dropout, norm_first=True, batch_first=True
    )
    norm = nn.LayerNorm(config.size)
    return nn.TransformerEncoder(layer, config.layers, norm, enable_nested_tensor=False)


def copy_weights(model, theirs, config):
    """Give our model torch's parameters."""
    given = dict(theirs.named_parameters())
    named = {"out.gain": given["norm.weight"], "out.bias": given["norm.bias"]}
    rows = {"attended": "self_attn.out_proj", "mlp": "linear1", "out": "linear2"}
    for i in range(config.layers):
        at, ours = f"layers.{i}.", f"layer.{i}."
        for part in ("weight", "bias"):
            whole = given[f"{at}self_attn.in_proj_{part}"]
            for x, piece in zip("qkv", whole.chunk(3), strict=True):
                named[f"{ours}{x}.{part}"] = piece
            for our, their in rows.items():
                named[f"{ours}{our}.{part}"] = given[f"{at}{their}.{part}"]
        for norm in ("norm1", "norm2"):
            named[f"{ours}{norm}.gain"] = given[f"{at}{norm}.weight"]
            named[f"{ours}{norm}.bias"] = given[f"{at}{norm}.bias"]
    with torch.no_grad():
        for name, tensor in named.items():
            weight = model.weight(name)
            weight.copy_(tensor.reshape(weight.shape))


def both_ways(run, leaves, cuda):
    """Seconds forward without gradients, and forward and backward with."""
    weight = torch.randn_like(run())

    def train():
        torch.autograd.grad((run() * weight).sum(), leaves)

    def forward():
        with torch.no_grad():
            run()

    if cuda:
        return {
            way: {"wall_s": gpu_ms(f) / 1e3} for way, f in (("forward", forward), ("both", train))
        }
    return {"forward": cpu_seconds(forward, 5), "both": cpu_seconds(train, 5)}


def measured(device):
    """Both encoders on one device: eager and compiled, and the ratios of their times."""
    cuda = device == "cuda"
    config, batch, n = SIZES[device]
    theirs = torch_encoder(config).to(device)
    model = encoder.program(config).compile(R.out).to(device)
    copy_weights(model, theirs, config)
    x = torch.randn(batch, n, config.size, device=device)
    close = {"atol": 1e-2, "rtol": 1e-2} if cuda else {"atol": 1e-4, "rtol": 1e-4}
    torch.testing.assert_close(model(x=x), theirs(x), **close)
    ours_fast, theirs_fast = torch.compile(model, dynamic=False), torch.compile(theirs)
    torch.testing.assert_close(ours_fast(x=x), theirs(x), **close)
    ours_leaves, their_leaves = list(model.parameters()), list(theirs.parameters())
    runs = {
        "ours": (lambda: model(x=x), ours_leaves),
        "torch": (lambda: theirs(x), their_leaves),
        "ours_compiled": (lambda: ours_fast(x=x), ours_leaves),
        "torch_compiled": (lambda: theirs_fast(x), their_leaves),
    }
    found = {"layers": config.layers, "size": config.size, "n": n, "batch": batch}
    for name, (run, leaves) in runs.items():
        found[name] = both_ways(run, leaves, cuda)
        print(name, found[name], flush=True)
    measure = "wall_s" if cuda else "cpu_s"
    for kind in ("", "_compiled"):
        for way in ("forward", "both"):
            ratio = found[f"ours{kind}"][way][measure] / found[f"torch{kind}"][way][measure]
            found[f"ratio_{way}{kind}"] = round(ratio, 3)
    return found | {"load": os.getloadavg()[0], "machine": machine(), "commit": commit()}


def main():
    """Measure the device that is here; what is known of the other one stays in the file."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # threads that wait for each other would count as work
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    file = RESULTS / "encoder_torch.json"
    known = json.loads(file.read_text())["results"] if file.exists() else {}
    found = measured(device)
    print(json.dumps(found))
    write("encoder_torch", {name: known[name] for name in SIZES if name in known} | {device: found})


if __name__ == "__main__":
    main()
