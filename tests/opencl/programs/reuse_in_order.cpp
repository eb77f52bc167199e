// Buffers released while a kernel that takes its time uses them, and others made at once. In each case `copy` from
// the first buffer to a witness is held up in the driver; the first is released; others of its size are made and
// written; then the kernel goes on. The witness must have what the first buffer had, and the others what was written.
// harness: driver-layer
// harness: order=same-queue:kept
// harness: order=twice:kept
// harness: order=second-queue:kept
// harness: order=second-queue-with-properties:kept
// harness: order=second-queue-unordered:kept
// harness: order=second-queue-sub-buffer:kept
// harness: order=second-queue-kernel:kept
// harness: order=second-queue-map:kept
// harness: order=second-queue-at-first:several queues
// harness: order=second-queue-gone-again:several queues
// harness: order=another-queue-after:kept
// harness: order=unordered:out-of-order queue
// harness: order=made-unordered:kept+out-of-order queue
// harness: order=gate:commands that wait for others
// harness: order=gate-on-marker:commands that wait for others
// harness: order=gate-on-barrier:commands that wait for others
// harness: order=gate-gone:kept
// harness: order=gate-behind:kept+commands that wait for others
// harness: order=gate-behind-counted:kept
// harness: order=native-kernel:commands that wait for others
// harness: order=mapped:commands that wait for others
// harness: order=unmapped:kept
// harness: order=released-mapped:
// harness: order=event-callback:callbacks
// harness: order=event-callback-behind:kept
// harness: order=destructor-callback:callbacks
// harness: order=context-callback:callbacks
// harness: order=shared-memory:memory shared with the host
// harness: order=unknown-function:unknown functions or queues
// harness: order=unknown-function-behind:kept
// harness: order=unknown-queue:unknown functions or queues
// harness: order=another-has-it:references of others
// harness: order=count:kept
// harness: order=failed:kept
// harness: order=own-events:kept
#include <CL/cl_icd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "observe.hpp"

extern "C" cl_int CL_API_CALL clSetCommandQueueProperty(cl_command_queue, cl_command_queue_properties, cl_bool,
                                                        cl_command_queue_properties*);

constexpr size_t kBytes = 32768, kWords = kBytes / 4, kOthers = 4;

static const cl_icd_dispatch& driver_of(const void* object) {
  return **static_cast<const cl_icd_dispatch* const*>(object);
}

struct Held {
  Setup& cl;
  cl_program program = cl.program();
  cl_kernel copy = kernel_of(program, "copy"), add = kernel_of(program, "add");
  cl_mem first = cl.buffer(kBytes), witness = cl.buffer(kBytes);
  cl_event done = nullptr;
  cl_mem others[kOthers] = {};
  std::thread later;
  cl_int (*hold)(cl_context) =
      reinterpret_cast<decltype(hold)>(clGetExtensionFunctionAddressForPlatform(cl.platform, "testsHoldNextKernel"));
  cl_int (*let_go)(cl_int) = reinterpret_cast<decltype(let_go)>(clGetExtensionFunctionAddressForPlatform(cl.platform,
                                                                                                         "testsLetGo"));

  explicit Held(Setup& setup) : cl(setup) {
    put(cl.queue, first, kBytes, 1);
    put(cl.queue, witness, kBytes, 7);
  }

