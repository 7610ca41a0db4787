#!/usr/bin/env python3
"""Times AICF and its peers on the same workloads, on one machine in one run, and prints a table in Markdown.

    bench/compare.py --backend cpu|cuda [--workloads mlp-tiny,mlp-64x6] [--aicf PATH] [--out FILE]

Every program starts from the weights and the batch that `aicf bench --export` wrote and first takes the same steps: where
its losses leave AICF's by more than the margin of the precision, its time is no result, and the exit code is 1. AICF is timed
before and after the peers, and the slower median counts. docs/benchmarks.md says more.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = {"torch": "torch_peer.py", "jax": "jax_peer.py"}
DEFAULT = {"cpu": ["mlp-tiny", "mlp-64x6", "gpt-nano"],
           "cuda": ["mlp-tiny", "mlp-64x6", "mlp-4096", "gpt-nano", "gpt-char", "gpt2-124m"]}
# How far two right programs may be apart, as a share of the first loss: rounding of products, amplified over 20 steps.
MARGIN = {"f32": 2e-5, "tf32": 5e-4, "bf16": 1e-3, "f16": 5e-4}


def fail(message):
    sys.exit(f"compare.py: {message}")


def find_aicf(given):
    """The command line's first words: of a bundle, or else of a build."""
    if given:
        return [given]
    if (ROOT / "bin" / "aicf").is_file():
        return [str(ROOT / "run"), str(ROOT / "bin" / "aicf")]
    for place in (ROOT / "build/cuda/aicf", ROOT / "build/cpu/aicf", shutil.which("aicf")):
        if place and os.access(place, os.X_OK):
            return [str(place)]
    fail("no aicf found; build it, or give --aicf PATH")


def find_recipe(name):
    for path in (pathlib.Path(name), ROOT / "recipes" / f"{name}.toml"):
        if path.is_file():
            return path
    known = sorted(p.stem for p in (ROOT / "recipes").glob("*.toml"))
    fail(f"no recipe {name}; there are {', '.join(known)}")


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def run_aicf(args, aicf, recipe, precision, folder, export):
    result = folder / "aicf.json"
    command = [*aicf, "bench", str(recipe), "--backend", args.backend, "--precision", precision, "--time", str(args.time),
               "--json", str(result)]
    if export:
        command += ["--export", str(folder), "--export-steps", str(args.check_steps)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{shlex.join(command)}: {done.stderr.strip() or done.returncode}")
    return json.loads(result.read_text())["rows"][0]


def slower(first, second):
    """Two measurements of the same: the slower median, the whole spread."""
    return {"ms": max(first["ms"], second["ms"]), "low": min(first["low"], second["low"]),
            "high": max(first["high"], second["high"])}


def run_peer(args, name, recipe, precision, tensors):
    command = [args.python, str(ROOT / "bench" / "peers" / PEERS[name]), "--recipe", str(recipe), "--tensors", str(tensors),
               "--device", args.backend, "--precision", precision, "--threads", str(args.threads), "--seconds", str(args.time)]
    command += ["--autotune"] if args.autotune else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, stderr=None if args.verbose else subprocess.PIPE)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0:
        last = (done.stderr or "").strip().splitlines()[-1:]
        rows.append({"peer": name, "mode": "", "error": last[0] if last else f"exit code {done.returncode}"})
    return rows


def difference(row, losses):
    """The largest difference from AICF's losses, as a share of the first."""
    return max(abs(a - b) for a, b in zip(row["losses"], losses)) / abs(losses[0])


def check(row, losses, margin):
    """An empty text when the row's losses are AICF's, else why its time is no result."""
    if "error" in row:
        return row["error"]
    moved = abs(losses[0] - losses[-1]) / abs(losses[0])
    if moved < 4 * margin:
        return (f"the loss moves by {moved:.1e} of the first, too little to tell programs apart at margin {margin:.0e}: "
                "give more --check-steps")
    if len(row["losses"]) != len(losses) or not all(loss == loss for loss in row["losses"]):
        return "its losses are not numbers"
    apart = difference(row, losses)
    return "" if apart <= margin else f"its losses differ by {apart:.1e} of the first, margin {margin:.0e}"


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def commit():
    written = ROOT / "COMMIT"  # of a bundle
    if written.is_file():
        return written.read_text().strip()
    head = output_of("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD")
    return head + (" with changes" if output_of("git", "-C", str(ROOT), "status", "--porcelain") else "")


def size(count):
    return f"{count / 2**10:.1f} KiB" if count < 2**20 else f"{count / 2**20:.1f} MiB"


def number(value):
    return f"{value:.4g}" if value >= 1e-4 else f"{value:.2e}"


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def compare(args, aicf, stem, report):
    """One workload: its row of the table, its notes, and whether all losses agreed."""
    recipe = find_recipe(stem)
    text = tomllib.loads(recipe.read_text())
    name, precision = text["name"], text.get("precision", "f32")
    if args.backend == "cpu" and precision == "tf32":
        precision = "f32"  # TF32 is allowed, not asked for, and no CPU has it
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        print(f"{name}: AICF", file=sys.stderr)
        own = run_aicf(args, aicf, recipe, precision, folder, export=True)
        peers = []
        for peer in args.peers:
            print(f"{name}: {peer}", file=sys.stderr)
            peers += run_peer(args, peer, recipe, precision, folder / f"{name}.safetensors")
        again = run_aicf(args, aicf, recipe, precision, folder, export=False)
    losses = own["losses"]
    for key in ("resident", "fed", "many"):
        own[key] = slower(own[key], again[key])
    for row in peers:
        if "version" in row:
            report["versions"][row["peer"]] = row["version"]
            report["device"] = row["device"] if args.backend == "cuda" else ""
        if "missing" in row:
            report["missing"][row["peer"]] = row["missing"]
    margin = MARGIN[precision]
    timed = [row for row in peers if "mode" in row]
    for row in timed:
        row["why_not"] = check(row, losses, margin)
    report["rows"].append({"workload": name, "aicf": own, "losses": losses, "margin": margin, "peers": timed})
    return all(not row["why_not"] for row in timed)


