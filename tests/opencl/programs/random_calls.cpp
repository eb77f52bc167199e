// A seeded random sequence of calls on buffers and sub-buffers, logging every observation. The program keeps its own
// model of counts and contents and says where it differs, so a run is judged twice: by the model and against the other
// ways of running it. Arguments: seed, steps.
// harness: recycles
// harness: seeds=10
#include <map>
#include <memory>
#include <mutex>
#include <random>

#include "observe.hpp"

struct Object {
  int id;
  cl_mem handle;
  size_t offset, bytes;
  std::shared_ptr<std::vector<uint32_t>> words;  // the whole top-level buffer's
  std::shared_ptr<Object> parent;
  unsigned own_references = 1, parts = 0;
  bool defined = false;  // its contents were written
  bool busy = false;     // commands behind the gate use it
  unsigned callbacks = 0;
  unsigned references() const { return own_references + parts; }
};
using Ref = std::shared_ptr<Object>;

static std::mutex lock;
static std::vector<int> called;
static void CL_CALLBACK note(cl_mem, void* data) {
  std::lock_guard<std::mutex> guard(lock);
  called.push_back(static_cast<int>(reinterpret_cast<intptr_t>(data)));
}

class Run {
 public:
  explicit Run(uint32_t seed)
      : random_(seed), program_(cl_.program()), add_(kernel_of(program_, "add")), side_(cl_.make_queue()) {}

  void step();
  int end();

 private:
  unsigned pick(unsigned n) { return random_() % n; }
  Ref any(bool idle);
  void create();
  void part();
  void retain();
  void release();
  void query();
  void write();
  void check();
  void fill();
  void copy();
  void map();
  void kernel();
  void callback();
  void shut();
  void open();
  void show_callbacks();
  void mark(const Ref& object, bool busy);
  uint32_t* begin(const Object& object) { return object.words->data() + object.offset / 4; }
  // The queue and wait list for a command on `object`: behind the gate when it is shut, by chance or because the
  // object already waits.
  cl_command_queue queue_for(bool wait) { return wait ? cl_.queue : side_; }

  std::mt19937 random_;
  Setup cl_;
  cl_program program_;
  cl_kernel add_;
  cl_command_queue side_;
  cl_event gate_ = nullptr;
  std::vector<Ref> live_;
  std::vector<std::shared_ptr<std::vector<uint32_t>>> staging_;
  std::vector<Ref> gated_;
  size_t expected_calls_ = 0;
  int ids_ = 0, differences_ = 0;
};

Ref Run::any(bool idle) {
  for (int attempt = 0; attempt < 8 && !live_.empty(); ++attempt) {
    Ref object = live_[pick(live_.size())];
    if (!idle || !object->busy) return object;
  }
  return nullptr;
}

// Business spreads over the shared storage.
void Run::mark(const Ref& object, bool busy) {
  const Ref& top = object->parent ? object->parent : object;
  for (const Ref& other : live_) {
    if (other == top || other->parent == top) other->busy = busy;
  }
  top->busy = object->busy = busy;
  gated_.push_back(top);
  gated_.push_back(object);
}

void Run::create() {
  const size_t sizes[] = {256, 1024, 4096, 4096, 4096, 65536};
  const cl_mem_flags flags[] = {0, CL_MEM_READ_WRITE, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR};
  auto object = std::make_shared<Object>();
  object->id = ids_++;
  object->offset = 0;
  object->bytes = sizes[pick(6)];
  object->handle = cl_.buffer(object->bytes, flags[pick(3)]);
  object->words = std::make_shared<std::vector<uint32_t>>(object->bytes / 4);
  say("create %d: size %zu, references %u, maps %u", object->id, size_of(object->handle),
      references_now(object->handle), map_count_now(object->handle));
  live_.push_back(object);
}

void Run::part() {
  Ref parent = any(false);
  if (!parent) return;
  cl_int code = 0;
  size_t offset = 128 * pick(3), bytes = 128;
  cl_mem handle = sub_buffer(parent->handle, offset, bytes, 0, &code);
  say("part of %d: %d", parent->id, code);
  if (!handle) return;
  auto object = std::make_shared<Object>();
  object->id = ids_++;
  object->handle = handle;
  object->offset = offset;
  object->bytes = bytes;
  object->words = parent->words;
  object->parent = parent;
  object->defined = parent->defined;
  object->busy = parent->busy;
  ++parent->parts;
  live_.push_back(object);
}

