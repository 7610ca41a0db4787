#!/usr/bin/env python3
"""Makes mlp_reference.json: losses, gradients and parameters of a small MLP trained by JAX in float64.

    python3 -m venv venv && venv/bin/pip install "jax[cpu]" && venv/bin/python tests/reference/make_mlp_reference.py

The network is 12-16-10-5 (tanh, then ReLU), cross-entropy over a batch of 8, 50 steps, for each optimizer below. Inputs, labels
and initial weights are closed formulas of their index, so that the test makes the same ones without a file. The
optimizers are written out here from their papers (Kingma & Ba 2015; Loshchilov & Hutter 2019; Sutskever et al. 2013), on
JAX's gradients, independently of the library under test.
"""
import json
import math
import pathlib

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np

DIMS = [12, 16, 10, 5]
BATCH = 8
STEPS = 50


def formula(n, a, b, scale):
    """n numbers in [-scale, scale]: exact in f32, the same in C++."""
    i = np.arange(n, dtype=np.int64)
    return ((i * a + b) % 2048 - 1024).astype(np.float64) / 1024 * scale


def weights():
    params = {}
    for k in range(3):
        params[f"fc{k + 1}.weight"] = formula(DIMS[k + 1] * DIMS[k], 389, 17 * k, 0.5).reshape(DIMS[k + 1], DIMS[k])
        params[f"fc{k + 1}.bias"] = formula(DIMS[k + 1], 701, 31 * k, 0.25)
    return {k: jnp.asarray(v) for k, v in params.items()}


def batch(step):
    x = formula(BATCH * DIMS[0], 577, 97 * step, 2.0).reshape(BATCH, DIMS[0])
    y = (np.arange(BATCH) * 3 + step) % DIMS[3]
    return jnp.asarray(x), jnp.asarray(y)


def loss_fn(p, x, y):
    h = jnp.tanh(x @ p["fc1.weight"].T + p["fc1.bias"])
    h = jax.nn.relu(h @ p["fc2.weight"].T + p["fc2.bias"])
    logits = h @ p["fc3.weight"].T + p["fc3.bias"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1))


def cosine(t, total, warmup, floor):
    if t < warmup:
        return (t + 1) / warmup
    if t >= total:
        return floor
    return floor + (1 - floor) * (1 + math.cos(math.pi * (t - warmup) / (total - warmup))) / 2


def sgd(p, g, s, t, lr, momentum=0.0, dampening=0.0, decay=0.0, nesterov=False):
    g = g + decay * p
    if momentum:
        s["b"] = g if t == 1 else momentum * s["b"] + (1 - dampening) * g
        g = g + momentum * s["b"] if nesterov else s["b"]
    return p - lr * g


def adam(p, g, s, t, lr, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.0, decoupled=False):
    if not decoupled:
        g = g + decay * p
    s["m"] = beta1 * s.get("m", 0.0) + (1 - beta1) * g
    s["v"] = beta2 * s.get("v", 0.0) + (1 - beta2) * g * g
    step = (s["m"] / (1 - beta1**t)) / (jnp.sqrt(s["v"] / (1 - beta2**t)) + eps)
    if decoupled:
        p = p - lr * decay * p
    return p - lr * step


RUNS = {
    "sgd": (sgd, dict(), 0.1, None),
    "sgd_momentum": (sgd, dict(momentum=0.9, dampening=0.1, decay=0.01), 0.05, None),
    "sgd_nesterov": (sgd, dict(momentum=0.9, decay=0.01, nesterov=True), 0.05, None),
    "adam": (adam, dict(decay=0.01), 0.01, None),
    "adamw": (adam, dict(decay=0.1, decoupled=True), 0.01, None),
    "adamw_cosine": (adam, dict(beta1=0.8, beta2=0.95, eps=1e-3, decay=0.1, decoupled=True), 0.02, (40, 5, 0.1)),
}


def run(update, options, lr, schedule):
    params, states = weights(), {}
    losses, first_grads = [], None
    value_and_grad = jax.jit(jax.value_and_grad(loss_fn))
    for t in range(1, STEPS + 1):
        x, y = batch(t - 1)
        loss, grads = value_and_grad(params, x, y)
        losses.append(float(loss))
        if t == 1:
            first_grads = {k: np.asarray(v).ravel().tolist() for k, v in grads.items()}
        rate = lr * (cosine(t - 1, *schedule) if schedule else 1.0)
        for k in params:
            params[k] = update(params[k], grads[k], states.setdefault(k, {}), t, rate, **options)
    return {
        "losses": losses,
        "first_gradients": first_grads,
        "final_parameters": {k: np.asarray(v).ravel().tolist() for k, v in params.items()},
    }


def main():
    out = {"made_with": f"jax {jax.__version__}, numpy {np.__version__}, float64, cpu", "runs": {}}
    for name, spec in RUNS.items():
        out["runs"][name] = run(*spec)
    path = pathlib.Path(__file__).with_name("mlp_reference.json")
    path.write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
