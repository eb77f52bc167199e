// Blocking copies that may go through pinned chunks, of every shape, and those that may not: the bytes arrive and
// nothing else changes, the source is the program's when the call returns, and errors are the driver's.
// harness: stages=small,events,not-pageable,shape,untouchable,unknown-context
// harness: transfers
#include <signal.h>
#include <sys/mman.h>

#include "../../support/asleep.h"
#include "observe.hpp"

#include <chrono>
#include <thread>

namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kBytes = 9 * kMiB + 12345;

std::atomic<int> staged{0};
// What the report's table has to say in the end.
struct Row {
  size_t count = 0, bytes = 0, failed = 0;
} to_device, to_host, to_host_pinned;

uint32_t state = 1;
void fill(unsigned char* memory, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    memory[i] = static_cast<unsigned char>((state = state * 1664525 + 1013904223) >> 24);
}
std::vector<unsigned char> random_bytes(size_t bytes) {
  std::vector<unsigned char> made(bytes);
  fill(made.data(), bytes);
  return made;
}

cl_int write(cl_command_queue queue, cl_mem buffer, size_t offset, size_t bytes, const void* source) {
  const cl_int error = clEnqueueWriteBuffer(queue, buffer, CL_TRUE, offset, bytes, source, 0, nullptr, nullptr);
  error ? ++to_device.failed : (++to_device.count, to_device.bytes += bytes);
  return error;
}
cl_int read(cl_command_queue queue, cl_mem buffer, size_t offset, size_t bytes, void* target) {
  const cl_int error = clEnqueueReadBuffer(queue, buffer, CL_TRUE, offset, bytes, target, 0, nullptr, nullptr);
  error ? ++to_host.failed : (++to_host.count, to_host.bytes += bytes);
  return error;
}

void linear(const Setup& cl) {
  const cl_mem buffer = cl.buffer(kBytes);
  for (const size_t bytes : {size_t{128 << 10}, kMiB + 1, kBytes - 1000}) {
    std::vector<unsigned char> source = random_bytes(bytes), target(bytes + 2, 0x5a);
    const std::vector<unsigned char> sent = source;
    need(write(cl.queue, buffer, 1000, bytes, source.data()), "write");
    std::fill(source.begin(), source.end(), 0);
    need(read(cl.queue, buffer, 1000, bytes, target.data() + 1), "read");
    const bool same = memcmp(target.data() + 1, sent.data(), bytes) == 0;
    say("%zu bytes: %s", bytes, same && target[0] == 0x5a && target[bytes + 1] == 0x5a ? "arrived" : "DIFFERENT");
    staged += 2;
  }
  clReleaseMemObject(buffer);
}

// Behind what is in the queue already, and before what comes.
void in_order(const Setup& cl) {
  const cl_program program = cl.program();
  const cl_kernel add = kernel_of(program, "add");
  const size_t count = kMiB, bytes = count * sizeof(uint32_t);
  const cl_mem buffer = cl.buffer(bytes);
  std::vector<uint32_t> source(count, 5), target(count);
  const uint32_t seven = 7;
  clSetKernelArg(add, 0, sizeof buffer, &buffer);
  clSetKernelArg(add, 1, sizeof seven, &seven);
  bool right = true;
  for (int round = 0; round < 5; ++round) {
    need(write(cl.queue, buffer, 0, bytes, source.data()), "write");
    std::fill(source.begin(), source.end(), 100 + round);
    need(clEnqueueNDRangeKernel(cl.queue, add, 1, nullptr, &count, nullptr, 0, nullptr, nullptr), "add");
    need(read(cl.queue, buffer, 0, bytes, target.data()), "read");
    const uint32_t wanted = round ? 99 + round + 7 : 12;
    for (const uint32_t one : target) right &= one == wanted;
    staged += 2;
  }
  say("in order: %s", right ? "right" : "WRONG");
  clReleaseMemObject(buffer);
  clReleaseKernel(add);
  clReleaseProgram(program);
}

