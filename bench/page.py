"""The tables of docs/benchmarks.md, from bench/results; `plots.py` writes them into the page.

Targets stand beside what was measured; a figure below its target is bold.
"""

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
MODELS = {
    "messages": "TransformerConv, its messages alone",
    "transformer": "TransformerConv, the layer",
    "gat": "GAT",
    "gatv2": "GATv2",
    "gcn": "GCN",
    "gcn_cached": "GCN, PyG's normalisation cached",
    "sage": "GraphSAGE",
    "rgcn": "R-GCN, 128 relations",
}
SHOWN = ["attention_gpu", "attention_gpu_checks", "attention_sweep", "attention_terms_gpu",
         "encoder_torch", "flash_gpu_checks", "gnn_gpu", "gnn_pyg", "gpt_step",
         "graph_attention_cpu", "grid_gpu", "hf_long", "no_cliff", "pyneuralogic",
         "random_graph_cpu", "recurrences", "tune_blocks_gpu", "window_cpu"]  # fmt: skip


def kept(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def results(name):
    return kept(name)["results"]


def table(*rows):
    """The first row is the head."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]])


def marked(times, wanted):
    """Bold where it is less than was wanted."""
    return f"**{times}**" if wanted is not None and times < wanted else str(times)


def against():
    """Ours beside the peer of the same run."""
    lines = ["| | tokens | Edgewise | baseline | speedup |", "| --- | --- | --- | --- | --- |"]
    peers = {"flex": "FlexAttention", "sdpa": "SDPA"}
    found = results("attention_gpu")
    for section in ("windows", "bigbirds", "strides", "trees", "dense"):
        for row in found[section]["rows"]:
            for peer, title in peers.items():
                if peer in row:
                    ours, other = (f"{row[x]['forward']:.2f} / {row[x]['both']:.2f} ms"
                                   for x in ("ours", peer))  # fmt: skip
                    times = f"{row[f'forward_times_{peer}']} / {row[f'both_times_{peer}']}"
                    lines.append(
                        f"| {row['case']} | {row['n']:,} | {ours} | {title} {other} | {times} |"
                    )
    (hf,) = found["huggingface"]["rows"]
    ours, other = (f"{hf[x]['forward']:.2f} / {hf[x]['both']:.2f} ms, {hf[x]['extra_gib']} GiB"
                   for x in ("ours", "huggingface"))  # fmt: skip
    times = f"{hf['forward_times']} / {hf['both_times']}"
    lines.append(f"| BigBird, one layer of 1024 | {hf['n']:,} | {ours} | HF {other} | {times} |")
    return "\n".join(lines)


def bounds():
    """Achieved against the floor."""
    lines = ["| | tokens | forward | TFLOP/s | floor | both | TFLOP/s | floor |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    found = results("attention_gpu")
    for section in ("windows", "bigbirds", "strides", "million"):
        for row in found[section]["rows"]:
            x = row["ours"]
            lines.append(
                f"| {row['case']} | {row['n']:,} | {x['forward']:.2f} ms | {x['tflops']:.0f} | "
                f"{x['floor']:.2f} ms | {x['both']:.2f} ms | {x['tflops_both']:.0f} | "
                f"{x['floor_both']:.2f} ms |"
            )
    return "\n".join(lines)


def graphs():
    """Graph networks on a GPU, beside PyG."""
    head = ("", "graph", "Edgewise", "PyG", "speedup", "target", "extra memory")
    rows = []
    for row in results("gnn_gpu"):
        ours, other = (
            f"{row[x]['forward']:.1f} / {row[x]['both']:.1f} ms" for x in ("ours", "pyg")
        )
        wanted = [bar if bar > 1 else None for bar in (row["bar_forward"], row["bar_both"])]
        found = zip((row["times_forward"], row["times_both"]), wanted, strict=True)
        times = " / ".join(marked(*pair) for pair in found)
        said = "" if wanted == [None, None] else " / ".join(str(bar) for bar in wanted)
        share = f"{row['ours']['extra_gib']:.1f} of {row['pyg']['extra_gib']:.1f} GiB"
        rows.append((MODELS[row["model"]], row["graph"], ours, other, times, said, share))
    return table(head, *sorted(rows, key=lambda row: list(MODELS.values()).index(row[0])))


def processor():
    """On a CPU: seconds of the process, or of the clock where two threads run."""
    window, random, graph = map(results, ("window_cpu", "random_graph_cpu", "graph_attention_cpu"))
    lines = [
        ("causal window of 256, 8,192 tokens", window["ours"]["cpu_s"], "SDPA with a mask",
         window["dense_mask"]["cpu_s"], window["times"], 10),
        ("random graph of degree 32, 8,192 tokens", random["ours"]["cpu_s"], "gather and scatter",
         random["gather_scatter"]["cpu_s"], random["times"], 15),
        ("graph attention, 100k nodes, 1M edges", graph["ours"]["wall_s"], "PyG",
         graph["pyg"]["wall_s"], graph["times"], 10),
        ("the same", graph["ours"]["wall_s"], "torch.compile(PyG)",
         graph["pyg_compiled"]["wall_s"], graph["times_compiled"], 3),
    ]  # fmt: skip
    rows = [
        (what, f"{ours:.2f} s", f"{peer} {other:.2f} s", marked(times, wanted), wanted)
        for what, ours, peer, other, times, wanted in lines
    ]
    return table(("forward and backward", "Edgewise", "baseline", "speedup", "target"), *rows)


def networks():
    """Layers of graph networks on a CPU, beside compiled PyG.

    Times on the clock; of rows with one thread, which were taken on a busy machine, of the process.
    """
    rows = []
    for row in results("gnn_pyg"):
        kind = "least_process" if row.get("threads") == 1 else "median_clock"
        times = [marked(row[f"{way}_{kind}_times"], 1) for way in ("forward", "both")]
        rows.append((row["model"], f"{row['n']:,}", f"{row['edges']:,}", *times))
    return table(("layer", "nodes", "edges", "times, forward", "times, both"), *rows)


def flash():
    """FlashAttention 4 as a kernel of ours beside our other kernel and its own function."""
    rows = []
    for row in results("flash_gpu_checks")["times"]:
        other = next(name for name in ("dense", "triton_blocks") if name in row)
        times = [f"{row[name][0]:.3g} / {row[name][1]:.3g} ms" for name in (other, "flash4", "fa4")]
        rows.append((row["cell"], row["chosen"], f"{other} {times[0]}", *times[1:]))
    return table(("", "chosen", "without it", "flash4", "its own function"), *rows)


def grid():
    """The cells of the grid that were run, beside every peer."""
    rows = []
    for row in results("grid_gpu").values():
        if row["done"]:
            times = [f"{row[who]['forward']:.3g} / {row[who]['both']:.3g} ms" if who in row else ""
                     for who in ("ours", "sdpa", "flex", "flex_flash", "fa4")]  # fmt: skip
            best = (marked(row[f"{way}_times_best"], 1) for way in ("forward", "both"))
            rows.append((row["cell"], row["kernel"], *times, " / ".join(best)))
    head = ("", "kernel", "Edgewise", "SDPA", "FlexAttention", "FlexAttention on FA4", "FA4")
    return table((*head, "times the best peer"), *rows)


def precisions():
    """Passes of the block kernels in float32, in sums of one thread and in three parts of TF32."""
    best = {}
    for row in results("tune_blocks_gpu"):
        if row["kind"] == "float32" and "ms" in row:
            key = (row["d"], row["step"], row["setting"][-1])
            best[key] = min(best.get(key, row["ms"]), row["ms"])
    rows = []
    for d in (64, 96, 128, 256):
        steps = [[best[d, step, kind] for kind in ("ieee", "tf32x3")]
                 for step in ("forward", "rows", "columns")]  # fmt: skip
        rows.append((d, *(f"{one:.3g} → {three:.3g} ms" for one, three in steps)))
    return table(("features", "forward", "gradients of q", "gradients of k and v"), *rows)


def models():
    """Whole models on a GPU, beside torch and Hugging Face."""
    rows = []
    encoder = results("encoder_torch")["cuda"]
    for way, said in (("forward", "forward"), ("both", "forward and backward")):
        ours, other = (
            1e3 * encoder[who][way]["wall_s"] for who in ("ours_compiled", "torch_compiled")
        )
        what = f"encoder of 12 layers, 16 × 512 tokens, {said}"
        rows.append((what, ours, "compiled torch.nn", other, "at most 1.1 × its time"))
    for name, row in results("gpt_step").items():
        if name.endswith("compiled"):
            what, other = f"step of the GPT recipe, {name}", row["torch"]["ms"]
            wanted = "at most 1.1 × its time"
            rows.append((what, row["ours"]["ms"], "compiled PyTorch", other, wanted))
    for name, row in results("hf_long").items():
        if isinstance(row, dict):
            what, other = f"HF BERT of {name}, 16,384 tokens, training step", row["sdpa"]["ms"]
            rows.append((what, row["edgewise"]["ms"], "SDPA", other, "3 × faster"))
    lines = [
        (what, f"{ours:.1f} ms", f"{peer} {other:.1f} ms", f"{other / ours:.2f}", wanted)
        for what, ours, peer, other, wanted in rows
    ]
    return table(("", "Edgewise", "baseline", "speedup", "target"), *lines)


def cliffs():
    """First calls at new lengths."""
    rows = []
    for row in results("no_cliff"):
        memory = f"{row['mib_after_a_quarter']} to {row['mib_at_the_end']} MiB"
        within = f"{row['within']} of {row['settled']}"
        rows.append((row["device"], row["cases"], within, memory))
    return table(("device", "cases", "within 3 × the second call + 5 ms", "memory held"), *rows)


def recurrences():
    """Recurrent networks as rules beside torch.nn on a CPU; 1.2 × its time is the target."""
    rows = []
    for row in results("recurrences"):
        share = row["ours / torch"]
        shown = f"**{share}**" if share > 1.2 else str(share)
        size = f"{row['model']} of {row['size']}, batch {row['batch']}"
        times = (f"{row[key]:.2f} ms" for key in ("ours_ms", "torch_ms"))
        rows.append((size, f"{row['steps']:,}", f"{row['build_s']} s", *times, shown))
    head = ("", "steps", "build", "Edgewise", "torch.nn", "ours / torch.nn, at most 1.2")
    return table(head, *rows)


def small():
    """One update a query beside PyNeuraLogic on a CPU."""
    found, rows = results("pyneuralogic"), []
    for name, what in (("xor", "XOR, 4 samples"), ("mutagenesis", "molecules, 188 samples")):
        ours, other = found[name]["ours_one_by_one"]["epoch"], found[name]["peer"]["epoch"]
        rows.append((f"{what}, an epoch one by one", ours["cpu_s"], other["cpu_s"]))
    for row in found["recurrence"]:
        if "peer" in row:
            what = f"{row['model']} of {row['ours']['n']} steps, an update"
            rows.append((what, row["ours"]["step"]["cpu_s"], row["peer"]["step"]["cpu_s"]))
    lines = [
        (what, f"{1e3 * ours:.3f} ms", f"{1e3 * other:.3f} ms", marked(round(other / ours, 2), 1))
        for what, ours, other in rows
    ]
    return table(("", "Edgewise", "PyNeuraLogic", "speedup, at least 1"), *lines)


def runs():
    """Which run each figure is from."""
    rows = []
    for name in SHOWN:
        found = kept(name)
        parts = found["results"]
        inner = [p for p in (parts.values() if isinstance(parts, dict) else parts)
                 if isinstance(p, dict) and "commit" in p]  # fmt: skip
        inner = inner or [found]
        machines = [part.get("machine", found["machine"]) for part in inner]
        rows.append(
            (name, *map(_list, (map(_hardware, machines), (m["torch"] for m in machines),
                                (part["commit"] for part in inner))))
        )  # fmt: skip
    return table(("results", "hardware", "torch", "commit"), *rows)


def _hardware(machine):
    threads = f" (threads: {machine['threads']})" if "threads" in machine else ""
    return f"{machine['hardware']}{threads}"


def _list(items):
    return ", ".join(sorted(set(items)))


TABLES = {
    "against": against, "bounds": bounds, "graphs": graphs, "processor": processor,
    "networks": networks, "models": models, "cliffs": cliffs, "runs": runs,
    "recurrences": recurrences, "small": small, "flash": flash, "grid": grid,
    "precisions": precisions,
}  # fmt: skip
