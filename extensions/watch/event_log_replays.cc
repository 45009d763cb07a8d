// Times watched replays, and lets them leave marks.
#include <new>
#include <utility>

#include "extensions/watch/event_log.h"

namespace cgtree {

EventLog::~EventLog() {
  write_replay_times();
  if (watch_ == nullptr) return;
  watch_->remove(*progress_);
  progress_->end();
}

void EventLog::watch_progress(std::shared_ptr<ProgressWatch> watch) {
  std::shared_ptr<ContextProgress> progress;
  if (watch != nullptr) {
    progress = std::make_shared<ContextProgress>(engine_.options, *engine_.memory,
                                                 engine_.tree.spent, timer_, watch->options());
    watch->add(progress);
  }
  std::swap(watch, watch_);
  std::swap(progress, progress_);
  engine_.extensions.note_wants();
  if (watch == nullptr) return;
  watch->remove(*progress);
  progress->end();
}

namespace {

// A RestoreAfter gives the recording of a replay its own executable graphs back.
class RestoreAfter {
 public:
  // `progress`: borrowed. `range`: kept as long as this.
  RestoreAfter(ContextProgress& progress, std::shared_ptr<const void> range) noexcept
      : progress_(progress), range_(std::move(range)) {}
  ~RestoreAfter() { progress_.restore(); }
  RestoreAfter(const RestoreAfter&) = delete;
  RestoreAfter& operator=(const RestoreAfter&) = delete;

 private:
  ContextProgress& progress_;
  const std::shared_ptr<const void> range_;
};

}  // namespace

std::shared_ptr<const void> EventLog::open_replay(Node& node, const InputList& inputs) noexcept
    try {
  timer_.open(node.recording.costs.replays);
  auto range = open_range("replay", *node.function, node.id, &inputs, std::nullopt);
  if (progress_ == nullptr) return range;
  auto restores = std::make_shared<const RestoreAfter>(*progress_, std::move(range));
  progress_->open(node);
  return restores;
} catch (const std::bad_alloc&) {
  return nullptr;
}

void EventLog::begin_launch() noexcept {
  if (progress_ != nullptr) progress_->begin_launch();
  timer_.begin_launch();
}

}  // namespace cgtree
