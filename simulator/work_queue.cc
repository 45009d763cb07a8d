// Counts the dependencies of each operation, and runs ready work in the executor's order.
#include "simulator/work_queue.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "interop/device/code.h"

namespace cgtree::host {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(20);  // for which an idle thread waits for
                                                           // work

}  // namespace

WorkQueue::~WorkQueue() {
  std::unique_lock lock(mutex_);
  ends_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return started_ == 0 && streams_.empty(); });
}

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

bool WorkQueue::is_done(const OperationPtr& operation) {
  const std::lock_guard lock(mutex_);
  return operation == nullptr || operation->is_done;
}

std::optional<HostTime> WorkQueue::time(const OperationPtr& operation) {
  const std::lock_guard lock(mutex_);
  return operation->is_done ? std::optional(operation->time) : std::nullopt;
}

Code WorkQueue::take_failure() {
  const std::lock_guard lock(mutex_);
  return std::exchange(failure_, Code::kSuccess);
}

void WorkQueue::run(const OperationPtr& operation, Lock& lock) {
  lock.unlock();
  const bool has_work = operation->task.work != nullptr;
  const Code code = has_work ? perform_(operation->task) : Code::kSuccess;
  // Released without the lock: the staged bytes of a copy may be many.
  std::shared_ptr<const Work> done_with = std::move(operation->task.work);
  done_with.reset();
  lock.lock();
  if (!has_work) operation->time = HostTime::clock::now();
  operation->is_done = true;
  if (!ok(code) && ok(failure_)) failure_ = code;
  for (const OperationPtr& dependent : std::exchange(operation->dependents, {})) {
    if (--dependent->blockers == 0) make_ready(dependent);
  }
  std::erase(pending_, operation);
  changed_.notify_all();
}

void WorkQueue::start(const OperationPtr& operation, Lock& lock) {
  const Work* const work = operation->task.work.get();
  if (work == nullptr || !may_wait(*work)) return run(operation, lock);
  ++started_;
  std::thread([this, operation] {
    std::unique_lock own_lock(mutex_);
    run(operation, own_lock);
    --started_;
    changed_.notify_all();  // before the lock is released: the queue may be destroyed right after
  }).detach();
}

void WorkQueue::make_ready(const OperationPtr& operation) {
  if (executor_ != HostExecutor::kThreads) {
    ready_.push_back(operation);
    return;
  }
  const auto [stream, is_new] = streams_.try_emplace(operation->task.stream_number);
  stream->second.push_back(operation);
  if (is_new) std::thread(&WorkQueue::serve, this, stream->first).detach();
}

void WorkQueue::serve(std::uint64_t stream) {
  std::unique_lock lock(mutex_);
  Ready& ready = streams_.find(stream)->second;  // insertions and erasures do not move it
  const auto has_work = [&] { return !ready.empty(); };
  while (changed_.wait_for(lock, ends_ ? std::chrono::milliseconds(0) : kPatience, [&] {
    return has_work() || ends_;
  }) && has_work()) {
    const OperationPtr operation = std::move(ready.front());
    ready.pop_front();
    run(operation, lock);
  }
  streams_.erase(stream);
  changed_.notify_all();  // before the lock is released: the queue may be destroyed right after
}

std::size_t WorkQueue::choose() {
  if (!is_inline()) return below(ready_.size());
  const auto first = std::ranges::min_element(ready_, {}, &Operation::number);
  return static_cast<std::size_t>(first - ready_.begin());
}

OperationPtr WorkQueue::take(std::size_t number) {
  std::swap(ready_[number], ready_.back());
  OperationPtr operation = std::move(ready_.back());
  ready_.pop_back();
  return operation;
}

void WorkQueue::wait(const OperationPtr& operation) {
  std::unique_lock lock(mutex_);
  while (!operation->is_done) {
    if (ready_.empty()) {
      changed_.wait(lock);  // another thread runs an operation that this one waits for
    } else {
      start(take(choose()), lock);
    }
  }
}

void WorkQueue::wait(int device) {
  std::vector<OperationPtr> pending;
  {
    const std::lock_guard lock(mutex_);
    pending = pending_;
  }
  for (const OperationPtr& operation : pending) {
    if (operation->task.device == device) wait(operation);
  }
}

void WorkQueue::run_some() {
  std::unique_lock lock(mutex_);
  while (!ready_.empty()) {
    start(take(choose()), lock);
    if (!is_inline()) return;
  }
}

void WorkQueue::run_some_added() {
  std::unique_lock lock(mutex_);
  if (ready_.empty() || below(4) != 0) return;
  const std::size_t number = choose();
  const Work* const work = ready_[number]->task.work.get();
  const bool calls_back = work != nullptr && std::holds_alternative<HostWork>(*work);
  if (!calls_back) start(take(number), lock);
}

bool WorkQueue::is_eager() {
  const std::lock_guard lock(mutex_);
  return executor_ != HostExecutor::kRandom || below(2) == 0;
}

}  // namespace cgtree::host
