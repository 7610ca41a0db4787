#!/usr/bin/env python3
"""Trains recipes/char-gpt.toml by AICF and by PyTorch from the same initial weights on the same batches in the same order, and
compares the loss on the held-out text.

    bench/char_gpt_compare.py [--aicf PATH] [--backend cpu|cuda] [--seeds 0,1,2] [--steps N] [--json FILE]

AICF runs first and records its initial weights and the examples of every batch (`aicf train --record`); PyTorch, on the same
device (a CPU with as many threads), takes the same steps in f32. The exit code is 1 when the means of the held-out losses differ by more than
--margin.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import tomllib
import types

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "peers"))
import torch_peer
import workload


def text_of(data):
    if data["kind"] == "text":
        return pathlib.Path(data["path"]).read_bytes()
    if os.environ.get("AICF_BIBLE_KJV"):
        return pathlib.Path(os.environ["AICF_BIBLE_KJV"]).read_bytes()
    return subprocess.run(["bible", "-f", "ge1:1-re22:21"], capture_output=True, stdin=subprocess.DEVNULL, check=True).stdout


def windows(text, context):
    """x and y as aicf::load_text_set makes them."""
    tokens = torch.tensor(np.frombuffer(text, np.uint8).astype(np.int64))
    n = (len(tokens) - 1) // context
    return tokens[: n * context].view(n, context), tokens[1 : n * context + 1].view(n, context)


def factor(schedule, step, total):
    """The schedule's factor of the learning rate, as aicf::optim::Schedule computes it."""
    if schedule.get("kind", "constant") == "constant":
        return 1.0
    if schedule["kind"] != "cosine" or "warmup_epochs" in schedule:
        raise ValueError("this script knows a constant and a cosine schedule, its warm-up in steps")
    warmup, floor = schedule.get("warmup_steps", 0), schedule.get("min", 0)
    if step < warmup:
        return (step + 1) / warmup
    return floor + (1 - floor) * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2


def run_aicf(args, seed, steps, folder):
    record, result = folder / "record.safetensors", folder / "result.json"
    command = [args.aicf, "train", str(args.recipe), "--backend", args.backend, "--seed", str(seed), "--steps", str(steps),
               "--record", str(record), "--json", str(result)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    result = json.loads(result.read_text())
    return workload.read_safetensors(record), result["test"]["loss"], result["seconds"]


def run_torch(recipe, record, text, device):
    examples, losses = record.pop("examples"), record.pop("losses")
    model, params = torch_peer.gpt(torch, types.SimpleNamespace(gpt=recipe["gpt"], params=record))
    assert params.keys() == record.keys(), sorted(params.keys() ^ record.keys())
    with torch.no_grad():
        for name, p in params.items():
            p.copy_(torch.tensor(record[name]))
    data, o = recipe["data"], workload.ADAMW | recipe["optimizer"]
    model.to(device)
    cut = math.floor(len(text) * (1 - data.get("held_out", 0.1)))
    x, y = (w.to(device) for w in windows(text[:cut], data["context"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"],
                                  weight_decay=o["weight_decay"], fused=True)
    loss_of = lambda x, y, reduction: torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction=reduction)
    own, start = [], time.perf_counter()
    for step, places in enumerate(examples):
        optimizer.param_groups[0]["lr"] = o["lr"] * factor(recipe.get("schedule", {}), step, len(examples))
        optimizer.zero_grad(set_to_none=True)
        places = torch.tensor(places, dtype=torch.int64, device=device)
        loss = loss_of(x[places], y[places], "mean")
        loss.backward()
        optimizer.step()
        own.append(loss.item())
    seconds = time.perf_counter() - start
    x, y = (w.to(device) for w in windows(text[cut:], data["context"]))
    with torch.no_grad():
        total = sum(loss_of(a, b, "sum").item() for a, b in zip(x.split(256), y.split(256)))
    return losses, own, total / y.numel(), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--aicf", default=str(ROOT / "build" / "cpu" / "aicf"))
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--recipe", type=pathlib.Path, default=ROOT / "recipes" / "char-gpt.toml")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, help="instead of the recipe's")
    parser.add_argument("--margin", type=float, default=0.01, help="of the held-out losses' means, relative")
    parser.add_argument("--json", help="write all losses to this file")
    args = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    recipe = tomllib.loads(args.recipe.read_text())
    steps = args.steps or recipe["train"]["steps"]
    text = text_of(recipe["data"])
    rows = []
    print("loss of a step: AICF, PyTorch (the same initial weights, examples and order)")
    for seed in map(int, args.seeds.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            record, held_out, seconds = run_aicf(args, seed, steps, pathlib.Path(folder))
        losses, torch_losses, torch_held_out, torch_seconds = run_torch(recipe, record, text, args.backend)
        for step in sorted({1, 2, 5, 10, 20, 50, 100, 200, 500, *range(1000, steps, 1000), steps}):
            if step <= steps:
                print(f"seed {seed} step {step:5}: {losses[step - 1]:.6f} {torch_losses[step - 1]:.6f}")
        print(f"seed {seed} held out:   {held_out:.6f} {torch_held_out:.6f}   ({seconds:.0f} s, PyTorch {torch_seconds:.0f} s)",
              flush=True)
        rows.append({"seed": seed, "aicf": {"held_out": held_out, "seconds": seconds, "losses": losses.tolist()},
                     "torch": {"held_out": torch_held_out, "seconds": torch_seconds, "losses": torch_losses}})
    mean, torch_mean = (sum(r[who]["held_out"] for r in rows) / len(rows) for who in ("aicf", "torch"))
    apart = mean / torch_mean - 1
    print(f"held out, mean of {len(rows)}: AICF {mean:.4f}, PyTorch {torch.__version__} {torch_mean:.4f}: {apart * 100:+.2f} %")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"steps": steps, "torch": torch.__version__, "rows": rows}))
    sys.exit(abs(apart) > args.margin)


if __name__ == "__main__":
    main()
