// Tells what a Context says of itself: snapshot, metrics and verified replays.
#include <span>
#include <utility>
#include <vector>

#include "cgtree/context.h"
#include "cgtree/tree/engine.h"
#include "cgtree/values/metrics.h"
#include "cgtree/values/verification.h"
#include "extensions/watch/context_metrics.h"
#include "extensions/watch/event_log.h"
#include "extensions/watch/snapshot.h"

namespace cgtree {

void Context::watch_progress(std::shared_ptr<ProgressWatch> watch) {
  const Entry entry(engine_->gate);
  event_log_of(*engine_).watch_progress(std::move(watch));
}

std::string Context::snapshot_json() const {
  const EventLog& log = event_log_of(*engine_);
  return cgtree::snapshot_json(engine_->tree, *engine_->memory, engine_->options,
                               log.timer().times(), log.causes().all());
}

ContextMetrics Context::metrics() const {
  return metrics_of(*engine_);
}

Verification Context::verification() const {
  return verification_of(*engine_);
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
