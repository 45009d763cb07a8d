// What a trace keeps of what pools do.
#include "caching/reports/memory_trace.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "allocator/pool/pool.h"
#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using Action = TraceEvent::Action;

class MemoryTraceTest : public testing::Test {
 protected:
  FakeSegmentSource source_;
  Pool pool_{source_};
};

TEST_F(MemoryTraceTest, RefusesToHoldNothing) {
  EXPECT_THROW(MemoryTrace(0), InvalidArgument);
}

// Acceptance: pools snapshot_include_traces.
TEST_F(MemoryTraceTest, KeepsAllocationsFreesAndRefusals) {
  MemoryTrace trace(10);
  MemoryTraceObserver observer(trace, {7, 1}, 9);
  pool_.set_observer(&observer);
  void* const block = pool_.allocate(700);
  source_.fail_from(1);
  EXPECT_THROW(pool_.allocate(std::size_t{3} << 20), OutOfMemory);
  pool_.free(block);

  std::vector<TraceEvent> events = trace.events();

  ASSERT_EQ(events.size(), 3u);
  for (TraceEvent& event : events) {
    EXPECT_GT(event.time_us, 1'600'000'000'000'000);  // after 2020
    event.time_us = 0;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  EXPECT_EQ(events[0], (TraceEvent{Action::kAlloc, address, 700, 0, 9, {7, 1}}));
  EXPECT_EQ(events[1], (TraceEvent{Action::kOom, 0, std::size_t{3} << 20, 0, 9, {7, 1}}));
  EXPECT_EQ(events[2], (TraceEvent{Action::kFreeCompleted, address, 700, 0, 9, {7, 1}}));
}

TEST_F(MemoryTraceTest, KeepsTheNewestOldestFirst) {
  MemoryTrace trace(3);
  for (std::size_t size = 1; size <= 8; ++size)
    trace.add({.size = size});

  const std::vector<TraceEvent> events = trace.events();

  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].size, 6u);
  EXPECT_EQ(events[2].size, 8u);
  EXPECT_EQ(trace.overwritten(), 5u);
}

TEST_F(MemoryTraceTest, SeveralPoolsMayShareOneFromSeveralThreads) {
  FakeSegmentSource other_source;
  Pool other(other_source);
  MemoryTrace trace(4000);
  MemoryTraceObserver observer(trace, {0, 0}, 0);
  MemoryTraceObserver other_observer(trace, {1, 0}, 0);
  pool_.set_observer(&observer);
  other.set_observer(&other_observer);
  const auto use = [](Pool& pool) {
    for (int i = 0; i < 1000; ++i)
      pool.free(pool.allocate(512));
  };

  std::thread thread(use, std::ref(other));
  use(pool_);
  thread.join();

  std::size_t of_other = 0;
  for (const TraceEvent& event : trace.events())
    of_other += event.pool.id;
  EXPECT_EQ(trace.overwritten(), 0u);
  EXPECT_EQ(of_other, 2000u);
}

}  // namespace
}  // namespace cgtree
