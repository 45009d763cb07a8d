// A pool behind cuda::mr's references; needs no GPU.
#include "caching/cuda/memory_resource.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using cuda::mr::device_accessible;
using testing::HasSubstr;

class MemoryResourceTest : public testing::Test {
 protected:
  // Streams are only compared, and never used.
  static cuda::stream_ref stream(std::uintptr_t handle) {
    return cuda::stream_ref(reinterpret_cast<cudaStream_t>(handle));
  }

  FakeSegmentSource source_;
  Pool pool_{source_, {.name = "lent"}};
  MemoryResource resource_{pool_, stream(0x80)};
};

TEST_F(MemoryResourceTest, AReferenceToItAllocatesAndFrees) {
  cuda::mr::resource_ref<device_accessible> reference = resource_;

  void* const block = reference.allocate(700, 256);
  EXPECT_TRUE(pool_.owns(block));
  EXPECT_EQ(pool_.statistics().requested_bytes.current, 700u);
  reference.deallocate(block, 700, 256);

  EXPECT_EQ(pool_.statistics().allocation.current, 0u);
}

TEST_F(MemoryResourceTest, AnAsynchronousReferenceAllocatesAndFreesOnThePoolsStream) {
  cuda::mr::async_resource_ref<device_accessible> reference = resource_;

  void* const block = reference.allocate_async(700, 256, stream(0x80));
  EXPECT_EQ(pool_.statistics().requested_bytes.current, 700u);
  reference.deallocate_async(block, 700, 256, stream(0x80));

  EXPECT_EQ(pool_.statistics().allocation.current, 0u);
}

TEST_F(MemoryResourceTest, AnotherStreamIsRefusedAndChangesNothing) {
  try {
    resource_.allocate_async(700, stream(0x90));
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(std::string(error.message()),
                HasSubstr("pool 'lent' is used on stream 0x80, not on 0x90"));
  }
  void* const block = resource_.allocate_async(700, stream(0x80));
  EXPECT_THROW(resource_.deallocate_async(block, 700, stream(0x90)), InvalidArgument);

  EXPECT_EQ(pool_.statistics().allocation.current, 1u);
  resource_.deallocate(block, 700);
}

TEST_F(MemoryResourceTest, AlignmentsOfBlocksAreGranted) {
  for (std::size_t alignment = 1; alignment <= 512; alignment *= 2) {
    void* const block = resource_.allocate(1, alignment);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0u);
    resource_.deallocate(block, 1, alignment);
  }
}

TEST_F(MemoryResourceTest, OtherAlignmentsAreRefusedWithBothSides) {
  for (const std::size_t alignment : {std::size_t{0}, std::size_t{48}, std::size_t{1024}}) {
    try {
      resource_.allocate(1, alignment);
      ADD_FAILURE() << "nothing was thrown for " << alignment;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(std::string(error.message()),
                  HasSubstr("aligns to 512 bytes, not to " + std::to_string(alignment)));
    }
  }
}

TEST_F(MemoryResourceTest, NoBytesAreABlockToo) {
  void* const block = resource_.allocate(0);
  EXPECT_TRUE(pool_.owns(block));
  resource_.deallocate(block, 0);
}

TEST_F(MemoryResourceTest, IsEqualToThoseOfTheSamePoolOnly) {
  FakeSegmentSource other_source;
  Pool other(other_source);
  const MemoryResource copy = resource_;

  EXPECT_TRUE(copy == MemoryResource(pool_, stream(0x80)));
  EXPECT_TRUE(copy != MemoryResource(other, stream(0x80)));
}

TEST_F(MemoryResourceTest, KeepsASharedPool) {
  auto shared = std::make_shared<Pool>(source_);
  MemoryResource resource(shared, stream(0x80));
  const std::weak_ptr<Pool> watch = shared;
  shared.reset();

  resource.deallocate(resource.allocate(1), 1);

  EXPECT_FALSE(watch.expired());
  EXPECT_THROW(MemoryResource(std::shared_ptr<Pool>(), stream(0x80)), InvalidArgument);
}

}  // namespace
}  // namespace cgtree
