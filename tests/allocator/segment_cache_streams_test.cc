// The streams that may use a cached segment, and the frees that wait while a capture is open.
#include <gtest/gtest.h>

#include <optional>

#include "allocator/segments/segment_cache.h"
#include "base/error.h"
#include "tests/allocator/fake_device.h"
#include "tests/allocator/fake_user.h"

namespace cgtree {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr StreamId kStream = 7;
constexpr StreamId kOther = 8;

class SegmentCacheStreamsTest : public testing::Test {
 protected:
  // Frees a segment whose last work on kStream is still running.
  void* free_busy_segment(std::size_t bytes = 2 * kMiB) {
    void* const segment = cache_.allocate(bytes, kStream);
    device_.submit(kStream);
    cache_.free(segment, bytes, kStream);
    return segment;
  }

  FakeDevice device_{100 * kMiB};
  SegmentCache cache_{device_, nullptr, &device_};
};

TEST_F(SegmentCacheStreamsTest, TheSameStreamGetsItAtOnce) {
  void* const segment = free_busy_segment();

  EXPECT_EQ(cache_.allocate(2 * kMiB, kStream), segment);

  EXPECT_EQ(device_.events_recorded(), 0u);
  cache_.free(segment, 2 * kMiB, kStream);
}

TEST_F(SegmentCacheStreamsTest, AnotherStreamGetsItOnceTheWorkIsDone) {
  void* const segment = free_busy_segment();

  void* const fresh = cache_.allocate(2 * kMiB, kOther);
  EXPECT_NE(fresh, segment);
  device_.finish(kStream);
  EXPECT_EQ(cache_.allocate(2 * kMiB, kOther), segment);

  cache_.free(fresh, 2 * kMiB, kOther);
  cache_.free(segment, 2 * kMiB, kOther);
}

TEST_F(SegmentCacheStreamsTest, TheStreamsOwnSegmentIsPreferred) {
  void* const first = cache_.allocate(2 * kMiB, kOther);
  void* const second = cache_.allocate(2 * kMiB, kStream);
  cache_.free(first, 2 * kMiB, kOther);
  cache_.free(second, 2 * kMiB, kStream);

  EXPECT_EQ(cache_.allocate(2 * kMiB, kStream), second);
  cache_.free(second, 2 * kMiB, kStream);
}

TEST_F(SegmentCacheStreamsTest, WithoutEventsASegmentNeverChangesStreams) {
  SegmentCache blind(device_);
  void* const segment = blind.allocate(2 * kMiB, kStream);
  blind.free(segment, 2 * kMiB, kStream);

  void* const other = blind.allocate(2 * kMiB, kOther);

  EXPECT_NE(other, segment);
  blind.free(other, 2 * kMiB, kOther);
}

TEST_F(SegmentCacheStreamsTest, WhileACaptureIsOpenOnlyWhatIsKnownServes) {
  void* const known = free_busy_segment();
  device_.finish(kStream);
  cache_.progress().poll();
  const DeferredFrees hold = cache_.defer_frees();
  device_.begin_capture();

  EXPECT_EQ(cache_.allocate(2 * kMiB, kOther), known);
  cache_.free(known, 2 * kMiB, kStream);
  void* const other = cache_.allocate(2 * kMiB, kOther);
  EXPECT_NE(other, known);
  EXPECT_EQ(cache_.allocate(2 * kMiB, kStream), known);

  cache_.free(known, 2 * kMiB, kStream);
  cache_.free(other, 2 * kMiB, kOther);
  device_.end_capture();
}

TEST_F(SegmentCacheStreamsTest, SegmentsTrimmedInACaptureAreFreedAtItsEnd) {
  free_busy_segment(4 * kMiB);
  std::optional<DeferredFrees> outer(cache_.defer_frees());
  std::optional<DeferredFrees> inner(cache_.defer_frees());
  device_.begin_capture();

  EXPECT_EQ(cache_.trim(), 0u);
  EXPECT_EQ(cache_.statistics(), (SegmentCacheStatistics{0, 4 * kMiB, 4 * kMiB}));
  inner.reset();
  EXPECT_EQ(device_.held().size(), 1u);
  device_.end_capture();
  outer.reset();

  EXPECT_TRUE(device_.held().empty());
  EXPECT_EQ(cache_.statistics(), SegmentCacheStatistics{});
}

TEST_F(SegmentCacheStreamsTest, DeferredFreesServeUntilTheyAreGivenBack) {
  void* const segment = free_busy_segment();
  DeferredFrees hold = cache_.defer_frees();
  cache_.trim();

  EXPECT_EQ(cache_.allocate(2 * kMiB, kStream), segment);

  EXPECT_EQ(cache_.statistics(), (SegmentCacheStatistics{2 * kMiB, 0, 0}));
  hold = DeferredFrees();
  cache_.free(segment, 2 * kMiB, kStream);
}

TEST_F(SegmentCacheStreamsTest, OutOfMemoryInACaptureGivesNothingBackAndSaysSo) {
  free_busy_segment(60 * kMiB);
  std::optional<DeferredFrees> hold(cache_.defer_frees());
  device_.begin_capture();

  try {
    cache_.allocate(80 * kMiB, kStream);
    ADD_FAILURE() << "there is no room";
  } catch (const OutOfMemory& error) {
    ASSERT_NE(error.report(), nullptr);
    EXPECT_TRUE(error.report()->capture_open);
    EXPECT_NE(error.message().find("a capture is open"), std::string_view::npos);
  }
  EXPECT_EQ(device_.held().size(), 1u);
  device_.end_capture();
  hold.reset();
  EXPECT_TRUE(device_.held().empty()) << "memory was asked for: the deferred frees are made";
}

TEST_F(SegmentCacheStreamsTest, ASegmentDoesNotShrinkInACapture) {
  void* const segment = cache_.allocate(8 * kMiB, kStream);
  std::optional<DeferredFrees> hold(cache_.defer_frees());
  device_.begin_capture();
  EXPECT_EQ(cache_.shrink(segment, 8 * kMiB, 2 * kMiB, kStream), 8 * kMiB);
  device_.end_capture();
  hold.reset();

  EXPECT_EQ(cache_.shrink(segment, 8 * kMiB, 2 * kMiB, kStream), 2 * kMiB);
  cache_.free(segment, 2 * kMiB, kStream);
}

TEST_F(SegmentCacheStreamsTest, SegmentsOfAnotherSourceStayApart) {
  FakeDevice own;
  const SegmentCache::Source source(std::shared_ptr<void>(), &own);
  SegmentAccount account({.source = source});
  void* const segment = cache_.allocate_for(account, 2 * kMiB, kStream);
  cache_.free_for(account, segment, 2 * kMiB, kStream);

  void* const usual = cache_.allocate(2 * kMiB, kStream);
  EXPECT_EQ(device_.held().size(), 1u);
  EXPECT_EQ(cache_.trim(source), 2 * kMiB);
  EXPECT_TRUE(own.held().empty());
  cache_.free(usual, 2 * kMiB, kStream);
}

}  // namespace
}  // namespace cgtree
