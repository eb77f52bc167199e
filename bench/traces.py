"""The traces that benchmarks of pools replay: lifetimes of buffers, made from a seed or published.

A row is a buffer: id, lower, upper, size. Where there are several streams, it also has the stream that uses the buffer
and the one in whose order it is freed. The reader of such files is bench/trace.hpp."""
import csv
import pathlib
import random

HERE = pathlib.Path(__file__).resolve().parent
KIB, MIB = 1 << 10, 1 << 20
HEADING = ("id", "lower", "upper", "size", "stream", "freed_on")


class Maker:
    """Allocations and frees in order become lifetimes."""

    def __init__(self):
        self.step, self.rows = 0, []

    def allocate(self, size, stream=0):
        self.step += 1
        self.rows.append([len(self.rows), self.step, None, max(1, int(size)), stream, stream])
        return len(self.rows) - 1

    def free(self, block, stream=None):
        self.step += 1
        self.rows[block][2] = self.step
        if stream is not None:
            self.rows[block][5] = stream

    def free_all(self, blocks):
        for block in blocks:
            self.free(block)

    def finished(self):
        for row in self.rows:
            row[2] = row[2] or self.step + 1
        if any(row[4] or row[5] for row in self.rows):
            return self.rows
        return [row[:4] for row in self.rows]


