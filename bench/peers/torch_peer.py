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


def gpt(torch, w):
    """The model, and its parameters by AICF's names."""
    nn, functional = torch.nn, torch.nn.functional
    width, heads = w.gpt["width"], w.gpt["heads"]
    vocabulary, context = len(w.params["wte.weight"]), len(w.params["wpe.weight"])

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            B, T, C = x.shape
            q, k, v = self.qkv(self.ln1(x)).view(B, T, 3, heads, C // heads).permute(2, 0, 3, 1, 4)
            a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(a.transpose(1, 2).reshape(B, T, C))
            return x + self.out(functional.gelu(self.fc(self.ln2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList(Block() for _ in range(w.gpt["layers"]))
            self.lnf, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
            self.head.weight = self.wte.weight

        def forward(self, tokens):
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.lnf(x))

    model = Gpt()
    parts = {"wte": model.wte, "wpe": model.wpe, "lnf": model.lnf}
    for i, b in enumerate(model.blocks):
        parts |= {f"h{i}.ln1": b.ln1, f"h{i}.attn.qkv": b.qkv, f"h{i}.attn.proj": b.proj, f"h{i}.ln2": b.ln2,
                  f"h{i}.mlp.fc": b.fc, f"h{i}.mlp.proj": b.out}
    return model, {f"{name}.{kind}": p for name, part in parts.items() for kind, p in part.named_parameters()}


def mlp(torch, w):
    activations = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh, "sigmoid": torch.nn.Sigmoid, "flatten": torch.nn.Flatten}
    layers, params = [], {}
    for kind, name in w.layers:
        if kind != "linear":
            layers.append(activations[kind]())
            continue
        out, inner = w.params[name + ".weight"].shape
        layers.append(torch.nn.Linear(inner, out, bias=name + ".bias" in w.params))
        params |= {f"{name}.{kind}": p for kind, p in layers[-1].named_parameters()}
    return torch.nn.Sequential(*layers), params


def run(torch, w, args, mode):
    device, functional = args.device, torch.nn.functional
    torch._dynamo.reset()
    torch.set_float32_matmul_precision("highest" if w.precision == "f32" else "high")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = w.precision != "f32"
    model, params = gpt(torch, w) if w.gpt else mlp(torch, w)
    if params.keys() != w.params.keys():
        raise ValueError(f"other parameters: {sorted(params.keys() ^ w.params.keys())[:3]}")
    model.to(device)  # in place: the parameters stay the objects they are
    o = w.optimizer
    on_gpu = {"capturable": True} if device == "cuda" else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"],
                                  weight_decay=o["weight_decay"], fused=True, **on_gpu)
    x = torch.tensor(w.x, device=device, dtype=torch.int64 if w.gpt else torch.float32)
    y = torch.tensor(w.y, device=device, dtype=torch.int64 if w.loss == "cross_entropy" else torch.float32)
    half = {"bf16": torch.bfloat16, "f16": torch.float16}.get(w.precision)

    def reset():
        with torch.no_grad():
            for name, p in params.items():
                p.copy_(torch.tensor(w.params[name]))
            for state in optimizer.state.values():
                for value in state.values():
                    value.zero_()

    def forward():
        with torch.autocast(device, half, enabled=half is not None):
            out = model(x)
        out = out.float()
        if w.loss == "mse":
            return functional.mse_loss(out, y)
        return functional.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))

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
