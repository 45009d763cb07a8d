// WorkQueue: work that runs later, each piece when all it waits for is done.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "interop/device/host/work.h"

namespace cgtree::host {

// What is to be done, and where.
struct Task {
  std::shared_ptr<const Work> work;  // null: only a place in the order
  std::uint64_t lane = 0;            // of its stream
  int device = 0;
  StreamHandle stream = StreamHandle::kNull;
  NodeHandle node = NodeHandle::kNull;  // whose it is, of a graph that was launched
};

// Belongs to the queue's mutex, but for the task, which does not change while it runs.
struct Operation {
  Task task;
  std::uint64_t number = 0;  // in the order of add()
  std::size_t blockers = 0;  // operations it waits for that are not done
  bool is_done = false;
  Code code = Code::kSuccess;  // what it has answered
  std::vector<std::shared_ptr<Operation>> dependents;
};
using OperationPtr = std::shared_ptr<Operation>;

// Threads: any. Nothing runs while its mutex is held.
class WorkQueue {
 public:
  using Perform = std::function<Code(const Task&)>;

  explicit WorkQueue(Perform perform) : perform_(std::move(perform)) {}
  virtual ~WorkQueue() = default;
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Behind all of `before`; null ones and those that are done count for nothing.
  OperationPtr add(Task task, std::span<const OperationPtr> before);
  // What has been added for the device and is not done.
  std::vector<OperationPtr> pending(int device);
  bool is_done(const OperationPtr& operation);  // null is done

  // Returns when it is done: what it answered.
  virtual Code wait(const OperationPtr& operation) = 0;
  // Somebody asks whether work is done, and may ask until it is; or has added work, with who knows
  // what locks held: then no host function runs.
  enum class Nudge { kAsked, kAdded };
  virtual void nudge(Nudge) {}
  // Whether to do now what CUDA may do now or later, such as reading pageable memory.
  virtual bool hurries() { return true; }

  // Whether a verb that adds work waits for it.
  virtual bool is_inline() const noexcept { return false; }

  // The first failure since it was last taken.
  Code take_failure();

 protected:
  // Requires the lock. An operation that waits for nothing.
  virtual void make_ready(const OperationPtr& operation) = 0;
  // Lets go of the lock while it runs; then makes ready what waited for it alone.
  void run(const OperationPtr& operation, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;  // something is done or ready

 private:
  const Perform perform_;
  std::uint64_t added_ = 0;
  std::vector<OperationPtr> pending_;  // in the order of add()
  Code failure_ = Code::kSuccess;
};

// Whoever waits runs what is ready, whose turn it is by chance. Some work hurries: it runs as soon
// as it is added.
std::unique_ptr<WorkQueue> make_random_queue(WorkQueue::Perform perform, std::uint64_t seed);

// Work runs when it is added, in the order of add().
std::unique_ptr<WorkQueue> make_inline_queue(WorkQueue::Perform perform);

// A thread per lane, which ends when it has had nothing to do for a while. The destructor waits for
// all work.
std::unique_ptr<WorkQueue> make_threads_queue(WorkQueue::Perform perform);

}  // namespace cgtree::host
