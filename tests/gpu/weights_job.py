"""Loads the same weights onto a GPU by safetensors, torch.load(mmap=True) and numpy.memmap, each several times from the
page cache and once dropped from it. Prints a JSON object for each load, with a hash of what lies on the device.

    weights_job.py FOLDER MEBIBYTES TENSORS LOADS

The files are made in FOLDER once, and used again by later runs."""
import ctypes
import hashlib
import json
import os
import pathlib
import sys
import time

try:
    import numpy
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file
except ImportError as error:
    print(f"no torch or no safetensors: {error}", file=sys.stderr)
    sys.exit(77)
if not torch.cuda.is_available():
    print("torch sees no GPU", file=sys.stderr)
    sys.exit(77)

FOLDER = pathlib.Path(sys.argv[1])
MEBIBYTES, TENSORS, LOADS = map(int, sys.argv[2:5])
EACH = (MEBIBYTES << 20) // TENSORS // 4096 * 4096
SAFE, TORCH, RAW = (FOLDER / f"weights-{MEBIBYTES}-{TENSORS}.{ending}" for ending in ("safetensors", "pt", "raw"))


def make():
    if RAW.exists():
        return
    generator = numpy.random.default_rng(1)
    part = generator.integers(0, 256, EACH, dtype=numpy.uint8)
    weights = {f"layer.{index:04}": torch.from_numpy(numpy.roll(part, index)) for index in range(TENSORS)}
    save_file(weights, SAFE)
    torch.save(weights, TORCH)
    with open(FOLDER / "weights.new", "wb") as file:
        for weight in weights.values():
            file.write(weight.numpy())
    os.sync()
    (FOLDER / "weights.new").rename(RAW)


def by_safetensors():
    with safe_open(SAFE, framework="pt", device="cuda:0") as file:
        return [file.get_tensor(name) for name in sorted(file.keys())]


def by_torch():
    return [weight for _, weight in sorted(torch.load(TORCH, map_location="cuda:0", mmap=True).items())]


def by_memmap():
    weights = numpy.memmap(RAW, dtype=numpy.uint8, mode="c")
    return [torch.from_numpy(weights[index * EACH:(index + 1) * EACH]).to("cuda:0") for index in range(TENSORS)]


def drop(path):
    with open(path, "rb") as file:
        ctypes.CDLL(None).posix_fadvise(file.fileno(), ctypes.c_long(0), ctypes.c_long(0), 4)


def hash_of(tensors):
    indexes = torch.arange(EACH, device="cuda:0") % 251
    sums = [int((tensor.to(torch.int64) * indexes).sum()) for tensor in tensors]
    return hashlib.sha256(str(sums).encode()).hexdigest()[:16]


make()
torch.zeros(1, device="cuda:0")
for loader, path in ((by_safetensors, SAFE), (by_torch, TORCH), (by_memmap, RAW)):
    for load in range(LOADS + 1):
        is_cold = load == LOADS
        if is_cold:
            drop(path)
        begin = time.perf_counter()
        tensors = loader()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        print(json.dumps({"loader": loader.__name__[3:], "load": "cold" if is_cold else load + 1,
                          "rate": EACH * TENSORS / seconds, "hash": hash_of(tensors)}), flush=True)
        del tensors
        torch.cuda.empty_cache()
