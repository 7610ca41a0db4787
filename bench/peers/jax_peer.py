"""JAX on a workload: one jitted step with donated buffers, and 20 steps in one lax.scan. The optimizer is optax's AdamW."""
import os
import time

from workload import main, measure

SCAN = 20


def package(args):
    if args.device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import optax

    if args.device == "cuda" and jax.default_backend() != "gpu":
        raise RuntimeError(f"JAX runs on {jax.default_backend()} here")
    version = f"{jax.__version__} (optax {optax.__version__})"
    return version, jax.devices()[0].device_kind, (jax, optax)


def modes(args):
    return ["jit", f"scan {SCAN}"]


def run(known, w, args, mode):
    jax, optax = known
    jnp = jax.numpy
    precision = {"f32": "float32", "tf32": "tensorfloat32"}.get(w.precision, "default")
    jax.config.update("jax_default_matmul_precision", precision)
    half = {"bf16": jnp.bfloat16, "f16": jnp.float16}.get(w.precision, jnp.float32)
    functions = {"relu": jax.nn.relu, "tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid, "flatten": lambda h: h.reshape(len(h), -1)}
    x, y = jnp.asarray(w.x), jnp.asarray(w.y)

    def linear(p, name, h):
        h = h @ p[name + ".weight"].T.astype(half)
        return h + p[name + ".bias"].astype(half) if name + ".bias" in p else h

    def norm(p, name, x):
        x32 = x.astype(jnp.float32)
        centred = x32 - x32.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return (centred * scale * p[name + ".weight"] + p[name + ".bias"]).astype(half)

    # cuDNN's attention is the fastest that JAX has on a GPU, and takes 16 bits only.
    attention = "cudnn" if args.device == "cuda" and half != jnp.float32 else "xla"

    def gpt(p, tokens):
        B, T = tokens.shape
        x = (p["wte.weight"][tokens] + p["wpe.weight"][:T]).astype(half)
        for i in range(w.gpt["layers"]):
            qkv = linear(p, f"h{i}.attn.qkv", norm(p, f"h{i}.ln1", x)).reshape(B, T, 3, w.gpt["heads"], -1)
            a = jax.nn.dot_product_attention(*(qkv[:, :, j] for j in range(3)), is_causal=True, implementation=attention)
            x = x + linear(p, f"h{i}.attn.proj", a.reshape(B, T, -1))
            hidden = jax.nn.gelu(linear(p, f"h{i}.mlp.fc", norm(p, f"h{i}.ln2", x)), approximate=True)
            x = x + linear(p, f"h{i}.mlp.proj", hidden)
        return linear(p, "wte", norm(p, "lnf", x))

    def mlp(p, x):
        h = x.astype(half)
        for kind, name in w.layers:
            if kind != "linear":
                h = functions[kind](h)
                continue
            h = linear(p, name, h)
        return h

    def loss_fn(p, x, y):
        h = (gpt if w.gpt else mlp)(p, x).astype(jnp.float32)
        if w.loss == "cross_entropy":
            return optax.softmax_cross_entropy_with_integer_labels(h, y).mean()
        return ((h - y) ** 2).mean()

    o = w.optimizer
    optimizer = optax.adamw(o["lr"], o["beta1"], o["beta2"], o["eps"], weight_decay=o["weight_decay"])

    def step(p, s, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(p, x, y)
        updates, s = optimizer.update(grads, s, p)
        return optax.apply_updates(p, updates), s, loss

    def scan(p, s, x, y):
        def one(carry, _):
            p, s, loss = step(*carry, x, y)
            return (p, s), loss

        (p, s), losses = jax.lax.scan(one, (p, s), None, length=SCAN)
        return p, s, losses

    def start():
        p = {name: jnp.array(value) for name, value in w.params.items()}
        return p, optimizer.init(p)

    begin = time.perf_counter()
    steps = 1 if mode == "jit" else SCAN
    go = jax.jit(step if mode == "jit" else scan, donate_argnums=(0, 1))
    jax.block_until_ready(go(*start(), x, y))
    build_s = time.perf_counter() - begin
    p, s = start()
    losses = []
    while len(losses) < len(w.losses):
        p, s, loss = go(p, s, x, y)
        losses += loss.reshape(-1).tolist()

    def once():
        nonlocal p, s
        p, s, _ = go(p, s, x, y)

    time_of = measure(once, lambda: jax.block_until_ready((p, s)), args.seconds)
    for key in ("ms", "low", "high"):
        time_of[key] /= steps
    time_of["steps"] *= steps
    return {**time_of, "build_s": build_s, "losses": losses[: len(w.losses)]}


if __name__ == "__main__":
    main("JAX", package, modes, run)
