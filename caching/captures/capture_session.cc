// Defers frees until the captured graph allows the memory to be used again.
#include "caching/captures/capture_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "allocator/pool/block.h"
#include "base/error.h"

namespace cgtree {
namespace {

void* pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);
}

}  // namespace

CaptureSession::CaptureSession(CapturePools& pools, DeferredFrees frees, CaptureOrder& order)
    : pools_(pools), order_(order), frees_(std::move(frees)) {
}

CaptureSession::~CaptureSession() {
  end();
}

void* CaptureSession::allocate(std::size_t bytes, StreamId stream) {
  std::unique_lock lock(mutex_);
  if (has_ended_) throw InvalidArgument("the capture has ended; begin another before allocating");
  std::size_t number = choose(bytes, stream);
  if (number == kNone) {
    lock.unlock();
    number = pools_.add(stream);
    lock.lock();
    hold_of(number).holder = stream;
  }
  ++hold_of(number).allocating;
  lock.unlock();
  void* address = nullptr;
  try {
    address = pools_.pool(number).allocate(bytes);
    lock.lock();
    blocks_[reinterpret_cast<std::uintptr_t>(address)] = {number, {stream}};
  } catch (...) {
    if (address != nullptr) pools_.pool(number).free(address);
    if (!lock.owns_lock()) lock.lock();
    --hold_of(number).allocating;
    throw;
  }
  --hold_of(number).allocating;
  return address;
}

// Returns the pool to serve from: one that has room if possible, the stream's own first; else one
// that may grow. Returns kNone if the stream can hold none.
std::size_t CaptureSession::choose(std::size_t bytes, StreamId stream) {
  const std::size_t count = pools_.count();
  if (count == 0) {
    require_captured(stream);
    return kNone;
  }
  hold_of(count - 1);
  std::size_t own = kNone;
  for (std::size_t i = 0; i < count; ++i) {
    if (holds_[i].holder != stream) continue;
    free_joined(i);
    if (count == 1 || can_serve(i, bytes)) return i;
    if (own == kNone) own = i;
  }
  require_captured(stream);
  for (std::size_t i = 0; i < count; ++i) {
    const bool may_serve = can_serve(i, bytes) || !holds_[i].deferred.empty();
    if (holds_[i].holder == stream || !may_serve || !try_hold(i, stream)) continue;
    if (can_serve(i, bytes)) return i;
    own = i;
  }
  for (std::size_t i = 0; own == kNone && i < count; ++i) {
    if (!holds_[i].holder && try_hold(i, stream)) own = i;
  }
  return own;
}

void CaptureSession::require_captured(StreamId stream) {
  if (order_.terminals(stream)) return;
  throw InvalidArgument(fmt::format(
      "stream {:#x} is not part of the capture: let it wait for one that is, or allocate before",
      stream));
}

// Makes the stream the holder of the pool if the order allows it.
bool CaptureSession::try_hold(std::size_t number, StreamId stream) {
  Hold& hold = holds_[number];
  if (hold.allocating > 0) return false;
  if (!hold.holder) {
    if (!pools_.try_take(number, stream)) return false;
  } else {
    const std::optional<std::vector<NodeId>> from = order_.terminals(*hold.holder);
    if (!from || !order_.precedes(*from, stream)) return false;
  }
  hold.holder = stream;
  free_joined(number);
  return true;
}

bool CaptureSession::can_serve(std::size_t number, std::size_t bytes) {
  if (bytes > kLargestRequest) return false;
  return pools_.pool(number).statistics().largest_free_block >= block_bytes(bytes);
}

void CaptureSession::free_joined(std::size_t number) {
  Hold& hold = holds_[number];
  for (auto queue = hold.deferred.begin(); queue != hold.deferred.end();) {
    std::deque<Deferred>& blocks = queue->second;
    while (!blocks.empty() && order_.precedes(blocks.front().marker, *hold.holder)) {
      free_now(number, blocks.front().address);
      blocks.pop_front();
    }
    queue = blocks.empty() ? hold.deferred.erase(queue) : std::next(queue);
  }
}

