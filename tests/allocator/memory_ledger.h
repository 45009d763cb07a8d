// A plain account of who may still use which bytes of a fake device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "allocator/pool/block.h"
#include "caching/private_pool.h"
#include "tests/allocator/fake_capture.h"
#include "tests/allocator/fake_device.h"

namespace cgtree {

// Throws std::logic_error with `what` unless it holds.
void require(bool holds, const char* what);

// An allocation is right if every former use of its bytes has ended, precedes it on its stream, or
// precedes it in the graph of a capture. A graph may be launched anywhere, so that it is behind no
// work outside; and what an open capture has used is for that capture alone.
class MemoryLedger {
 public:
  // A pool of the allocator: its id, or 0 and the stream of an eager pool.
  struct Owner {
    PoolId pool = 0;
    StreamId stream = 0;
    auto operator<=>(const Owner&) const = default;
  };
  struct Entry {
    std::size_t bytes = 0;
    Owner owner;
    bool is_planned = false;                 // its pool is restored; frees and uses are its own
    std::map<StreamId, std::uint64_t> work;  // outside captures: the last piece, by stream
    std::uint64_t capture = 0;               // in which the uses below were; 0: none
    std::vector<NodeId> nodes;               // of the capture
  };
  using Blocks = std::multimap<std::uintptr_t, Entry>;

  explicit MemoryLedger(FakeDevice& device) : device_(device) {}

  // The stream is part of the capture from now on; and how the capture ends.
  void join(StreamId stream, std::uint64_t capture, FakeDag& dag) {
    captured_[stream] = {capture, &dag};
  }
  void end_capture(std::uint64_t capture);
  // 0 for none.
  std::uint64_t capture_of(StreamId stream) const;

  // Enters a block and one piece of work on it. Throws std::logic_error if it may not be used.
  // `for_graph`: it was asked for as memory of the capture that the stream is part of.
  Entry& allocate(const Range& range, const Owner& owner, StreamId stream, bool for_graph = false);
  // One more piece of work. What a graph uses of memory from outside is its maker's to keep.
  void work(Entry& entry, StreamId stream);
  void free(Blocks::iterator block) { freed_.insert(live_.extract(block)); }

  Blocks& live() { return live_; }
  // Blocks, or what is left of them, whose bytes were not allocated again.
  const Blocks& freed() const { return freed_; }
  // live().end() without a block that anybody may free.
  Blocks::iterator pick(std::uint32_t value);

 private:
  struct Joined {
    std::uint64_t capture = 0;
    FakeDag* dag = nullptr;
  };

  void expect_usable(const Entry& entry, StreamId stream, bool for_graph) const;
  bool is_open(std::uint64_t capture) const;

  FakeDevice& device_;
  std::map<StreamId, Joined> captured_;
  Blocks live_;
  Blocks freed_;
};

}  // namespace cgtree
