// Caches segments, and makes room when a budget or a source refuses.
#include "allocator/segments/segment_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log_event.h"

namespace cgtree {
namespace {

std::uintptr_t number(const void* segment) {
  return reinterpret_cast<std::uintptr_t>(segment);
}

void* pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);
}

template <typename T>
std::shared_ptr<T> not_owned(T& object) {
  return std::shared_ptr<T>(std::shared_ptr<void>(), &object);
}

}  // namespace

// A Request is a request for memory while room is made for it.
struct SegmentCache::Request {
  std::size_t bytes = 0;
  Budget* reserve = nullptr;
  const SegmentAccount* account = nullptr;  // the only one that can help; null: all accounts of the
                                            // reserve
  std::function<bool()> attempt = nullptr;

  // The reason that the last attempt failed. The budget is null if the source refused.
  const Budget* refused_by = nullptr;
  std::string reason = {};

  // The recovered bytes, by stage.
  std::size_t deferred = 0;
  std::size_t cached = 0;
  std::size_t by_users = 0;     // given back to the cache by pools
  std::size_t by_reclaims = 0;  // as reported by the callbacks
  bool has_waited = false;

  // Returns the bytes to give back for the budget to have room. A source does not report the bytes
  // that it lacks.
  std::size_t missing() const {
    if (refused_by == nullptr) return SIZE_MAX;
    return bytes - std::min(bytes, refused_by->available());
  }
  Filter filter() const { return {.reserve = reserve}; }
};

SegmentCache::SegmentCache(SegmentSource& upstream, Budget* budget, StreamEvents* events)
    : own_budget_(budget == nullptr ? std::optional<Budget>(std::in_place, "device")
                                    : std::nullopt),
      reserve_(not_owned(budget == nullptr ? *own_budget_ : *budget)),
      upstream_(not_owned(upstream)),
      gate_([this] { give_back(SIZE_MAX, Which::kDeferred, {}); }),
      progress_(events, gate_) {
}

SegmentCache::~SegmentCache() {
  CGTREE_CHECK(!gate_.is_held());
  trim();
  if (in_use_.empty()) return;
  log_event(LogLevel::kError, "segment_cache_destroyed_with_segments_in_use segments={} bytes={}",
            in_use_.size(), totals_.bytes_in_use);
  for (const auto& [key, held] : in_use_)
    held.reserve->release(key.bytes - held.unmapped);
  own_account_.budget().release(own_account_.budget().current());
}

class SegmentCache::Return {
 public:
  explicit Return(SegmentCache& cache) : cache_(cache) {
    const std::lock_guard lock(cache_.mutex_);
    ++cache_.returns_begun_;
  }
  ~Return() {
    const std::lock_guard lock(cache_.mutex_);
    ++cache_.returns_ended_;
    cache_.return_ended_.notify_all();
  }
  Return(const Return&) = delete;
  Return& operator=(const Return&) = delete;

 private:
  SegmentCache& cache_;
};

// Waits until all returns that had begun have ended. Returns false if none was in progress.
// Requires: this thread is in none.
bool SegmentCache::wait_for_returns() noexcept {
  std::unique_lock lock(mutex_);
  if (returns_ended_ == returns_begun_) return false;
  return_ended_.wait(lock, [this, begun = returns_begun_] { return returns_ended_ >= begun; });
  return true;
}

void* SegmentCache::allocate_for(SegmentAccount& account, std::size_t bytes, StreamId stream,
                                 Room room) {
  charge(account, bytes, room);
  try {
    return allocate_charged(account, bytes, stream, room);
  } catch (...) {
    account.budget().release(bytes);
    throw;
  }
}

// Reserves in the account's budget, or throws OutOfMemory.
void SegmentCache::charge(SegmentAccount& account, std::size_t bytes, Room room) {
  if (account.budget().try_reserve(bytes)) return;
  if (room == Room::kFree) {
    throw OutOfMemory(
        str_format("the budget '{}' has no room for {} bytes", account.budget().name(), bytes));
  }
  Request request{.bytes = bytes, .reserve = reserve_of(account).get(), .account = &account};
  request.attempt = [&] { return account.budget().try_reserve(bytes); };
  request.refused_by = &account.budget();
  if (bytes <= account.budget().max_bytes()) {
    if (wait_for_returns() && request.attempt()) return;
    if (ask_users(request) || ask_reclaims(request)) return;
    if (wait_for_returns() && request.attempt()) return;
  }
  refuse(request);
}

