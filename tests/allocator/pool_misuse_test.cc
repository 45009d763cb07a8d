// A misused pool reports the mistake, and is unchanged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "allocator/pool/block.h"
#include "allocator/pool/pool.h"
#include "base/error.h"
#include "base/log.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::uintptr_t kBase = std::uintptr_t{1} << 40;

void* pointer_to(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);
}

// Blocks of 512, 1024 and 512 bytes at the start of the only segment; the last is free.
class PoolMisuseTest : public testing::Test {
 protected:
  PoolMisuseTest() {
    pool_.allocate(512);
    pool_.allocate(1024);
    pool_.free(pool_.allocate(512));
    checkpoint_ = pool_.checkpoint();
  }
  ~PoolMisuseTest() override { pool_.restore_live({}); }

  std::string refusal_of(const std::function<void()>& misuse) {
    const PoolCheckpoint before = pool_.checkpoint();
    const PoolStatistics statistics = pool_.statistics();
    try {
      misuse();
    } catch (const InvalidArgument& error) {
      pool_.validate();
      EXPECT_EQ(pool_.checkpoint(), before);
      EXPECT_EQ(pool_.statistics().allocation, statistics.allocation);
      EXPECT_EQ(pool_.statistics().requested_bytes, statistics.requested_bytes);
      return std::string(error.message());
    }
    return "nothing was thrown";
  }

  std::string refusal_to_free(std::uintptr_t address) {
    return refusal_of([&] { pool_.free(pointer_to(address)); });
  }

  std::string refusal_to_restore(std::vector<void*> dying) {
    std::reverse(dying.begin(), dying.end());  // any order is accepted
    return refusal_of([&] { pool_.restore(checkpoint_, dying); });
  }

  FakeSegmentSource source_;
  Pool pool_{source_, {.name = "decode"}};
  PoolCheckpoint checkpoint_;
};

TEST_F(PoolMisuseTest, FreeOfNullIsNamed) {
  EXPECT_THAT(refusal_to_free(0), HasSubstr("pool 'decode' cannot free null"));
}

TEST_F(PoolMisuseTest, FreeOfAForeignPointerIsNamed) {
  EXPECT_THAT(refusal_to_free(kBase - 512),
              HasSubstr("pool 'decode' cannot free 0xfffffffe00, in no segment of the pool"));
  EXPECT_THAT(refusal_to_free(kBase + kSmallSegment), HasSubstr("in no segment"));
}

TEST_F(PoolMisuseTest, FreeOfAnotherPoolsBlockIsNamed) {
  Pool other(source_);
  void* const block = other.allocate(512);

  EXPECT_THAT(refusal_of([&] { pool_.free(block); }), HasSubstr("in no segment"));
  other.free(block);
}

TEST_F(PoolMisuseTest, FreeOfAnInnerPointerNamesTheBlock) {
  EXPECT_THAT(refusal_to_free(kBase + 512 + 100),
              HasSubstr("0x10000000264, 100 bytes into the live block [0x10000000200, "
                        "0x10000000600) of segment [0x10000000000, 0x10000200000)"));
}

TEST_F(PoolMisuseTest, ADoubleFreeIsNamed) {
  EXPECT_THAT(refusal_to_free(kBase + 1536),
              HasSubstr("0x10000000600, already free: in the free block [0x10000000600"));
}

TEST_F(PoolMisuseTest, RequestsForNothingAndForTheImpossibleAreNamed) {
  EXPECT_THAT(refusal_of([&] { pool_.allocate(0); }), HasSubstr("0 bytes asked of pool 'decode'"));
  for (const std::size_t bytes : {kLargestRequest + 1, SIZE_MAX})
    EXPECT_THROW(pool_.allocate(bytes), OutOfMemory) << bytes;
  EXPECT_THROW(pool_.allocate(kLargestRequest), OutOfMemory);
}

TEST_F(PoolMisuseTest, ARestoreEndsWhatIsDeclaredInAnyOrder) {
  void* const first = pool_.allocate(512);
  void* const second = pool_.allocate(3 * kMiB);

  const PoolDelta delta = pool_.restore(checkpoint_, std::vector<void*>{second, first});

  EXPECT_EQ(delta.died.size(), 2u);
  EXPECT_EQ(pool_.live(), checkpoint_.live());
}

TEST_F(PoolMisuseTest, ARestoreThatEndsNothingNeedsNoDeclaration) {
  pool_.free(pointer_to(kBase));

  const PoolDelta delta = pool_.restore(checkpoint_, {});

  EXPECT_THAT(delta.became_live, ElementsAre(Range{kBase, 512}));
}

