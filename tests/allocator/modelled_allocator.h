// A caching allocator, and a pool that is restored, with a plain account of the work that uses
// their bytes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <vector>

#include "caching/caching_allocator.h"
#include "tests/allocator/account_pool.h"
#include "tests/allocator/fake_device.h"
#include "tests/allocator/memory_ledger.h"
#include "tests/allocator/other_thread.h"

namespace cgtree {

enum class Move {
  kAllocate,
  kFree,
  kFreeElsewhere,
  kUse,
  kFinishOne,
  kFinish,
  kPlan,            // allocates in a pool that is restored
  kFreePlanned,     //
  kCheckpoint,      //
  kRestore,         //
  kMisuse,          // frees an address without a live block
  kEndForeign,      // ends a capture of another library
  kStartStream,     // replaces an ended stream, whose work may go on
  kBeginCapture,    // one that defers frees. From here on: moves with large effects
  kEndCapture,      //
  kTrim,            //
  kSetBudget,       //
  kFailNext,        //
  kBeginForeign,    //
  kEndStream,       //
  kMovePlanned,     //
  kTrimPlanned,     //
  kSwitchReclaims,  // switches a callback that frees blocks when there is no room
};
inline constexpr int kMoves = 23;

// One step. `value` selects operands; any value is a legal step. Some steps run on a new thread,
// and some on a second thread that lives as long as the model.
struct AllocatorStep {
  Move move;
  std::uint32_t value;
};

std::ostream& operator<<(std::ostream& out, const AllocatorStep& step);

// Executes steps, and throws std::logic_error where a promise is broken.
class ModelledAllocator {
 public:
  explicit ModelledAllocator(ThreadCaching caching);
  ~ModelledAllocator();

  void take(const AllocatorStep& step);
  // Ends streams, pools and allocator, and requires that nothing is left.
  void finish();

 private:
  static constexpr StreamId kEagerStreams = 3;  // 1 to 3
  static constexpr StreamId kReader = 4;        // uses blocks, and allocates none
  static constexpr StreamId kPlanned = 5;       // and 6: for the pool that is restored
  // A stream and its replacements are equal modulo kPlaces.
  static constexpr StreamId kPlaces = 100;

  struct Saved {
    PoolCheckpoint checkpoint;
    std::map<std::uintptr_t, std::size_t> live;
    bool may_be_gone = false;  // the segments were trimmed
  };

  void act(const AllocatorStep& step);
  void allocate(std::uint32_t value, StreamId stream);
  void free(std::uint32_t value, bool elsewhere);
  void use(std::uint32_t value, StreamId stream);
  void misuse(std::uint32_t value);
  void begin_capture();
  void end_capture();
  void end_stream(StreamId stream);
  void start_stream(StreamId stream);
  void plan(std::uint32_t value);
  void free_planned(std::uint32_t value);
  void checkpoint();
  void restore(std::uint32_t value);
  void move_planned();
  void set_budget(std::uint32_t value);
  std::size_t reclaim();
  Pool& planned() { return planned_->pool; }
  std::map<std::uintptr_t, std::size_t> planned_live();
  bool is_usable(StreamId stream) const;
  // The current stream at this place, and a current or former one.
  StreamId at(StreamId place) const;
  StreamId once_at(StreamId place, std::uint32_t value) const;
  void note_takeovers(const AllocatorStatistics& now);
  void compare();
  void compare_owners(const AllocatorStatistics& now, bool is_exact);

  FakeDevice device_{std::size_t{96} << 20};
  Budget budget_{"device"};
  SegmentCache cache_{device_, &budget_, &device_};
  std::shared_ptr<SegmentAccount> account_ = std::make_shared<SegmentAccount>(
      SegmentAccount::Options{.name = "planned", .max_bytes = std::size_t{40} << 20});
  CachingAllocator allocator_;
  SegmentCache::ReclaimId reclaim_ = 0;
  bool reclaims_ = false;
  std::optional<AccountPool> planned_;
  StreamId planned_stream_ = kPlanned;
  std::vector<Saved> saved_;
  std::vector<DeferredFrees> captures_;
  std::set<StreamId> foreign_;            // streams in captures of other libraries
  std::set<StreamId> ended_;              // ended streams that were not replaced
  std::map<StreamId, StreamId> started_;  // the number of replacements, by place
  std::set<StreamId> eager_;              // the streams that have an eager pool
  std::size_t ceiling_ = SIZE_MAX;        // of the bytes that may be reserved
  MemoryLedger ledger_{device_};
  OtherThread other_;
};

}  // namespace cgtree