void* SegmentCache::allocate_charged(SegmentAccount& account, std::size_t bytes, StreamId stream,
                                     Room room) {
  const Source& source = source_of(account);
  if (void* const segment = reuse(source, bytes, stream)) return segment;
  const Key key{source.get(), bytes, 0};
  Segments::node_type node =
      Segments{{key, Held{source, reserve_of(account), stream, {}}}}.extract(key);
  Request request{.bytes = bytes, .reserve = reserve_of(account).get()};
  void* segment = nullptr;
  // After the source has allocated, no step can fail.
  const auto call = [&] {
    segment = source->allocate(bytes, stream);
    node.key().address = number(segment);
    const std::lock_guard lock(mutex_);
    CGTREE_CHECK(in_use_.insert(std::move(node)).inserted);
    totals_.bytes_in_use += bytes;
  };
  if (take(request, call)) return segment;
  if (room == Room::kFree) throw OutOfMemory(request.reason);
  request.attempt = [&] {
    segment = reuse(source, bytes, stream);
    return segment != nullptr || take(request, call);
  };
  recover(request);
  return segment;
}

// Returns a cached segment of exactly `bytes`, or null if none may be used on `stream` now.
void* SegmentCache::reuse(const Source& source, std::size_t bytes, StreamId stream) {
  bool is_waiting = false;
  if (void* const segment = try_reuse(source, bytes, stream, is_waiting)) return segment;
  if (!is_waiting) return nullptr;
  progress_.poll();
  return try_reuse(source, bytes, stream, is_waiting);
}

void* SegmentCache::try_reuse(const Source& source, std::size_t bytes, StreamId stream,
                              bool& is_waiting) {
  const std::lock_guard lock(mutex_);
  auto complete = cached_.end();
  for (auto entry = cached_.lower_bound({source.get(), bytes, 0}); entry != cached_.end();
       ++entry) {
    if (entry->first.source != source.get() || entry->first.bytes != bytes) break;
    if (entry->second.unmapped > 0) continue;
    if (entry->second.stream == stream) return take_cached(entry, stream);
    if (complete != cached_.end()) continue;
    if (progress_.is_complete(entry->second.point)) {
      complete = entry;
    } else {
      is_waiting = true;
    }
  }
  return complete == cached_.end() ? nullptr : take_cached(complete, stream);
}

void* SegmentCache::take_cached(Segments::iterator segment, StreamId stream) noexcept {
  Segments::node_type node = cached_.extract(segment);
  Held& held = node.mapped();
  totals_.bytes_cached -= node.key().bytes;
  totals_.bytes_in_use += node.key().bytes;
  if (held.is_deferred) totals_.bytes_deferred -= node.key().bytes;
  held.is_deferred = false;
  held.stream = stream;
  void* const address = pointer(node.key().address);
  in_use_.insert(std::move(node));
  return address;
}

void SegmentCache::free_for(SegmentAccount& account, void* segment, std::size_t bytes,
                            StreamId stream) noexcept {
  const Return in_progress(*this);
  const StreamPoint point = progress_.now(stream);
  std::size_t mapped = bytes;
  {
    const std::lock_guard lock(mutex_);
    Segments::node_type node = in_use_.extract({source_of(account).get(), bytes, number(segment)});
    CGTREE_CHECK(!node.empty());
    node.mapped().stream = stream;
    node.mapped().point = point;
    mapped -= node.mapped().unmapped;
    cached_.insert(std::move(node));
    totals_.bytes_in_use -= mapped;
    totals_.bytes_cached += mapped;
  }
  account.budget().release(mapped);
}

