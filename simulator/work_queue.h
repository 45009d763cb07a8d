// WorkQueue: work that runs later, each item when its dependencies have ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/condition.h"
#include "base/mutex.h"
#include "interop/device/code.h"
#include "simulator/host_device.h"
#include "simulator/work.h"

namespace cgtree::host {

using HostTime = std::chrono::steady_clock::time_point;

// A Task is work with the place where it runs.
struct Task {
  std::shared_ptr<const Work> work;  // null: only takes part in the order
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
  std::size_t blockers = 0;  // number of unfinished operations that it waits for
  bool is_done = false;
  HostTime time = {};  // time at which it ended, if it has no work
  std::vector<std::shared_ptr<Operation>> dependents;
};
using OperationPtr = std::shared_ptr<Operation>;

// A WorkQueue runs queued work. The executor decides where and in which order:
//
//   kInline   on the thread that waits, in the order of add(); for strict mode
//   kThreads  on one thread per stream, which ends when it has been idle for a while
//   kRandom   on the threads that wait, add or query, in a random order, which shows what a program
//             relies on without a promise
//
// Nothing runs while its mutex is held. Thread safety: any thread.
class WorkQueue {
 public:
  using Perform = std::function<Code(const Task&)>;

  // One thread and one `seed` of kRandom give one order.
  WorkQueue(HostExecutor executor, std::uint64_t seed, Perform perform)
      : executor_(executor), perform_(std::move(perform)), random_(seed) {}
  // Waits for running work, and with kThreads for all work. Drops all other work.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Adds a task after all of `before`; null and finished operations are ignored.
  OperationPtr add(Task task, std::span<const OperationPtr> before);
  bool is_done(const OperationPtr& operation);  // null has ended
  // Returns the time at which an operation without work ended, or nothing if it has not.
  std::optional<HostTime> time(const OperationPtr& operation);
  // The next two wait until the operation, or all pending operations of the device, have ended.
  void wait(const OperationPtr& operation);
  void wait(int device);

  // The next two let work run on this thread. A caller of run_some() polls until work has ended. A
  // caller of run_some_added() has added work and may hold locks, so no host function runs.
  void run_some();
  void run_some_added();
  // Returns whether to do an action now that CUDA may do later, such as reading pageable memory.
  bool is_eager();
  // Returns whether a call that adds work waits for it.
  bool is_inline() const noexcept { return executor_ == HostExecutor::kInline; }

  // Returns the first failure since the last call.
  Code take_failure();

 private:
  using Lock = std::unique_lock<Mutex<LockRank::kHostQueue>>;
  using Ready = std::deque<OperationPtr>;

  // The functions below are called with the lock held. Takes an operation without pending
  // dependencies.
  void make_ready(const OperationPtr& operation);
  // Runs the operation with the lock released; then makes operations ready that waited only for it.
  void run(const OperationPtr& operation, Lock& lock);
  // As run(), but a kernel that waits runs on its own thread, because this thread may be the one
  // that enqueues the awaited work.
  void start(const OperationPtr& operation, Lock& lock);
  // Runs the ready work of a stream on its thread.
  void serve(std::uint64_t stream);
  // The next two require that ready_ is not empty.
  std::size_t choose();
  OperationPtr take(std::size_t number);
  // Returns 0 to count - 1. The standard's distributions differ between machines.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(random_() % count); }

  const HostExecutor executor_;
  const Perform perform_;
  Mutex<LockRank::kHostQueue> mutex_;  // guards all below
  Condition changed_;                  // an operation has ended or become ready
  std::mt19937_64 random_;
  std::uint64_t added_ = 0;
  int started_ = 0;                    // number of threads of start()
  std::vector<OperationPtr> pending_;  // in the order of add()
  std::vector<OperationPtr> ready_;    // empty with kThreads
  // Ready work of kThreads by stream number. A stream has a thread while it is in the table.
  std::unordered_map<std::uint64_t, Ready> streams_;
  bool ends_ = false;
  Code failure_ = Code::kSuccess;
};

}  // namespace cgtree::host