  void start() {
    need(hold(cl.context), "hold");
    clSetKernelArg(copy, 0, sizeof first, &first);
    clSetKernelArg(copy, 1, sizeof witness, &witness);
    need(run(cl.queue, copy, &done), "copy");
  }
  static cl_int run(cl_command_queue queue, cl_kernel kernel, cl_event* event = nullptr) {
    const size_t global = kWords;
    return clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &global, nullptr, 0, nullptr, event);
  }
  // The first one is let go, and others come.
  void replace() {
    say("released %d", clReleaseMemObject(first));
    for (cl_mem& other : others) other = cl.buffer(kBytes);
  }
  // Later, as a device would; what waits for it must not wait for this thread.
  void go_on_later(cl_int status = CL_COMPLETE) {
    later = std::thread([this, status] {
      usleep(200'000);
      let_go(status);
    });
  }
  void go_on() { let_go(CL_COMPLETE); }

  // On the queue that the kernel is in, behind it.
  void fill(cl_command_queue queue) {
    for (size_t i = 0; i < kOthers; ++i) {
      const uint32_t word = 100 + i;
      need(clEnqueueFillBuffer(queue, others[i], &word, 4, 0, kBytes, 0, nullptr, nullptr), "fill");
    }
  }
  void write(cl_command_queue queue) {
    for (size_t i = 0; i < kOthers; ++i) put(queue, others[i], kBytes, 100 + i);
  }
  void check(cl_command_queue queue) {
    if (later.joinable()) later.join();
    if (cl.queue) clFinish(cl.queue);
    say("witness %s", contents(queue, witness, kBytes).c_str());
    for (cl_mem other : others) say("other %s", contents(queue, other, kBytes).c_str());
  }
  ~Held() {
    for (cl_mem other : others)
      if (other) clReleaseMemObject(other);
    clReleaseMemObject(witness);
    if (done) clReleaseEvent(done);
    clReleaseKernel(copy);
    clReleaseKernel(add);
    clReleaseProgram(program);
  }
};

// --- Where the order is the queue's

static void same_queue(Held& held) {
  held.start();
  held.replace();
  held.fill(held.cl.queue);
  held.go_on();
  held.check(held.cl.queue);
}

// Three lives under one kernel; one of them is not used at all.
static void twice(Held& held) {
  held.start();
  held.replace();
  held.fill(held.cl.queue);
  for (int life = 0; life < 2; ++life)
    for (cl_mem& other : held.others) {
      clReleaseMemObject(other);
      other = held.cl.buffer(kBytes);
    }
  held.fill(held.cl.queue);
  held.go_on();
  held.check(held.cl.queue);
}

static void own_events(Held& held) {
  held.start();
  const uint32_t word = 3;
  cl_event filled = nullptr;
  need(clEnqueueFillBuffer(held.cl.queue, held.first, &word, 4, 0, kBytes, 1, &held.done, &filled), "fill");
  need(clEnqueueMarkerWithWaitList(held.cl.queue, 1, &filled, nullptr), "marker");
  held.replace();
  held.fill(held.cl.queue);
  held.go_on();
  held.check(held.cl.queue);
  clReleaseEvent(filled);
}

// --- A second queue appears

template <class Use>
static void second(Held& held, cl_command_queue_properties properties, Use use) {
  held.start();
  held.replace();
  held.go_on_later();
  cl_command_queue side = held.cl.make_queue(properties);
  use(side);
  held.check(side);
  clReleaseCommandQueue(side);
}