bool SegmentCache::grow_for(SegmentAccount& account, void* segment, std::size_t bytes,
                            std::size_t grown, StreamId stream) {
  CGTREE_CHECK(grown > bytes);
  charge(account, grown - bytes, Room::kMade);
  bool has_grown = false;
  try {
    has_grown = grow_charged(account, segment, bytes, grown, stream);
  } catch (...) {
    account.budget().release(grown - bytes);
    throw;
  }
  if (!has_grown) account.budget().release(grown - bytes);
  return has_grown;
}

bool SegmentCache::grow_charged(SegmentAccount& account, void* segment, std::size_t bytes,
                                std::size_t grown, StreamId stream) {
  const Source& source = source_of(account);
  Budget& reserve = *reserve_of(account);
  bool has_grown = false;
  Request request{.bytes = grown - bytes, .reserve = &reserve};
  const auto call = [&] { has_grown = source->grow(segment, bytes, grown, stream); };
  request.attempt = [&] { return take(request, call); };
  if (!request.attempt()) recover(request);
  if (has_grown) {
    resize({source.get(), bytes, number(segment)}, grown);
  } else {
    reserve.release(request.bytes);
  }
  return has_grown;
}

std::size_t SegmentCache::shrink_for(SegmentAccount& account, void* segment, std::size_t bytes,
                                     std::size_t least, StreamId stream) noexcept {
  const GateEntry entry(gate_);
  if (!entry) return bytes;
  const Return in_progress(*this);
  const Source& source = source_of(account);
  const std::size_t left = source->shrink(segment, bytes, least, progress_.in_source(stream));
  if (left == bytes) return bytes;
  resize({source.get(), bytes, number(segment)}, left);
  reserve_of(account)->release(bytes - left);
  account.budget().release(bytes - left);
  return left;
}

void SegmentCache::map_for(SegmentAccount& account, void* segment, std::size_t bytes,
                           std::size_t offset, std::size_t count, StreamId stream) {
  charge(account, count, Room::kMade);
  try {
    const Source& source = source_of(account);
    Request request{.bytes = count, .reserve = reserve_of(account).get()};
    const auto call = [&] { source->map(segment, bytes, offset, count, stream); };
    request.attempt = [&] { return take(request, call); };
    if (!request.attempt()) recover(request);
    note_mapped({source.get(), bytes, number(segment)}, count, true);
  } catch (...) {
    account.budget().release(count);
    throw;
  }
}

bool SegmentCache::unmap_for(SegmentAccount& account, void* segment, std::size_t bytes,
                             std::size_t offset, std::size_t count, StreamId stream) noexcept {
  const GateEntry entry(gate_);
  if (!entry) return false;
  const Return in_progress(*this);
  const Source& source = source_of(account);
  if (!source->unmap(segment, bytes, offset, count, progress_.in_source(stream))) return false;
  note_mapped({source.get(), bytes, number(segment)}, count, false);
  reserve_of(account)->release(count);
  account.budget().release(count);
  return true;
}

void SegmentCache::note_mapped(const Key& key, std::size_t bytes, bool is_mapped) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = in_use_.find(key);
  CGTREE_CHECK(found != in_use_.end());
  if (is_mapped) {
    found->second.unmapped -= bytes;
    totals_.bytes_in_use += bytes;
  } else {
    found->second.unmapped += bytes;
    totals_.bytes_in_use -= bytes;
  }
}

void SegmentCache::resize(const Key& from, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  Segments::node_type node = in_use_.extract(from);
  CGTREE_CHECK(!node.empty());
  node.key().bytes = bytes;
  in_use_.insert(std::move(node));
  totals_.bytes_in_use += bytes;
  totals_.bytes_in_use -= from.bytes;
}

void SegmentCache::attach_for(SegmentAccount& account, SegmentUser& user) {
  users_.add({&user, &account});
}

void SegmentCache::detach(SegmentUser& user) noexcept {
  users_.remove_item([&](const User& attached) { return attached.user == &user; });
}

SegmentCache::ReclaimId SegmentCache::add_reclaim(Reclaim reclaim, const SegmentAccount* account) {
  return reclaims_.add({std::move(reclaim), account == nullptr ? &own_account_ : account});
}

