// Enters blocks, and judges what is handed out.
#include "tests/allocator/memory_ledger.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

namespace cgtree {

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

void MemoryLedger::end_capture(std::uint64_t capture) {
  std::erase_if(captured_, [&](const auto& entry) { return entry.second.capture == capture; });
}

std::uint64_t MemoryLedger::capture_of(StreamId stream) const {
  const auto found = captured_.find(stream);
  return found == captured_.end() ? 0 : found->second.capture;
}

bool MemoryLedger::is_open(std::uint64_t capture) const {
  return std::any_of(captured_.begin(), captured_.end(),
                     [&](const auto& entry) { return entry.second.capture == capture; });
}

MemoryLedger::Entry& MemoryLedger::allocate(const Range& range, const Owner& owner, StreamId stream,
                                            bool for_graph) {
  for (const auto& [start, entry] : live_)
    require(!range.overlaps({start, entry.bytes}), "a live block was handed out again");
  for (auto next = freed_.begin(); next != freed_.end();) {
    const auto former = next++;
    const Range before{former->first, former->second.bytes};
    if (!range.overlaps(before)) continue;
    expect_usable(former->second, stream, for_graph);
    // What is left of it was used by the same work.
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
  entry.owner = owner;
  entry.capture = capture_of(stream);
  work(entry, stream);
  return live_.emplace(range.address, std::move(entry))->second;
}

void MemoryLedger::expect_usable(const Entry& entry, StreamId stream, bool for_graph) const {
  for (const auto& [user, number] : entry.work)
    require((user == stream && !for_graph) || device_.is_done(user, number),
            "work outside is not done yet");
  if (entry.capture == 0 || !is_open(entry.capture)) return;
  require(capture_of(stream) == entry.capture, "memory of an open capture went elsewhere");
  const std::set<NodeId> before = captured_.at(stream).dag->all_before(stream);
  for (const NodeId node : entry.nodes)
    require(before.contains(node), "a use in the capture does not come before");
}

void MemoryLedger::work(Entry& entry, StreamId stream) {
  const auto joined = captured_.find(stream);
  if (joined == captured_.end()) {
    entry.work[stream] = device_.submit(stream);
  } else if (joined->second.capture == entry.capture) {
    entry.nodes.push_back(joined->second.dag->run(stream));
  }
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
