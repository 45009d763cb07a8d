// Steps an allocator, and keeps the account.
#include "tests/allocator/modelled_allocator.h"

#include <algorithm>
#include <array>
#include <exception>
#include <iterator>
#include <set>
#include <stdexcept>
#include <thread>

#include "base/error.h"

namespace cgtree {
namespace {

constexpr const char* kMoves[] = {"allocate",
                                  "allocate_in_pool",
                                  "free",
                                  "free_elsewhere",
                                  "use",
                                  "finish_one",
                                  "finish",
                                  "begin_capture",
                                  "allocate_captured",
                                  "run",
                                  "join",
                                  "use_captured",
                                  "end_capture",
                                  "trim",
                                  "set_budget",
                                  "fail_next",
                                  "drop_pool"};

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

std::size_t size_from(std::uint32_t value) {
  const std::size_t most[] = {512, 8192, 300'000, std::size_t{2} << 20, std::size_t{12} << 20};
  return 1 + (value / 5) % most[value % 5];
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const AllocatorStep& step) {
  return out << kMoves[static_cast<int>(step.move)] << '(' << step.value << ')';
}

ModelledAllocator::ModelledAllocator() : pools_(kPools) {
  device_.synchronize_frees();
  for (PoolHandle& pool : pools_)
    pool = allocator_.make_pool();
}

void ModelledAllocator::take(const AllocatorStep& step) {
  if (step.value % 16 == 0) {
    std::exception_ptr failure;
    std::thread([&] {
      try {
        act(step);
      } catch (...) {
        failure = std::current_exception();
      }
    }).join();
    if (failure) std::rethrow_exception(failure);
  } else {
    act(step);
  }
  compare();
}

void ModelledAllocator::act(const AllocatorStep& step) {
  const std::uint32_t value = step.value;
  const StreamId eager = 1 + value % kEagerStreams;
  const StreamId captured = kFirstCaptured + value % 3;
  switch (step.move) {
    case Move::kAllocate:
      return allocate(value / 3, eager, false);
    case Move::kAllocateInPool:
      return allocate(value / 3, eager, true);
    case Move::kAllocateCaptured:
      if (is_captured(captured)) allocate(value / 3, captured, false);
      return;
    case Move::kFree:
      return free(value, false);
    case Move::kFreeElsewhere:
      return free(value, true);
    case Move::kUse:
      return use(value);
    case Move::kUseCaptured:
      return use_captured(value);
    case Move::kFinishOne:
      return device_.finish_one(eager);
    case Move::kFinish:
      return device_.finish(eager);
    case Move::kBeginCapture:
      return begin_capture(value);
    case Move::kRun:
      return run(captured);
    case Move::kJoin:
      return join(value);
    case Move::kEndCapture:
      return end_capture();
    case Move::kTrim:
      allocator_.trim();
      return;
    case Move::kSetBudget:
      return set_budget(value);
    case Move::kFailNext:
      value % 2 == 0 ? device_.fail_at(1) : device_.fail_from(1);
      allocate(value / 3, eager, value % 4 < 2);
      return device_.fail_no_more();
    case Move::kDropPool:
      pools_[value % kPools] = allocator_.make_pool();
      return;
  }
}

void ModelledAllocator::allocate(std::uint32_t value, StreamId stream, bool in_pool) {
  const std::size_t bytes = size_from(value);
  try {
    std::optional<ThreadRoute> route;
    if (in_pool) route.emplace(allocator_, pools_[value % kPools]);
    note(allocator_.allocate(bytes, stream), bytes, stream, is_captured(stream));
  } catch (const OutOfMemory&) {
  }
}

// Invariant 6: every former use of these bytes has ended, or precedes the new one in the graph.
void ModelledAllocator::note(void* address, std::size_t bytes, StreamId stream, bool captured) {
  const Range range{reinterpret_cast<std::uintptr_t>(address), bytes};
  for (const auto& [start, block] : live_)
    require(!range.overlaps({start, block.bytes}), "a live block was handed out again");
  for (auto entry = freed_.begin(); entry != freed_.end();) {
    const Block& block = entry->second;
    if (!range.overlaps({entry->first, block.bytes})) {
      ++entry;
      continue;
    }
    for (const auto& [user, number] : block.work)
      require(user == stream || device_.is_done(user, number), "work outside is not done yet");
    if (captured && block.capture == captures_) {
      const std::set<NodeId> before = capture_->dag.all_before(stream);
      for (const NodeId node : block.nodes)
        require(before.contains(node), "a use in the capture does not come before");
    }
    // What is left of it was used by the same work.
    if (entry->first < range.address)
      freed_.emplace(entry->first, block)->second.bytes = range.address - entry->first;
    if (const std::uintptr_t end = entry->first + block.bytes; end > range.end())
      freed_.emplace(range.end(), block)->second.bytes = end - range.end();
    entry = freed_.erase(entry);
  }
  Block block{bytes, stream};
  if (captured) {
    block.capture = captures_;
    block.nodes.push_back(capture_->dag.run(stream));
  } else {
    block.work[stream] = device_.submit(stream);
  }
  live_.emplace(range.address, std::move(block));
}

ModelledAllocator::Blocks::iterator ModelledAllocator::pick(std::uint32_t value) {
  return live_.empty() ? live_.end() : std::next(live_.begin(), value / 16 % live_.size());
}

void ModelledAllocator::free(std::uint32_t value, bool elsewhere) {
  const auto block = pick(value);
  if (block == live_.end()) return;
  void* const address = reinterpret_cast<void*>(block->first);
  if (elsewhere) {
    const StreamId stream = 1 + value % kEagerStreams;
    block->second.work[stream] = device_.submit(stream);
    allocator_.free(address, stream);
  } else {
    allocator_.free(address);
  }
  freed_.insert(live_.extract(block));
}

void ModelledAllocator::use(std::uint32_t value) {
  const auto block = pick(value);
  if (block == live_.end()) return;
  const StreamId stream = 1 + value % kEagerStreams;
  block->second.work[stream] = device_.submit(stream);
  allocator_.use(reinterpret_cast<void*>(block->first), stream);
}

// Of blocks of the capture: what a graph reads from elsewhere is its maker's to keep.
void ModelledAllocator::use_captured(std::uint32_t value) {
  const auto block = pick(value);
  const StreamId stream = kFirstCaptured + value % 3;
  if (block == live_.end() || !is_captured(stream) || block->second.capture != captures_) return;
  block->second.nodes.push_back(capture_->dag.run(stream));
  allocator_.use(reinterpret_cast<void*>(block->first), stream);
}

void ModelledAllocator::begin_capture(std::uint32_t value) {
  if (capture_) return;
  ++captures_;
  capture_.emplace(kFirstCaptured + value % 3);
  constexpr std::array streams{kFirstCaptured, kFirstCaptured + 1, kFirstCaptured + 2};
  capture_->scope.emplace(
      allocator_.begin_capture(pools_[value % kPools], streams, capture_->order));
  device_.begin_capture();
}

void ModelledAllocator::run(StreamId stream) {
  if (is_captured(stream)) capture_->dag.run(stream);
}

void ModelledAllocator::join(std::uint32_t value) {
  const StreamId stream = kFirstCaptured + value % 3;
  const StreamId other = kFirstCaptured + value / 3 % 3;
  if (is_captured(other)) capture_->dag.wait(stream, other);
}

void ModelledAllocator::end_capture() {
  if (!capture_) return;
  device_.end_capture();
  capture_.reset();
}

void ModelledAllocator::set_budget(std::uint32_t value) {
  const std::size_t limit = std::size_t{value % 96} << 20;
  budget_.set_max_bytes(limit);
  ceiling_ = std::max(limit, budget_.current());
}

void ModelledAllocator::compare() {
  cache_.validate();
  const AllocatorStatistics now = allocator_.statistics();
  require(now.total.allocation.current >= live_.size(), "a live block is not counted");
  require(now.cache.bytes_in_use == now.total.reserved_bytes.current,
          "the cache has given out what no pool has");
  require(budget_.current() == device_.bytes_held(), "the budget does not count what is held");
  require(budget_.current() <= ceiling_, "more is reserved than the budget allows");
  ceiling_ = std::max(budget_.max_bytes(), budget_.current());
}

void ModelledAllocator::finish() {
  end_capture();
  while (!live_.empty())
    free(0, false);
  for (StreamId stream = 1; stream <= kEagerStreams; ++stream)
    device_.finish(stream);
  pools_.clear();
  allocator_.trim();
  require(device_.held().empty(), "something was not given back");
  require(budget_.current() == 0, "something is still reserved");
}

}  // namespace cgtree
