// Calls on other threads while one thread waits for room in the queue of a full stream.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <vector>

#include "allocator/device/device_streams.h"
#include "caching/device_allocator.h"
#include "interop/device/stream.h"
#include "tests/support/full_stream.h"

namespace cgtree::testing {
namespace {

class FullStreamTest : public ::testing::Test {
 protected:
  // Frees a block of the pool of `stream` that the full stream uses, so that the pool asks for the
  // full stream's progress.
  void free_used(const Stream& stream) {
    void* const block = allocator().allocate(kBytes, stream_id(stream));
    allocator().use(block, stream_id(full_));
    allocator().free(block);
  }
  // Needs more than is free, so that the pool checks its pending blocks.
  void allocate_much(const Stream& stream) {
    allocator().free(allocator().allocate(64 * kBytes, stream_id(stream)));
  }
  CachingAllocator& allocator() { return memory_->allocator(); }

  static constexpr std::size_t kBytes = 1 << 20;
  FullStream driver_;
  const std::shared_ptr<DeviceAllocator> memory_ = DeviceAllocator::shared(driver_.device());
  Stream full_{driver_.device()};
  Stream one_{driver_.device()};
  Stream two_{driver_.device()};
  std::future<void> stalled_, other_;
};

TEST_F(FullStreamTest, OneThreadWaitsForRoomAndTheOthersAllocateAndFree) {
  void* const reserve = allocator().allocate(128 * kBytes, stream_id(two_));
  void* const used = allocator().allocate(kBytes, stream_id(two_));
  allocator().use(used, stream_id(full_));
  allocator().free(reserve);
  free_used(one_);
  free_used(two_);
  driver_.fill(full_.ref().handle());
  stalled_ = std::async(std::launch::async, [&] { allocate_much(one_); });
  ASSERT_TRUE(driver_.wait_until_blocked());

  EXPECT_TRUE(ends_soon(other_, [&] {
    allocator().free(used);        // as a host function on the full stream would do
    for (int i = 0; i < 100; ++i)  // checks pending blocks every few calls
      allocator().free(allocator().allocate(kBytes, stream_id(two_)));
  }));

  driver_.drain();
  stalled_.get();
  other_.get();
  (void)allocator().trim();
  EXPECT_EQ(allocator().statistics().pending_blocks, 0u);
}

TEST_F(FullStreamTest, EndingAnotherStreamDoesNotWaitForIt) {
  free_used(one_);
  auto ending = std::make_unique<Stream>(driver_.device());
  void* const block = allocator().allocate(kBytes, stream_id(two_));
  driver_.fill(full_.ref().handle());
  stalled_ = std::async(std::launch::async, [&] { allocate_much(one_); });
  ASSERT_TRUE(driver_.wait_until_blocked());

  EXPECT_TRUE(ends_soon(other_, [&] {
    allocator().use(block, stream_id(*ending));
    allocator().free(block);
    memory_->allocator().retire(stream_id(two_));
  }));

  driver_.drain();
  stalled_.get();
  other_.get();
}

}  // namespace
}  // namespace cgtree::testing