void Run::retain() {
  Ref object = any(false);
  if (!object) return;
  say("retain %d: %d", object->id, clRetainMemObject(object->handle));
  ++object->own_references;
}

void Run::release() {
  Ref object = any(false);
  if (!object) return;
  say("release %d: %d", object->id, clReleaseMemObject(object->handle));
  if (--object->own_references) return;
  std::erase(live_, object);
  if (object->parent) {
    --object->parent->parts;
    if (!object->parent->references()) expected_calls_ += object->parent->callbacks;
  }
  if (!object->references()) expected_calls_ += object->callbacks;
}

void Run::query() {
  Ref object = any(true);
  if (!object) return;
  // A finished command lets go of its buffers a moment after its event says so.
  bool agrees = eventually([&] { return references_now(object->handle) == object->references(); });
  say("query %d: size %zu, references %u%s, maps %u, flags 0x%llx, offset %zu", object->id, size_of(object->handle),
      references_now(object->handle), agrees ? "" : " (the model says otherwise)", map_count_now(object->handle),
      static_cast<unsigned long long>(memory_info<cl_mem_flags>(object->handle, CL_MEM_FLAGS)),
      memory_info<size_t>(object->handle, CL_MEM_OFFSET));
  differences_ += !agrees;
}

void Run::write() {
  Ref object = any(false);
  if (!object) return;
  bool wait = gate_ && (object->busy || pick(2));
  if (!wait && object->busy) return;
  auto words = std::make_shared<std::vector<uint32_t>>(object->bytes / 4, random_());
  staging_.push_back(words);
  cl_int code = clEnqueueWriteBuffer(queue_for(wait), object->handle, !wait, 0, object->bytes, words->data(),
                                     wait ? 1 : 0, wait ? &gate_ : nullptr, nullptr);
  say("write %d%s: %d", object->id, wait ? " behind the gate" : "", code);
  if (wait) mark(object, true);
  std::copy(words->begin(), words->end(), begin(*object));
  // A part says nothing of the rest of its parent.
  if (!object->parent) {
    object->defined = true;
    for (const Ref& other : live_) {
      if (other->parent == object) other->defined = true;
    }
  }
}

void Run::check() {
  Ref object = any(true);
  if (!object || !object->defined) return;
  std::vector<uint32_t> words(object->bytes / 4);
  cl_int code =
      clEnqueueReadBuffer(side_, object->handle, CL_TRUE, 0, object->bytes, words.data(), 0, nullptr, nullptr);
  bool same = std::equal(words.begin(), words.end(), begin(*object));
  say("read %d: %d, %s%s", object->id, code, describe(words).c_str(), same ? "" : " (the model says otherwise)");
  differences_ += !same;
}

void Run::fill() {
  Ref object = any(false);
  if (!object || !object->defined) return;
  bool wait = gate_ && (object->busy || pick(2));
  if (!wait && object->busy) return;
  uint32_t pattern = random_();
  cl_int code = clEnqueueFillBuffer(queue_for(wait), object->handle, &pattern, 4, 0, 128, wait ? 1 : 0,
                                    wait ? &gate_ : nullptr, nullptr);
  say("fill %d%s: %d", object->id, wait ? " behind the gate" : "", code);
  if (wait)
    mark(object, true);
  else
    clFinish(side_);
  std::fill(begin(*object), begin(*object) + 32, pattern);
}

void Run::copy() {
  Ref from = any(false), to = any(false);
  if (!from || !to || !from->defined || !to->defined || from->words == to->words) return;
  bool wait = gate_ && (from->busy || to->busy || pick(2));
  if (!wait && (from->busy || to->busy)) return;
  cl_int code = clEnqueueCopyBuffer(queue_for(wait), from->handle, to->handle, 0, 64, 64, wait ? 1 : 0,
                                    wait ? &gate_ : nullptr, nullptr);
  say("copy %d to %d%s: %d", from->id, to->id, wait ? " behind the gate" : "", code);
  if (wait) {
    mark(from, true);
    mark(to, true);
  } else {
    clFinish(side_);
  }
  std::copy(begin(*from), begin(*from) + 16, begin(*to) + 16);
}

