"""A real program for bench/host.py: arrays of 1 KiB to 16 MiB as NumPy makes them, with the temporaries of expressions,
sorts, transforms and small products. Prints a digest of what it computed."""
import hashlib

import numpy

digest = hashlib.sha256()
random = numpy.random.default_rng(1)


def expressions(count, rounds):
    """Each operator makes an array of its own, which goes at the next one."""
    x, y = random.random(count), random.random(count)
    for _ in range(rounds):
        x = (x * 1.5 + y / 3 - x * y) * 0.5 + numpy.where(x > y, x, y)
        x = x - x.mean()
    return x


for count, rounds in ((128, 40_000), (4096, 6_000), (100_000, 200), (2_000_000, 6)):
    digest.update(expressions(count, rounds).tobytes())

rows = random.integers(0, 1000, (400, 3000))
digest.update(numpy.concatenate([numpy.unique(row) for row in rows]).tobytes())
digest.update(numpy.sort(random.random(500_000)).tobytes())
frames = [numpy.abs(numpy.fft.rfft(random.random(1 << size))) for size in range(6, 19) for _ in range(4)]
digest.update(numpy.round(numpy.concatenate(frames), 6).tobytes())
pieces = [numpy.outer(random.random(40), random.random(60)).T.copy() for _ in range(3000)]
digest.update(numpy.stack(pieces).sum(axis=0).tobytes())
print(digest.hexdigest())
