// The lane's side of ContextMemory: pools, steps, slots and generations.
#include "cgtree/memory/context_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"

namespace cgtree {
namespace {

constexpr Region kCheckpointed[] = {Region::kOutput, Region::kScratch};

}  // namespace

ContextMemory::ContextMemory(Device device, const ContextOptions& options)
    : device_(device),
      owner_(options.owner),
      shared_(options.segments == nullptr && !options.pools_grow_in_place
                  ? DeviceSegments::shared(device)
                  : nullptr),
      own_source_(options.segments == nullptr && options.pools_grow_in_place
                      ? std::make_unique<VirtualSegmentSource>(device)
                      : nullptr),
      own_cache_(shared_ == nullptr ? std::make_unique<SegmentCache>(
                                          own_source_ ? *own_source_ : *options.segments)
                                    : nullptr),
      cache_(shared_ != nullptr ? shared_->cache() : *own_cache_),
      budget_("context", options.max_bytes),
      segments_(cache_, budget_) {
  if (options.stream) {
    if (options.stream->device() != device) {
      throw InvalidArgument(fmt::format("the context is on {}, the stream given on {}",
                                        to_string(device), to_string(options.stream->device())));
    }
    stream_ = *options.stream;
  } else {
    // Blocking, so that plain copies of tensors, which use the legacy stream, are ordered with
    // calls.
    own_stream_.emplace(device, StreamKind::kBlocking);
    stream_ = own_stream_->ref();
  }
  const char* const names[] = {"output", "scratch", "eager"};
  for (int i = 0; i < 3; ++i) {
    // Recordings know addresses of the first two, whatever the pools' bookkeeping says is live.
    const bool is_recorded = i != static_cast<int>(Region::kEager);
    pools_[i] = std::make_unique<Pool>(
        segments_,
        PoolOptions{.name = names[i],
                    .growth = options.pools_grow_in_place ? Growth::kInPlace : Growth::kFast,
                    .keeps_segments = is_recorded,
                    .stream = static_cast<StreamId>(stream_.handle())});
  }
}

ContextMemory::~ContextMemory() {
  // Work that still reads or writes the pools must end before their memory goes back.
  const bool has_ended = wait_for_stream();
  free_slots();
  for (auto& pool : pools_)
    pool.reset();
  // The cache must not ask this stream about its segments when it is no more.
  using Work = StreamProgress::Work;
  cache_.progress().retire(static_cast<StreamId>(stream_.handle()),
                           has_ended ? Work::kHasEnded : Work::kMayBePending);
}

bool ContextMemory::wait_for_stream() noexcept {
  try {
    if (stream_.is_capturing()) return false;  // waiting would break somebody's capture
    stream_.synchronize();
    return true;
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "context_end error=\"{}\"", error.what());
    return false;
  }
}

void ContextMemory::free_slots() noexcept {
  for (Slot& slot : slots_) {
    if (slot.current == nullptr) continue;
    CGTREE_CHECK(slot.current->references() == 0);
    if (slot.tracked) pool(slot.region).free(reinterpret_cast<void*>(slot.range.address));
    delete slot.current;
  }
  if (tracking_.load()) return;
  try {  // the pools' bookkeeping is stale: nothing is live
    for (Region region : kCheckpointed)
      (void)pool(region).restore_live({});
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "context_end error={}", error.what());
  }
}

std::size_t ContextMemory::live_outputs() const {
  std::size_t count = 0;
  live_.for_each([&](std::uint32_t) { ++count; });
  return count;
}

std::size_t ContextMemory::live_bytes() const {
  std::size_t bytes = 0;
  live_.for_each([&](std::uint32_t number) { bytes += slots_[number].range.bytes; });
  return bytes;
}

std::size_t ContextMemory::reserved_bytes() const {
  std::size_t bytes = 0;
  for (const auto& pool : pools_)
    bytes += pool->statistics().reserved_bytes.current;
  return bytes;
}

bool ContextMemory::owns(const void* address) const {
  return std::any_of(std::begin(pools_), std::end(pools_),
                     [&](const auto& pool) { return pool->owns(address); });
}

void ContextMemory::mark_step() {
  generation_.fetch_add(1, std::memory_order_relaxed);
  live_.for_each([&](std::uint32_t number) {
    Slot& slot = slots_[number];
    if (slot.persistent || !slot.current->invalidate()) return;
    slot.current = nullptr;  // its last handle deletes it
    end_life(slot);
  });
}

void ContextMemory::begin_tracking() {
  std::lock_guard lock(mutex_);
  if (tracking_.load(std::memory_order_relaxed)) return;
  std::vector<Range> live[2];
  std::vector<bool> tracked(slots_.size(), false);
  live_.for_each([&](std::uint32_t number) {
    tracked[number] = true;
    live[static_cast<int>(slots_[number].region)].push_back(slots_[number].range);
  });
  for (Region region : kCheckpointed) {
    (void)pool(region).restore_live(live[static_cast<int>(region)]);
  }
  for (Slot& slot : slots_)
    slot.tracked = tracked[slot.number];
  ++restores_;
  tracking_.store(true, std::memory_order_release);
}

