// Reports: pure functions of a snapshot. The JSON shape is stats/report/report.schema.json.
//
// Room: a snapshot as text and as JSON.
// May include: pool/base, pool, stats.
#pragma once
#include "stats/sink.hpp"
#include "stats/snapshot.hpp"

namespace cistern {

// The verdict on a process that used none: head.hpp reads it back.
inline constexpr char kNoGpuMemory[] = "no GPU memory was used";

void render_text(const Snapshot& snapshot, Sink& sink);
void render_json(const Snapshot& snapshot, Sink& sink);
// "child processes: 3 judged, 1 failed, 0 undecided, 0 misconfigured"
String sentence_of(const FamilyFigures& family);

}  // namespace cistern
