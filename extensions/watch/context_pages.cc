// Tells what a Context says of itself: snapshot, metrics and verified replays.
#include <span>
#include <utility>
#include <vector>

#include "cgtree/context.h"
#include "cgtree/tree/tree_manager.h"
#include "cgtree/values/metrics.h"
#include "cgtree/values/verification.h"
#include "extensions/watch/context_metrics.h"
#include "extensions/watch/event_log.h"
#include "extensions/watch/snapshot.h"

namespace cgtree {

void Context::watch_progress(std::shared_ptr<ProgressWatch> watch) {
  Workings& workings = manager_->workings();
  const Visit visit(workings.door);
  auto& log = dynamic_cast<EventLog&>(*workings.events);
  log.watch_progress(std::move(watch), workings.options, *workings.memory, workings.tree.spent);
  workings.watches_replays = workings.options.verify_every > 0 || log.watches_replays();
}

std::string Context::snapshot_json() const {
  const Workings& workings = manager_->workings();
  return cgtree::snapshot_json(workings.tree, *workings.memory, workings.options,
                               replay_times_of(*manager_), causes_of(*manager_));
}

ContextMetrics Context::metrics() const {
  return metrics_of(*manager_);
}

Verification Context::verification() const {
  return verification_of(*manager_);
}

std::string Context::metrics_text() const {
  const ContextMetrics all = metrics();
  return cgtree::metrics_text(std::span<const ContextMetrics>(&all, 1));
}

std::string metrics_text(std::span<const Context* const> contexts) {
  std::vector<ContextMetrics> all;
  for (const Context* const context : contexts)
    all.push_back(context->metrics());
  return metrics_text(std::span<const ContextMetrics>(all));
}

}  // namespace cgtree