struct Rect {
  size_t buffer_origin[3], host_origin[3], region[3], buffer_row, buffer_slice, host_row, host_slice;
};

void rect(const Setup& cl, const Rect& shape, const char* name) {
  const size_t bytes = 16 * kMiB;
  const cl_mem buffer = cl.buffer(bytes);
  const std::vector<unsigned char> before = random_bytes(bytes), source = random_bytes(bytes);
  std::vector<unsigned char> wanted = before, found(bytes), target(bytes, 0x5a), wanted_target(bytes, 0x5a);
  need(write(cl.queue, buffer, 0, bytes, before.data()), "before");
  const size_t volume = shape.region[0] * shape.region[1] * shape.region[2];
  need(clEnqueueWriteBufferRect(cl.queue, buffer, CL_TRUE, shape.buffer_origin, shape.host_origin, shape.region,
                                shape.buffer_row, shape.buffer_slice, shape.host_row, shape.host_slice, source.data(),
                                0, nullptr, nullptr),
       "write rect");
  ++to_device.count, to_device.bytes += volume;
  const size_t buffer_row = shape.buffer_row ? shape.buffer_row : shape.region[0],
               buffer_slice = shape.buffer_slice ? shape.buffer_slice : buffer_row * shape.region[1],
               host_row = shape.host_row ? shape.host_row : shape.region[0],
               host_slice = shape.host_slice ? shape.host_slice : host_row * shape.region[1];
  for (size_t z = 0; z < shape.region[2]; ++z)
    for (size_t y = 0; y < shape.region[1]; ++y) {
      const size_t in_buffer = (shape.buffer_origin[2] + z) * buffer_slice + (shape.buffer_origin[1] + y) * buffer_row +
                               shape.buffer_origin[0],
                   in_host = (shape.host_origin[2] + z) * host_slice + (shape.host_origin[1] + y) * host_row +
                             shape.host_origin[0];
      memcpy(&wanted[in_buffer], &source[in_host], shape.region[0]);
      memcpy(&wanted_target[in_host], &source[in_host], shape.region[0]);
    }
  need(read(cl.queue, buffer, 0, bytes, found.data()), "after");
  need(clEnqueueReadBufferRect(cl.queue, buffer, CL_TRUE, shape.buffer_origin, shape.host_origin, shape.region,
                               shape.buffer_row, shape.buffer_slice, shape.host_row, shape.host_slice, target.data(), 0,
                               nullptr, nullptr),
       "read rect");
  ++to_host.count, to_host.bytes += volume;
  say("%s: %s, %s", name, found == wanted ? "arrived" : "DIFFERENT",
      target == wanted_target ? "came back" : "DIFFERENT");
  staged += 4;
  clReleaseMemObject(buffer);
}

void rects(const Setup& cl) {
  rect(cl, {{3, 2, 0}, {5, 1, 0}, {1000, 1500, 1}, 2000, 0, 1100, 0}, "rows");
  rect(cl, {{0, 0, 0}, {0, 0, 0}, {3 * kMiB + 1, 2, 1}, 0, 0, 4 * kMiB, 0}, "long rows");
  rect(cl, {{1, 2, 1}, {3, 4, 0}, {700, 80, 20}, 800, 800 * 100, 750, 750 * 90}, "slices");
  rect(cl, {{0, 0, 0}, {0, 0, 0}, {512, 64, 32}, 0, 0, 0, 0}, "packed");
}