DeferredFrees SegmentCache::defer_frees() {
  gate_.hold();
  return {&gate_, [](DriverGate* gate) { gate->end_hold(); }};
}

std::size_t SegmentCache::trim(const Source& source) noexcept {
  return give_back(SIZE_MAX, Which::kAll, {.source = source.get()});
}

// Gives cached segments back until they have `enough` bytes; returns how many bytes were given
// back. While a capture is open they are only marked.
std::size_t SegmentCache::give_back(std::size_t enough, Which which,
                                    const Filter& filter) noexcept {
  const GateEntry entry(gate_);
  const Return in_progress(*this);
  const Segments given = extract_cached(enough, which, filter, !entry);
  std::size_t bytes = 0;
  for (const auto& [key, held] : given) {
    // A stream whose work has ended may have been destroyed.
    const bool is_idle = progress_.is_complete(held.point);
    held.source->free(pointer(key.address), key.bytes,
                      is_idle ? kIdle : progress_.in_source(held.stream));
    held.reserve->release(key.bytes - held.unmapped);
    bytes += key.bytes - held.unmapped;
  }
  return bytes;
}

SegmentCache::Segments SegmentCache::extract_cached(std::size_t enough, Which which,
                                                    const Filter& filter, bool only_mark) noexcept {
  Segments extracted;
  std::size_t bytes = 0;
  const std::lock_guard lock(mutex_);
  for (auto next = cached_.begin(); next != cached_.end() && bytes < enough;) {
    const auto entry = next++;
    Held& held = entry->second;
    if (which == Which::kDeferred && !held.is_deferred) continue;
    if (filter.source != nullptr && entry->first.source != filter.source) continue;
    if (filter.reserve != nullptr && held.reserve.get() != filter.reserve) continue;
    bytes += bytes_of(*entry);
    if (only_mark) {
      if (!held.is_deferred) totals_.bytes_deferred += bytes_of(*entry);
      held.is_deferred = true;
      continue;
    }
    totals_.bytes_cached -= bytes_of(*entry);
    if (held.is_deferred) totals_.bytes_deferred -= bytes_of(*entry);
    extracted.insert(cached_.extract(entry));
  }
  return extracted;
}

// Reserves bytes and makes the call. Returns false, with the reason in the request, if the reserve
// or the source has no room; nothing is reserved then, nor if it throws.
bool SegmentCache::take(Request& request, const std::function<void()>& call) {
  Budget& reserve = *request.reserve;
  if (!reserve.try_reserve(request.bytes)) {
    request.refused_by = &reserve;
    request.reason = str_format("the budget '{}' allows {} bytes, of which {} are in use",
                                reserve.name(), reserve.max_bytes(), reserve.current());
    return false;
  }
  request.refused_by = nullptr;
  try {
    call();
    return true;
  } catch (const OutOfMemory& error) {
    reserve.release(request.bytes);
    request.reason = error.message();
    return false;
  } catch (...) {
    reserve.release(request.bytes);
    throw;
  }
}

// Takes one stage after another until an attempt succeeds, or throws OutOfMemory. No stage is
// skipped because another thread freed memory meanwhile: each ends with an attempt.
void SegmentCache::recover(Request& request) {
  if (request.bytes > request.reserve->max_bytes()) refuse(request);
  request.deferred = give_back(request.missing(), Which::kDeferred, request.filter());
  if (request.deferred > 0 && request.attempt()) return;
  request.cached = give_back(request.missing(), Which::kAll, request.filter());
  if (request.cached > 0 && request.attempt()) return;
  if (wait_for_returns() && request.attempt()) return;
  if (ask_users(request)) return;
  if (ask_reclaims(request)) return;
  if (progress_.pending_events() > 0) {
    // The finished work may help, even if one stream could not be waited for.
    request.has_waited = progress_.wait_all();
    if (request.attempt() || ask_users(request)) return;
  }
  if (wait_for_returns() && request.attempt()) return;
  refuse(request);
}

