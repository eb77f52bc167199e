// Objects of the driver that are no memory, which the program has to give back: streams, events, modules, libraries and
// graphs. Safe to call from any thread.
#pragma once
#include "backends/cuda/context.hpp"
#include "pool/base/handle_table.hpp"
#include "stats/counters.hpp"
#include "stats/sites.hpp"

namespace cistern::cuda {

enum class ObjectType : std::uint8_t { stream, event, module, library, graph, count };

struct ObjectRecord {
  ObjectType type = ObjectType::stream;
  bool inherited = false;
  Context* context = nullptr;  // it lives and dies with this one; null: with none
  std::uint32_t epoch = 0;
  SiteId site = 0;
  const char* api = nullptr;
};

struct StreamRecord {
  Context* context = nullptr;
  bool non_blocking = false;
  std::uint64_t number = 0;  // the stream's number among all that were made: a handle may be reused
};

struct GreenRecord {
  CUdevice device = 0;
  CUcontext context = nullptr;
};

// A table of records by handle, with the two ways in which a record goes.
template <class Record>
class Records : public HandleTable<Record> {
 public:
  bool take(const void* handle, Record& out) {
    return this->take_if(handle, out, [](const Record&) { return true; });
  }
};

class Objects {
 public:
  // The program made it.
  void made(const void* handle, const ObjectRecord& record) {
    add(created_[static_cast<int>(record.type)]);
    all_.put(handle, record);
  }
  // Around the driver's call that ends it, since the handle may be reused immediately: take, and put back if it failed.
  bool take(const void* handle, ObjectRecord& out) { return all_.take(handle, out); }
  void put_back(const void* handle, const ObjectRecord& record) { all_.put(handle, record); }
  template <class Visit>
  void for_each(Visit visit) {
    all_.for_each(visit);
  }
  std::uint64_t created(ObjectType type) const { return read(created_[static_cast<int>(type)]); }
  // The context's objects of an earlier epoch: they went with it.
  void forget_those_of(const Context& context);
  // They belong to another one from now on.
  void move_those_of(const Context& context, Context& heir);

  // Streams, for the order of work.
  void stream_made(CUstream stream, Context* context, bool non_blocking) {
    streams_.put(stream, {context, non_blocking, streams_made_.fetch_add(1) + 1});
  }
  bool take_stream(CUstream stream, StreamRecord& out) { return streams_.take(stream, out); }
  void put_stream_back(CUstream stream, const StreamRecord& record) { streams_.put(stream, record); }
  // Visits the record under the table's lock; null: it is not known.
  template <class Visit>
  void with_stream(CUstream stream, Visit visit) {
    streams_.with(stream, visit);
  }

  Records<GreenRecord>& green_contexts() { return green_contexts_; }

  void before_fork();
  void after_fork();
  void forget_in_child();

 private:
  Records<ObjectRecord> all_;
  Counter created_[static_cast<int>(ObjectType::count)]{};
  Records<StreamRecord> streams_;
  std::atomic<std::uint64_t> streams_made_{0};
  Records<GreenRecord> green_contexts_;
};

}  // namespace cistern::cuda
