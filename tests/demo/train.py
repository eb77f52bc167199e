"""A small training loop on OpenCL that keeps each step's gradient: the program of the README's session."""
import sys
import time

import numpy
import pyopencl

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 300

context = pyopencl.create_some_context(interactive=False)
queue = pyopencl.CommandQueue(context)
history = []


def upload(array):
    flags = pyopencl.mem_flags.READ_WRITE | pyopencl.mem_flags.COPY_HOST_PTR
    return pyopencl.Buffer(context, flags, hostbuf=array)


def backward(weights, batch):
    gradient = pyopencl.Buffer(context, pyopencl.mem_flags.READ_WRITE, weights.size)
    pyopencl.enqueue_copy(queue, gradient, weights)
    return gradient


def train_step(weights, batch):
    inputs = upload(batch)
    gradient = backward(weights, inputs)
    history.append(gradient)  # the leak: one gradient a step
    inputs.release()


def main():
    random = numpy.random.default_rng(1)
    weights = upload(random.random(65536, dtype=numpy.float32))
    batch = numpy.empty(262144, dtype=numpy.float32)
    for step in range(STEPS):
        batch[:] = step
        train_step(weights, batch)
        time.sleep(0.005)
    queue.finish()
    print("loss 0.0173")


main()
