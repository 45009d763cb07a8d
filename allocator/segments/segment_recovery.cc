// How a segment cache makes room when the budget or upstream refuses.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "allocator/segments/segment_cache.h"
#include "allocator/segments/segment_user.h"
#include "base/error.h"

namespace cgtree {
namespace {

// What must be given back for `level` to have room; upstream does not say how much it misses.
std::size_t missing(std::size_t bytes, const Budget* level) {
  if (level == nullptr) return SIZE_MAX;
  return bytes - std::min(bytes, level->available());
}

}  // namespace

struct SegmentCache::Recovered {
  std::size_t trash = 0;
  std::size_t cached = 0;
  std::size_t users = 0;      // by pools, to the cache
  std::size_t observers = 0;  // as they say
  bool has_waited = false;
};

bool SegmentCache::take(std::size_t bytes, Refusal& refusal, const std::function<void()>& call) {
  if (const Budget* const level = budget_ == nullptr ? nullptr : budget_->try_reserve(bytes)) {
    refusal = {level, fmt::format("the budget '{}' allows {} bytes, of which {} are in use",
                                  level->name(), level->max_bytes(), level->current())};
    return false;
  }
  try {
    call();
    return true;
  } catch (const OutOfMemory& error) {
    if (budget_ != nullptr) budget_->release(bytes);
    refusal = {nullptr, std::string(error.message())};
    return false;
  } catch (...) {
    if (budget_ != nullptr) budget_->release(bytes);
    throw;
  }
}

// No stage is skipped because another thread freed meanwhile: each ends with an attempt.
void SegmentCache::recover(std::size_t bytes, Refusal& refusal, const Attempt& attempt) {
  Recovered recovered;
  recovered.trash = give_back(missing(bytes, refusal.level), Which::kTrash, nullptr);
  if (recovered.trash > 0 && attempt()) return;
  recovered.cached = give_back(missing(bytes, refusal.level), Which::kAll, nullptr);
  if (recovered.cached > 0 && attempt()) return;
  if (ask_users(bytes, refusal, attempt, recovered.users)) return;
  if (ask_observers(bytes, refusal, attempt, recovered)) return;
  recovered.has_waited = progress_.pending_events() > 0 && progress_.wait_all();
  if (recovered.has_waited && attempt()) return;
  if (recovered.has_waited && ask_users(bytes, refusal, attempt, recovered.users)) return;
  refuse(bytes, refusal, recovered);
}

// Asks one pool after the other for its unused segments, and gives them back.
bool SegmentCache::ask_users(std::size_t bytes, const Refusal& refusal, const Attempt& attempt,
                             std::size_t& given) {
  bool succeeded = false;
  users_.call_until([&](SegmentUser* user) {
    const std::size_t now = user->give_back_unused();
    given += now;
    if (now == 0) return false;
    // One of them may have the size that is asked for.
    succeeded = attempt() ||
                (give_back(missing(bytes, refusal.level), Which::kAll, nullptr) > 0 && attempt());
    return succeeded;
  });
  return succeeded;
}

bool SegmentCache::ask_observers(std::size_t bytes, const Refusal& refusal, const Attempt& attempt,
                                 Recovered& recovered) {
  bool succeeded = false;
  observers_.call_until([&](const Observer& observer) {
    const std::size_t now = observer(bytes);
    recovered.observers += now;
    if (now == 0) return false;
    succeeded = attempt() || ask_users(bytes, refusal, attempt, recovered.users);
    return succeeded;
  });
  return succeeded;
}

void SegmentCache::refuse(std::size_t bytes, const Refusal& refusal, const Recovered& recovered) {
  MemoryReport report{.requested = bytes, .capture_open = is_capture_open()};
  users_.call_until([&](SegmentUser* user) {
    report.pools.push_back(user->use());
    return false;
  });
  const SegmentCacheStatistics now = statistics();
  std::string message = fmt::format(
      "no segment of {} bytes: {}; in use {}, cached {}, trash {}; given back: trash {}, cached "
      "{}, "
      "by {} pools {}, by observers {}; {}",
      bytes, refusal.reason, now.bytes_in_use, now.bytes_cached, now.bytes_trash, recovered.trash,
      recovered.cached, report.pools.size(), recovered.users, recovered.observers,
      recovered.has_waited ? "waited for the streams" : "nothing to wait for");
  for (const PoolUse& pool : report.pools) {
    message += fmt::format("; pool '{}' reserved {}, live {}", pool.name, pool.reserved, pool.live);
  }
  message += report.capture_open
                 ? "; a capture is open, so nothing can be given back to the device: end it, or "
                   "reserve the memory before"
                 : "; drop tensors, trim() pools or raise the budget";
  throw OutOfMemory(message, std::move(report));
}

}  // namespace cgtree
