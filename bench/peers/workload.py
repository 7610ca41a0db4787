"""What a peer needs to take AICF's steps: the recipe, and the file that `aicf bench --export` wrote. And how it times them."""
import argparse
import json
import statistics
import struct
import sys
import time
import tomllib

import numpy as np

DTYPES = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "I32": np.int32}
ADAMW = {"lr": 1e-3, "weight_decay": 1e-2, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}  # defaults of a recipe


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, info in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in info["data_offsets"])
        tensors[name] = np.frombuffer(data[begin:end], DTYPES[info["dtype"]]).reshape(info["shape"])
    return tensors


class Workload:
    """layers: (kind, parameter name or None) in order, or gpt: {"layers", "width", "heads"}; params, x, y, losses: arrays, losses
    those of AICF."""

    def __init__(self, recipe, precision, tensors):
        with open(recipe, "rb") as file:
            text = tomllib.load(file)
        arrays = read_safetensors(tensors)
        self.x, self.y, self.losses = arrays.pop("x"), arrays.pop("y"), arrays.pop("losses")
        self.params = arrays
        self.name = text["name"]
        self.precision = precision
        self.loss = text.get("loss", {}).get("kind", "cross_entropy")
        optimizer = text.get("optimizer", {})
        if optimizer.get("kind", "adamw") != "adamw" or "schedule" in text:
            raise ValueError(f"{recipe}: peers know AdamW with a constant learning rate")
        self.optimizer = {key: optimizer.get(key, default) for key, default in ADAMW.items()}
        self.layers, self.gpt = [], None
        if text["model"] == "gpt":
            self.gpt = text["gpt"]
            return
        for layer in text["model"]:
            if "residual" in layer or ("name" not in layer and layer["layer"] == "linear"):
                raise ValueError(f"{recipe}: peers know named linear layers in a row")
            if layer["layer"] == "linear":
                self.layers.append(("linear", layer["name"]))
                if layer.get("activation"):
                    self.layers.append((layer["activation"], None))
            else:
                self.layers.append((layer["layer"], None))


def measure(step, wait, seconds, batch_seconds=0.05, batches=5):
    """As aicf::bench: batches of n steps by the host's clock, ms a step."""

    def batch(n):
        start = time.perf_counter()
        for _ in range(n):
            step()
        wait()
        return time.perf_counter() - start

    batch(3)
    n, last = 1, batch(1)
    # A batch that is long enough is timed again: it may have been an interruption.
    while last < batch_seconds or (last := min(last, batch(n))) < batch_seconds:
        n = max(n + 1, int(n * min(1.2 * batch_seconds / max(last, 1e-9), 10)))
        last = batch(n)
    times, total = [], 0.0
    while len(times) < batches or total < seconds:
        last = batch(n)
        total += last
        times.append(last / n * 1e3)
    return {"ms": statistics.median(times), "low": min(times), "high": max(times), "steps": n, "batches": len(times)}


def emit(**row):
    print(json.dumps(row), flush=True)


def main(peer, package, modes, run):
    """Runs the modes of one peer on one workload, each row a line of JSON. run(workload, args, mode) returns a row."""
    parser = argparse.ArgumentParser(description=f"{peer} on a workload of AICF; bench/compare.py runs it")
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--precision", choices=["f32", "tf32", "bf16", "f16"], required=True)
    parser.add_argument("--tensors", required=True, help="the file of aicf bench --export")
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--autotune", action="store_true", help="with the modes that tune for minutes")
    args = parser.parse_args()
    try:
        version, device, known = package(args)
    except (ImportError, RuntimeError) as error:
        emit(peer=peer, missing=str(error))
        return
    emit(peer=peer, version=version, device=device)
    workload = Workload(args.recipe, args.precision, args.tensors)
    for mode in modes(args):
        start = time.perf_counter()
        try:
            row = run(known, workload, args, mode)
        except Exception as error:  # one mode that fails costs its row only
            row = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]}
        print(f"{peer} {mode}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
        emit(peer=peer, workload=workload.name, mode=mode, **row)
