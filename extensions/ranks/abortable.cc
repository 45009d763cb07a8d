// Waits for an abort and then for the uses in progress, on a separate thread.
#include "extensions/ranks/abortable.h"

#include <new>

namespace cgtree {

Abortable::Abortable(std::function<void()> free, std::chrono::milliseconds patience)
    : free_(std::move(free)), patience_(patience), thread_([this] { run(); }) {
}

void Abortable::run() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_aborted_ || has_ended_; });
    if (!is_aborted_) return;
    (void)changed_.wait_for(lock, patience_, [&] { return uses_ == 0; });
  }
  free_();
}

Abortable::Use Abortable::use() noexcept {
  const std::lock_guard lock(mutex_);
  if (is_aborted_) return Use(nullptr);
  ++uses_;
  return Use(this);
}

void Abortable::end_use() noexcept {
  const std::lock_guard lock(mutex_);
  --uses_;
  changed_.notify_all();
}

void Abortable::abort(std::string_view why) noexcept {
  const std::lock_guard lock(mutex_);
  if (is_aborted_ || has_ended_) return;
  is_aborted_ = true;
  changed_.notify_all();
  try {
    why_ = why;
  } catch (const std::bad_alloc&) {  // it ends without a reason
  }
}

bool Abortable::is_aborted() const noexcept {
  const std::lock_guard lock(mutex_);
  return is_aborted_;
}

std::string Abortable::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

bool Abortable::end() noexcept {
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  return is_aborted();
}

}  // namespace cgtree
