// A plain account of who may still use which bytes of a fake device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "allocator/pool/block.h"
#include "tests/allocator/fake_device.h"

namespace cgtree {

// Throws std::logic_error with `what` unless it holds.
void require(bool holds, const char* what);

// An allocation is right if every former use of its bytes has ended or precedes it on its stream.
class MemoryLedger {
 public:
  struct Entry {
    std::size_t bytes = 0;
    StreamId owner = 0;                      // whose eager pool it is of
    bool is_planned = false;                 // its pool is restored; frees and uses are its own
    std::map<StreamId, std::uint64_t> work;  // the last piece, by stream
  };
  using Blocks = std::multimap<std::uintptr_t, Entry>;

  explicit MemoryLedger(FakeDevice& device) : device_(device) {}

  // Enters a block and one piece of work on it. Throws std::logic_error if it may not be used.
  Entry& allocate(const Range& range, StreamId stream);
  // One more piece of work.
  void work(Entry& entry, StreamId stream);
  void free(Blocks::iterator block) { freed_.insert(live_.extract(block)); }

  Blocks& live() { return live_; }
  // Blocks, or what is left of them, whose bytes were not allocated again.
  const Blocks& freed() const { return freed_; }
  // live().end() without a block that anybody may free.
  Blocks::iterator pick(std::uint32_t value);

 private:
  void expect_usable(const Entry& entry, StreamId stream) const;

  FakeDevice& device_;
  Blocks live_;
  Blocks freed_;
};

}  // namespace cgtree
