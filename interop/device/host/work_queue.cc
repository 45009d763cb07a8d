// Counts what each piece of work waits for.
#include "interop/device/host/work_queue.h"

#include <algorithm>
#include <utility>

namespace cgtree::host {

OperationPtr WorkQueue::add(Task task, std::span<const OperationPtr> before) {
  auto operation = std::make_shared<Operation>();
  operation->task = std::move(task);
  std::unique_lock lock(mutex_);
  operation->number = ++added_;
  pending_.push_back(operation);
  for (const OperationPtr& other : before) {
    if (other == nullptr || other->is_done) continue;
    other->dependents.push_back(operation);
    ++operation->blockers;
  }
  if (operation->blockers == 0) make_ready(operation);
  lock.unlock();
  changed_.notify_all();
  return operation;
}

std::vector<OperationPtr> WorkQueue::pending(int device) {
  const std::lock_guard lock(mutex_);
  std::vector<OperationPtr> found;
  std::copy_if(pending_.begin(), pending_.end(), std::back_inserter(found),
               [device](const auto& operation) { return operation->task.device == device; });
  return found;
}

bool WorkQueue::is_done(const OperationPtr& operation) {
  const std::lock_guard lock(mutex_);
  return operation == nullptr || operation->is_done;
}

Code WorkQueue::take_failure() {
  const std::lock_guard lock(mutex_);
  return std::exchange(failure_, Code::kSuccess);
}

void WorkQueue::run(const OperationPtr& operation, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  const Code code = operation->task.work == nullptr ? Code::kSuccess : perform_(operation->task);
  // A kernel's arguments may own nothing, but a copy's staged bytes may be many.
  std::shared_ptr<const Work> done_with = std::move(operation->task.work);
  done_with.reset();
  lock.lock();
  operation->code = code;
  operation->is_done = true;
  if (!ok(code) && ok(failure_)) failure_ = code;
  for (const OperationPtr& dependent : std::exchange(operation->dependents, {})) {
    if (--dependent->blockers == 0) make_ready(dependent);
  }
  std::erase(pending_, operation);
  changed_.notify_all();
}

}  // namespace cgtree::host