bool SegmentCache::can_help(const Request& request, const SegmentAccount& account) const noexcept {
  if (request.account != nullptr) return &account == request.account;
  return reserve_of(account).get() == request.reserve;
}

// Asks one pool after another for its unused segments, and gives those back.
bool SegmentCache::ask_users(Request& request) {
  bool succeeded = false;
  users_.call_until([&](const User& entry) {
    if (!can_help(request, *entry.account)) return false;
    const std::size_t now = [&] {
      const Return in_progress(*this);
      return entry.user->give_back_unused();
    }();
    request.by_users += now;
    if (now == 0) return false;
    // One of the segments may have the requested size.
    succeeded = request.attempt();
    if (!succeeded && request.account == nullptr) {
      succeeded =
          give_back(request.missing(), Which::kAll, request.filter()) > 0 && request.attempt();
    }
    return succeeded;
  });
  return succeeded;
}

bool SegmentCache::ask_reclaims(Request& request) {
  bool succeeded = false;
  reclaims_.call_until([&](const Callback& callback) {
    if (!can_help(request, *callback.account)) return false;
    const std::size_t now = callback.reclaim(request.bytes);
    request.by_reclaims += now;
    if (now == 0) return false;
    succeeded = request.attempt() || ask_users(request);
    // The segments of a context that ended in the call are cached.
    if (!succeeded && give_back(request.missing(), Which::kAll, request.filter()) > 0)
      succeeded = request.attempt();
    return succeeded;
  });
  return succeeded;
}

void SegmentCache::report_users(const Request& request, MemoryReport& report) {
  users_.call_until([&](const User& entry) {
    if (can_help(request, *entry.account)) report.pools.push_back(entry.user->use());
    return false;
  });
}

void SegmentCache::refuse(const Request& request) {
  MemoryReport report{.requested = request.bytes};
  report_users(request, report);
  if (request.account != nullptr) {
    const Budget& budget = *request.refused_by;
    throw OutOfMemory(
        str_format("{} bytes more would exceed the budget '{}' of {} bytes, of which {} are in use",
                   request.bytes, budget.name(), budget.max_bytes(), budget.current()),
        std::move(report));
  }
  report.capture_open = gate_.is_held();
  const SegmentCacheStatistics now = statistics();
  std::string message = str_format(
      "no segment of {} bytes: {}; in use {}, cached {}, deferred frees {}; given back: deferred "
      "frees {}, cached {}, by {} pools {}, by reclaim callbacks {}; {}",
      request.bytes, request.reason, now.bytes_in_use, now.bytes_cached, now.bytes_deferred,
      request.deferred, request.cached, report.pools.size(), request.by_users, request.by_reclaims,
      request.has_waited ? "waited for the streams" : "nothing to wait for");
  for (const PoolUse& pool : report.pools) {
    message += str_format("; pool '{}' reserved {}, live {}", pool.name, pool.reserved, pool.live);
  }
  message += report.capture_open
                 ? "; a capture is open, so nothing can be given back to the device: end it, or "
                   "reserve the memory before"
                 : "; drop tensors, trim() pools or raise the budget";
  throw OutOfMemory(message, std::move(report));
}

SegmentCacheStatistics SegmentCache::statistics() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

void SegmentCache::validate() const {
  const std::lock_guard lock(mutex_);
  SegmentCacheStatistics sums;
  std::size_t reserved = 0;  // in the cache's own reserve
  for (const auto& entry : in_use_) {
    sums.bytes_in_use += bytes_of(entry);
    if (entry.second.reserve == reserve_) reserved += bytes_of(entry);
  }
  for (const auto& entry : cached_) {
    const Held& held = entry.second;
    sums.bytes_cached += bytes_of(entry);
    if (held.reserve == reserve_) reserved += bytes_of(entry);
    if (held.is_deferred) sums.bytes_deferred += bytes_of(entry);
    CGTREE_CHECK(!held.is_deferred || gate_.is_held());
  }
  CGTREE_CHECK(sums == totals_);
  CGTREE_CHECK(!own_budget_ || own_budget_->current() == reserved);
}

}  // namespace cgtree