// TestBlockStateAbsorption.test_additional_free_error, disabled there
// Acceptance: checkpoints additional_free_error.
TEST_F(PoolMisuseTest, ARestoreRefusesToEndWhatWasNotDeclared) {
  void* const first = pool_.allocate(512);
  pool_.allocate(512);
  pool_.allocate(512);

  EXPECT_THAT(refusal_to_restore({first}),
              HasSubstr("restore of pool 'decode' would end 2 live block(s) not declared to die, "
                        "the first at 0x10000000800"));
  EXPECT_THAT(refusal_to_restore({}), HasSubstr("3 live block(s)"));
}

TEST_F(PoolMisuseTest, ARestoreRefusesDeclarationsOfWhatStaysLive) {
  EXPECT_THAT(refusal_to_restore({pointer_to(kBase)}),
              HasSubstr("declared to die, but would not: 0x10000000000, the live block"));
}

TEST_F(PoolMisuseTest, ARestoreRefusesDeclarationsOfWhatIsNoBlock) {
  void* const block = pool_.allocate(1024);

  EXPECT_THAT(refusal_to_restore({block, nullptr}), HasSubstr("would not: null"));
  EXPECT_THAT(refusal_to_restore({block, pointer_to(7)}), HasSubstr("0x7, in no segment"));
  EXPECT_THAT(refusal_to_restore({block, pointer_to(kBase + 2048)}), HasSubstr("512 bytes into"));
  EXPECT_THAT(refusal_to_restore({block, pointer_to(kBase + 4096)}), HasSubstr("already free"));
}

TEST_F(PoolMisuseTest, ARestoreRefusesADeclarationMadeTwice) {
  void* const block = pool_.allocate(512);

  EXPECT_THAT(refusal_to_restore({block, block}),
              HasSubstr("0x10000000600 is declared to die twice"));
}

TEST_F(PoolMisuseTest, ABlockThatComesBackWithAnotherSizeIsOneThatDies) {
  pool_.free(pointer_to(kBase + 512));
  void* const block = pool_.allocate(512);
  ASSERT_EQ(block, pointer_to(kBase + 512));

  EXPECT_THAT(refusal_to_restore({}), HasSubstr("1 live block(s)"));
  EXPECT_NO_THROW(pool_.restore(checkpoint_, std::vector<void*>{block}));
}

class ClosedPoolTest : public testing::Test {
 protected:
  ClosedPoolTest() {
    set_log_sink([this](LogLevel, const std::string& line) { lines_.push_back(line); });
    block_ = pool_.allocate(700);
    checkpoint_ = pool_.checkpoint();
    pool_.close();
  }
  ~ClosedPoolTest() override { set_log_sink(nullptr); }

  std::string refusal_of(const std::function<void()>& use) {
    try {
      use();
    } catch (const InvalidArgument& error) {
      return std::string(error.message());
    }
    return "nothing was thrown";
  }

  FakeSegmentSource source_;
  Pool pool_{source_, {.name = "decode"}};
  std::vector<std::string> lines_;
  void* block_ = nullptr;
  PoolCheckpoint checkpoint_;
};

TEST_F(ClosedPoolTest, HoldsNothingAndIsKnownNowhere) {
  pool_.validate();
  EXPECT_THAT(source_.held(), IsEmpty());
  EXPECT_THAT(source_.users(), IsEmpty());
  EXPECT_EQ(pool_.use(), (PoolUse{"decode", 0, 0, 0}));
  EXPECT_EQ(pool_.give_back_unused(), 0u);
}

TEST_F(ClosedPoolTest, HasLoggedItsLiveBlocksOnce) {
  pool_.close();

  EXPECT_THAT(lines_, ElementsAre("pool_closed_with_live_blocks pool=decode blocks=1 bytes=1024"));
}

TEST_F(ClosedPoolTest, RefusesEveryUse) {
  const std::string refusal = "pool 'decode' is closed";
  EXPECT_THAT(refusal_of([&] { pool_.allocate(512); }), HasSubstr(refusal));
  EXPECT_THAT(refusal_of([&] { pool_.free(block_); }), HasSubstr(refusal));
  EXPECT_THAT(refusal_of([&] { pool_.restore(checkpoint_, {}); }), HasSubstr(refusal));
  EXPECT_THAT(refusal_of([&] { pool_.restore(PoolCheckpoint(), kAllMayDie); }), HasSubstr(refusal));
  EXPECT_THAT(refusal_of([&] { pool_.restore_live({}); }), HasSubstr(refusal));
  EXPECT_THAT(source_.held(), IsEmpty());
}

}  // namespace
}  // namespace cgtree
