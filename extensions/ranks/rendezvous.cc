// Counts the ranks that have come, and names the others.
#include "extensions/ranks/rendezvous.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace cgtree {

Rendezvous::Rendezvous(int size, std::chrono::milliseconds limit)
    : limit_(limit), is_here_(static_cast<std::size_t>(std::max(size, 0))), left_(is_here_.size()) {
  if (size < 1) throw InvalidArgument(str_format("{} ranks: give at least 1", size));
  if (limit.count() <= 0) {
    throw InvalidArgument(
        str_format("a time limit of {} ms: a rank waits for the others for as long, give at least "
                   "1 ms",
                   limit.count()));
  }
}

bool Rendezvous::meet(int rank, const Enter& enter, const Change& complete) {
  std::unique_lock lock(mutex_);
  if (has_failed_) return false;
  if (const std::string* const why = left()) return fail_locked(*why);
  if (here_ == 0) first_ = rank;
  if (std::string why = enter ? enter(first_) : ""; !why.empty())
    return fail_locked(std::move(why));
  if (here_ + 1 == size()) {
    if (complete) complete();
    is_here_.assign(is_here_.size(), false);
    here_ = 0;
    ++meeting_;
    changed_.notify_all();
    return true;
  }
  const std::uint64_t meeting = meeting_;
  is_here_[static_cast<std::size_t>(rank)] = true;
  ++here_;
  const bool came =
      changed_.wait_for(lock, limit_, [&] { return meeting_ != meeting || has_failed_; });
  if (meeting_ != meeting) return true;  // even if a rank left since
  return came ? false : fail_locked(missing());
}

bool Rendezvous::wait(int rank, const std::function<bool()>& is_done, const Check& why) {
  std::unique_lock lock(mutex_);
  const bool ended = changed_.wait_for(
      lock, limit_, [&] { return is_done() || has_failed_ || left(rank) != nullptr; });
  if (is_done()) return true;
  if (const std::string* const text = left(rank)) return fail_locked(*text);
  return ended ? false : fail_locked(why());
}

bool Rendezvous::change(const Check& change) {
  const std::lock_guard lock(mutex_);
  if (has_failed_) return false;
  if (std::string why = change(); !why.empty()) return fail_locked(std::move(why));
  changed_.notify_all();
  return true;
}

void Rendezvous::fail(std::string why) noexcept {
  const std::lock_guard lock(mutex_);
  fail_locked(std::move(why));
}

void Rendezvous::leave(int rank, std::string why) noexcept {
  const std::lock_guard lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = std::move(why);
  if (here_ > 0) fail_locked(*left(rank));
  changed_.notify_all();
}

const std::string* Rendezvous::left(int rank) const noexcept {
  for (std::size_t i = 0; i < left_.size(); ++i) {
    const bool is_asked = rank < 0 || static_cast<std::size_t>(rank) == i;
    if (is_asked && !left_[i].empty()) return &left_[i];
  }
  return nullptr;
}

std::string Rendezvous::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool Rendezvous::has_failed() const noexcept {
  const std::lock_guard lock(mutex_);
  return has_failed_;
}

bool Rendezvous::fail_locked(std::string why) noexcept {
  if (has_failed_) return false;
  has_failed_ = true;
  failure_ = std::move(why);
  changed_.notify_all();
  return false;
}

std::string Rendezvous::missing() const {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < is_here_.size(); ++rank) {
    if (!is_here_[rank]) ranks.push_back(rank);
  }
  return str_format("{} {} of {} did not come within {} ms", ranks.size() == 1 ? "rank" : "ranks",
                    joined(ranks, ", "), size(), limit_.count());
}

}  // namespace cgtree
