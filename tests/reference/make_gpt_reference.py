#!/usr/bin/env python3
"""Makes gpt_reference.json: losses, gradients and parameters of recipes/gpt-nano-mini.toml over 3 steps by PyTorch in float64.

    python3 -m venv venv && venv/bin/pip install torch && venv/bin/python tests/reference/make_gpt_reference.py

The model is GPT-2 as PyTorch's own modules make it: torch.nn.MultiheadAttention, LayerNorm, GELU by its tanh approximation, the
head's weight tied to the embedding's; AdamW is torch.optim.AdamW. Weights and tokens are closed formulas of their index, so
that the test makes the same ones without a file.
"""
import json
import pathlib

import torch
from torch import nn

V, T, L, D, H, B, STEPS = 11, 6, 4, 8, 2, 2, 3
OPTIONS = dict(lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)


def formula(shape, a, b, scale):
    """Numbers in [-scale, scale]: exact in f32, the same in C++."""
    n = 1
    for d in shape:
        n *= d
    i = torch.arange(n, dtype=torch.int64)
    return (((i * a + b) % 2048 - 1024).double() / 1024 * scale).reshape(shape)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn = nn.MultiheadAttention(D, H, batch_first=True)
        self.fc, self.proj = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        h = self.ln1(x)
        mask = torch.ones(T, T, dtype=torch.bool).triu(1)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.proj(nn.functional.gelu(self.fc(self.ln2(x)), approximate="tanh"))

    def named(self, prefix):
        yield from ((f"{prefix}.ln1.{n}", p) for n, p in self.ln1.named_parameters())
        yield from ((f"{prefix}.attn.qkv.{n}", p) for n, p in
                    (("weight", self.attn.in_proj_weight), ("bias", self.attn.in_proj_bias)))
        yield from ((f"{prefix}.attn.proj.{n}", p) for n, p in self.attn.out_proj.named_parameters())
        yield from ((f"{prefix}.ln2.{n}", p) for n, p in self.ln2.named_parameters())
        yield from ((f"{prefix}.mlp.fc.{n}", p) for n, p in self.fc.named_parameters())
        yield from ((f"{prefix}.mlp.proj.{n}", p) for n, p in self.proj.named_parameters())


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, D), nn.Embedding(T, D)
        self.blocks, self.lnf = nn.ModuleList(Block() for _ in range(L)), nn.LayerNorm(D)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(T))
        for block in self.blocks:
            x = block(x)
        return self.lnf(x) @ self.wte.weight.T

    def named(self):
        yield "wte.weight", self.wte.weight
        yield "wpe.weight", self.wpe.weight
        for i, block in enumerate(self.blocks):
            yield from block.named(f"h{i}")
        yield from ((f"lnf.{n}", p) for n, p in self.lnf.named_parameters())


def main():
    torch.set_default_dtype(torch.float64)
    model = Gpt()
    params = dict(model.named())
    with torch.no_grad():
        for k, (name, p) in enumerate(params.items()):
            norm = ".ln" in "." + name and name.endswith("weight")
            p.copy_(formula(p.shape, 389, 97 * k, 0.25) + (1 if norm else 0))
    optimizer = torch.optim.AdamW(model.parameters(), **OPTIONS)
    losses, gradients = [], []
    for step in range(STEPS):
        i = torch.arange(B * T, dtype=torch.int64)
        x, y = ((i * 5 + 3 * step) % V).reshape(B, T), ((i * i + step) % V).reshape(B, T)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).reshape(-1, V), y.reshape(-1))
        loss.backward()
        losses.append(loss.item())
        gradients.append({n: p.grad.flatten().tolist() for n, p in params.items()})
        optimizer.step()
    out = {
        "made_with": f"torch {torch.__version__}, float64, cpu",
        "losses": losses,
        "gradients": [{n: [float(f"{v:.7g}") for v in g] for n, g in step.items()} for step in gradients],
    }
    pathlib.Path(__file__).with_name("gpt_reference.json").write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
