// Calls with the handle of a stream that was destroyed, each in a process of its own: a driver may end it.
#include "driver.hpp"
#include "probe.hpp"

namespace probe {
namespace {

CUstream gone_stream() {
  open_device();
  const CUstream stream = create_stream();
  PROBE_MUST(driver().cuStreamDestroy(stream));
  return stream;
}

std::string query() { return name_of(driver().cuStreamQuery(gone_stream())); }

std::string synchronize() { return name_of(driver().cuStreamSynchronize(gone_stream())); }

std::string is_capturing() {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return name_of(driver().cuStreamIsCapturing(gone_stream(), &status));
}

std::string record() {
  const CUstream stream = gone_stream();
  CUevent event = nullptr;
  PROBE_MUST(driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  return name_of(driver().cuEventRecord(event, stream));
}

std::string destroy() { return name_of(driver().cuStreamDestroy(gone_stream())); }

const Registration query_case(
    {"gone_stream_query", "a destroyed stream is asked", 20, {{"gone_stream.cuStreamQuery", "crashes"}}, [] {
       answer_of_child("gone_stream.cuStreamQuery", query);
     }});
const Registration synchronize_case({"gone_stream_synchronize",
                                     "a destroyed stream is waited for",
                                     20,
                                     {{"gone_stream.cuStreamSynchronize", "crashes"}},
                                     [] { answer_of_child("gone_stream.cuStreamSynchronize", synchronize); }});
const Registration capturing_case({"gone_stream_capturing",
                                   "a destroyed stream is asked whether it captures",
                                   20,
                                   {{"gone_stream.cuStreamIsCapturing", "crashes"}},
                                   [] { answer_of_child("gone_stream.cuStreamIsCapturing", is_capturing); }});
const Registration record_case({"gone_stream_record",
                                "an event is recorded on a destroyed stream",
                                20,
                                {{"gone_stream.cuEventRecord", "crashes"}},
                                [] { answer_of_child("gone_stream.cuEventRecord", record); }});
const Registration destroy_case(
    {"gone_stream_destroy", "a stream is destroyed twice", 20, {{"gone_stream.cuStreamDestroy", "crashes"}}, [] {
       answer_of_child("gone_stream.cuStreamDestroy", destroy);
     }});

}  // namespace
}  // namespace probe