static void second_queue(Held& held) {
  second(held, 0, [&](cl_command_queue side) { held.write(side); });
}
static void second_queue_unordered(Held& held) {
  second(held, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, [&](cl_command_queue side) { held.write(side); });
}
static void second_queue_with_properties(Held& held) {
  held.start();
  held.replace();
  held.go_on_later();
  cl_int code = 0;
  const cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
  cl_command_queue side = clCreateCommandQueueWithProperties(held.cl.context, held.cl.device, properties, &code);
  need(code, "queue");
  say("queue's count %u", references(side));
  held.write(side);
  held.check(side);
  clReleaseCommandQueue(side);
}
static void second_queue_sub_buffer(Held& held) {
  second(held, 0, [&](cl_command_queue side) {
    for (size_t i = 0; i < kOthers; ++i) {
      cl_mem part = sub_buffer(held.others[i], 0, kBytes);
      put(side, part, kBytes, 100 + i);
      clReleaseMemObject(part);
    }
  });
}
static void second_queue_kernel(Held& held) {
  second(held, 0, [&](cl_command_queue side) {
    cl_mem source = held.cl.buffer(kBytes);
    put(side, source, kBytes, 9);
    for (cl_mem other : held.others) {
      clSetKernelArg(held.add, 0, sizeof other, &other);
      cl_kernel copy = kernel_of(held.program, "copy");
      clSetKernelArg(copy, 0, sizeof source, &source);
      clSetKernelArg(copy, 1, sizeof other, &other);
      need(Held::run(side, copy), "copy");
      clFinish(side);
      clReleaseKernel(copy);
    }
    clReleaseMemObject(source);
  });
}
static void second_queue_map(Held& held) {
  second(held, 0, [&](cl_command_queue side) {
    for (size_t i = 0; i < kOthers; ++i) {
      cl_int code = 0;
      auto* words = static_cast<uint32_t*>(
          clEnqueueMapBuffer(side, held.others[i], CL_TRUE, CL_MAP_WRITE, 0, kBytes, 0, nullptr, nullptr, &code));
      need(code, "map");
      std::fill(words, words + kWords, 100 + static_cast<uint32_t>(i));
      need(clEnqueueUnmapMemObject(side, held.others[i], words, 0, nullptr, nullptr), "unmap");
    }
    clFinish(side);
  });
}

static void second_queue_at_first(Held& held) {
  cl_command_queue side = held.cl.make_queue();
  held.start();
  held.replace();
  held.write(side);
  held.go_on();
  held.check(side);
  clReleaseCommandQueue(side);
}
// One that was there may have left work behind.
static void second_queue_gone_again(Held& held) {
  clReleaseCommandQueue(held.cl.make_queue());
  same_queue(held);
}

// The queue that orders them is given up, and there is another one.
static void another_queue_after(Held& held) {
  held.start();
  held.replace();
  held.go_on_later();
  clReleaseCommandQueue(held.cl.queue);
  held.cl.queue = held.cl.make_queue();
  held.write(held.cl.queue);
  need(clWaitForEvents(1, &held.done), "wait");
  held.check(held.cl.queue);
}

// --- Queues without order

static void unordered(Held& held) {
  clReleaseCommandQueue(held.cl.queue);
  held.cl.queue = held.cl.make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  held.start();
  held.replace();
  for (size_t i = 0; i < kOthers; ++i) {
    const uint32_t word = 100 + i;
    cl_event filled = nullptr;
    need(clEnqueueFillBuffer(held.cl.queue, held.others[i], &word, 4, 0, kBytes, 0, nullptr, &filled), "fill");
    need(clWaitForEvents(1, &filled), "wait");
    clReleaseEvent(filled);
  }
  held.go_on();
  held.check(held.cl.queue);
}
// It is only said to be: what was kept until then has been ordered, and nothing is kept any more.
static void made_unordered(Held& held) {
  held.start();
  held.replace();
  held.go_on_later();
  say("made unordered %d",
      clSetCommandQueueProperty(held.cl.queue, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_TRUE, nullptr));
  held.fill(held.cl.queue);
  held.later.join();
  need(held.hold(held.cl.context), "hold");
  clSetKernelArg(held.copy, 0, sizeof held.witness, &held.witness);
  clSetKernelArg(held.copy, 1, sizeof held.others[0], &held.others[0]);
  need(Held::run(held.cl.queue, held.copy), "copy");
  clReleaseMemObject(held.others[0]);
  held.others[0] = held.cl.buffer(kBytes);
  held.go_on();
  held.fill(held.cl.queue);
  held.check(held.cl.queue);
}

// --- Commands that wait for something else

