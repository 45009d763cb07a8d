// The queue that shows what a program relies on without being promised it.
#include <random>
#include <utility>

#include "interop/device/host/work_queue.h"

namespace cgtree::host {
namespace {

class RandomQueue final : public WorkQueue {
 public:
  RandomQueue(Perform perform, std::uint64_t seed) : WorkQueue(std::move(perform)), random_(seed) {}

  Code wait(const OperationPtr& operation) override {
    std::unique_lock lock(mutex_);
    while (!operation->is_done) {
      if (ready_.empty()) {
        changed_.wait(lock);  // another thread runs what this one waits for
      } else {
        run(take(below(ready_.size())), lock);
      }
    }
    return operation->code;
  }

  void nudge(Nudge nudge) override {
    std::unique_lock lock(mutex_);
    if (ready_.empty() || (nudge == Nudge::kAdded && below(4) != 0)) return;
    const std::size_t number = below(ready_.size());
    const Work* const work = ready_[number]->task.work.get();
    const bool calls_back = work != nullptr && std::holds_alternative<HostWork>(*work);
    if (nudge == Nudge::kAsked || !calls_back) run(take(number), lock);
  }

  bool hurries() override {
    const std::lock_guard lock(mutex_);
    return below(2) == 0;
  }

 private:
  void make_ready(const OperationPtr& operation) override { ready_.push_back(operation); }

  OperationPtr take(std::size_t number) {
    std::swap(ready_[number], ready_.back());
    OperationPtr operation = std::move(ready_.back());
    ready_.pop_back();
    return operation;
  }
  // From 0 to count - 1; the same on every machine, which the standard's distributions are not.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(random_() % count); }

  std::mt19937_64 random_;
  std::vector<OperationPtr> ready_;
};

}  // namespace

std::unique_ptr<WorkQueue> make_random_queue(WorkQueue::Perform perform, std::uint64_t seed) {
  return std::make_unique<RandomQueue>(std::move(perform), seed);
}

}  // namespace cgtree::host
