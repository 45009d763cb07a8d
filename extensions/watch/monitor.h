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
// (docs/snapshot.md). While calls go on, each node is described at another instant. Any thread, at
// any time.
std::string snapshot_json(const Context& context);

// Returns the metrics that monitoring systems scrape (docs/metrics.md). Any thread, at any time.
ContextMetrics metrics_of(const Context& context);
// Returns the metrics as text for Prometheus: of several contexts, for a process that serves them
// as one page, or of one. Any thread, at any time. Throws InvalidArgument if two contexts have the
// same name.
std::string metrics_text(std::span<const Context* const> contexts);
std::string metrics_text(const Context& context);

// From now on replays leave marks of their progress, which `watch` reads: it says where a replay
// hangs (docs/hangs.md). Null ends this. Throws ConcurrentUse, and InvalidArgument on a device that
// cannot leave marks.
void watch_progress(Context& context, std::shared_ptr<ProgressWatch> watch);

}  // namespace cgtree