template <class Enqueue>
static void behind_a_gate(Held& held, Enqueue enqueue) {
  cl_event gate = held.cl.gate();
  enqueue(gate);
  held.start();
  held.replace();
  clSetUserEventStatus(gate, CL_COMPLETE);
  held.go_on();
  held.fill(held.cl.queue);
  held.check(held.cl.queue);
  clReleaseEvent(gate);
}
static void gate(Held& held) {
  static const uint32_t word = 5;
  behind_a_gate(held, [&](cl_event gate) {
    need(clEnqueueWriteBuffer(held.cl.queue, held.witness, CL_FALSE, 0, 4, &word, 1, &gate, nullptr), "write");
  });
}
static void gate_on_marker(Held& held) {
  behind_a_gate(held,
                [&](cl_event gate) { need(clEnqueueMarkerWithWaitList(held.cl.queue, 1, &gate, nullptr), "marker"); });
}
static void gate_on_barrier(Held& held) {
  behind_a_gate(
      held, [&](cl_event gate) { need(clEnqueueBarrierWithWaitList(held.cl.queue, 1, &gate, nullptr), "barrier"); });
}
// It was there once, and the program knows that it has ended.
static void gate_gone(Held& held) {
  cl_event gate = held.cl.gate();
  need(clEnqueueMarkerWithWaitList(held.cl.queue, 1, &gate, nullptr), "marker");
  clSetUserEventStatus(gate, CL_COMPLETE);
  clFinish(held.cl.queue);
  clReleaseEvent(gate);
  same_queue(held);
}
// The gate comes after what was kept. Nobody may wait for it but who enqueued behind it.
template <class Between>
static void gate_behind_with(Held& held, Between between) {
  held.start();
  held.replace();
  cl_event gate = held.cl.gate();
  need(clEnqueueMarkerWithWaitList(held.cl.queue, 1, &gate, nullptr), "marker");
  held.go_on_later();
  between();
  cl_command_queue side = held.cl.make_queue();
  held.write(side);
  clSetUserEventStatus(gate, CL_COMPLETE);
  held.check(side);
  clReleaseEvent(gate);
  clReleaseCommandQueue(side);
}
static void gate_behind(Held& held) {
  gate_behind_with(held, [&] {
    const uint32_t word = 4;
    cl_mem more = held.cl.buffer(2 * kBytes);
    need(clEnqueueFillBuffer(held.cl.queue, more, &word, 4, 0, kBytes, 0, nullptr, nullptr), "fill");
    clReleaseMemObject(more);
  });
}
// A question about counts comes between: the markers go for it.
static void gate_behind_counted(Held& held) {
  gate_behind_with(held, [&] { references(held.cl.context); });
}

static void native_kernel(Held& held) {
  static std::mutex mutex;
  mutex.lock();
  static int none = 0;
  held.start();
  need(clEnqueueNativeKernel(
           held.cl.queue, [](void*) { std::lock_guard guard(mutex); }, &none, sizeof none, 0, nullptr, nullptr, 0,
           nullptr, nullptr),
       "native kernel");
  held.replace();
  held.go_on();
  mutex.unlock();
  held.fill(held.cl.queue);
  held.check(held.cl.queue);
}

static void* map(Held& held, cl_mem memory) {
  cl_int code = 0;
  void* mapped =
      clEnqueueMapBuffer(held.cl.queue, memory, CL_TRUE, CL_MAP_WRITE, 0, kBytes, 0, nullptr, nullptr, &code);
  need(code, "map");
  return mapped;
}
static void mapped(Held& held) {
  cl_mem shown = held.cl.buffer(kBytes, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR);
  void* words = map(held, shown);
  held.start();
  held.replace();
  held.go_on();
  clEnqueueUnmapMemObject(held.cl.queue, shown, words, 0, nullptr, nullptr);
  held.fill(held.cl.queue);
  held.check(held.cl.queue);
  clReleaseMemObject(shown);
}
// A buffer that is still mapped is really released, and counts neither as kept nor as one that waited.
static void released_mapped(Held& held) {
  map(held, held.first);
  held.start();
  held.replace();
  held.go_on();
  held.fill(held.cl.queue);
  held.check(held.cl.queue);
}
static void unmapped(Held& held) {
  cl_mem shown = held.cl.buffer(kBytes, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR);
  clEnqueueUnmapMemObject(held.cl.queue, shown, map(held, shown), 0, nullptr, nullptr);
  clFinish(held.cl.queue);
  same_queue(held);
  clReleaseMemObject(shown);
}

