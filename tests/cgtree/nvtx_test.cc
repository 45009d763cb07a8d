// NVTX ranges, recorded by a test library in the role of a profiler.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "cgtree/steps.h"
#include "extensions/verify/verify.h"
#include "extensions/watch/monitor.h"
#include "interop/device/profiler.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr const char* kRecorder = "tests/support/libnvtx_recorder.so";
// NVTX reads this variable once, at its first use.
[[maybe_unused]] const int kIsSet = setenv("NVTX_INJECTION64_PATH", kRecorder, 1);

struct Range {
  std::string text;
  std::uint64_t payload = 0;
  std::size_t depth = 0;
};

class NvtxTest : public TreeTest {
 protected:
  void SetUp() override {
    TreeTest::SetUp();
    if (!context_) return;
    ASSERT_TRUE(profiler_listens());
    void* const recorder = dlopen(kRecorder, RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(recorder, nullptr) << dlerror();
    take_ = reinterpret_cast<Take>(dlsym(recorder, "nvtx_recorder_take"));
    ASSERT_NE(take_, nullptr);
    (void)ranges();
  }
  void TearDown() override {
    if (take_ != nullptr) (void)ranges();  // fails if a range is open
    TreeTest::TearDown();
  }

  // Returns the ranges opened since the last call, in order, and fails unless all have ended.
  // Ranges of pools depend on the device's cache, and are left out by default.
  std::vector<Range> ranges(bool with_pools = false) {
    Reader reader;
    take_(
        [](void* user, bool is_push, const char* domain, const char* text, std::uint64_t payload) {
          EXPECT_STREQ(domain, "cgtree");
          Reader& read = *static_cast<Reader*>(user);
          if (!is_push) {
            EXPECT_GT(read.depth, 0u) << "a range ends that is not open";
            --read.depth;
            return;
          }
          read.all.push_back({text, payload, read.depth++});
        },
        &reader);
    EXPECT_EQ(reader.depth, 0u) << "a range was left open";
    if (!with_pools)
      std::erase_if(reader.all, [](const Range& r) { return r.text == "grow pool"; });
    return reader.all;
  }
  std::vector<std::string> texts() {
    std::vector<std::string> texts;
    for (const Range& range : ranges())
      texts.push_back(
          fmt::format("{}{} #{}", std::string(2 * range.depth, ' '), range.text, range.payload));
    return texts;
  }

 private:
  struct Reader {
    std::vector<Range> all;
    std::size_t depth = 0;
  };
  using Take = void (*)(void (*)(void*, bool, const char*, const char*, std::uint64_t), void*);

  Take take_ = nullptr;
};
CGTREE_ON_ALL_DEVICES(NvtxTest);

TEST_P(NvtxTest, ACallIsARangeWithItsFunctionAndTheNumberOfItsRecording) {
  const CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  const CompiledFunction eager =
      compile(context(), "eager", [](Tensor x) { return affine(x, 2, 1); }, {.enabled = false});
  for (const std::int64_t size : {2, 3}) {
    for (int call = 0; call < 3; ++call)
      EXPECT_EQ(f(random_tensor({size})).shape().elements(), size);
  }
  (void)eager(random_tensor({2}));

  EXPECT_THAT(texts(),
              ElementsAre("warm_up f; float32 {2} #0", "record f; float32 {2} #1", "replay f #1",
                          "warm_up f; float32 {3} #0", "record f; float32 {3} #2", "replay f #2",
                          "skip eager: disabled #0"));
  const nlohmann::json snapshot = nlohmann::json::parse(snapshot_json(context()));
  EXPECT_EQ(snapshot["nodes"][1]["id"], 2);  // the node that #2 refers to
}

TEST_P(NvtxTest, AKeyIsPartOfTheText) {
  const CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  for (int call = 0; call < 3; ++call)
    (void)f.keyed({{"draft", 4}})(random_tensor({2}));
  EXPECT_THAT(texts(), ElementsAre("warm_up f; [draft=4] float32 {2} #0",
                                   "record f; [draft=4] float32 {2} #1", "replay f draft=4 #1"));
}

TEST_P(NvtxTest, AnEvictionLiesInTheRecordingThatCausesIt) {
  make_context({.max_recordings = 1, .at_limit = AtLimit::kEvict});
  const CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  for (const std::int64_t size : {2, 3}) {
    for (int call = 0; call < 2; ++call)
      (void)f(random_tensor({size}));
  }
  EXPECT_THAT(texts(), ElementsAre("warm_up f; float32 {2} #0", "record f; float32 {2} #1",
                                   "warm_up f; float32 {3} #0", "record f; float32 {3} #2",
                                   "  evict f: context_limit #1"));
}

TEST_P(NvtxTest, NoExceptionLeavesARangeOpen) {
  int throws_in = -1;
  int runs = 0;
  for (const int at : {0, 1}) {  // in the warm-up, and in the recording
    make_context({});
    const CompiledFunction g = compile(context(), "g", [&](Tensor x) {
      if (runs++ == throws_in) throw std::runtime_error("thrown by the test");
      return affine(x, 2, 1);
    });
    runs = 0;
    throws_in = at;
    for (int call = 0; call < 4; ++call) {
      try {
        (void)g(random_tensor({2}));
      } catch (const std::runtime_error&) {
      }
    }
    EXPECT_THAT(texts(), Contains(StartsWith("record g")));
  }
}

TEST_P(NvtxTest, AVerifiedReplayShowsTheReplayAndTheComparison) {
  make_context({.extensions = {verify({.every = 1})}});
  float scale = 2;
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) { return affine(x, scale, 1); });
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({2}));
  scale = 3;
  EXPECT_THROW((void)f(random_tensor({2})), VerifyError);
  EXPECT_THAT(texts(), ElementsAre("warm_up f; float32 {2} #0", "record f; float32 {2} #1",
                                   "replay f #1", "verify f #1", "replay f #1", "verify f #1"));
}