// Left to the driver, each for its reason.
void passed_on(const Setup& cl) {
  std::vector<unsigned char> source = random_bytes(2 * kMiB), target(2 * kMiB);
  const cl_mem buffer = cl.buffer(2 * kMiB);
  need(write(cl.queue, buffer, 0, 1000, source.data()), "small");
  cl_event event;
  need(clEnqueueWriteBuffer(cl.queue, buffer, CL_TRUE, 0, 2 * kMiB, source.data(), 0, nullptr, &event), "event");
  ++to_device.count, to_device.bytes += 2 * kMiB;
  need(clEnqueueReadBuffer(cl.queue, buffer, CL_TRUE, 0, 2 * kMiB, target.data(), 1, &event, nullptr), "wait list");
  ++to_host.count, to_host.bytes += 2 * kMiB;
  clReleaseEvent(event);
  say("events: %s", target == source ? "arrived" : "DIFFERENT");
  say("past the end: %d, %d", write(cl.queue, buffer, 1, 2 * kMiB, source.data()),
      read(cl.queue, buffer, 2 * kMiB, 2 * kMiB, target.data()));

  const cl_mem pinned = cl.buffer(2 * kMiB, CL_MEM_ALLOC_HOST_PTR);
  cl_int code = 0;
  void* const mapped = clEnqueueMapBuffer(cl.queue, pinned, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, 2 * kMiB, 0,
                                          nullptr, nullptr, &code);
  need(code, "map");
  need(clEnqueueReadBuffer(cl.queue, buffer, CL_TRUE, 0, 2 * kMiB, mapped, 0, nullptr, nullptr), "read mapped");
  to_host_pinned.count += 2, to_host_pinned.bytes += 4 * kMiB;  // the map itself is one
  say("mapped: %s", memcmp(mapped, source.data(), 2 * kMiB) == 0 ? "arrived" : "DIFFERENT");
  clEnqueueUnmapMemObject(cl.queue, pinned, mapped, 0, nullptr, nullptr);
  clReleaseMemObject(pinned);

  const cl_command_queue any_order = cl.make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  need(write(any_order, buffer, 0, 2 * kMiB, source.data()), "out of order");
  clReleaseCommandQueue(any_order);

  // The driver reads no more than it is asked for: half of the memory is not there.
  auto* const half =
      static_cast<unsigned char*>(mmap(nullptr, 4 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  fill(half, 2 * kMiB);
  mprotect(half + 2 * kMiB, 2 * kMiB, PROT_NONE);
  need(write(cl.queue, buffer, 0, 2 * kMiB, half), "up to the hole");
  ++staged;
  need(read(cl.queue, buffer, 0, 2 * kMiB, target.data()), "read");
  ++staged;
  say("beside a hole: %s", memcmp(target.data(), half, 2 * kMiB) == 0 ? "arrived" : "DIFFERENT");
  munmap(half, 4 * kMiB);
  clReleaseMemObject(buffer);
}

// A program that catches the faults of memory it protects: the driver's own copy brings them about, and ours must not
// end the process before.
unsigned char* protected_memory;
std::atomic<int> faults{0};
void on_fault(int, siginfo_t* fault, void*) {
  const size_t at = static_cast<size_t>(static_cast<unsigned char*>(fault->si_addr) - protected_memory);
  if (at >= 2 * kMiB || mprotect(protected_memory, 2 * kMiB, PROT_READ | PROT_WRITE) != 0) _exit(3);
  ++faults;
}

void behind_protection(const Setup& cl) {
  struct sigaction mine {
  }, before;
  mine.sa_sigaction = on_fault;
  mine.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &mine, &before);
  protected_memory =
      static_cast<unsigned char*>(mmap(nullptr, 2 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  fill(protected_memory, 2 * kMiB);
  const std::vector<unsigned char> sent(protected_memory, protected_memory + 2 * kMiB);
  std::vector<unsigned char> target(2 * kMiB);
  const cl_mem buffer = cl.buffer(2 * kMiB);
  mprotect(protected_memory, 2 * kMiB, PROT_NONE);
  need(write(cl.queue, buffer, 0, 2 * kMiB, protected_memory), "write");
  need(read(cl.queue, buffer, 0, 2 * kMiB, target.data()), "read");
  ++staged;
  say("behind protection: %s, %s", target == sent ? "arrived" : "DIFFERENT", faults ? "with a fault" : "NO FAULT");
  sigaction(SIGSEGV, &before, nullptr);
  munmap(protected_memory, 2 * kMiB);
  clReleaseMemObject(buffer);
}

// Each on its own queue.
void threads(const Setup& cl) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> all;
  std::vector<cl_mem> buffers;
  std::vector<cl_command_queue> queues;
  for (int i = 0; i < 4; ++i) buffers.push_back(cl.buffer(5 * kMiB)), queues.push_back(cl.make_queue());
  std::vector<std::vector<unsigned char>> sources;
  for (int i = 0; i < 4; ++i) sources.push_back(random_bytes(5 * kMiB));
  for (int i = 0; i < 4; ++i)
    all.emplace_back([&, i] {
      std::vector<unsigned char> target(5 * kMiB);
      for (int round = 0; round < 5; ++round) {
        clEnqueueWriteBuffer(queues[i], buffers[i], CL_TRUE, 0, 5 * kMiB, sources[i].data(), 0, nullptr, nullptr);
        std::fill(target.begin(), target.end(), 0);
        clEnqueueReadBuffer(queues[i], buffers[i], CL_TRUE, 0, 5 * kMiB, target.data(), 0, nullptr, nullptr);
        wrong += target != sources[i];
        staged += 2;
      }
    });
  for (std::thread& one : all) one.join();
  to_device.count += 20, to_device.bytes += 20 * 5 * kMiB;
  to_host.count += 20, to_host.bytes += 20 * 5 * kMiB;
  for (int i = 0; i < 4; ++i) clReleaseMemObject(buffers[i]), clReleaseCommandQueue(queues[i]);
  say("threads: %d wrong", wrong.load());
}

// What is ahead in the queue may still write the source.
void behind_a_gate(const Setup& cl) {
  std::vector<unsigned char> source(kMiB, 9), target(kMiB);
  const cl_mem buffer = cl.buffer(kMiB);
  const cl_event gate = cl.gate();
  need(clEnqueueMarkerWithWaitList(cl.queue, 1, &gate, nullptr), "marker");
  std::thread opens([&] {
    wait_until_asleep(getpid(), getpid());  // in the write
    std::fill(source.begin(), source.end(), 1);
    clSetUserEventStatus(gate, CL_COMPLETE);
  });
  need(write(cl.queue, buffer, 0, kMiB, source.data()), "write");
  opens.join();
  need(read(cl.queue, buffer, 0, kMiB, target.data()), "read");
  staged += 2;
  say("behind a gate: %d %d", target.front(), target.back());
  clReleaseEvent(gate);
  clReleaseMemObject(buffer);
}

// Each copy is one command to the others: no thread sees half of another's.
void shared_queue(const Setup& cl) {
  const size_t bytes = 4 * kMiB;
  const cl_mem buffer = cl.buffer(bytes);
  const cl_command_queue queue = cl.make_queue();
  const std::vector<unsigned char> one(bytes, 1), other(bytes, 2);
  need(write(queue, buffer, 0, 1000, one.data()), "the first thread's");
  std::atomic<int> torn{0};
  const auto writes = [&](const std::vector<unsigned char>& source) {
    for (int i = 0; i < 20; ++i)
      clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, bytes, source.data(), 0, nullptr, nullptr);
  };
  const auto reads = [&] {
    std::vector<unsigned char> target(bytes);
    for (int i = 0; i < 20; ++i) {
      clEnqueueReadBuffer(queue, buffer, CL_TRUE, 1000, bytes - 1000, target.data(), 0, nullptr, nullptr);
      torn += target.front() != target[bytes - 1001];
    }
  };
  clEnqueueFillBuffer(queue, buffer, one.data(), 1, 0, bytes, 0, nullptr, nullptr);
  std::thread threads[] = {std::thread(writes, one), std::thread(writes, other), std::thread(reads)};
  for (std::thread& each : threads) each.join();
  to_device.count += 40, to_device.bytes += 40 * bytes;
  to_host.count += 20, to_host.bytes += 20 * (bytes - 1000);
  staged += 60;
  say("one queue for all: %d torn", torn.load());
  clReleaseCommandQueue(queue);
  clReleaseMemObject(buffer);
}

// What one thread puts on the queue waits for what it does next, while another one copies: nobody waits for long.
void gates(const Setup& cl) {
  const size_t bytes = 2 * kMiB;
  const cl_mem buffer = cl.buffer(bytes);
  const cl_command_queue queue = cl.make_queue();
  std::vector<unsigned char> memory(bytes, 1);
  constexpr int kCopies = 40;
  std::atomic<bool> done{false};
  std::thread copying([&] {
    for (int i = 0; i < kCopies; ++i) {
      clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, bytes, memory.data(), 0, nullptr, nullptr);
      clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, memory.data(), 0, nullptr, nullptr);
    }
    done = true;
  });
  int slow = 0;
  for (int i = 0; !done; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const cl_event gate = clCreateUserEvent(cl.context, nullptr);
    need(clEnqueueMarkerWithWaitList(queue, 1, &gate, nullptr), "a marker");
    need(clEnqueueMigrateMemObjects(queue, 1, &buffer, 0, 0, nullptr, nullptr), "what is behind it");
    need(clSetUserEventStatus(gate, CL_COMPLETE), "the gate");
    slow += std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(400);
    clReleaseEvent(gate);
    usleep(i % 3 ? 200 : 15'000);
  }
  copying.join();
  clFinish(queue);
  to_device.count += kCopies, to_device.bytes += kCopies * bytes;
  to_host.count += kCopies, to_host.bytes += kCopies * bytes;
  staged += 2 * kCopies;
  say("gates on a queue of two threads: %s", slow <= 2 ? "never kept waiting for long" : "KEPT WAITING");
  clReleaseCommandQueue(queue);
  clReleaseMemObject(buffer);
}

