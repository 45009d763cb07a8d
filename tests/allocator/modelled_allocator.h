// A caching allocator beside a plain account of who may still use which bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <vector>

#include "allocator/caching/caching_allocator.h"
#include "allocator/caching/capture_order.h"
#include "tests/allocator/fake_capture.h"
#include "tests/allocator/fake_device.h"

namespace cgtree {

enum class Move {
  kAllocate,
  kAllocateInPool,
  kFree,
  kFreeElsewhere,
  kUse,
  kFinishOne,
  kFinish,
  kBeginCapture,
  kAllocateCaptured,
  kRun,
  kJoin,
  kUseCaptured,
  kEndCapture,
  kTrim,
  kSetBudget,
  kFailNext,
  kDropPool,
};

// One step. `value` picks operands; any value is a legal step. Some run on a thread of their own.
struct AllocatorStep {
  Move move;
  std::uint32_t value;
};

std::ostream& operator<<(std::ostream& out, const AllocatorStep& step);

// Takes every step, and throws std::logic_error where a promise is broken.
class ModelledAllocator {
 public:
  ModelledAllocator();
  ~ModelledAllocator() { end_capture(); }

  void take(const AllocatorStep& step);
  // Ends everything, after which nothing may be left.
  void finish();

 private:
  static constexpr StreamId kEagerStreams = 3;    // 1 to 3
  static constexpr StreamId kFirstCaptured = 11;  // to 13
  static constexpr std::size_t kPools = 2;

  struct Block {
    std::size_t bytes = 0;
    StreamId home = 0;
    std::map<StreamId, std::uint64_t> work;  // outside captures: the last piece, by stream
    std::size_t capture = 0;                 // in which the uses below were; 0: none
    std::vector<NodeId> nodes;               // of the capture
  };
  using Blocks = std::multimap<std::uintptr_t, Block>;

  struct Capture {
    explicit Capture(StreamId origin) : dag(origin), order(dag) {}
    FakeDag dag;
    DagOrder order;
    std::optional<CaptureScope> scope;
  };

  void act(const AllocatorStep& step);
  void allocate(std::uint32_t value, StreamId stream, bool in_pool);
  void note(void* address, std::size_t bytes, StreamId stream, bool is_captured);
  void free(std::uint32_t value, bool elsewhere);
  void use(std::uint32_t value);
  void use_captured(std::uint32_t value);
  void begin_capture(std::uint32_t value);
  void join(std::uint32_t value);
  void run(StreamId stream);
  void end_capture();
  void set_budget(std::uint32_t value);
  void compare();
  bool is_captured(StreamId stream) { return capture_ && capture_->dag.terminals(stream); }
  Blocks::iterator pick(std::uint32_t value);

  FakeDevice device_{std::size_t{96} << 20};
  Budget budget_{"device"};
  SegmentCache cache_{device_, &budget_, &device_};
  CachingAllocator allocator_{cache_};
  std::vector<PoolHandle> pools_;
  std::optional<Capture> capture_;
  std::size_t captures_ = 0;
  std::size_t ceiling_ = SIZE_MAX;  // of what may be reserved
  Blocks live_;
  Blocks freed_;  // all freed blocks whose bytes were not allocated again
};

}  // namespace cgtree
