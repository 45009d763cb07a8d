// A result file is written whole or not at all.
#include "examples/serve/json_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "base/error.h"

namespace cgtree::serve {
namespace {

namespace fs = std::filesystem;

class JsonFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  std::string read(const fs::path& path) const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  auto count_files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  fs::path folder_;
};

TEST_F(JsonFileTest, ReplacesTheFileAndLeavesNothingElse) {
  write_whole(folder_ / "r.json", "old");
  write_whole(folder_ / "r.json", "new");

  EXPECT_EQ(read(folder_ / "r.json"), "new");
  EXPECT_EQ(count_files(), 1);
}

TEST_F(JsonFileTest, CheckingAPathLeavesNothingBehind) {
  expect_writable(folder_ / "r.json");

  EXPECT_EQ(count_files(), 0);
}

TEST_F(JsonFileTest, AMissingFolderIsRefused) {
  try {
    expect_writable(folder_ / "missing" / "r.json");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.message()).find("No such file or directory"), std::string::npos);
  }
}

TEST_F(JsonFileTest, AFolderOrADeviceIsNeverReplaced) {
  EXPECT_THROW(expect_writable(folder_), InvalidArgument);
  EXPECT_THROW(expect_writable("/dev/null"), InvalidArgument);
  EXPECT_THROW(expect_writable(""), InvalidArgument);
}

TEST_F(JsonFileTest, ALinkToNothingIsRefused) {
  fs::create_symlink(folder_ / "missing.json", folder_ / "link.json");

  EXPECT_THROW(expect_writable(folder_ / "link.json"), InvalidArgument);
}

TEST_F(JsonFileTest, ALinkStaysALink) {
  std::ofstream(folder_ / "target.json") << "old";
  fs::create_symlink(folder_ / "target.json", folder_ / "link.json");

  write_whole(folder_ / "link.json", "text");

  EXPECT_TRUE(fs::is_symlink(folder_ / "link.json"));
  EXPECT_EQ(read(folder_ / "target.json"), "text");
}

}  // namespace
}  // namespace cgtree::serve