// --- Callbacks

static void event_callback(Held& held) {
  held.start();
  need(clSetEventCallback(
           held.done, CL_COMPLETE, [](cl_event, cl_int, void*) { usleep(1000); }, nullptr),
       "callback");
  held.replace();
  held.go_on();
  held.fill(held.cl.queue);
  held.check(held.cl.queue);
}
// One of a command that was enqueued after what was kept: another thread that it runs in waits for this one.
static void event_callback_behind(Held& held) {
  static std::mutex mutex;
  static const std::thread::id self = std::this_thread::get_id();
  held.start();
  held.replace();
  cl_event marker = nullptr;
  need(clEnqueueMarkerWithWaitList(held.cl.queue, 0, nullptr, &marker), "marker");
  held.go_on_later();
  mutex.lock();
  need(clSetEventCallback(
           marker, CL_COMPLETE,
           [](cl_event, cl_int, void*) {
             if (std::this_thread::get_id() != self) std::lock_guard guard(mutex);
           },
           nullptr),
       "callback");
  cl_command_queue side = held.cl.make_queue();
  mutex.unlock();
  held.write(side);
  held.check(side);
  clReleaseEvent(marker);
  clReleaseCommandQueue(side);
}
static void destructor_callback(Held& held) {
  static std::atomic<int> calls{0};
  cl_mem watched = held.cl.buffer(kBytes);
  need(clSetMemObjectDestructorCallback(
           watched, [](cl_mem, void*) { ++calls; }, nullptr),
       "callback");
  held.start();
  held.replace();
  held.go_on();
  held.fill(held.cl.queue);
  held.check(held.cl.queue);
  clReleaseMemObject(watched);
  say("calls %d", eventually([] { return calls == 1; }));
}

// --- What cannot be foreseen

static void shared_memory(Held& held) {
  void* words = counted(clSVMAlloc(held.cl.context, CL_MEM_READ_WRITE, kBytes, 0));
  held.start();
  held.replace();
  held.go_on();
  held.fill(held.cl.queue);
  held.check(held.cl.queue);
  clSVMFree(held.cl.context, words);
}
static void unknown_function(Held& held) {
  say("found: %d", clGetExtensionFunctionAddressForPlatform(held.cl.platform, "clSetKernelArgOfTomorrow") != nullptr);
  same_queue(held);
}
// Found while a buffer is kept: what has ended then is known, for whatever comes.
static void unknown_function_behind(Held& held) {
  held.start();
  held.replace();
  held.go_on_later();
  say("found: %d", clGetExtensionFunctionAddressForPlatform(held.cl.platform, "clSetKernelArgOfTomorrow") != nullptr);
  cl_int code = 0;
  // As a function that nobody knows would make one.
  cl_command_queue side = driver_of(held.cl.context).clCreateCommandQueue(held.cl.context, held.cl.device, 0, &code);
  need(code, "queue");
  std::vector<uint32_t> words(kWords, 50);
  need(
      driver_of(side).clEnqueueWriteBuffer(side, held.others[0], CL_TRUE, 0, kBytes, words.data(), 0, nullptr, nullptr),
      "write");
  say("first other %s", contents(held.cl.queue, held.others[0], kBytes).c_str());
  held.write(held.cl.queue);
  held.check(held.cl.queue);
  driver_of(side).clReleaseCommandQueue(side);
}
static void unknown_queue(Held& held) {
  cl_int code = 0;
  cl_command_queue side = driver_of(held.cl.context).clCreateCommandQueue(held.cl.context, held.cl.device, 0, &code);
  need(code, "queue");
  cl_mem more = held.cl.buffer(2 * kBytes);
  put(side, more, 2 * kBytes, 3);
  same_queue(held);
  clReleaseMemObject(more);
  driver_of(side).clReleaseCommandQueue(side);
}
// Somebody has it through a way that passes by, and reads it later.
static void another_has_it(Held& held) {
  cl_mem kept = held.first;
  held.start();
  need(driver_of(kept).clRetainMemObject(kept), "retain");
  held.replace();
  held.fill(held.cl.queue);
  held.go_on();
  held.check(held.cl.queue);
  std::vector<uint32_t> words(kWords);
  need(driver_of(held.cl.queue)
           .clEnqueueReadBuffer(held.cl.queue, kept, CL_TRUE, 0, kBytes, words.data(), 0, nullptr, nullptr),
       "read");
  say("kept %s", describe(words).c_str());
  driver_of(kept).clReleaseMemObject(kept);
}