unsigned references_to(cl_context context) {
  cl_uint references = 0;
  clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof references, &references, nullptr);
  return references;
}

// Asked for while a copy has chunks in hand, and given up then: nothing is left behind.
void counted_in_between(const Setup& cl) {
  cl_int code = 0;
  const cl_context context = cl.make_context();
  const cl_command_queue queue = clCreateCommandQueue(context, cl.device, 0, &code);
  need(code, "clCreateCommandQueue");
  const cl_mem buffer = counted(clCreateBuffer(context, CL_MEM_READ_WRITE, 8 * kMiB, nullptr, &code));
  need(code, "clCreateBuffer");
  const std::vector<unsigned char> source(8 * kMiB, 3);
  std::atomic<bool> done{false};
  std::thread copies([&] {
    for (int i = 0; i < 20; ++i) write(queue, buffer, 0, 8 * kMiB, source.data());
    done = true;
  });
  while (!done) references_to(context), usleep(300);
  copies.join();
  staged += 20;
  say("counted in between: %s", eventually([&] { return references_to(context) == 3; }) ? "the program's own" : "MORE");
  clReleaseMemObject(buffer);
  clReleaseCommandQueue(queue);
  clReleaseContext(context);
}

// All of the device is busy with what waits for this program: neither a count nor a release waits for it.
std::atomic<bool> go_on{false};
void CL_CALLBACK wait_for_program(void*) {
  while (!go_on) usleep(1000);
}

