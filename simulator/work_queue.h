// WorkQueue: work that runs later, each piece when all that it waits for is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/condition.h"
#include "base/mutex.h"
#include "simulator/work.h"

namespace cgtree::host {

using HostTime = std::chrono::steady_clock::time_point;

// A Task is work and where it runs.
struct Task {
  std::shared_ptr<const Work> work;  // null: it only takes part in the order
  std::uint64_t stream_number = 0;   // HostStream::number
  int device = 0;
  StreamHandle stream = StreamHandle::kNull;
  NodeHandle node = NodeHandle::kNull;  // the node of a launched graph; null for other work
};

// An Operation is a queued task. The queue's mutex guards it, except the task, which does not
// change while it runs.
struct Operation {
  Task task;
  std::uint64_t number = 0;  // in the order of add()
  std::size_t blockers = 0;  // operations it waits for that are not done
  bool is_done = false;
  HostTime time = {};          // when it was done, if it has no work
  Code code = Code::kSuccess;  // its result
  std::vector<std::shared_ptr<Operation>> dependents;
};
using OperationPtr = std::shared_ptr<Operation>;

// Nothing runs while its mutex is held. Thread safety: any thread.
class WorkQueue {
 public:
  using Perform = std::function<Code(const Task&)>;

  explicit WorkQueue(Perform perform) : perform_(std::move(perform)) {}
  virtual ~WorkQueue() = default;
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Adds a task behind all of `before`; null operations and those that are done are ignored.
  OperationPtr add(Task task, std::span<const OperationPtr> before);
  // Returns the operations of the device that are not done.
  std::vector<OperationPtr> pending(int device);
  bool is_done(const OperationPtr& operation);  // null is done
  // Returns when an operation without work was done, or nothing if it is not.
  std::optional<HostTime> time(const OperationPtr& operation);

  // Waits until the operation is done and returns its result.
  virtual Code wait(const OperationPtr& operation) = 0;
  // A nudge lets work run. kQueried: a caller queries whether work is done, and may do so until it
  // is. kAdded: a caller has added work and may hold locks, so that no host function runs.
  enum class Nudge { kQueried, kAdded };
  virtual void nudge(Nudge) {}
  // Returns whether to do now what CUDA may do now or later, such as reading pageable memory.
  virtual bool is_eager() { return true; }

  // Returns whether a call that adds work waits for it.
  virtual bool is_inline() const noexcept { return false; }

  // Returns the first failure since the last call.
  Code take_failure();

 protected:
  using Lock = std::unique_lock<Mutex<LockRank::kHostQueue>>;

  // Called with the lock held for an operation that waits for nothing.
  virtual void make_ready(const OperationPtr& operation) = 0;
  // Runs the operation with the lock released; then makes ready what waited only for it.
  void run(const OperationPtr& operation, Lock& lock);
  // As run(); but a kernel that waits runs on a thread of its own, because this thread may be the
  // one that is to enqueue what the kernel waits for.
  void start(const OperationPtr& operation, Lock& lock);
  // Must be called in the destructor of a queue that calls start().
  void wait_for_started();

  Mutex<LockRank::kHostQueue> mutex_;
  Condition changed_;  // something is done or ready

 private:
  const Perform perform_;
  std::uint64_t added_ = 0;
  int started_ = 0;                    // threads of start()
  std::vector<OperationPtr> pending_;  // in the order of add()
  Code failure_ = Code::kSuccess;
};

// Makes a queue whose waiting threads run ready work in a random order. Some work runs as soon as
// it is added.
std::unique_ptr<WorkQueue> make_random_queue(WorkQueue::Perform perform, std::uint64_t seed);

// Makes a queue that runs work when it is added, in the order of add(); for strict mode.
std::unique_ptr<WorkQueue> make_inline_queue(WorkQueue::Perform perform);

// Makes a queue with one thread per stream, which ends when it has been idle for a while. The
// destructor waits for all work.
std::unique_ptr<WorkQueue> make_threads_queue(WorkQueue::Perform perform);

}  // namespace cgtree::host
