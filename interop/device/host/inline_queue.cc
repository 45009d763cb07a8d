// The queue that is emptied whenever work is added, for strict mode.
#include <algorithm>
#include <utility>

#include "interop/device/host/work_queue.h"

namespace cgtree::host {
namespace {

class InlineQueue final : public WorkQueue {
 public:
  explicit InlineQueue(Perform perform) : WorkQueue(std::move(perform)) {}

  Code wait(const OperationPtr& operation) override {
    std::unique_lock lock(mutex_);
    while (!operation->is_done) {
      ready_.empty() ? changed_.wait(lock) : run(take(), lock);
    }
    return operation->code;
  }
  void nudge(Nudge) override {
    std::unique_lock lock(mutex_);
    while (!ready_.empty())
      run(take(), lock);
  }
  bool is_inline() const noexcept override { return true; }

 private:
  void make_ready(const OperationPtr& operation) override { ready_.push_back(operation); }

  OperationPtr take() {
    const auto first =
        std::min_element(ready_.begin(), ready_.end(),
                         [](const auto& a, const auto& b) { return a->number < b->number; });
    OperationPtr operation = *first;
    ready_.erase(first);
    return operation;
  }

  std::vector<OperationPtr> ready_;
};

}  // namespace

std::unique_ptr<WorkQueue> make_inline_queue(WorkQueue::Perform perform) {
  return std::make_unique<InlineQueue>(std::move(perform));
}

}  // namespace cgtree::host