void beside_a_busy_device(const Setup& cl) {
  cl_int code = 0;
  const cl_context context = cl.make_context();
  const cl_command_queue queue = clCreateCommandQueue(context, cl.device, 0, &code);
  need(code, "clCreateCommandQueue");
  const cl_mem buffer = counted(clCreateBuffer(context, CL_MEM_READ_WRITE, kMiB, nullptr, &code));
  need(code, "clCreateBuffer");
  const std::vector<unsigned char> source(kMiB, 3);
  need(write(queue, buffer, 0, kMiB, source.data()), "write");
  ++staged;
  clReleaseMemObject(buffer);
  std::vector<cl_command_queue> busy;
  for (int i = 0; i < 64; ++i) {
    busy.push_back(cl.make_queue());
    need(clEnqueueNativeKernel(busy.back(), wait_for_program, nullptr, 0, 0, nullptr, nullptr, 0, nullptr, nullptr),
         "native kernel");
    clFlush(busy.back());
  }
  alarm(60);
  references_to(context);
  clReleaseCommandQueue(queue);
  clReleaseContext(context);
  go_on = true;
  for (const cl_command_queue each : busy) clFinish(each), clReleaseCommandQueue(each);
  alarm(0);
  say("beside a busy device: done");
}

// Memory between the rows is none of the copy's.
void between_rows(const Setup& cl) {
  const size_t row = 4096, rows = 64, pitch = kMiB;
  auto* const sparse = static_cast<unsigned char*>(
      mmap(nullptr, rows * pitch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  madvise(sparse, rows * pitch, MADV_NOHUGEPAGE);
  const std::vector<unsigned char> source = random_bytes(row * rows);
  const cl_mem buffer = cl.buffer(row * rows);
  need(write(cl.queue, buffer, 0, row * rows, source.data()), "write");
  const size_t at[3] = {0, 0, 0}, region[3] = {row, rows, 1};
  need(
      clEnqueueReadBufferRect(cl.queue, buffer, CL_TRUE, at, at, region, row, 0, pitch, 0, sparse, 0, nullptr, nullptr),
      "read rect");
  ++to_host.count, to_host.bytes += row * rows;
  staged += 2;
  std::vector<unsigned char> resident(rows * pitch / 4096);
  mincore(sparse, rows * pitch, resident.data());
  bool same = true;
  for (size_t i = 0; i < rows; ++i) same &= memcmp(sparse + i * pitch, source.data() + i * row, row) == 0;
  say("between rows: %s, %s", same ? "arrived" : "DIFFERENT",
      std::count(resident.begin(), resident.end(), 1) <= 2 * static_cast<long>(rows) ? "untouched" : "TOUCHED");
  munmap(sparse, rows * pitch);
  clReleaseMemObject(buffer);
}

void row(const char* what, const Row& of) {
  say("copied: %s, waits, %zu, %zu, %zu, %zu", what, of.count, of.bytes, of.failed, of.bytes);
}

}  // namespace

int main() {
  Setup cl;
  linear(cl);
  in_order(cl);
  rects(cl);
  passed_on(cl);
  behind_protection(cl);
  threads(cl);
  behind_a_gate(cl);
  shared_queue(cl);
  gates(cl);
  counted_in_between(cl);
  beside_a_busy_device(cl);
  between_rows(cl);
  // The driver lets go of what has ended a while later.
  const auto references = [&] {
    cl_uint of_context = 0, of_queue = 0;
    clGetContextInfo(cl.context, CL_CONTEXT_REFERENCE_COUNT, sizeof of_context, &of_context, nullptr);
    clGetCommandQueueInfo(cl.queue, CL_QUEUE_REFERENCE_COUNT, sizeof of_queue, &of_queue, nullptr);
    return of_context * 100 + of_queue;
  };
  say("references: %s", eventually([&] { return references() == 201; }) ? "the program's own" : "MORE");
  cl.release();
  row("host to device, pageable", to_device);
  row("device to host, pageable", to_host);
  row("device to host, pinned", to_host_pinned);
  say("copied: host to device, pinned, goes on, 1, %zu, 0, 0", 2 * kMiB);  // an unmap
  say("copied: fill, -, goes on, 1, %zu, 0, 0", 4 * kMiB);
  say("staged copies: %d", staged.load());
  return finish();
}
