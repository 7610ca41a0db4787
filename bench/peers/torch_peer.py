"""PyTorch on a workload: eager, the step captured by hand into a CUDA graph, torch.compile."""
import time

from workload import main, measure


def package(args):
    import torch

    torch.set_num_threads(args.threads)
    if args.device == "cpu":
        return torch.__version__, "cpu", torch
    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch sees no GPU")
    return torch.__version__, torch.cuda.get_device_name(), torch


def modes(args):
    if args.device == "cpu":
        return ["eager", "compile"]
    return ["eager", "captured", "compile + captured"] + (["max-autotune + captured"] if args.autotune else [])


def build(torch, w, device):
    activations = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh, "sigmoid": torch.nn.Sigmoid, "flatten": torch.nn.Flatten}
    layers, linears = [], {}
    for kind, name in w.layers:
        if kind != "linear":
            layers.append(activations[kind]())
            continue
        out, inner = w.params[name + ".weight"].shape
        layers.append(torch.nn.Linear(inner, out, bias=name + ".bias" in w.params))
        linears[name] = layers[-1]
    return torch.nn.Sequential(*layers).to(device), linears


def run(torch, w, args, mode):
    device, functional = args.device, torch.nn.functional
    torch._dynamo.reset()
    torch.set_float32_matmul_precision("highest" if w.precision == "f32" else "high")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = w.precision != "f32"
    model, linears = build(torch, w, device)
    o = w.optimizer
    on_gpu = {"capturable": True} if device == "cuda" else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"],
                                  weight_decay=o["weight_decay"], fused=True, **on_gpu)
    x = torch.tensor(w.x, device=device)
    y = torch.tensor(w.y, device=device, dtype=torch.int64 if w.loss == "cross_entropy" else torch.float32)
    half = {"bf16": torch.bfloat16, "f16": torch.float16}.get(w.precision)

    def reset():
        with torch.no_grad():
            for name, layer in linears.items():
                layer.weight.copy_(torch.tensor(w.params[name + ".weight"]))
                if layer.bias is not None:
                    layer.bias.copy_(torch.tensor(w.params[name + ".bias"]))
            for state in optimizer.state.values():
                for value in state.values():
                    value.zero_()

    def forward():
        with torch.autocast(device, half, enabled=half is not None):
            out = model(x)
        out = out.float()
        return functional.cross_entropy(out, y) if w.loss == "cross_entropy" else functional.mse_loss(out, y)

    if "compile" in mode or "autotune" in mode:
        forward = torch.compile(forward, mode="max-autotune-no-cudagraphs" if "autotune" in mode else "default")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward()
        loss.backward()
        optimizer.step()
        return loss

    start = time.perf_counter()
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    if "captured" in mode:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            captured_loss = step()

        def go():
            graph.replay()
            return captured_loss
    else:
        go = step
        go()
    wait()
    build_s = time.perf_counter() - start
    reset()
    losses = [go().item() for _ in w.losses]
    return {**measure(go, wait, args.seconds), "build_s": build_s, "losses": losses}


if __name__ == "__main__":
    main("PyTorch", package, modes, run)
