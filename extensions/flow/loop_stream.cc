// Hands out rows through a ring in pinned memory.
#include "extensions/flow/loop_stream.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include "allocator/device/pinned_memory.h"
#include "base/error.h"
#include "base/format.h"
#include "extensions/flow/conditional.h"
#include "extensions/flow/flow_log.h"
#include "extensions/flow/loop.h"
#include "extensions/flow/ring.h"
#include "interop/device/device_api.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/outside_of_steps.h"

namespace cgtree {
namespace {

constexpr std::size_t kMostRowBytes = std::size_t{1} << 20;
constexpr std::size_t kMostRows = std::size_t{1} << 20;
constexpr auto kSpinning = std::chrono::microseconds(200);
constexpr auto kNap = std::chrono::microseconds(20);

// Copies memory that the device may be writing, word by word; the last word may be partial.
void copy_words(void* to, const std::byte* from, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += 4) {
    auto* const place = reinterpret_cast<std::uint32_t*>(const_cast<std::byte*>(from) + at);
    const std::uint32_t word = std::atomic_ref(*place).load(std::memory_order_relaxed);
    std::memcpy(static_cast<std::byte*>(to) + at, &word, std::min<std::size_t>(4, bytes - at));
  }
}

std::int64_t slot_bytes(std::size_t row_bytes) {
  return static_cast<std::int64_t>((sizeof(RingSlot) + row_bytes + 7) / 8 * 8);
}

}  // namespace

// A LoopRing is the memory of a LoopStream, and the progress of both sides in it.
struct LoopRing {
  LoopRing(Device on, std::size_t bytes, std::size_t behind)
      : device(on),
        row_bytes(bytes),
        rows(behind),
        pinned(PinnedMemory(on).empty(
            {static_cast<std::int64_t>(sizeof(RingHeader)) +
             static_cast<std::int64_t>(behind + kSpareSlots) * slot_bytes(bytes)},
            DType::kUInt8)),
        on_device(empty({static_cast<std::int64_t>(sizeof(RingState))}, DType::kUInt8, on)),
        ring{new (pinned.data()) RingHeader(),
             static_cast<std::byte*>(pinned.data()) + sizeof(RingHeader),
             static_cast<RingState*>(on_device.data()),
             static_cast<std::uint64_t>(slot_bytes(bytes)),
             static_cast<std::uint64_t>(behind + kSpareSlots)} {
    const RingState none{};
    const Stream own(on, StreamKind::kNonBlocking);  // the others may be captured
    on_device.copy_from_host(&none, sizeof(none), own);
  }

  std::uint64_t written() const noexcept {
    return std::atomic_ref(ring.header->written).load(std::memory_order_acquire);
  }
  // Returns how many rows were overwritten since the host last read a row.
  std::uint64_t lost() const noexcept { return lost(read.load()); }
  // As above, if `row` were the next one.
  std::uint64_t lost(std::uint64_t row) const noexcept {
    std::atomic_thread_fence(std::memory_order_acquire);
    return std::max(written(), row + rows) - row - rows;
  }
  // Returns the head of a row; the next row's head is whole if lost() is 0 afterwards.
  RingSlot head(std::uint64_t row) const noexcept {
    RingSlot slot{};
    copy_words(&slot, slot_of(ring, row), sizeof(slot));
    return slot;
  }
  // Returns the loop of the next row; that of the last row, if the device is so fast that the next
  // one is lost meanwhile. Requires: a next row exists.
  std::uint64_t next_loop() const noexcept {
    const std::uint64_t row = read.load();
    const std::uint64_t loop = head(row).loop;
    return lost(row) == 0 ? loop : head(written() - 1).loop;
  }
  // Returns the loop that stop() ends.
  std::uint64_t loop_to_stop() const noexcept {
    if (read.load() != written()) return next_loop();
    return std::max(ended.load(), failed.load()) + 1;
  }

  const Device device;
  const std::size_t row_bytes;
  const std::size_t rows;
  const Tensor pinned;     // the header, followed by the slots
  const Tensor on_device;  // RingState
  const Ring ring;
  std::atomic<std::uint64_t> read = {};    // rows
  std::atomic<bool> is_read = false;       // a thread is in next()
  std::atomic<std::uint64_t> ended = {};   // loops, as far as the rows that were read show
  std::atomic<std::uint64_t> failed = {};  // the last loop whose body threw
};