// --- What the program sees of it

static void count(Held& held) {
  held.start();
  held.replace();
  held.go_on_later();
  for (cl_mem other : held.others) say("count %u", references_now(other));
  held.fill(held.cl.queue);
  held.check(held.cl.queue);
}
// The old command fails. Nothing of that is the new buffer's.
static void failed(Held& held) {
  held.start();
  held.replace();
  held.go_on_later(-5);
  cl_command_queue side = held.cl.make_queue();
  held.write(side);
  held.later.join();
  say("wait for the old command %d", clWaitForEvents(1, &held.done));
  for (cl_mem other : held.others) say("other %s", contents(side, other, kBytes).c_str());
  clFinish(held.cl.queue);
  for (cl_mem other : held.others) say("other %s", contents(held.cl.queue, other, kBytes).c_str());
  clReleaseCommandQueue(side);
}

struct Case {
  const char* name;
  void (*run)(Held&);
};
static const Case kCases[] = {
    {"same-queue", same_queue},
    {"twice", twice},
    {"own-events", own_events},
    {"second-queue", second_queue},
    {"second-queue-with-properties", second_queue_with_properties},
    {"second-queue-unordered", second_queue_unordered},
    {"second-queue-sub-buffer", second_queue_sub_buffer},
    {"second-queue-kernel", second_queue_kernel},
    {"second-queue-map", second_queue_map},
    {"second-queue-at-first", second_queue_at_first},
    {"second-queue-gone-again", second_queue_gone_again},
    {"another-queue-after", another_queue_after},
    {"unordered", unordered},
    {"made-unordered", made_unordered},
    {"gate", gate},
    {"gate-on-marker", gate_on_marker},
    {"gate-on-barrier", gate_on_barrier},
    {"gate-gone", gate_gone},
    {"gate-behind", gate_behind},
    {"gate-behind-counted", gate_behind_counted},
    {"native-kernel", native_kernel},
    {"mapped", mapped},
    {"unmapped", unmapped},
    {"released-mapped", released_mapped},
    {"event-callback", event_callback},
    {"event-callback-behind", event_callback_behind},
    {"destructor-callback", destructor_callback},
    {"context-callback", same_queue},
    {"shared-memory", shared_memory},
    {"unknown-function", unknown_function},
    {"unknown-function-behind", unknown_function_behind},
    {"unknown-queue", unknown_queue},
    {"another-has-it", another_has_it},
    {"count", count},
    {"failed", failed},
};

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "same-queue";
  Setup cl;
  if (name == "context-callback") {
    cl.release();
    cl_int code = 0;
    cl.context = clCreateContext(
        nullptr, 1, &cl.device, [](const char*, const void*, size_t, void*) {}, nullptr, &code);
    need(code, "context");
    cl.queue = cl.make_queue();
  }
  for (const Case& one : kCases)
    if (name == one.name) {
      Held held(cl);
      one.run(held);
    }
  cl.release();
  return finish();
}