void ContextMemory::stop_tracking() noexcept {
  std::lock_guard lock(mutex_);
  for (Slot& slot : slots_)
    slot.tracked = false;
  tracking_.store(false, std::memory_order_release);
}

void ContextMemory::begin_step(StepAllocations& step) {
  CGTREE_CHECK(step_ == nullptr);
  CGTREE_CHECK(step.kind == StepAllocations::Kind::kEager || tracking_.load());
  step.thread = std::this_thread::get_id();
  step.scopes_before = stream_scopes_opened();
  std::lock_guard lock(mutex_);
  step_ = &step;
}

void ContextMemory::end_step(StepAllocations& step) noexcept {
  std::lock_guard lock(mutex_);
  CGTREE_CHECK(step_ == &step && step.alive.empty());
  close_step();
}

void ContextMemory::abandon_step(StepAllocations& step) noexcept {
  std::lock_guard lock(mutex_);
  CGTREE_CHECK(step_ == &step);
  // Whoever still holds one (the exception being thrown, say) finds it stale. The blocks are freed
  // one by one: unlike a restore, that takes no memory, of which there may be none left.
  for (Storage* storage : step.alive) {
    (void)storage->invalidate();
    pool(region_of(*storage)).free(reinterpret_cast<void*>(storage->address()));
  }
  step.alive.clear();
  close_step();
}

void ContextMemory::set_pressure(LimitedSource::Pressure pressure) {
  if (pressure_) cache_.remove_observer(*std::exchange(pressure_, std::nullopt));
  segments_.set_pressure(pressure);
  if (pressure) pressure_ = cache_.add_observer(std::move(pressure));
}

std::size_t ContextMemory::trim(std::span<const Range> kept) {
  begin_tracking();
  std::size_t given = 0;
  for (Region region : kCheckpointed)
    given += pool(region).trim(kept);
  return given;
}

bool ContextMemory::runs_eager_step_here() const noexcept {
  const std::lock_guard lock(mutex_);
  return step_ != nullptr && step_->kind != StepAllocations::Kind::kRecord &&
         step_->thread == std::this_thread::get_id();
}

StorageRef ContextMemory::allocate(std::size_t bytes) {
  CGTREE_CHECK(step_ != nullptr);
  StepAllocations& step = *step_;
  if (step.kind == StepAllocations::Kind::kEager) {
    return allocate_in(Region::kEager, bytes, kEagerBlock);
  }
  const std::uint32_t number = step.count++;
  const bool becomes_output =
      step.retained != nullptr &&
      std::binary_search(step.retained->begin(), step.retained->end(), number);
  StorageRef storage =
      allocate_in(becomes_output ? Region::kOutput : Region::kScratch, bytes, kInStep);
  storage->tag.number = number;
  return storage;
}

// So that a release, which must not throw, has room.
void ContextMemory::reserve_deferred() {
  std::lock_guard lock(mutex_);
  if (step_ == nullptr) return;
  const std::size_t most = step_->deferred.size() + step_->alive.size() + 1 + eager_blocks_.load();
  if (step_->deferred.capacity() < most) step_->deferred.reserve(2 * most);
}

void ContextMemory::used(Storage&, StreamRef stream) {
  std::lock_guard lock(mutex_);
  if (step_ == nullptr || stream == current_stream_or_none()) return;
  step_->has_side_work = true;
}

// Not what is the lane's own: a recording's footprint stands for that.
bool ContextMemory::keep(const StorageRef& storage) {
  CGTREE_CHECK(step_ != nullptr);
  if (step_->kind != StepAllocations::Kind::kRecord || &storage->owner() == this) return false;
  std::vector<StorageRef>& kept = step_->kept;
  if (std::find(kept.begin(), kept.end(), storage) == kept.end()) kept.push_back(storage);
  return true;
}

StorageRef ContextMemory::allocate_input_copy(std::size_t bytes) {
  StorageRef storage = allocate_in(Region::kScratch, bytes, kInStep);
  storage->tag.number = kNoNumber;
  return storage;
}

StorageRef ContextMemory::allocate_in(Region region, std::size_t bytes, Kind kind) {
  void* const data = pool(region).allocate(bytes);
  Storage* storage = nullptr;
  try {
    storage = new Storage(*this, device_, stream_, data, bytes);
    storage->tag.kind = kind;
    if (kind == kEagerBlock) eager_blocks_.fetch_add(1, std::memory_order_relaxed);
    reserve_deferred();
    if (kind == kInStep) {
      std::lock_guard lock(mutex_);
      step_->ranges.reserve(step_->ranges.size() + 1);
      step_->alive.push_back(storage);
      step_->ranges.push_back({storage->address(), bytes});
      storage->tag.position = static_cast<std::uint32_t>(step_->alive.size() - 1);
    }
  } catch (...) {
    if (kind == kEagerBlock) eager_blocks_.fetch_sub(1, std::memory_order_relaxed);
    delete storage;
    pool(region).free(data);
    throw;
  }
  retain();
  return StorageRef(*storage);
}

