// A tee tells each of its observers all.
#include "allocator/pool/pool_observer.h"

#include <gtest/gtest.h>

#include "allocator/pool/pool.h"
#include "base/error.h"
#include "caching/reports/memory_trace.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

TEST(ObserverTeeTest, TellsEachObserverAll) {
  FakeSegmentSource source;
  Pool pool(source);
  MemoryTrace first(10), second(10);
  MemoryTraceObserver to_first(first, {}, 0), to_second(second, {}, 0);
  ObserverTee tee({&to_first, &to_second});
  pool.set_observer(&tee);

  pool.free(pool.allocate(700));
  source.fail_from(1);
  EXPECT_THROW(pool.allocate(std::size_t{3} << 20), OutOfMemory);

  for (const MemoryTrace* trace : {&first, &second}) {
    const std::vector<TraceEvent> events = trace->events();
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[0].action, TraceEvent::Action::kAlloc);
    EXPECT_EQ(events[1].action, TraceEvent::Action::kFreeCompleted);
    EXPECT_EQ(events[2].action, TraceEvent::Action::kOom);
  }
}

TEST(ObserverTeeTest, RefusesNull) {
  EXPECT_THROW(ObserverTee({nullptr}), InvalidArgument);
}

}  // namespace
}  // namespace cgtree
