// When memory that is freed in a capture may be used again in it.
#include "caching/captures/capture_session.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <set>

#include "allocator/segments/segment_cache.h"
#include "base/error.h"
#include "caching/captures/capture_order.h"
#include "tests/allocator/fake_capture.h"
#include "tests/allocator/fake_device.h"

namespace cgtree {
namespace {

constexpr std::size_t kBytes = std::size_t{16} << 20;  // a segment of its own

class CaptureSessionTest : public testing::Test {
 protected:
  CaptureSessionTest() { session_.emplace(pools_, cache_.defer_frees(), order_); }

  void free(void* address) { session_->free(address, pools_.number_of(address)); }
  void fork(StreamId from, std::initializer_list<StreamId> to) {
    for (const StreamId stream : to)
      dag_.wait(stream, from);
  }

  FakeDevice device_;
  SegmentCache cache_{device_, nullptr, &device_};
  FakeCapturePools pools_{cache_};
  FakeDag dag_{1};
  DagOrder order_{dag_};
  std::optional<CaptureSession> session_;
};

TEST_F(CaptureSessionTest, OneStreamUsesItsFreesAtOnceAndNeverAsksTheGraph) {
  void* const first = session_->allocate(kBytes, 1);
  dag_.run(1);
  free(first);

  EXPECT_EQ(session_->allocate(kBytes, 1), first);
  EXPECT_EQ(dag_.visits(), 0u);
  free(first);
}

TEST_F(CaptureSessionTest, ABranchDoesNotGetWhatAnotherHasFreed) {
  fork(1, {2});
  void* const block = session_->allocate(kBytes, 1);
  dag_.run(1);
  free(block);
  dag_.run(2);

  void* const other = session_->allocate(kBytes, 2);

  EXPECT_NE(other, block);
  free(other);
}

TEST_F(CaptureSessionTest, AStreamThatHasJoinedAnotherTakesItsPoolOver) {
  fork(1, {2});
  void* const block = session_->allocate(kBytes, 2);
  dag_.run(2);
  free(block);
  dag_.run(1);
  dag_.wait(1, 2);

  EXPECT_EQ(session_->allocate(kBytes, 1), block);
  free(block);
}

TEST_F(CaptureSessionTest, WhatWasTakenOverIsNotUsedByTheStreamItCameFrom) {
  fork(1, {2});
  void* const block = session_->allocate(kBytes, 2);
  dag_.run(2);
  free(block);
  dag_.run(1);
  dag_.wait(1, 2);
  free(session_->allocate(kBytes, 1));
  dag_.run(2);

  void* const other = session_->allocate(kBytes, 2);

  EXPECT_NE(other, block);
  free(other);
}

// test_graph_capture_reclaim_2_streams
// Acceptance: pools graph_capture_reclaim_2_streams.
TEST_F(CaptureSessionTest, GraphCaptureReclaim2Streams) {
  fork(1, {2});
  void* const block = session_->allocate(kBytes, 1);
  dag_.run(1);
  session_->use(block, 2);
  dag_.run(2);
  free(block);

  void* const before_join = session_->allocate(kBytes, 1);
  EXPECT_NE(before_join, block) << "the other stream may still use it";
  EXPECT_EQ(session_->deferred_blocks(), 1u);
  dag_.wait(1, 2);
  EXPECT_EQ(session_->allocate(kBytes, 1), block);
  free(block);
  free(before_join);
}

// test_graph_capture_reclaim_4_streams
// Acceptance: pools graph_capture_reclaim_4_streams.
TEST_F(CaptureSessionTest, GraphCaptureReclaim4Streams) {
  fork(1, {2, 3, 4});
  void* const block = session_->allocate(kBytes, 1);
  for (const StreamId stream : {2, 3, 4}) {
    session_->use(block, stream);
    dag_.run(stream);
  }
  dag_.run(1);
  free(block);

  std::vector<void*> held;
  for (const StreamId stream : {2, 3, 4}) {
    held.push_back(session_->allocate(kBytes, 1));
    EXPECT_NE(held.back(), block) << "stream " << stream << " has not joined yet";
    dag_.wait(1, stream);
  }
  EXPECT_EQ(session_->allocate(kBytes, 1), block);
  free(block);
  for (void* const other : held)
    free(other);
}

TEST_F(CaptureSessionTest, ABlockWaitsForAllItsStreamsInWhateverOrderTheyJoin) {
  for (const auto& joins : {std::array<StreamId, 2>{2, 3}, std::array<StreamId, 2>{3, 2}}) {
    fork(1, {2, 3});
    void* const block = session_->allocate(kBytes, 1);
    for (const StreamId stream : joins) {
      session_->use(block, stream);
      dag_.run(stream);
    }
    dag_.run(1);
    free(block);

    dag_.wait(1, joins[0]);
    void* const other = session_->allocate(kBytes, 1);
    EXPECT_NE(other, block) << "stream " << joins[1] << " has not joined yet";
    dag_.wait(1, joins[1]);
    EXPECT_EQ(session_->allocate(kBytes, 1), block);
    free(block);
    free(other);
  }
}

TEST_F(CaptureSessionTest, APoolInWhichAStreamIsAllocatingIsNotTakenOver) {
  void* const block = session_->allocate(kBytes, 1);
  dag_.run(1);
  free(block);
  fork(1, {2});
  void* other = nullptr;
  pools_.when_asked = [&] { other = session_->allocate(kBytes, 2); };

  EXPECT_EQ(session_->allocate(kBytes, 1), block);

  EXPECT_NE(other, nullptr);
  EXPECT_NE(pools_.number_of(other), pools_.number_of(block));
  free(block);
  free(other);
}

// test_graph_capture_reclaim_shared_pool
// Acceptance: pools graph_capture_reclaim_shared_pool.
TEST_F(CaptureSessionTest, GraphCaptureReclaimSharedPool) {
  fork(1, {2});
  void* const block = session_->allocate(kBytes, 1);
  session_->use(block, 2);
  dag_.run(2);
  free(block);
  session_.reset();
  EXPECT_EQ(pools_.live_blocks(), 0u) << "the end of a capture frees what it has deferred";

  FakeDag second_dag(5);
  DagOrder second_order(second_dag);
  session_.emplace(pools_, cache_.defer_frees(), second_order);

  EXPECT_EQ(session_->allocate(kBytes, 5), block);
  free(block);
}

TEST_F(CaptureSessionTest, ABlockThatWorkOutsideUsesStaysUntilTheEnd) {
  void* const block = session_->allocate(kBytes, 1);
  session_->use(block, 9);
  free(block);
  dag_.run(1);

  void* const other = session_->allocate(kBytes, 1);

  EXPECT_NE(other, block);
  EXPECT_EQ(pools_.outside.size(), 1u);
  free(other);
}

TEST_F(CaptureSessionTest, ABlockFromBeforeStaysUntilTheEnd) {
  session_.reset();
  const std::size_t number = pools_.add(1);
  void* const older = pools_.pool(number).allocate(kBytes);
  session_.emplace(pools_, cache_.defer_frees(), order_);

  free(older);
  void* const other = session_->allocate(kBytes, 1);

  EXPECT_NE(other, older);
  free(other);
  session_.reset();
  EXPECT_EQ(pools_.live_blocks(), 0u);
}

TEST_F(CaptureSessionTest, FreeingTwiceIsNamed) {
  fork(1, {2});
  void* const block = session_->allocate(kBytes, 1);
  session_->use(block, 2);
  free(block);

  EXPECT_THROW(free(block), InvalidArgument);
}

TEST_F(CaptureSessionTest, AStreamOutsideTheCaptureIsRefused) {
  EXPECT_THROW(session_->allocate(kBytes, 9), InvalidArgument);
  free(session_->allocate(kBytes, 1));
  EXPECT_THROW(session_->allocate(kBytes, 9), InvalidArgument);
}

TEST_F(CaptureSessionTest, AfterTheEndNothingIsAllocatedOrDeferred) {
  void* const block = session_->allocate(kBytes, 1);
  session_->end();

  EXPECT_THROW(session_->allocate(kBytes, 1), InvalidArgument);
  EXPECT_FALSE(session_->free(block, 0));
  EXPECT_FALSE(cache_.is_capture_open());
  EXPECT_EQ(pools_.handed_back, 1u);
  pools_.pool(0).free(block);
}

TEST_F(CaptureSessionTest, ARefusedAllocationChangesNothing) {
  void* const block = session_->allocate(kBytes, 1);
  device_.fail_from(1);

  EXPECT_THROW(session_->allocate(2 * kBytes, 1), OutOfMemory);

  device_.fail_no_more();
  EXPECT_EQ(pools_.live_blocks(), 1u);
  free(block);
  EXPECT_EQ(session_->allocate(kBytes, 1), block);
  free(block);
}

// c10's first version made captures 20 times slower: it walked the whole graph for each block.
TEST_F(CaptureSessionTest, ManyDeferredBlocksCostAFewVisitsEach) {
  fork(1, {2});
  std::vector<void*> blocks;
  for (int i = 0; i < 500; ++i) {
    blocks.push_back(session_->allocate(512, 1));
    session_->use(blocks.back(), 2);
    dag_.run(1);
    dag_.run(2);
    free(blocks.back());
  }
  dag_.wait(1, 2);
  free(session_->allocate(512, 1));

  EXPECT_EQ(session_->deferred_blocks(), 0u);
  EXPECT_LE(dag_.visits(), 2 * dag_.nodes());
}

}  // namespace
}  // namespace cgtree
