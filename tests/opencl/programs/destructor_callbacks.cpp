// Destructor callbacks: last registered first, each once, after the last release and the end of pending commands.
// harness: recycles
#include <mutex>

#include "observe.hpp"

static std::mutex lock;
static std::vector<std::string> calls;
static std::atomic<bool> gate_open{false};

struct Note {
  const char* name;
  cl_mem expected;
};
static void CL_CALLBACK note(cl_mem memory, void* data) {
  const Note& what = *static_cast<Note*>(data);
  std::lock_guard<std::mutex> guard(lock);
  calls.push_back(std::string(what.name) + (memory == what.expected ? "" : " (other object)") +
                  (gate_open ? " after the gate" : ""));
}
static size_t noted() {
  std::lock_guard<std::mutex> guard(lock);
  return calls.size();
}
static void show(const char* when, size_t expected) {
  eventually([&] { return noted() >= expected; });
  std::lock_guard<std::mutex> guard(lock);
  say("%s: %zu calls", when, calls.size());
  for (const std::string& call : calls) say("  %s", call.c_str());
  calls.clear();
}

static void order(const Setup& cl, size_t bytes) {
  cl_mem buffer = cl.buffer(bytes);
  Note a{"first", buffer}, b{"second", buffer}, c{"third", buffer};
  say("register %d", clSetMemObjectDestructorCallback(buffer, note, &a));
  say("register %d", clSetMemObjectDestructorCallback(buffer, note, &b));
  say("register none %d", clSetMemObjectDestructorCallback(buffer, nullptr, &b));
  say("register %d", clSetMemObjectDestructorCallback(buffer, note, &c));
  clRetainMemObject(buffer);
  say("count %u", references(buffer));
  clReleaseMemObject(buffer);
  show("one release of two", 0);
  clReleaseMemObject(buffer);
  show("last release", 3);
  // The next object of the same key must not inherit them.
  cl_mem next = cl.buffer(bytes);
  put(cl.queue, next, bytes, 1);
  clReleaseMemObject(next);
  show("next object", 0);
}

static void parents(const Setup& cl) {
  cl_mem parent = cl.buffer(8192);
  cl_mem part = sub_buffer(parent, 0, 4096);
  Note on_parent{"parent", parent}, on_part{"part", part};
  clSetMemObjectDestructorCallback(parent, note, &on_parent);
  clSetMemObjectDestructorCallback(part, note, &on_part);
  clReleaseMemObject(parent);
  show("parent released, part alive", 0);
  clReleaseMemObject(part);
  show("part released", 2);
}

static void pending(const Setup& cl) {
  for (int kind = 0; kind < 3; ++kind) {
    cl_mem buffer = cl.buffer(16384), target = cl.buffer(16384);
    put(cl.queue, buffer, 16384, 40 + kind);
    cl_event gate = cl.gate();
    std::vector<uint32_t> host(4096, 50 + kind);
    cl_int code = 0;
    if (kind == 0) code = clEnqueueCopyBuffer(cl.queue, buffer, target, 0, 0, 16384, 1, &gate, nullptr);
    if (kind == 1) code = clEnqueueReadBuffer(cl.queue, buffer, CL_FALSE, 0, 16384, host.data(), 1, &gate, nullptr);
    if (kind == 2) code = clEnqueueWriteBuffer(cl.queue, buffer, CL_FALSE, 0, 16384, host.data(), 1, &gate, nullptr);
    say("gated command %d", code);
    Note a{"early", buffer}, b{"late", buffer};
    clSetMemObjectDestructorCallback(buffer, note, &a);
    clSetMemObjectDestructorCallback(buffer, note, &b);
    clReleaseMemObject(buffer);
    usleep(20000);
    show("released, gate shut", 0);
    cl_mem same = cl.buffer(16384);
    cl_command_queue other = cl.make_queue();
    put(other, same, 16384, 9);
    clReleaseCommandQueue(other);
    gate_open = true;
    clSetUserEventStatus(gate, CL_COMPLETE);
    clFinish(cl.queue);
    show("gate open", 2);
    gate_open = false;
    if (kind == 0) say("copied %s", contents(cl.queue, target, 16384).c_str());
    if (kind == 1) say("read %s", describe(host).c_str());
    say("another: %s", contents(cl.queue, same, 16384).c_str());
    clReleaseEvent(gate);
    clReleaseMemObject(same);
    clReleaseMemObject(target);
  }
}

int main() {
  Setup cl;
  for (int round = 0; round < 3; ++round) {
    order(cl, 4096);
    parents(cl);
    pending(cl);
  }
  say("nothing of release: %d", clSetMemObjectDestructorCallback(nullptr, note, nullptr));
  // Plain buffers of the same sizes recycle next to those with callbacks.
  for (int i = 0; i < 8; ++i) {
    cl_mem plain = cl.buffer(4096);
    put(cl.queue, plain, 4096, i);
    say("plain %s", contents(cl.queue, plain, 4096).c_str());
    clReleaseMemObject(plain);
  }
  cl.release();
  return finish();
}
