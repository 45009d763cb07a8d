// Monitors: the state of a context as JSON and as metrics, and the progress of its replays.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "cgtree/context.h"
#include "extensions/progress/progress_watch.h"
#include "extensions/watch/metrics.h"

namespace cgtree {

// Returns the tree as JSON: nodes, recordings, inputs with their treatment, pools
// (docs/snapshot.md). While calls go on, each node is described as of another instant. Any thread,
// at any time.
std::string snapshot_json(const Context& context);

// Returns the metrics that monitoring systems scrape (docs/metrics.md). Any thread, at any time.
ContextMetrics metrics_of(const Context& context);
// Returns them as text for Prometheus: of contexts, for a process that serves several as one page,
// or of one. Any thread, at any time. Throws InvalidArgument if two contexts have the same name.
std::string metrics_text(std::span<const Context* const> contexts);
std::string metrics_text(const Context& context);

// From now on replays leave marks of how far they have come, which `watch` reads: it says where
// one hangs (docs/hangs.md). Null: no longer. Throws ConcurrentUse, and InvalidArgument on a
// device that cannot.
void watch_progress(Context& context, std::shared_ptr<ProgressWatch> watch);

}  // namespace cgtree
