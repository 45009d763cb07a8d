// Counts what each operation waits for; and the three queues, which differ in when work runs.
#include "simulator/work_queue.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <random>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"

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
  operation->code = code;
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
    changed_.notify_all();  // before the lock is released: the queue may end right after
  }).detach();
}

void WorkQueue::wait_for_started() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return started_ == 0; });
}

namespace {

// An InlineQueue runs work when it is added.
class InlineQueue final : public WorkQueue {
 public:
  explicit InlineQueue(Perform perform) : WorkQueue(std::move(perform)) {}
  ~InlineQueue() override { wait_for_started(); }

  Code wait(const OperationPtr& operation) override {
    std::unique_lock lock(mutex_);
    while (!operation->is_done) {
      ready_.empty() ? changed_.wait(lock) : start(take(), lock);
    }
    return operation->code;
  }
  void nudge(Nudge) override {
    std::unique_lock lock(mutex_);
    while (!ready_.empty())
      start(take(), lock);
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

namespace {

constexpr auto kPatience = std::chrono::milliseconds(20);  // how long an idle thread waits for work

// A ThreadsQueue has one thread per stream.
class ThreadsQueue final : public WorkQueue {
 public:
  explicit ThreadsQueue(Perform perform) : WorkQueue(std::move(perform)) {}

  // Ready work runs first; it may make more work ready.
  ~ThreadsQueue() override {
    std::unique_lock lock(mutex_);
    ends_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return streams_.empty(); });
  }

  Code wait(const OperationPtr& operation) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return operation->is_done; });
    return operation->code;
  }

 private:
  using Ready = std::deque<OperationPtr>;

  // A stream has a thread as long as it is in the table.
  void make_ready(const OperationPtr& operation) override {
    const auto [stream, is_new] = streams_.try_emplace(operation->task.stream_number);
    stream->second.push_back(operation);
    if (is_new) std::thread(&ThreadsQueue::serve, this, stream->first).detach();
  }

  void serve(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    Ready& ready = streams_.find(number)->second;  // insertions and erasures do not move it
    const auto has_work = [&] { return !ready.empty(); };
    while (changed_.wait_for(lock, ends_ ? std::chrono::milliseconds(0) : kPatience, [&] {
      return has_work() || ends_;
    }) && has_work()) {
      const OperationPtr operation = std::move(ready.front());
      ready.pop_front();
      run(operation, lock);
    }
    streams_.erase(number);
    changed_.notify_all();  // before the lock is released: the queue may end right after
  }

  std::unordered_map<std::uint64_t, Ready> streams_;  // ready work by stream number
  bool ends_ = false;
};

}  // namespace

std::unique_ptr<WorkQueue> make_threads_queue(WorkQueue::Perform perform) {
  return std::make_unique<ThreadsQueue>(std::move(perform));
}

namespace {

// A RandomQueue runs work in a random order, which shows what a program relies on without a
// promise.
class RandomQueue final : public WorkQueue {
 public:
  RandomQueue(Perform perform, std::uint64_t seed) : WorkQueue(std::move(perform)), random_(seed) {}
  ~RandomQueue() override { wait_for_started(); }

  Code wait(const OperationPtr& operation) override {
    std::unique_lock lock(mutex_);
    while (!operation->is_done) {
      if (ready_.empty()) {
        changed_.wait(lock);  // another thread runs what this one waits for
      } else {
        start(take(below(ready_.size())), lock);
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
    if (nudge == Nudge::kQueried || !calls_back) start(take(number), lock);
  }

  bool is_eager() override {
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
  // Returns 0 to count - 1. The standard's distributions differ between machines; this does not.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(random_() % count); }

  std::mt19937_64 random_;
  std::vector<OperationPtr> ready_;
};

}  // namespace

std::unique_ptr<WorkQueue> make_random_queue(WorkQueue::Perform perform, std::uint64_t seed) {
  return std::make_unique<RandomQueue>(std::move(perform), seed);
}

}  // namespace cgtree::host
