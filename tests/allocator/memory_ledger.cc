// Enters blocks, and checks that each allocation is permitted.
#include "tests/allocator/memory_ledger.h"

#include <stdexcept>
#include <utility>

namespace cgtree {

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

MemoryLedger::Entry& MemoryLedger::allocate(const Range& range, StreamId stream) {
  for (const auto& [start, entry] : live_)
    require(!range.overlaps({start, entry.bytes}), "a live block was handed out again");
  for (auto next = freed_.begin(); next != freed_.end();) {
    const auto former = next++;
    const Range before{former->first, former->second.bytes};
    if (!range.overlaps(before)) continue;
    expect_usable(former->second, stream);
    // The rest of the former block has the same uses.
    Entry rest = former->second;
    freed_.erase(former);
    if (before.address < range.address) {
      rest.bytes = range.address - before.address;
      freed_.emplace(before.address, rest);
    }
    if (before.end() > range.end()) {
      rest.bytes = before.end() - range.end();
      freed_.emplace(range.end(), rest);
    }
  }
  Entry entry;
  entry.bytes = range.bytes;
  entry.owner = stream;
  work(entry, stream);
  return live_.emplace(range.address, std::move(entry))->second;
}

void MemoryLedger::expect_usable(const Entry& entry, StreamId stream) const {
  for (const auto& [user, number] : entry.work)
    require(user == stream || device_.is_done(user, number), "former work is not done yet");
}

void MemoryLedger::work(Entry& entry, StreamId stream) {
  entry.work[stream] = device_.submit(stream);
}

MemoryLedger::Blocks::iterator MemoryLedger::pick(std::uint32_t value) {
  std::size_t count = 0;
  for (const auto& [address, entry] : live_)
    count += !entry.is_planned;
  if (count == 0) return live_.end();
  std::size_t skipped = value % count;
  auto block = live_.begin();
  while (block->second.is_planned || skipped-- > 0)
    ++block;
  return block;
}

}  // namespace cgtree
