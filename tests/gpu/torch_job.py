"""A small deterministic job for PyTorch on a GPU: training steps, tensors of many sizes made and dropped, pinned
transfers, a second stream and a captured graph. Prints a hash of every result, so that two runs can be compared.
torch_job.py allocator: Cistern is PyTorch's allocator, which has no pools for graphs."""
import hashlib
import os
import pathlib
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with it

try:
    import torch
except ImportError as error:
    print(f"no torch: {error}", file=sys.stderr)
    sys.exit(77)
if not torch.cuda.is_available():
    print("torch sees no GPU", file=sys.stderr)
    sys.exit(77)


def show(name, tensor):
    digest = hashlib.sha256(tensor.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
    print(f"{name}: {digest[:16]}", flush=True)


def train():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(64, 256, generator=torch.Generator().manual_seed(2)).cuda()
    wanted = torch.arange(64).cuda() % 10
    for _ in range(20):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(data), wanted).backward()
        optimiser.step()
    for index, parameter in enumerate(model.parameters()):
        show(f"parameter {index}", parameter)


def many_sizes():
    """Blocks beyond what the framework keeps, because its cache is emptied all the time."""
    total = torch.zeros(1, dtype=torch.int64, device="cuda")
    for step in range(60):
        blocks = [torch.full((1000 * (step + 1) + 37 * index,), index, dtype=torch.int64, device="cuda")
                  for index in range(8)]
        total += sum(block.sum() for block in blocks)
        del blocks
        torch.cuda.empty_cache()
    show("sums of many sizes", total)


def pinned_transfers():
    stream = torch.cuda.Stream()
    for step in range(10):
        source = torch.arange(100_000 + step).pin_memory()
        with torch.cuda.stream(stream):
            there = source.to("cuda", non_blocking=True) * 2
            back = there.to("cpu", non_blocking=True)
        stream.synchronize()
        if step % 5 == 4:
            show(f"pinned transfer {step}", back)


def captured_graph():
    data = torch.arange(4096, dtype=torch.int64, device="cuda")
    result = torch.empty_like(data)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        result.copy_(data * 3 + 1)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result.copy_(data * 3 + 1)
    for step in range(5):
        data.fill_(step)
        graph.replay()
    torch.cuda.synchronize()
    show("captured graph", result)


with_allocator = sys.argv[1:] == ["allocator"]
if with_allocator:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "shim/python"))
    import libcistern.torch
    libcistern.torch.use()
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cuda.matmul.allow_tf32 = False
train()
many_sizes()
pinned_transfers()
if not with_allocator:
    captured_graph()
torch.cuda.synchronize()
print("done")
