"""Frameworks with their own allocators: prints what each of them sees of the driver. argv[1]: the case."""
import random
import sys

SEED = 20260


def wrong(call, *arguments, **named):
    """The error that it raises, in a line."""
    try:
        return f"nothing: {call(*arguments, **named)}"
    except Exception as error:  # noqa: BLE001: any is printed
        return f"{type(error).__name__}: {str(error).splitlines()[0].split('GPU 0 has')[0]}"


def torch():
    import torch
    draw, names = random.Random(SEED), ("allocation", "segment", "allocated_bytes", "reserved_bytes", "num_ooms")

    def show(when):
        stats = torch.cuda.memory_stats()
        print(when, torch.cuda.memory_allocated(), [stats[name] for name in stats if name.startswith(names)])

    streams, alive = [torch.cuda.current_stream(), torch.cuda.Stream()], []
    for step in range(600):
        if alive and draw.random() < 0.48:
            sent, there = alive.pop(draw.randrange(len(alive)))
            print(step, torch.equal(sent, there.cpu()))
        else:
            sent = torch.randint(256, (draw.choice((300, 70_000, 1 << 21, 9 << 20)) + draw.randrange(5000),),
                                 dtype=torch.uint8, generator=torch.Generator().manual_seed(step))
            source = sent.pin_memory() if step % 3 else sent
            with torch.cuda.stream(streams[step % 2]):
                there = source.to("cuda", non_blocking=True)
            there.record_stream(streams[1 - step % 2])
            streams[step % 2].synchronize()
            alive.append((sent, there))
        if step % 50 == 49:
            show(step)
            torch.cuda.empty_cache()
    print(wrong(torch.empty, 1 << 46, dtype=torch.uint8, device="cuda"))
    graph, kept = torch.cuda.CUDAGraph(), torch.empty(5000, dtype=torch.uint8, device="cuda")
    with torch.cuda.graph(graph):
        made = torch.empty(70_000, dtype=torch.uint8, device="cuda")
        kept.zero_()
    kept.copy_(torch.ones(5000, dtype=torch.uint8))
    graph.replay()
    print("replayed", int(kept.cpu().sum()), made.numel(), len(torch.cuda.memory_snapshot()))
    del graph, made, kept
    alive.clear()
    torch.cuda.empty_cache()
    show("at the end")


def bindings():
    from cuda.bindings import driver
    draw, alive = random.Random(SEED), []
    print(driver.cuInit(0), driver.cuDeviceGetCount())
    _, context = driver.cuDevicePrimaryCtxRetain(0)
    driver.cuCtxSetCurrent(context)
    _, stream = driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
    for step in range(1500):
        if alive and draw.random() < 0.48:
            block, sent, is_async = alive.pop(draw.randrange(len(alive)))
            back = bytearray(len(sent))
            answers = [driver.cuMemcpyDtoH(back, block, len(back)), back == sent]
            _, base, size = driver.cuMemGetAddressRange(block)
            answers += [is_async or (int(base) == int(block), size == len(sent))]
            print(step, answers, driver.cuMemFreeAsync(block, stream) if is_async else driver.cuMemFree(block))
        else:
            sent = draw.randbytes(draw.choice((1, 700, 60_000, 2_500_000)) + draw.randrange(900))
            is_async = step % 4 == 0
            error, block = driver.cuMemAllocAsync(len(sent), stream) if is_async else driver.cuMemAlloc(len(sent))
            driver.cuStreamSynchronize(stream)
            print(step, error, driver.cuMemcpyHtoD(block, sent, len(sent)))
            alive.append((block, sent, is_async))
    block = next(block for block, _, is_async in alive if not is_async)
    kind = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    print(driver.cuPointerGetAttribute(kind, block), driver.cuMemAlloc(1 << 46)[0], driver.cuMemAlloc(0)[0])
    print(driver.cuMemFree(block), driver.cuMemFree(block), driver.cuMemFree(int(block) + 1), driver.cuMemFree(0))
    print(driver.cuMemsetD8(block, 1, 1))


def core():
    from cuda.core import Device
    device = Device(0)
    device.set_current()
    stream, other = device.create_stream(), device.create_stream()
    draw, alive = random.Random(SEED), []
    for step in range(400):
        if alive and draw.random() < 0.48:
            alive.pop(draw.randrange(len(alive))).close(other)
        else:
            alive.append(device.allocate(draw.randrange(1, 3_000_000), stream=(stream, other)[step % 2]))
        print(step, len(alive), sum(buffer.size for buffer in alive), alive and alive[-1].is_device_accessible)
    event = stream.record()
    other.wait(event)
    other.sync()
    print(event.is_done, wrong(device.allocate, 1 << 46, stream=stream))


def numba():
    import numpy
    from numba import cuda
    draw, alive, stream = random.Random(SEED), [], cuda.stream()
    for step in range(400):
        if alive and draw.random() < 0.48:
            sent, there = alive.pop(draw.randrange(len(alive)))
            print(step, (there.copy_to_host() == sent).all())
        else:
            sent = numpy.frombuffer(draw.randbytes(draw.randrange(1, 3_000_000)), dtype=numpy.uint8)
            alive.append((sent, cuda.to_device(sent, stream=stream if step % 2 else 0)))
            stream.synchronize()
    pinned, view = cuda.pinned_array(1000), alive[0][1][10:]
    print(pinned.nbytes, view.size, cuda.current_context().get_memory_info().total)
    print(wrong(cuda.device_array, 1 << 46, numpy.uint8))


def cupy():
    import cupy
    print(wrong(cupy.cuda.runtime.getDeviceCount), wrong(cupy.cuda.alloc, 100))


globals()[sys.argv[1]]()
print("done")