void CaptureSession::free_now(std::size_t number, std::uintptr_t address) {
  pools_.pool(number).free(pointer(address));
  blocks_.erase(address);
}

void CaptureSession::expect_not_freed(std::uintptr_t address, const Block& block) {
  if (!block.is_deferred) return;
  throw InvalidArgument(fmt::format(
      "{:#x} is freed already in this capture; free a block once, after its last use", address));
}

bool CaptureSession::has(StreamId stream) {
  const std::lock_guard lock(mutex_);
  return !has_ended_ && order_.terminals(stream).has_value();
}

bool CaptureSession::use(void* address, StreamId stream) {
  const std::lock_guard lock(mutex_);
  if (has_ended_) return false;
  const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == blocks_.end()) return false;
  Block& block = found->second;
  expect_not_freed(found->first, block);
  if (!order_.terminals(stream)) {
    pools_.use_outside(block.pool, address, stream);
    block.stays = true;
    return true;
  }
  const auto place = std::lower_bound(block.uses.begin(), block.uses.end(), stream);
  if (place == block.uses.end() || *place != stream) block.uses.insert(place, stream);
  return true;
}

bool CaptureSession::free(void* address, std::size_t number) {
  const std::lock_guard lock(mutex_);
  if (has_ended_) return false;
  const auto key = reinterpret_cast<std::uintptr_t>(address);
  auto found = blocks_.find(key);
  if (found == blocks_.end()) {
    pools_.expect_live(number, address);
    found = blocks_.emplace(key, Block{number, {}, true}).first;
  }
  Block& block = found->second;
  expect_not_freed(key, block);
  Hold& hold = hold_of(block.pool);
  if (!block.stays && hold.holder && block.uses == std::vector{*hold.holder}) {
    free_now(block.pool, key);
    return true;
  }
  block.is_deferred = true;
  if (block.stays) return true;
  try {
    defer(key, block, hold);
  } catch (const std::exception&) {
    block.stays = true;  // without a marker the block waits for the end
  }
  return true;
}

void CaptureSession::defer(std::uintptr_t address, Block& block, Hold& hold) {
  std::vector<NodeId> marker;
  for (const StreamId stream : block.uses) {
    const std::optional<std::vector<NodeId>> nodes = order_.terminals(stream);
    if (!nodes) throw CaptureError(0, "a stream has left the capture");
    marker.insert(marker.end(), nodes->begin(), nodes->end());
  }
  hold.deferred[block.uses].push_back({address, std::move(marker)});
}

CaptureSession::Hold& CaptureSession::hold_of(std::size_t number) {
  if (number >= holds_.size()) holds_.resize(number + 1);
  return holds_[number];
}

void CaptureSession::end() noexcept {
  std::unique_lock lock(mutex_);
  if (std::exchange(has_ended_, true)) return;
  for (const auto& [address, block] : blocks_) {
    if (block.is_deferred) pools_.free_outside(block.pool, pointer(address));
  }
  for (std::size_t i = 0; i < holds_.size(); ++i) {
    if (holds_[i].holder) pools_.hand_back(i, *holds_[i].holder);
  }
  blocks_.clear();
  holds_.clear();
  lock.unlock();
  frees_ = DeferredFrees();
}

std::size_t CaptureSession::deferred_blocks() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::count_if(
      blocks_.begin(), blocks_.end(), [](const auto& entry) { return entry.second.is_deferred; }));
}

CaptureScope begin_capture(CachingAllocator& allocator, const PoolHandle& pool,
                           std::span<const StreamId> streams, CaptureOrder& order) {
  return allocator.begin_capture(pool, streams, [&](CapturePools& pools, DeferredFrees frees) {
    return std::make_shared<CaptureSession>(pools, std::move(frees), order);
  });
}

}  // namespace cgtree