TEST_P(NvtxTest, AStepBetweenBeginAndEndIsARangeUntilItsEnd) {
  Steps steps(context(), "step", {.bindings = {{.name = "x", .is_mutated = true}}});
  const Tensor x = random_tensor({2});
  const Binding bindings[] = {{reinterpret_cast<const void*>(x.address()), x.bytes()}};
  for (int i = 0; i < 3; ++i) {
    for (Step step = steps.begin({}, bindings); step.must_run(); step.end())
      update(x, 1, 1);
  }
  const std::vector<std::string> seen = texts();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_THAT(seen[0], StartsWith("warm_up step"));
  EXPECT_THAT(seen[1], StartsWith("record step"));
  EXPECT_EQ(seen[2], "replay step #1");
}

TEST_P(NvtxTest, APoolThatGrowsIsARangeWithTheBytes) {
  context_.reset();
  Context fresh(device(), {.pools_grow_in_place = pools_grow_in_place()});
  (void)ranges();
  Tensor large;
  const CompiledFunction f = compile(fresh, "f", [](Tensor x) {
    (void)empty({std::int64_t{1} << 26}, DType::kFloat32, x.device());
    return affine(x, 2, 1);
  });
  (void)f(random_tensor({2}));
  bool grows = false;
  for (const Range& range : ranges(/*with_pools=*/true))
    grows = grows || (range.text == "grow pool" && range.payload >= std::uint64_t{1} << 20);
  EXPECT_TRUE(grows);
}

TEST_P(NvtxTest, ALongNameIsCut) {
  const CompiledFunction f =
      compile(context(), std::string(2000, 'n'), [](Tensor x) { return affine(x, 2, 1); });
  (void)f(random_tensor({2}));
  const std::vector<Range> seen = ranges();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].text, "warm_up " + std::string(503, 'n'));
}

}  // namespace
}  // namespace cgtree::testing