// Rounds whose rows go to a ring.
class RingRounds {
 public:
  // Both are borrowed. Throws InvalidArgument in the body of a loop with the same ring.
  RingRounds(LoopRing& ring, const Tensor& count, std::int32_t most)
      : ring_(ring), count_(count), most_(most) {
    for (const RingRounds* around = outer_; around != nullptr; around = around->outer_) {
      if (&around->ring_ != &ring) continue;
      throw InvalidArgument(
          "loop() with the LoopStream of a loop around it: their rows would mix; give each a "
          "LoopStream of its own");
    }
    frame().rounds = this;
  }
  ~RingRounds() {
    frame().rounds = outer_;
    if (runs_) ring_.failed.store(loop_);
  }
  RingRounds(const RingRounds&) = delete;
  RingRounds& operator=(const RingRounds&) = delete;

  // The next three are those of Rounds. The body returns the flag and the row.
  void begin(StreamRef stream, ConditionHandle condition) {
    FlowLog::note_rows();
    launch_begin_loop(stream, count_.data<std::int32_t>(), condition, ring_.ring.state);
    note_own_use(stream, condition);
    if (condition == ConditionHandle::kNull) begin_eager_run(stream);
  }
  void end_round(StreamRef stream, ConditionHandle condition, std::span<const Tensor> returned) {
    const Tensor& row = returned[1];
    launch_end_ring_round(stream, ring_.ring, row.data(), static_cast<std::uint32_t>(row.bytes()),
                          flag_of(returned[0]), count_.data<std::int32_t>(), most_, condition);
    note_use(returned[0].storage(), stream);
    note_use(row.storage(), stream);
    note_own_use(stream, condition);
  }
  bool goes_on(StreamRef stream, std::span<const Tensor>) {
    constexpr auto kAt = static_cast<std::int64_t>(offsetof(RingState, goes_on));
    const Tensor& state = ring_.on_device;
    runs_ = read_flag(Tensor(state.storage(), state.byte_offset() + kAt, Shape(), DType::kInt32),
                      stream) != 0;
    return runs_;
  }

 private:
  // Waits for the work before the loop, as each round does: work that was enqueued by a body that
  // throws must not be waited for.
  void begin_eager_run(StreamRef stream) {
    RingState state{};
    ring_.on_device.copy_to_host(&state, sizeof(state), stream);
    loop_ = state.loops;
    runs_ = true;
  }
  // An eager round has ended before its row can be written: goes_on() waits for it. On a thread's
  // default stream no use of pinned memory can be noted.
  void note_own_use(StreamRef stream, ConditionHandle condition) const {
    note_use(count_.storage(), stream);
    note_use(ring_.on_device.storage(), stream);
    if (condition != ConditionHandle::kNull) note_use(ring_.pinned.storage(), stream);
  }

  const RingRounds* const outer_ = frame().rounds;
  LoopRing& ring_;
  const Tensor& count_;
  const std::int32_t most_;
  std::uint64_t loop_ = 0;  // of the eager run
  bool runs_ = false;       // an eager run has begun and not ended
};