Region ContextMemory::region_of(const Storage& storage) const {
  return pools_[static_cast<int>(Region::kOutput)]->owns(
             reinterpret_cast<const void*>(storage.address()))
             ? Region::kOutput
             : Region::kScratch;
}

void ContextMemory::move_to_output_region(Storage& storage) {
  CGTREE_CHECK(in_step(storage));
  if (region_of(storage) == Region::kOutput) return;
  void* const from = storage.data();
  void* const to = pool(Region::kOutput).allocate(storage.bytes());
  const Code code = stream_.api().copy(stream_.handle(), to, from, storage.bytes());
  if (!ok(code)) {
    pool(Region::kOutput).free(to);
    throw_code(code, "move an output of a warm-up");
  }
  storage.move_to(to);
  pool(Region::kScratch).free(from);
}

void ContextMemory::reserve_slots() {
  std::lock_guard lock(mutex_);
  for (const Storage* storage : step_->alive) {
    const auto [found, is_new] =
        slots_by_range_.try_emplace({storage->address(), storage->bytes()}, nullptr);
    if (found->second != nullptr) continue;
    const std::uint32_t number = slot_count_;
    live_.reserve(number + 1);
    persistent_.resize(number / 64 + 1, 0);
    Slot& slot = slots_.emplace_back();
    ++slot_count_;
    slot.number = number;
    slot.range = {storage->address(), storage->bytes()};
    slot.region = region_of(*storage);
    slot.live_word = &live_.word_of(number);
    slot.live_bit = LiveMask::bit_of(number);
    found->second = &slot;
  }
}

Slot& ContextMemory::settle(Storage& storage, std::uint32_t function, std::uint32_t output) noexcept {
  std::lock_guard lock(mutex_);
  return settle_locked(storage, function, output, /*persistent=*/false);
}

void ContextMemory::settle_rest(std::uint32_t function) noexcept {
  std::lock_guard lock(mutex_);
  while (!step_->alive.empty()) {
    settle_locked(*step_->alive.back(), function, 0, /*persistent=*/true);
  }
}

Slot& ContextMemory::settle_locked(Storage& storage, std::uint32_t function, std::uint32_t output,
                                bool persistent) noexcept {
  CGTREE_CHECK(in_step(storage) && step_ != nullptr);
  const auto found = slots_by_range_.find({storage.address(), storage.bytes()});
  CGTREE_CHECK(found != slots_by_range_.end());
  Slot& slot = *found->second;
  // The bytes were free in the pool, so whoever lived here is dead.
  CGTREE_CHECK((slot.live_word->load() & slot.live_bit) == 0);
  delete slot.current;
  slot.current = &storage;
  slot.persistent = persistent;
  set_slot(persistent_, slot.number, persistent);
  slot.tracked = true;

  std::vector<Storage*>& alive = step_->alive;
  const std::uint32_t position = storage.tag.position;
  alive[position] = alive.back();
  alive[position]->tag.position = position;
  alive.pop_back();

  storage.tag.place = &slot;
  storage.tag.position = output;
  storage.tag.function = function;
  storage.tag.number = generation();
  // A release on another thread looks at the kind before it takes the lock.
  std::atomic_ref(storage.tag.kind).store(kInSlot, std::memory_order_release);
  slot.live_word->fetch_or(slot.live_bit, std::memory_order_release);
  return slot;
}

StorageRef ContextMemory::revive(Slot& slot, std::uint32_t function, std::uint32_t output) {
  CGTREE_DCHECK((slot.live_word->load() & slot.live_bit) == 0);
  if (slot.current == nullptr) {
    slot.current = new Storage(*this, device_, stream_, reinterpret_cast<void*>(slot.range.address),
                               slot.range.bytes);
  } else {
    slot.current->revive();
  }
  slot.current->tag = {kInSlot, &slot, output, function, generation()};
  retain();
  slot.live_word->fetch_or(slot.live_bit, std::memory_order_release);
  return StorageRef(*slot.current);
}

void ContextMemory::validate() const {
  for (const auto& pool : pools_)
    pool->validate();
  std::lock_guard lock(mutex_);
  CGTREE_CHECK(slot_count_ == slots_.size());
  std::vector<Range> tracked[2];
  for (const Slot& slot : slots_) {
    const bool live = (slot.live_word->load() & slot.live_bit) != 0;
    CGTREE_CHECK(!live || slot.current != nullptr);
    if (slot.tracked) tracked[static_cast<int>(slot.region)].push_back(slot.range);
  }
  if (!tracking_.load() || step_ != nullptr) return;
  for (Region region : kCheckpointed) {
    std::vector<Range>& expected = tracked[static_cast<int>(region)];
    std::sort(expected.begin(), expected.end(),
              [](const Range& a, const Range& b) { return a.address < b.address; });
    const std::vector<Range> live = pools_[static_cast<int>(region)]->live();
    CGTREE_CHECK(live.size() == expected.size());
    for (std::size_t i = 0; i < live.size(); ++i)
      CGTREE_CHECK(live[i].contains(expected[i]));
  }
}

}  // namespace cgtree
