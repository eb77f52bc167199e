// The stacks of a snapshot as frames, names and lines. A snapshot is collected with the numbers of its sites only,
// which is quick; this reads files, takes the dynamic linker's lock and calls malloc: later, when no thread waits.
#pragma once
#include "stats/sites.hpp"
#include "stats/snapshot.hpp"

namespace cistern {

// Every stack that the snapshot has the site of: frames, without those of the runtime that was called, and the owner.
// After `budget_ms` the remaining frames keep module and offset.
// `fold_native`: reports show Python code first, and native code below it does not keep rows apart.
void resolve(Snapshot& snapshot, unsigned budget_ms, bool fold_native);
// The same with no names but those of Python code: native frames keep module and offset. It reads no file of symbols.
void resolve_without_symbols(Snapshot& snapshot, bool fold_native);

// Cuts every stack, after everything has asked for its functions: rules of suppressions may name those that go.
void cut_call_wrappers(Snapshot& snapshot);

// Frames of the rows' sites in the same way, without call wrappers.
void resolve(Vector<LeakFigures>& rows, unsigned budget_ms, bool fold_native);
// One site's frames, in the same way and without call wrappers; only those of Python code where there are any.
Vector<FrameFigures> resolved_frames(SiteId site, unsigned budget_ms);

}  // namespace cistern
