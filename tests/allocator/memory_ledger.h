// A plain account of the bytes of a fake device, and of the work that still uses them.
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

// Requires of each allocation that every former use of its bytes has ended or precedes it on its
// stream.
class MemoryLedger {
 public:
  struct Entry {
    std::size_t bytes = 0;
    StreamId owner = 0;                      // the stream of its eager pool
    bool is_planned = false;                 // in the restored pool, which frees and uses it
    std::map<StreamId, std::uint64_t> work;  // the number of the last piece, by stream
  };
  using Blocks = std::multimap<std::uintptr_t, Entry>;

  explicit MemoryLedger(FakeDevice& device) : device_(device) {}

  // Enters a block and one piece of work on it. Throws std::logic_error if its bytes are still in
  // use.
  Entry& allocate(const Range& range, StreamId stream);
  // Adds one more piece of work.
  void work(Entry& entry, StreamId stream);
  void free(Blocks::iterator block) { freed_.insert(live_.extract(block)); }

  Blocks& live() { return live_; }
  // Freed blocks, or the parts of them that were not allocated again.
  const Blocks& freed() const { return freed_; }
  // Returns a block that any thread may free, or live().end().
  Blocks::iterator pick(std::uint32_t value);

 private:
  void expect_usable(const Entry& entry, StreamId stream) const;

  FakeDevice& device_;
  Blocks live_;
  Blocks freed_;
};

}  // namespace cgtree
