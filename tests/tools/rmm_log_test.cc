// What a pool tells its observer, and what the log writes.
#include "tests/support/rmm_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "allocator/pool/pool.h"
#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::MatchesRegex;

class RmmLogTest : public testing::Test {
 protected:
  ~RmmLogTest() override {
    pool_.set_observer(nullptr);
    pool_.restore_live({});
  }

  // The rows written since the last call, with neither thread nor time.
  std::vector<std::string> rows() {
    std::istringstream text(out_.str());
    out_.str("");
    std::vector<std::string> rows;
    for (std::string line; std::getline(text, line);) {
      const std::size_t action = line.find(',', line.find(',') + 1) + 1;
      if (line.rfind("Thread,", 0) != 0) rows.push_back(line.substr(action));
    }
    return rows;
  }

  FakeSegmentSource source_;
  Pool pool_{source_};
  std::ostringstream out_;
  RmmLog log_{out_, 7};
};

TEST_F(RmmLogTest, WritesAHeaderAndRowsOfSixColumns) {
  pool_.set_observer(&log_);
  pool_.free(pool_.allocate(700));

  EXPECT_THAT(out_.str(), MatchesRegex("Thread,Time,Action,Pointer,Size,Stream\n"
                                       "[0-9]+,..:..:..:......,allocate,0x10000000000,700,7\n"
                                       "[0-9]+,..:..:..:......,free,0x10000000000,700,7\n"));
}

TEST_F(RmmLogTest, SaysNothingWithoutBeingAsked) {
  pool_.set_observer(&log_);
  pool_.set_observer(nullptr);
  pool_.allocate(700);

  EXPECT_THAT(rows(), IsEmpty());
}

TEST_F(RmmLogTest, ARefusalIsAFailureWithoutAddress) {
  pool_.set_observer(&log_);
  source_.fail_from(1);

  EXPECT_THROW(pool_.allocate(900), OutOfMemory);

  EXPECT_THAT(rows(), ElementsAre("allocate failure,0x0,900,7"));
}

TEST_F(RmmLogTest, ARestoreFreesAndAllocatesWhatItChanges) {
  void* const first = pool_.allocate(700);
  pool_.allocate(100);
  const PoolCheckpoint checkpoint = pool_.checkpoint();
  pool_.free(first);
  pool_.allocate(800);  // the same block
  pool_.allocate(50);
  pool_.set_observer(&log_);

  pool_.restore(checkpoint, kAllMayDie);

  EXPECT_THAT(rows(), ElementsAre("free,0x10000000000,800,7", "free,0x10000000600,50,7",
                                  "allocate,0x10000000000,700,7"));
}

TEST_F(RmmLogTest, CountsRowsThatCouldNotBeWritten) {
  pool_.set_observer(&log_);
  out_.setstate(std::ios::badbit);

  pool_.free(pool_.allocate(1));

  EXPECT_EQ(log_.lost_rows(), 2u);
}

}  // namespace
}  // namespace cgtree