namespace {

// The turn of a thread in next().
class Reading {
 public:
  // Borrows the flag. Throws ConcurrentUse if it is set.
  explicit Reading(std::atomic<bool>& is_read) : is_read_(is_read) {
    if (!is_read_.exchange(true)) return;
    throw ConcurrentUse("next() of a LoopStream while another thread is in it: read on one thread");
  }
  ~Reading() { is_read_.store(false); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  std::atomic<bool>& is_read_;
};

void expect_row(const Tensor& row, StreamRef stream, std::size_t most) {
  const bool fits = row.defined() && row.device() == stream.device() && row.is_contiguous() &&
                    row.bytes() <= most && row.bytes() % 4 == 0 && row.address() % 4 == 0;
  if (fits) return;
  throw InvalidArgument(
      str_format("the row that the body of loop() returns is {}, and must be contiguous on {}, a "
                 "multiple of 4 bytes and at most the {} of its LoopStream",
                 describe(row), to_string(stream.device()), most));
}

}  // namespace

LoopStream::LoopStream(Device device, std::size_t row_bytes, std::size_t rows) {
  const bool is_valid = row_bytes > 0 && row_bytes % 4 == 0 && row_bytes <= kMostRowBytes &&
                        rows > 0 && rows <= kMostRows;
  if (!is_valid) {
    throw InvalidArgument(
        str_format("a LoopStream of {} rows of {} bytes: give 1 to {} rows, and a multiple of 4 "
                   "up to {} bytes",
                   rows, row_bytes, kMostRows, kMostRowBytes));
  }
  const OutsideOfSteps outside;  // the LoopStream may outlive the step
  const RelaxedCapture relaxed(device_api(device).graphs());
  ring_ = std::make_unique<LoopRing>(device, row_bytes, rows);
}

LoopStream::~LoopStream() = default;
LoopStream::LoopStream(LoopStream&&) noexcept = default;
LoopStream& LoopStream::operator=(LoopStream&&) noexcept = default;

std::optional<LoopRow> LoopStream::next(std::span<std::byte> to, std::chrono::nanoseconds limit) {
  LoopRing& ring = *ring_;
  const Reading reading(ring.is_read);
  const auto begin = std::chrono::steady_clock::now();
  while (ring.written() == ring.read.load()) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited >= limit) return std::nullopt;
    if (waited < kSpinning) continue;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(kNap, limit - waited));
  }
  const std::uint64_t row = ring.read.load();
  const RingSlot slot = ring.head(row);
  const std::size_t bytes = std::min<std::size_t>(slot.bytes, to.size());
  copy_words(to.data(), slot_of(ring.ring, row) + sizeof(slot), std::min(bytes, ring.row_bytes));
  if (const std::uint64_t lost = ring.lost(); lost > 0) {
    ring.read += lost;
    throw InvalidArgument(
        str_format("{} rows of a LoopStream were overwritten before they were read: read faster, "
                   "or give it more than {} rows",
                   lost, ring.rows));
  }
  if (slot.bytes > to.size()) {
    throw InvalidArgument(
        str_format("the next row of a LoopStream has {} bytes, and there is room for {}",
                   slot.bytes, to.size()));
  }
  ++ring.read;
  const bool is_last = slot.is_last != 0;
  ring.ended.store(is_last ? slot.loop : slot.loop - 1);
  return LoopRow{slot.loop, slot.round, slot.bytes, is_last};
}

std::uint64_t LoopStream::drop() noexcept {
  LoopRing& ring = *ring_;
  const std::uint64_t before = ring.read;
  while (ring.read != ring.written()) {
    ring.read = ring.written() - 1;
    const std::uint64_t loop = ring.head(ring.read).loop;
    if (ring.lost() > 0) continue;
    ring.ended.store(loop);
    ++ring.read;
    break;
  }
  return ring.read - before;
}

// If several threads call it, the latest loop counts.
void LoopStream::stop() noexcept {
  const std::atomic_ref stopped(ring_->ring.header->stopped);
  const std::uint64_t loop = ring_->loop_to_stop();
  std::uint64_t before = stopped.load();
  while (before < loop && !stopped.compare_exchange_weak(before, loop)) {
  }
}

Tensor loop(std::int64_t max_rounds, LoopStream& rows, const std::function<LoopRound()>& given,
            const std::vector<Generator>& generators) {
  if (!given) throw InvalidArgument("the body of loop() is missing");
  const std::int32_t most = expect_max_rounds(max_rounds);
  const StreamRef stream = current_stream();
  LoopRing& ring = *rows.ring_;
  if (ring.device != stream.device()) {
    throw InvalidArgument(str_format("loop() on {} with a LoopStream of {}",
                                     to_string(stream.device()), to_string(ring.device)));
  }
  FlowDraws draws(generators);
  const Body body{"the body of loop()", draws, [&] {
                    LoopRound round = given();
                    expect_flag("what the body of loop() returns", round.goes_on, current_stream());
                    expect_row(round.row, current_stream(), ring.row_bytes);
                    return std::vector<Tensor>{std::move(round.goes_on), std::move(round.row)};
                  }};
  return run_counted(draws, [&](const Tensor& count) {
    RingRounds rounds(ring, count, most);
    run_loop(body, {.begin = std::bind_front(&RingRounds::begin, &rounds),
                    .end_round = std::bind_front(&RingRounds::end_round, &rounds),
                    .goes_on = std::bind_front(&RingRounds::goes_on, &rounds)});
  });
}

}  // namespace cgtree
