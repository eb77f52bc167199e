"""An array job through pyopencl: a thousand buffers come and go, the sums of their contents are printed."""
import numpy
import pyopencl
import pyopencl.array

context = pyopencl.create_some_context(interactive=False)
queue = pyopencl.CommandQueue(context)
random = numpy.random.default_rng(7)

total = 0
for elements in (1 << 10, 1 << 14, 1 << 18):
    left = pyopencl.array.to_device(queue, random.integers(0, 100, elements, dtype=numpy.int32))
    right = pyopencl.array.to_device(queue, random.integers(0, 100, elements, dtype=numpy.int32))
    for turn in range(100):
        # Each operation makes a buffer for its result and drops the one before.
        left = left * 3 + right - turn
    value = int(left.get().sum(dtype=numpy.int64))
    total += value
    print(elements, "elements, sum", value)
print("total", total)
