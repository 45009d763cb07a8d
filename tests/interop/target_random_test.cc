// Random targets, and random damage to their text.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>

#include "tests/interop/target_fuzz_input.h"

namespace cgtree {
namespace {

class TargetRandomTest : public ::testing::Test {
 protected:
  void TearDown() override {
    if (HasFailure()) std::fprintf(stderr, "seed %u\n", seed_);
  }
  std::size_t below(std::size_t n) { return random_() % n; }
  template <std::size_t n>
  std::string one_of(const std::array<const char*, n>& texts) {
    return texts[below(n)];
  }

  std::string text() {
    std::string text = "\"";
    for (std::size_t i = below(6); i > 0; --i)
      text += one_of<6>({"a", "\\n", "\\\"", "\\u00e9", "\xc3\xa9", "/"});
    return text + "\"";
  }
  std::string texts() {
    std::string list = "[";
    for (std::size_t i = below(4); i > 0; --i)
      list += text() + (i > 1 ? ", " : "");
    return list + "]";
  }
  // Returns an object that is a target, with random content.
  std::string target(int hosts) {
    const bool is_cuda = below(2) == 0;
    std::string object = is_cuda ? R"({"kind": "cuda")" : R"({"kind": "host")";
    const auto add = [&](const std::string& name, const std::string& value) {
      if (below(2) == 0) object += ", \"" + name + "\": " + value;
    };
    add("model", text());
    add("device", text());
    add("libs", texts());
    add("keys", texts());
    add("feature." + std::to_string(below(9)), one_of<2>({"true", "false"}));
    if (is_cuda) add("arch", one_of<3>({"\"sm_75\"", "\"sm_90a\"", "\"compute_80\""}));
    if (is_cuda) add("fast_math", one_of<2>({"true", "false"}));
    if (is_cuda) add("l2_cache_size_bytes", std::to_string(1 + below(1 << 30)));
    if (!is_cuda) add("num_cores", std::to_string(1 + below(999)));
    if (hosts > 0) add("host", target(hosts - 1));
    return object + "}";
  }
  std::string harmed(std::string text) {
    for (std::size_t i = 1 + below(3); i > 0 && !text.empty(); --i) {
      const std::size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text.erase(at, 1 + below(4));
          break;
        case 1:
          text[at] = static_cast<char>(random_());
          break;
        case 2:
          text.insert(at, one_of<6>({"{", "[", "\"", "1e999", "null", "-9223372036854775809"}));
          break;
        default:
          text.insert(at, text.substr(below(text.size()), below(20)));
      }
    }
    return text;
  }

  const unsigned seed_ = std::random_device()();
  std::mt19937 random_{seed_};
};

TEST_F(TargetRandomTest, EveryTargetSurvivesBeingWrittenAndRead) {
  for (int i = 0; i < 2000; ++i) {
    const std::string text = target(static_cast<int>(below(4)));
    EXPECT_TRUE(read_and_write_again(text)) << text;
  }
}

TEST_F(TargetRandomTest, HarmedTextIsRefusedOrStillATarget) {
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::string text = harmed(target(static_cast<int>(below(4))));
    EXPECT_NO_THROW(refused += !read_and_write_again(text)) << text;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 5000);
}

}  // namespace
}  // namespace cgtree
