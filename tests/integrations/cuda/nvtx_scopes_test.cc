// NVTX ranges are scopes in processes that have loaded the library for it.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "cgtree/tree/engine.h"
#include "extensions/audit/audit.h"
#include "extensions/scopes/scope.h"
#include "extensions/scopes/scope_stack.h"
#include "interop/device/profiler.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::Contains;
using ::testing::Not;

// NVTX reads this variable once, at its first use.
[[maybe_unused]] const int kIsSet =
    setenv("NVTX_INJECTION64_PATH", "integrations/libcgtree_nvtx.so", 1);

class NvtxScopesTest : public TreeTest {
 protected:
  static std::string path() { return std::string(of_thread<ScopeStack>().path()); }
  std::vector<std::string> paths_of_recordings() {
    std::vector<std::string> paths;
    for (const auto& node : engine()->tree.nodes()) {
      const std::vector<std::string>& found = audit_of(node->recording).scopes.paths;
      paths.insert(paths.end(), found.begin(), found.end());
    }
    return paths;
  }
};

TEST_P(NvtxScopesTest, KernelsHaveTheRangesInWhichTheyWereCaptured) {
  const auto f = compile(context(), "f", [](Tensor x) {
    (void)nvtxRangePushA("layer 0");
    (void)nvtxRangePushA("attention");
    Tensor y = affine(x, 2, 0);
    (void)nvtxRangePop();
    y = affine(y, 3, 0);
    (void)nvtxRangePop();
    const Scope scope("head");
    return affine(y, 5, 0);
  });
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3);
    EXPECT_EQ(values(f(tensor({3}, x))), affine_of(affine_of(affine_of(x, 2, 0), 3, 0), 5, 0));
    EXPECT_EQ(path(), "");
  }
  for (const char* expected : {"layer 0", "layer 0/attention", "head"})
    EXPECT_THAT(paths_of_recordings(), Contains(expected));
  EXPECT_GT(f.stats().replays, 0u);
}

TEST_P(NvtxScopesTest, RangesOfDomainsCrossAndNamesMayBeRegisteredOrWide) {
  const nvtxDomainHandle_t first = nvtxDomainCreateA("first");
  const nvtxDomainHandle_t second = nvtxDomainCreateA("second");
  const auto event = [](nvtxMessageType_t type, nvtxMessageValue_t message) {
    nvtxEventAttributes_t made = {};
    made.version = NVTX_VERSION;
    made.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    made.messageType = type;
    made.message = message;
    return made;
  };
  const auto registered = event(NVTX_MESSAGE_TYPE_REGISTERED,
                                {.registered = nvtxDomainRegisterStringA(first, "registered")});
  const auto wide = event(NVTX_MESSAGE_TYPE_UNICODE, {.unicode = L"w\u00efde \U0001F333"});
  EXPECT_EQ(nvtxDomainRangePushEx(first, &registered), 0);
  EXPECT_EQ(nvtxDomainRangePushEx(second, &wide), 0);
  EXPECT_EQ(nvtxRangePushA("plain"), 0);
  EXPECT_EQ(nvtxRangePushA("inner"), 1);
  EXPECT_EQ(path(), "registered/w\u00efde \U0001F333/plain/inner");
  EXPECT_EQ(nvtxDomainRangePop(first), 0);
  EXPECT_EQ(path(), "w\u00efde \U0001F333/plain/inner");
  EXPECT_EQ(nvtxRangePop(), 1);
  EXPECT_EQ(nvtxRangePop(), 0);
  EXPECT_EQ(nvtxDomainRangePop(second), 0);
  EXPECT_EQ(path(), "");
  EXPECT_LT(nvtxRangePop(), 0);  // no range is open
  nvtxEventAttributes_t without = event(NVTX_MESSAGE_UNKNOWN, {.ascii = nullptr});
  EXPECT_EQ(nvtxRangePushEx(&without), 0);
  EXPECT_EQ(path(), "");
  EXPECT_EQ(nvtxRangePop(), 0);
}

std::uint64_t g_closed_by[2] = {};  // the closed scope, by the copy of cgtree that was called

// Scopes of two libraries may have the same number. Runs in a separate process, because it
// connects.
TEST(NvtxConnectionTest, ARangeIsClosedByTheCgtreeThatHasOpenedIt) {
  using Open = std::uint64_t (*)(const char*, std::size_t);
  using Close = void (*)(std::uint64_t);
  const auto run = [] {
    (void)nvtxRangePushA("before all");
    void* const library = dlopen("integrations/libcgtree_nvtx.so", RTLD_NOW);
    const auto connect =
        reinterpret_cast<void (*)(Open, Close)>(dlsym(library, "cgtree_nvtx_connect"));
    connect([](const char*, std::size_t) { return std::uint64_t{7}; },
            [](std::uint64_t scope) { g_closed_by[0] += scope; });
    (void)nvtxRangePushA("of the first");
    connect([](const char*, std::size_t) { return std::uint64_t{7}; },
            [](std::uint64_t scope) { g_closed_by[1] += scope; });
    (void)nvtxRangePushA("of the second");
    (void)nvtxRangePop();
    const bool is_second = g_closed_by[0] == 0 && g_closed_by[1] == 7;
    (void)nvtxRangePop();
    (void)nvtxRangePop();
    return is_second && g_closed_by[0] == 7 && g_closed_by[1] == 7;
  };
  EXPECT_EXIT(std::_Exit(run() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

// Otherwise each replay would be watched, and "replay f" would be a scope.
TEST_P(NvtxScopesTest, TheLibraryIsNoProfilerOfCgtree) {
  EXPECT_FALSE(profiler_listens());
  EXPECT_FALSE(engine()->extensions.wants().replays);
}

CGTREE_ON_ALL_DEVICES(NvtxScopesTest);

}  // namespace
}  // namespace cgtree::testing