def write(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([HEADING[:len(rows[0])], *rows])


# --- Loops and phases

def loop_over(*sizes, rounds=500):
    def make(_):
        maker = Maker()
        for _ in range(rounds):
            for size in sizes:
                maker.free(maker.allocate(size))
        return maker.finished()
    return make


def one_small_then_a_large_one(_):
    maker = Maker()
    maker.free(maker.allocate(4 * KIB))
    for _ in range(1000):
        maker.free(maker.allocate(100 * MIB))
    return maker.finished()


def phases(times):
    def make(_):
        maker = Maker()
        for _ in range(times):
            for phase in range(8):
                for block in [maker.allocate((16 + 4 * phase) * MIB) for _ in range(8)]:
                    maker.free(block)
        return maker.finished()
    return make


def lognormal(live_max, steps=20000, median=64 * KIB, sigma=2.0):
    def make(rng):
        maker, live = Maker(), []
        for _ in range(steps):
            if len(live) >= live_max:
                maker.free(live.pop(rng.randrange(len(live))))
            live.append(maker.allocate(min(256 * MIB, median * rng.lognormvariate(0, sigma))))
        return maker.finished()
    return make


def small_among_large(rng):
    """Large blocks come and go. Small ones that stay are allocated while they live, and go at random much later."""
    maker, small = Maker(), []
    for _ in range(3000):
        large = [maker.allocate(rng.uniform(8, 96) * MIB) for _ in range(rng.randint(1, 4))]
        small += [maker.allocate(rng.lognormvariate(11, 1.5)) for _ in range(rng.randint(0, 2))]
        rng.shuffle(large)
        maker.free_all(large)
        while len(small) > 800:
            maker.free(small.pop(rng.randrange(len(small))))
    return maker.finished()


# --- Training

def training(vary, checkpoints, layers=24, steps=60, hidden=1024):
    """Weights stay; each layer's activations live until its backward pass, or, with checkpoints, are made again there.
    With `vary` each step has a length of its own."""
    def make(rng):
        maker = Maker()
        for _ in range(layers):
            maker.allocate(12 * hidden * hidden * 2)
        for _ in range(steps):
            length = min(2048, max(64, int(rng.lognormvariate(6.2, 0.5)))) if vary else 512
            row = 8 * length * hidden * 2
            kept = []
            for _ in range(layers):
                blocks = [maker.allocate(row * factor) for factor in (1, 3, 1, 4)]
                scratch = maker.allocate(8 * length * length * 2)
                maker.free(scratch)
                if checkpoints:
                    for block in blocks[1:]:
                        maker.free(block)
                    blocks = blocks[:1]
                kept.append(blocks)
            for blocks in reversed(kept):
                if checkpoints:
                    blocks += [maker.allocate(row * factor) for factor in (3, 1, 4)]
                gradients = [maker.allocate(row * factor) for factor in (1, 4)]
                for block in blocks + gradients:
                    maker.free(block)
        return maker.finished()
    return make


def sharded_training(rng, layers=24, steps=30, hidden=2048, ranks=8):
    """Shards of the weights and of the optimiser's state stay. A layer's weights are gathered on a stream of their own,
    one layer ahead, and are freed in the order of the compute stream; gradients go the other way. Each step then walks
    over the shards with two temporary buffers, and lengths vary."""
    compute, gather = 0, 1
    weights = 12 * hidden * hidden * 2
    maker = Maker()
    shards = [[maker.allocate(weights * factor // ranks) for factor in (1, 2, 2)] for _ in range(layers)]
    for _ in range(steps):
        row = 4 * min(4096, max(256, int(rng.lognormvariate(6.9, 0.4)))) * hidden * 2
        kept, ahead = [], maker.allocate(weights, gather)
        for layer in range(layers):
            gathered, ahead = ahead, maker.allocate(weights, gather) if layer + 1 < layers else None
            kept.append([maker.allocate(row * factor) for factor in (1, 3, 4)])
            maker.free(gathered, compute)
        for blocks in reversed(kept):
            gathered = maker.allocate(weights, gather)
            gradient, full = maker.allocate(row * 4), maker.allocate(weights * 2)
            shard = maker.allocate(weights * 2 // ranks, gather)
            maker.free(full, gather)
            maker.free_all([gradient, *blocks])
            maker.free(gathered, compute)
            maker.free(shard, gather)
        for shard in shards:
            size = maker.rows[shard[0]][3]
            maker.free_all([maker.allocate(size * 2), maker.allocate(size)])
    return maker.finished()


# --- Inference

def serving(paged, seconds=300, layers=8):
    """Continuous batching: requests arrive at random, and each decodes a token a round until it ends. The keys and
    values of a request are in pages of 16 tokens, a page for each group of layers; or in one buffer, which a larger one
    replaces when it is full. Each round has activations as large as its batch."""
    def make(rng):
        maker, running, token = Maker(), [], 8 * KIB
        for _ in range(seconds):
            count = rng.choice((0, 0, 1, 1, 2)) if len(running) <= 48 else 0
            prompts = [min(4096, int(rng.lognormvariate(5.5, 1.0))) for _ in range(count)]
            for prompt in prompts:
                end = prompt + int(rng.lognormvariate(4.5, 0.8))
                running.append({"length": prompt, "end": end, "room": 0, "blocks": []})
            tokens = sum(prompts) + len(running)
            hidden = [maker.allocate(tokens * 4096 * factor * 2) for factor in (1, 3)]
            for request in running:
                grow_paged(maker, request, token, layers) if paged else grow_whole(maker, request, token * layers)
            logits = maker.allocate(max(1, len(running)) * 32000 * 4)
            maker.free_all([*hidden, logits])
            for request in running:
                request["length"] += 4  # several rounds are one here
            for request in [request for request in running if request["length"] >= request["end"]]:
                running.remove(request)
                maker.free_all(request["blocks"])
        return maker.finished()
    return make


def grow_paged(maker, request, token, layers):
    while request["room"] < request["length"]:
        request["blocks"] += [maker.allocate(16 * token) for _ in range(layers)]
        request["room"] += 16


def grow_whole(maker, request, token):
    if request["room"] >= request["length"]:
        return
    request["room"] = max(2 * request["room"], request["length"] + 64)
    old, request["blocks"] = request["blocks"], [maker.allocate(request["room"] * token)]
    maker.free_all(old)


def experts(rng, layers=16, rounds=40, count=32, hidden=2048):
    """A mixture of experts: each layer sends its tokens to experts, some of which get many and some none. The buffers
    of all experts of a layer come in a burst and go in another order."""
    maker = Maker()
    for _ in range(layers * 4):
        maker.allocate(count // 4 * hidden * hidden * 2)
    for _ in range(rounds):
        tokens = rng.choice((512, 1024, 2048, 4096))
        residual = maker.allocate(tokens * hidden * 2)
        for _ in range(layers):
            weights = [rng.lognormvariate(0, 1.2) for _ in range(count)]
            scale = 2 * tokens / sum(weights)
            burst = []
            for weight in weights:
                rows = int(weight * scale)
                if rows:
                    burst += [maker.allocate(rows * hidden * 2 * factor) for factor in (1, 4, 1)]
            rng.shuffle(burst)
            maker.free_all(burst)
        maker.free(residual)
    return maker.finished()


def diffusion(rng, images=40, denoising=12):
    """Pictures of two resolutions in turn. A step goes down through levels, which keep what the way up joins, and up
    again; decoding has a few large buffers at the end of each picture."""
    maker = Maker()
    for _ in range(60):
        maker.allocate(rng.uniform(2, 60) * MIB)
    for image in range(images):
        width, height = ((128, 128), (192, 112))[image % 2]
        latent = maker.allocate(width * height * 4 * 2)
        for _ in range(denoising):
            kept = []
            for level, channels in enumerate((320, 640, 1280, 1280)):
                size = (width >> level) * (height >> level) * channels * 2 * 2
                for _ in range(2):
                    scratch = [maker.allocate(size), maker.allocate(size * 4)]
                    kept.append(maker.allocate(size))
                    maker.free_all(scratch)
            for block in reversed(kept):
                size = maker.rows[block][3]
                joined, out = maker.allocate(size * 2), maker.allocate(size)
                maker.free_all([joined, block, out])
        decoded = [maker.allocate(width * height * 64 * channels * 2) for channels in (512, 256, 128, 3)]
        maker.free_all([latent, *decoded])
    return maker.finished()


def analytics(rng):
    """Queries: columns are read, joined through a hash table, and the results are put together; sizes of each query's
    own selectivity."""
    maker = Maker()
    for _ in range(150):
        rows = int(rng.lognormvariate(14.5, 0.7))
        columns = [maker.allocate(rows * width) for width in rng.choices((4, 8, 16), k=rng.randint(3, 8))]
        table = maker.allocate(rows * 24)
        results = []
        for column in columns:
            chosen = maker.allocate(rows * rng.random() * 8)
            results.append(maker.allocate(rows * rng.random() * 8))
            maker.free(chosen)
            maker.free(column)
        maker.free(table)
        for result in results:
            maker.free(result)
    return maker.finished()


def published(name, times=1):
    """Sizes are so many times as large."""
    def make(_):
        with open(HERE / "lifetimes" / f"{name}.csv", newline="") as file:
            return [[*row[:3], int(row[3]) * times] for row in list(csv.reader(file))[1:]]
    return make


# name: how it is made, passes
TRACES = {
    "one of 4 KiB, then 100 MiB in a loop": (one_small_then_a_large_one, 1),
    "two sizes, 100 and 14 MiB, in turn": (loop_over(100 * MIB, 14 * MIB), 1),
    "two sizes, 100 and 60 MiB, in turn": (loop_over(100 * MIB, 60 * MIB), 1),
    "eight phases, once": (phases(1), 1),
    "eight phases, 20 times": (phases(20), 1),
    "training, one length": (training(False, False), 1),
    "training, lengths vary": (training(True, False), 1),
    "training with checkpoints, lengths vary": (training(True, True), 1),
    "training, 12 GiB live": (training(False, False, layers=48, hidden=2048, steps=20), 1),
    "training, sharded, gathered ahead": (sharded_training, 1),
    "lognormal, 400 live": (lognormal(400), 1),
    "lognormal, 3,000 live": (lognormal(3000), 1),
    "small that stay among large": (small_among_large, 1),
    "serving, pages of 16 tokens": (serving(True), 1),
    "serving, a buffer for each request": (serving(False), 1),
    "mixture of experts": (experts, 1),
    "diffusion, two resolutions in turn": (diffusion, 1),
    "analytics": (analytics, 1),
    "G_1 (iopddl), 10 passes": (published("iopddl_G_1"), 10),
    "ResNet-50 (somas), 10 passes": (published("somas_resnet50"), 10),
    "A (minimalloc), 10 passes": (published("minimalloc_A"), 10),
    **{f"{letter} (minimalloc), 1,024 times as large, 10 passes": (published(f"minimalloc_{letter}", 1024), 10)
       for letter in "ABCDE"},
}


def written(folder, only, seed):
    """Name, passes and file of each trace with this in its name; a file is there until the next one."""
    file = pathlib.Path(folder) / "trace.csv"
    for name, (make, passes) in TRACES.items():
        if only in name:
            write(file, make(random.Random(seed)))
            yield name, passes, file
