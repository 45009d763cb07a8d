// The list of a context's extensions: its order, its refusals, and the values in events.
#include "cgtree/tree/extension.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/core_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Seen {
  std::vector<std::string> events;  // in the order in which the extensions were called
  std::vector<std::size_t> copied;  // copied inputs of each replay
  std::vector<std::uint64_t> replays;
  std::string key;
};

std::string_view name(CallEvent::Kind kind) {
  switch (kind) {
    case CallEvent::kWarmUp:
      return "warm_up";
    case CallEvent::kRecord:
      return "record";
    case CallEvent::kReplay:
      return "replay";
    case CallEvent::kSkip:
      return "skip";
    default:
      return "";
  }
}

// Each `number` gives a different class.
template <int number, int place>
class Watcher final : public Extension {
 public:
  Watcher(Seen& seen, bool wants_replays) : seen_(seen), wants_replays_(wants_replays) {}

  int order() const noexcept override { return place; }
  Wants wants() const noexcept override { return {.replays = wants_replays_}; }
  void after(const CallEvent& event) noexcept override {
    const std::string_view kind = name(event.kind);
    if (kind.empty()) return;
    seen_.events.push_back(std::to_string(number) + " " + std::string(kind) + " " +
                           std::string(event.function_name()));
    if (event.kind != CallEvent::kReplay) return;
    seen_.copied.push_back(copied_bytes(*event.node));
    seen_.replays.push_back(replays(*event.node));
    seen_.key = key_in_words(*event.node);
  }

 private:
  Seen& seen_;
  const bool wants_replays_;
};

template <int number, int place = 0>
ExtensionFactory watcher(Seen& seen, bool wants_replays = false) {
  return [&seen, wants_replays](Engine&) {
    return std::make_unique<Watcher<number, place>>(seen, wants_replays);
  };
}

class ExtensionTest : public TreeTest {
 protected:
  void call(const CompiledFunction<Tensor(Tensor)>& f, int times) {
    for (int i = 0; i < times; ++i) {
      context().mark_step();
      (void)f(random_tensor({4}));
    }
  }
  CompiledFunction<Tensor(Tensor)> affine_function(CompileOptions options = {}) {
    return compile(
        context(), "f", [](Tensor x) { return affine(x, 2, 1); }, std::move(options));
  }
  // Returns the message with which a context with these extensions is refused, or "".
  std::string refusal(std::vector<ExtensionFactory> extensions) {
    try {
      const Context refused(device(), {.extensions = std::move(extensions)});
    } catch (const InvalidArgument& error) {
      return std::string(error.message());
    }
    return "";
  }
};
CGTREE_ON_ALL_DEVICES(ExtensionTest);

TEST_P(ExtensionTest, EachIsToldInItsOrderAndThenInThatOfTheList) {
  Seen seen;
  make_context({.extensions = {watcher<1>(seen), watcher<2>(seen), watcher<3, -500>(seen),
                               watcher<4, 7>(seen)}});
  call(affine_function(), 1);
  EXPECT_THAT(seen.events, ElementsAre("3 warm_up f", "1 warm_up f", "2 warm_up f", "4 warm_up f"));
}

TEST_P(ExtensionTest, ReplaysAreToldIfAnExtensionWantsThem) {
  Seen quiet;
  make_context({.extensions = {watcher<1>(quiet)}});
  call(affine_function(), 4);
  EXPECT_THAT(quiet.events, ElementsAre("1 warm_up f", "1 record f"));
  Seen seen;
  make_context({.extensions = {watcher<1>(seen, /*wants_replays=*/true)}});
  call(affine_function(), 4);
  EXPECT_THAT(seen.events, ElementsAre("1 warm_up f", "1 record f", "1 replay f", "1 replay f"));
  EXPECT_THAT(seen.replays, ElementsAre(1, 2));
}

TEST_P(ExtensionTest, ARecordingSaysItsKeyAndTheBytesThatAReplayCopies) {
  const auto bytes_with = [&](InputOptions input) {
    Seen seen;
    make_context({.extensions = {watcher<1>(seen, /*wants_replays=*/true)}});
    const CompiledFunction f = affine_function({.inputs = {std::move(input)}});
    const Tensor x = random_tensor({4});
    for (int i = 0; i < 3; ++i)
      (void)f.keyed(Key{{"batch", 3}})(x);
    EXPECT_THAT(seen.key, AllOf(HasSubstr("batch=3"), HasSubstr("float32 {4}")));
    return seen.copied.at(0);
  };
  EXPECT_EQ(bytes_with({}), 4 * sizeof(float));
  EXPECT_EQ(bytes_with({.is_mutated = true}), 2 * 4 * sizeof(float));
  EXPECT_EQ(bytes_with({.is_static = true}), 0);
}

TEST_P(ExtensionTest, AListThatCannotBeFollowedIsRefused) {
  Seen seen;
  EXPECT_THAT(refusal({watcher<1>(seen), watcher<2>(seen), watcher<1>(seen)}),
              HasSubstr("two of a kind"));
  EXPECT_THAT(refusal({nullptr}), HasSubstr("a factory in ContextOptions::extensions is null"));
  EXPECT_THAT(refusal({[](Engine&) { return nullptr; }}), HasSubstr("has returned null"));
  EXPECT_THAT(refusal({watcher<1>(seen),
                       [](Engine&) -> std::unique_ptr<Extension> {
                         throw InvalidArgument("no such thing");
                       }}),
              HasSubstr("no such thing"));
  EXPECT_EQ(refusal({watcher<1>(seen), watcher<2>(seen)}), "");
}

// The extension refuses a function's options; the context stays usable.
TEST_P(ExtensionTest, AFunctionMayBeRefused) {
  class Refuser final : public Extension {
   public:
    void check(const CompileOptions& options) const override {
      if (options.max_recordings == 1) throw InvalidArgument("a recording more, please");
    }
  };
  make_context({.extensions = {[](Engine&) { return std::make_unique<Refuser>(); }}});
  EXPECT_THROW((void)affine_function({.max_recordings = 1}), InvalidArgument);
  EXPECT_NO_THROW((void)affine_function());
}

}  // namespace
}  // namespace cgtree::testing