def label(row):
    return f"{row['peer']} {row['mode']}".strip()


def markdown(args, report):
    labels = list(dict.fromkeys(label(row) for r in report["rows"] for row in r["peers"]))
    main, spread, notes = [], [], []
    for r in report["rows"]:
        own = r["aicf"]
        ms = own["resident"]["ms"]
        by_label = {label(row): row for row in r["peers"]}
        cells, valid = [], []
        for one in labels:
            row = by_label.get(one)
            if row is None:
                cells.append("–")
            elif row["why_not"]:
                cells.append("no result")
                notes.append(f"{r['workload']}, {one}: {row['why_not']}")
            else:
                cells.append(f"{number(row['ms'])} ({row['ms'] / ms:.2f}×)")
                valid.append(row)
        best = min(valid, key=lambda row: row["ms"], default=None)
        gain = f"**{best['ms'] / ms:.2f}×** ({label(best)})" if best else "–"
        main.append([r["workload"], f"**{number(ms)}**", number(own["fed"]["ms"]), number(own["many"]["ms"]), *cells, gain])
        of = f"{number(own['resident']['low'])} – {number(own['resident']['high'])}"
        spread.append([r["workload"], of, *(f"{number(by_label[one]['low'])} – {number(by_label[one]['high'])}"
                                            if one in by_label and not by_label[one]["why_not"] else "–" for one in labels)])
        apart = max((difference(row, r["losses"]) for row in valid), default=None)
        notes.append(f"{r['workload']}: {own['precision']}, {own['nodes']} {'nodes' if own['captured'] else 'launches'} a step, "
                     f"{own['critical_path']} on the longest path, {size(own['planned_bytes'])} planned, "
                     f"compiled in {own['compile_s']:.2f} s; loss {r['losses'][0]:.5f} → {r['losses'][-1]:.5f} in "
                     f"{args.check_steps} steps" + (f", peers within {apart:.1e} of it (margin {r['margin']:.0e})" if valid else ""))
    for peer, why in report["missing"].items():
        notes.append(f"{peer} is left out: {why}")
    text = "Milliseconds a training step, inputs resident; in brackets how many times AICF's.\n\n"
    text += table(["workload", "AICF", "AICF, fed", "AICF, steps(n)", *labels, "best peer ÷ AICF"], main)
    text += "\nLowest and highest batch:\n\n" + table(["workload", "AICF", *labels], spread) + "\n"
    text += "".join(f"- {note}\n" for note in notes) + "\n"
    return text + "".join(f"{key}: {value}  \n" for key, value in report["facts"].items())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--backend", choices=["cpu", "cuda"], required=True)
    parser.add_argument("--workloads", help="recipes, by name or path, with commas between")
    parser.add_argument("--aicf", help="the program (default: that of this bundle or build)")
    parser.add_argument("--peers", default="torch,jax", help="of torch, jax; may be empty")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the peers' packages")
    parser.add_argument("--threads", type=int, help="on the CPU, of every program alike (default: all)")
    parser.add_argument("--time", type=float, default=1.0, help="seconds of each measurement")
    parser.add_argument("--check-steps", type=int, default=20, help="steps over which losses must agree")
    parser.add_argument("--autotune", action="store_true", help="torch.compile's max-autotune too: minutes a workload")
    parser.add_argument("--verbose", action="store_true", help="let the peers write to standard error")
    parser.add_argument("--out", help="write the table to this file too")
    parser.add_argument("--json", help="write all that was measured to this file")
    args = parser.parse_args()
    args.peers = [peer for peer in args.peers.split(",") if peer]
    for peer in args.peers:
        if peer not in PEERS:
            fail(f"no peer {peer}; there are {', '.join(PEERS)}")
    allowed = sorted(os.sched_getaffinity(0))
    args.threads = min(args.threads or len(allowed), len(allowed))
    os.sched_setaffinity(0, allowed[: args.threads])  # every program goes by this
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    aicf = find_aicf(args.aicf)
    version = output_of(*aicf, "--version") or fail(f"{shlex.join(aicf)} does not run")

    report = {"rows": [], "versions": {"AICF": version, "Python": platform.python_version()}, "missing": {}, "device": ""}
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"compare.py: the machine is busy (load {load:.1f}); times will be worse than they are", file=sys.stderr)
    agree = True
    for stem in (args.workloads.split(",") if args.workloads else DEFAULT[args.backend]):
        agree &= compare(args, aicf, stem, report)

    facts = {"Machine": f"{processor()}, {args.threads} of {os.cpu_count()} threads, load {load:.1f} at the start"}
    if args.backend == "cuda":
        gpu = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").replace("\n", "; ")
        facts["GPU"] = gpu or report["device"]
    facts["Backend"] = report["rows"][0]["aicf"]["device"]
    facts["Versions"] = ", ".join(f"{name} {value}" for name, value in report["versions"].items())
    facts["Command"] = f"`{shlex.join(['bench/compare.py', *sys.argv[1:]])}`"
    facts["Commit"] = commit()
    facts["Date"] = datetime.date.today().isoformat()
    report["facts"] = facts
    text = markdown(args, report)
    print(text)
    if args.out:
        pathlib.Path(args.out).write_text(text)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(report, indent=1))
    if not agree:
        fail("losses disagree or a peer failed: see `no result`")


if __name__ == "__main__":
    main()
