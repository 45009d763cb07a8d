// Captures beside everything else that happens on a device.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <thread>

#include "tests/allocator/allocator_fixture.h"

namespace cgtree {
namespace {

constexpr StreamId kOrigin = 1;
constexpr StreamId kSide = 2;
constexpr StreamId kEager = 9;
constexpr std::size_t kBytes = 4 * kMiB;

class AllocatorCaptureTest : public AllocatorFixture {
 protected:
  void begin() {
    capture_.emplace(cgtree::begin_capture(allocator_, pool_, std::array{kOrigin, kSide}, order_));
    device_.begin_capture();
  }
  void end() {
    device_.end_capture();
    capture_->end();
  }

  PoolHandle pool_ = allocator_.make_pool({.pool = {.name = "graph"}});
  FakeDag dag_{kOrigin};
  DagOrder order_{dag_};
  std::optional<CaptureScope> capture_;
};

TEST_F(AllocatorCaptureTest, AllocationsOfItsStreamsGoToItsPool) {
  begin();
  dag_.wait(kSide, kOrigin);
  void* const one = allocator_.allocate(kBytes, kOrigin);
  void* const two = allocator_.allocate(kBytes, kSide);
  EXPECT_EQ(pool_.statistics().allocation.current, 2u);
  allocator_.free(one);
  allocator_.free(two);
  end();

  allocator_.free(allocator_.allocate(kBytes, kOrigin));
  EXPECT_EQ(pool_.statistics().allocation.allocated, 2u);
}

// Of c10: an eager allocation elsewhere drained the deferred blocks of a capture that was open.
TEST_F(AllocatorCaptureTest,
       AnEagerAllocationOnAnotherThreadNeitherEntersTheCapturesPoolNorDrainsItsDeferredFrees) {
  begin();
  dag_.wait(kSide, kOrigin);
  void* const block = allocator_.allocate(kBytes, kOrigin);
  allocator_.use(block, kSide);
  dag_.run(kSide);
  allocator_.free(block);
  ASSERT_EQ(pool_.deferred_blocks(), 1u);

  std::thread other([&] {
    for (int i = 0; i < 100; ++i) {
      void* const eager = allocator_.allocate(4096, kEager);
      EXPECT_NE(eager, block);
      allocator_.use(eager, kEager + 1);
      allocator_.free(eager);
      if (i % 10 == 0) allocator_.trim();
    }
  });
  other.join();

  EXPECT_EQ(pool_.deferred_blocks(), 1u);
  EXPECT_EQ(pool_.statistics().allocation.allocated, 1u);
  end();
  EXPECT_EQ(pool_.statistics().allocation.current, 0u);
}

// test_graph_capture_pre_capture_stream_use
// Acceptance: pools graph_capture_pre_capture_stream_use.
TEST_F(AllocatorCaptureTest, GraphCapturePreCaptureStreamUse) {
  void* block = nullptr;
  {
    const ThreadRoute route(allocator_, pool_);
    block = allocator_.allocate(kBytes, kOrigin);
  }
  allocator_.use(block, kEager);
  device_.submit(kEager);
  begin();
  allocator_.free(block);

  void* const captured = allocator_.allocate(kBytes, kOrigin);
  EXPECT_NE(captured, block) << "work from before the capture still uses it";
  end();
  allocator_.free(captured);
  EXPECT_EQ(pool_.statistics().allocation.current, 1u);
  device_.finish(kEager);
  allocator_.trim();
  EXPECT_EQ(pool_.statistics().allocation.current, 0u);
}

// test_graph_record_stream: an event of before is not asked for in a capture, nor one made.
// Acceptance: graphs graph_record_stream.
TEST_F(AllocatorCaptureTest, GraphRecordStream) {
  void* const eager = allocator_.allocate(kBytes, kEager);
  allocator_.use(eager, kSide);
  device_.submit(kSide);
  allocator_.free(eager);
  begin();
  dag_.wait(kSide, kOrigin);

  void* const block = allocator_.allocate(kBytes, kOrigin);
  allocator_.use(block, kSide);
  dag_.run(kSide);
  allocator_.free(block);
  EXPECT_EQ(pool_.deferred_blocks(), 1u);
  void* const other = allocator_.allocate(kBytes, kEager);  // the device traps what is forbidden
  EXPECT_NE(other, eager);
  end();

  EXPECT_EQ(pool_.deferred_blocks(), 0u);
  device_.finish(kSide);
  allocator_.free(other);
}

TEST_F(AllocatorCaptureTest, AnotherCaptureReusesThePoolOnOtherStreams) {
  begin();
  void* const block = allocator_.allocate(kBytes, kOrigin);
  dag_.run(kOrigin);
  allocator_.free(block);
  end();
  FakeDag dag(kEager);
  DagOrder order(dag);

  CaptureScope second = cgtree::begin_capture(allocator_, pool_, std::array{kEager}, order);
  EXPECT_EQ(allocator_.allocate(kBytes, kEager), block);
  allocator_.free(block);
}

TEST_F(AllocatorCaptureTest, ACaptureDoesNotTakeMemoryThatEagerWorkOnAnotherStreamMayUse) {
  void* block = nullptr;
  {
    const ThreadRoute route(allocator_, pool_);
    block = allocator_.allocate(kBytes, kEager);
    device_.submit(kEager);
    allocator_.free(block);
  }
  begin();

  void* const captured = allocator_.allocate(kBytes, kOrigin);

  EXPECT_NE(captured, block);
  allocator_.free(captured);
  end();
}

TEST_F(AllocatorCaptureTest, ACaptureDoesNotTakeWhatEagerWorkHasUsedSinceItBegan) {
  void* older = nullptr;
  {
    const ThreadRoute route(allocator_, pool_);
    older = allocator_.allocate(kBytes, kEager);
  }
  begin();
  device_.submit(kEager);
  allocator_.free(older);

  void* const captured = allocator_.allocate(kBytes, kOrigin);

  EXPECT_NE(captured, older);
  allocator_.free(captured);
  end();
  device_.finish(kEager);
}

TEST_F(AllocatorCaptureTest, ACaptureDoesNotTakeAPoolInWhichEagerWorkIsAllocating) {
  const ThreadRoute route(allocator_, pool_);
  void* const older = allocator_.allocate(kBytes, kEager);
  allocator_.free(older);
  void* captured = nullptr;
  device_.while_allocating = [&] {
    begin();
    captured = allocator_.allocate(kBytes, kOrigin);
  };

  void* const eager = allocator_.allocate(40 * kMiB, kEager);

  EXPECT_NE(captured, nullptr);
  EXPECT_NE(captured, older);
  allocator_.free(captured);
  end();
  allocator_.free(eager);
}

TEST_F(AllocatorCaptureTest, WorkOutsideOfACaptureIsNotServedFromWhatTheCaptureHolds) {
  begin();
  void* const captured = allocator_.allocate(kBytes, kOrigin);
  dag_.run(kOrigin);
  allocator_.free(captured);

  const ThreadRoute route(allocator_, pool_);  // the innermost: outside of the capture
  void* const eager = allocator_.allocate(kBytes, kOrigin);

  EXPECT_NE(eager, captured);
  end();
  allocator_.free(eager);
}

TEST_F(AllocatorCaptureTest, ABlockFromBeforeWaitsForItsOwnStreamAfterTheCaptureToo) {
  void* block = nullptr;
  {
    const ThreadRoute route(allocator_, pool_);
    block = allocator_.allocate(kBytes, kEager);
  }
  begin();
  allocator_.free(allocator_.allocate(kBytes, kOrigin));
  end();
  device_.submit(kEager);

  allocator_.free(block);

  EXPECT_EQ(pool_.statistics().allocation.current, 1u);
  device_.finish(kEager);
}

TEST_F(AllocatorCaptureTest, OnePoolServesOneCaptureAtATime) {
  begin();
  EXPECT_THROW((void)cgtree::begin_capture(allocator_, pool_, std::array{kEager}, order_),
               InvalidArgument);
  end();
  begin();
  end();
}

TEST_F(AllocatorCaptureTest, ACaptureThatIsGivenUpLeavesNothingBehind) {
  const std::size_t reserved = budget_.current();
  begin();
  dag_.wait(kSide, kOrigin);
  void* const block = allocator_.allocate(kBytes, kOrigin);
  allocator_.use(block, kSide);
  allocator_.free(block);
  device_.end_capture();
  capture_.reset();

  EXPECT_FALSE(cache_.is_capture_open());
  EXPECT_EQ(pool_.use_count(), 1);
  pool_ = PoolHandle();
  allocator_.trim();
  EXPECT_EQ(budget_.current(), reserved);
}

TEST_F(AllocatorCaptureTest, OutOfMemoryInACaptureIsTypedAndTheCaptureGoesOn) {
  begin();
  void* const block = allocator_.allocate(kBytes, kOrigin);

  EXPECT_THROW(allocator_.allocate(std::size_t{1} << 40, kOrigin), OutOfMemory);

  void* const small = allocator_.allocate(512, kOrigin);
  allocator_.free(small);
  allocator_.free(block);
  end();
  EXPECT_EQ(pool_.statistics().allocation.current, 0u);
}

TEST_F(AllocatorCaptureTest, AnOutputOutlivesItsPoolsHandle) {
  begin();
  void* const output = allocator_.allocate(kBytes, kOrigin);
  end();
  capture_.reset();
  pool_ = PoolHandle();
  allocator_.trim();
  EXPECT_EQ(device_.held().size(), 1u);

  allocator_.free(output);
  allocator_.trim();

  EXPECT_TRUE(device_.held().empty());
}

TEST_F(AllocatorCaptureTest, WhatIsNoLiveBlockIsNeitherFreedNorUsedInACapture) {
  void* older = nullptr;
  {
    const ThreadRoute route(allocator_, pool_);
    older = allocator_.allocate(kBytes, kOrigin);
  }
  begin();
  dag_.wait(kSide, kOrigin);
  char* const block = static_cast<char*>(allocator_.allocate(kBytes, kOrigin));
  for (char* const address : {block + 512, static_cast<char*>(older) + 512}) {
    EXPECT_THROW(allocator_.free(address), InvalidArgument);
    EXPECT_THROW(allocator_.use(address, kSide), InvalidArgument);
  }
  allocator_.free(block);
  EXPECT_THROW(allocator_.free(block), InvalidArgument)
      << "free at once, because one stream used it";
  EXPECT_THROW(allocator_.use(block, kSide), InvalidArgument);
  allocator_.free(older);
  EXPECT_THROW(allocator_.free(older), InvalidArgument) << "deferred";
  EXPECT_THROW(allocator_.use(older, kSide), InvalidArgument);
  end();
  EXPECT_EQ(pool_.statistics().allocation.current, 0u);
}

// A library that is called in a capture forks to a stream of its own.
TEST_F(AllocatorCaptureTest, AForkThatTheCaptureWasNotToldOfAllocatesFromItsPool) {
  begin();
  dag_.wait(kEager, kOrigin);
  void* const block = allocator_.allocate(kBytes, kEager);
  dag_.run(kEager);
  allocator_.free(block);

  EXPECT_EQ(pool_.statistics().allocation.allocated, 1u);
  void* const other = allocator_.allocate(kBytes, kOrigin);
  EXPECT_NE(other, block) << "the fork has not been joined";
  allocator_.free(other);
  end();

  void* const eager = allocator_.allocate(kBytes, kEager);
  EXPECT_EQ(pool_.statistics().allocation.allocated, 2u) << "the stream has left the capture";
  allocator_.free(eager);
}

// The capture begins inside the route; a route inside the capture would win.
TEST_F(AllocatorCaptureTest, AForkToAStreamWithARouteFromBeforeAllocatesFromTheCapturesPool) {
  const PoolHandle routed = allocator_.make_pool();
  const StreamRoute route(allocator_, kEager, routed);
  begin();
  dag_.wait(kEager, kOrigin);

  void* const captured = allocator_.allocate(kBytes, kEager);
  EXPECT_EQ(pool_.statistics().allocation.current, 1u);
  {
    const StreamRoute inner(allocator_, kEager, routed);
    allocator_.free(allocator_.allocate(kBytes, kEager));
    EXPECT_EQ(routed.statistics().allocation.allocated, 1u);
  }
  allocator_.free(captured);
  end();

  allocator_.free(allocator_.allocate(kBytes, kEager));
  EXPECT_EQ(routed.statistics().allocation.allocated, 2u);
}

TEST_F(AllocatorCaptureTest, ACaptureDoesNotTakeASegmentThatEagerWorkOnItsOwnStreamMayUse) {
  PoolHandle gone = allocator_.make_pool();
  void* const block = allocator_.allocate_in(gone, kBytes, kOrigin);
  device_.submit(kOrigin);
  allocator_.free(block);
  gone = PoolHandle();  // its segment is cached
  begin();

  void* const captured = allocator_.allocate(kBytes, kOrigin);

  EXPECT_NE(captured, block) << "the graph may be launched on another stream";
  allocator_.free(captured);
  end();
  device_.finish(kOrigin);
}

// The segment was the origin's before the side stream, which has joined it, took it over.
TEST_F(AllocatorCaptureTest, ATrimmedSegmentDoesNotGoBackToAStreamThatIsNotBehindItsLastUser) {
  pool_ = allocator_.make_pool({.keeps_segments = false});
  begin();
  dag_.run(kOrigin);
  void* const first = allocator_.allocate(kBytes, kOrigin);
  dag_.run(kOrigin);
  allocator_.free(first);
  dag_.wait(kSide, kOrigin);
  void* const taken = allocator_.allocate(kBytes, kSide);
  EXPECT_EQ(taken, first);
  dag_.run(kSide);
  allocator_.free(taken);
  allocator_.trim();

  void* const other = allocator_.allocate(kBytes, kOrigin);

  EXPECT_NE(other, taken);
  allocator_.free(other);
  end();
}

TEST_F(AllocatorCaptureTest, ACaptureDoesNotTakeWhatEagerWorkOnItsOwnStreamMayUse) {
  void* block = nullptr;
  {
    const ThreadRoute route(allocator_, pool_);
    block = allocator_.allocate(kBytes, kOrigin);
    device_.submit(kOrigin);
    allocator_.free(block);
  }
  begin();
  void* const captured = allocator_.allocate(kBytes, kOrigin);
  EXPECT_NE(captured, block) << "the graph may be launched on another stream";
  allocator_.free(captured);
  end();

  device_.finish(kOrigin);
  begin();
  void* const again = allocator_.allocate(kBytes, kOrigin);
  EXPECT_TRUE(again == block || again == captured);
  allocator_.free(again);
  end();
}

}  // namespace
}  // namespace cgtree