void Run::map() {
  Ref object = any(true);
  if (!object || !object->defined) return;
  cl_int code = 0;
  auto* mapped = static_cast<uint32_t*>(clEnqueueMapBuffer(side_, object->handle, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
                                                           0, object->bytes, 0, nullptr, nullptr, &code));
  say("map %d: %d, first word %u, maps %u", object->id, code, mapped ? mapped[0] : 0, map_count_now(object->handle));
  if (!mapped) return;
  mapped[3] = begin(*object)[3] = random_();
  code = clEnqueueUnmapMemObject(side_, object->handle, mapped, 0, nullptr, nullptr);
  cl_int finished = clFinish(side_);
  // As with references, the implementation may count the unmap a moment late.
  bool unmapped = eventually([&] { return map_count_now(object->handle) == 0; });
  say("unmap %d: %d, finish %d, maps %s", object->id, code, finished, unmapped ? "none" : "left");
}

void Run::kernel() {
  Ref object = any(false);
  if (!object || !object->defined) return;
  bool wait = gate_ && (object->busy || pick(2));
  if (!wait && object->busy) return;
  uint32_t amount = random_();
  size_t global = object->bytes / 4;
  clSetKernelArg(add_, 0, sizeof object->handle, &object->handle);
  clSetKernelArg(add_, 1, sizeof amount, &amount);
  cl_int code = clEnqueueNDRangeKernel(queue_for(wait), add_, 1, nullptr, &global, nullptr, wait ? 1 : 0,
                                       wait ? &gate_ : nullptr, nullptr);
  say("kernel on %d%s: %d", object->id, wait ? " behind the gate" : "", code);
  if (wait)
    mark(object, true);
  else
    clFinish(side_);
  for (size_t i = 0; i < global; ++i) begin(*object)[i] += amount;
}

void Run::callback() {
  Ref object = any(false);
  if (!object) return;
  int id = 1000 * object->id + static_cast<int>(object->callbacks);
  say("callback %d: %d", id,
      clSetMemObjectDestructorCallback(object->handle, note, reinterpret_cast<void*>(intptr_t{id})));
  ++object->callbacks;
}

void Run::shut() {
  if (gate_) return;
  say("gate shut");
  gate_ = cl_.gate();
}

void Run::open() {
  if (!gate_) return;
  clSetUserEventStatus(gate_, CL_COMPLETE);
  clFinish(cl_.queue);
  clReleaseEvent(gate_);
  gate_ = nullptr;
  for (const Ref& object : live_) object->busy = false;
  for (const Ref& object : gated_) object->busy = false;
  gated_.clear();
  staging_.clear();
  say("gate open");
  show_callbacks();
}

// Only when nothing is pending. Calls of one object keep their order; objects are told apart by number, since
// workers may end several at once.
void Run::show_callbacks() {
  bool all = eventually([&] {
    std::lock_guard<std::mutex> guard(lock);
    return called.size() >= expected_calls_;
  });
  std::lock_guard<std::mutex> guard(lock);
  std::map<int, std::string> by_object;
  for (int id : called) by_object[id / 1000] += " " + std::to_string(id % 1000);
  for (auto& [id, calls] : by_object) say("callbacks of %d:%s", id, calls.c_str());
  if (!all || called.size() != expected_calls_) {
    say("callbacks: %zu, the model says %zu", called.size(), expected_calls_);
    ++differences_;
  }
  called.clear();
  expected_calls_ = 0;
}

void Run::step() {
  switch (pick(20)) {
    case 0:
    case 1:
    case 2:
      return create();
    case 3:
      return part();
    case 4:
      return retain();
    case 5:
    case 6:
    case 7:
      return release();
    case 8:
    case 9:
      return query();
    case 10:
    case 11:
      return write();
    case 12:
    case 13:
      return check();
    case 14:
      return fill();
    case 15:
      return copy();
    case 16:
      return map();
    case 17:
      return kernel();
    case 18:
      return callback();
    default:
      return gate_ && pick(2) ? open() : shut();
  }
}

int Run::end() {
  open();
  while (!live_.empty()) release();
  show_callbacks();
  clReleaseKernel(add_);
  clReleaseProgram(program_);
  clReleaseCommandQueue(side_);
  cl_.release();
  say("differences from the model: %d", differences_);
  return finish(differences_ ? 1 : 0);
}

int main(int argc, char** argv) {
  uint32_t seed = argc > 1 ? strtoul(argv[1], nullptr, 10) : 1;
  int steps = argc > 2 ? atoi(argv[2]) : 600;
  say("seed %u, %d steps", seed, steps);
  Run run(seed);
  for (int i = 0; i < steps; ++i) run.step();
  return run.end();
}
