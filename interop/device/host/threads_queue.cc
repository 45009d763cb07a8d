// The queue with a thread per stream.
#include <chrono>
#include <deque>
#include <thread>
#include <unordered_map>
#include <utility>

#include "interop/device/host/work_queue.h"

namespace cgtree::host {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(20);  // of a thread with nothing to do

class ThreadsQueue final : public WorkQueue {
 public:
  explicit ThreadsQueue(Perform perform) : WorkQueue(std::move(perform)) {}

  // Work that is ready runs; it may make more ready.
  ~ThreadsQueue() override {
    std::unique_lock lock(mutex_);
    ends_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return lanes_.empty(); });
  }

  Code wait(const OperationPtr& operation) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return operation->is_done; });
    return operation->code;
  }

 private:
  using Lane = std::deque<OperationPtr>;

  // A lane has a thread as long as it is in the table.
  void make_ready(const OperationPtr& operation) override {
    const auto [lane, is_new] = lanes_.try_emplace(operation->task.lane);
    lane->second.push_back(operation);
    if (is_new) std::thread(&ThreadsQueue::serve, this, lane->first).detach();
  }

  void serve(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    Lane& lane = lanes_.find(number)->second;  // stays where it is when others come and go
    const auto has_work = [&] { return !lane.empty(); };
    while (changed_.wait_for(lock, ends_ ? std::chrono::milliseconds(0) : kPatience, [&] {
      return has_work() || ends_;
    }) && has_work()) {
      const OperationPtr operation = std::move(lane.front());
      lane.pop_front();
      run(operation, lock);
    }
    lanes_.erase(number);
    changed_.notify_all();  // before the lock is let go: the queue may end right after
  }

  std::unordered_map<std::uint64_t, Lane> lanes_;  // what is ready, by lane
  bool ends_ = false;
};

}  // namespace

std::unique_ptr<WorkQueue> make_threads_queue(WorkQueue::Perform perform) {
  return std::make_unique<ThreadsQueue>(std::move(perform));
}

}  // namespace cgtree::host
