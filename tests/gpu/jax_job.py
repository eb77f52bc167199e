"""A small deterministic job for JAX on a GPU: arrays of many sizes, a compiled loop and transfers. XLA asks the driver
for each buffer, for its own pool would take most of the device. Prints a hash of every result, so that two runs
can be compared."""
import hashlib
import os
import sys

os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"

try:
    import jax
    import jax.numpy as jnp
    import numpy
except ImportError as error:
    print(f"no jax: {error}", file=sys.stderr)
    sys.exit(77)
try:
    jax.devices("gpu")
except RuntimeError as error:
    print(f"jax sees no GPU: {error}", file=sys.stderr)
    sys.exit(77)


def show(name, array):
    print(f"{name}: {hashlib.sha256(numpy.asarray(array).tobytes()).hexdigest()[:16]}", flush=True)


def many_sizes():
    total = jnp.zeros((), dtype=jnp.int32)
    for step in range(30):
        blocks = [jnp.full(1000 * (step + 1) + 37 * index, index, dtype=jnp.int32) for index in range(4)]
        total += sum(block.sum() for block in blocks)
        del blocks
    show("sums of many sizes", total)


@jax.jit
def steps(values):
    return jax.lax.fori_loop(0, 50, lambda step, state: (state * 3 + step) % 1009, values)


def transfers():
    for step in range(10):
        there = jax.device_put(numpy.arange(300_000 + step, dtype=numpy.int32))
        back = numpy.asarray(there * 2)
    show("transfers", back)


many_sizes()
show("compiled loop", steps(jnp.arange(100_000, dtype=jnp.int32)))
transfers()
print("done")
