// Calls of compiled functions with a key: different keys never share a recording, and the step
// function reads the key of its call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "extensions/watch/monitor.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// y = draft * x + (1 if there is an adapter "en"), both from the key.
class KeyedCallsTest : public TreeTest {
 protected:
  using Function = CompiledFunction<Tensor(Tensor)>;

  Function scaled(CompileOptions options = {}) {
    return compile(
        context(), "scaled", [this](Tensor x) { return work(x); }, std::move(options));
  }
  Tensor work(const Tensor& x) {
    ++runs_;
    const Key key = current_key();
    const auto scale = static_cast<float>(key.has("draft") ? key.number("draft") : 0);
    return affine(x, scale, key.has("adapter") && key.string("adapter") == "en" ? 1 : 0);
  }
  std::vector<float> expected(const std::vector<float>& x, const Key& key) {
    const auto scale = static_cast<float>(key.has("draft") ? key.number("draft") : 0);
    return affine_of(x, scale, key.has("adapter") && key.string("adapter") == "en" ? 1 : 0);
  }

  int runs_ = 0;
};
CGTREE_ON_ALL_DEVICES(KeyedCallsTest);

TEST_P(KeyedCallsTest, RandomCallsSeeTheirOwnKeyAndShareNoRecordingWithAnother) {
  const Function f = scaled();
  const Key keys[] = {{},
                      {{"draft", 1}},
                      {{"draft", 2}},
                      {{"draft", 2}, {"adapter", "en"}},
                      {{"draft", 2}, {"adapter", "de"}}};
  for (int i = 0; i < 150; ++i) {
    const Key& key = keys[random_() % std::size(keys)];
    const std::vector<float> x = random_floats(8);
    const Tensor input = tensor({8}, x);
    if (random_() % 2 == 0) {
      EXPECT_EQ(values(f.keyed(key)(input)), expected(x, key));
      continue;
    }
    const Tensor buffer = tensor({8}, std::vector<float>(8, NAN));
    const Tensor y =
        random_() % 2 == 0 ? f.keyed(key).into(buffer)(input) : f.into(buffer).keyed(key)(input);
    EXPECT_EQ(y.address(), buffer.address());
    EXPECT_EQ(values(buffer), expected(x, key));
  }
  EXPECT_LE(runs_, 2 * 2 * 5);
  EXPECT_EQ(f.stats().skipped(), 0u);
}

TEST_P(KeyedCallsTest, ExplainSaysWhatACallWithTheKeyWouldDo) {
  const Function f = scaled();
  const Tensor x = random_tensor({8});
  const Key one{{"draft", 1}};
  for (int i = 0; i < 2; ++i)
    (void)f.keyed(one)(x);

  EXPECT_EQ(f.keyed(one).explain(x).outcome, Outcome::kReplay);
  EXPECT_EQ(f.explain(x).outcome, Outcome::kWarmUp);
  EXPECT_EQ(f.keyed({{"draft", 2}}).explain(x).outcome, Outcome::kWarmUp);
  (void)f.keyed({{"draft", 2}})(x);
  const Explanation why = f.keyed({{"draft", 2}}).explain(x);
  EXPECT_EQ(why.outcome, Outcome::kRecord);
  EXPECT_THAT(to_string(why), HasSubstr("key [draft=1] recorded, [draft=2] given"));
  EXPECT_THAT(snapshot_json(context()), HasSubstr("[draft=1] float32 {8}"));
}

TEST_P(KeyedCallsTest, AFunctionThatIsGivenUpKeepsItsKeyAndBuffers) {
  const Tensor buffer = tensor({8}, std::vector<float>(8, NAN));
  const auto f = scaled().keyed({{"draft", 3}}).into(buffer);
  const std::vector<float> x = random_floats(8);
  for (int i = 0; i < 3; ++i)
    (void)f(tensor({8}, x));
  EXPECT_EQ(values(buffer), affine_of(x, 3, 0));
  EXPECT_EQ(runs_, 2);
}

TEST_P(KeyedCallsTest, FunctionsOfListsHaveKeysToo) {
  const auto f = compile(context(), "list",
                         [this](std::span<const Tensor> inputs) { return work(inputs[0]); });
  const Tensor buffer = tensor({8}, std::vector<float>(8, NAN));
  const std::vector<float> x = random_floats(8);
  const std::vector<Tensor> inputs = {tensor({8}, x)};
  for (int draft = 1; draft <= 2; ++draft) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(values(f.keyed({{"draft", draft}})(inputs)), affine_of(x, draft, 0));
      (void)f.keyed({{"draft", draft}}).into(std::span(&buffer, 1))(inputs);
      EXPECT_EQ(values(buffer), affine_of(x, draft, 0));
    }
  }
  EXPECT_EQ(runs_, 8);
}

TEST_P(KeyedCallsTest, ANestedCallSeesItsOwnKeyAndTheOuterOneItsOwnAgain) {
  const Function inner = scaled();
  const auto outer = compile(context(), "outer", [&](Tensor x) {
    const Tensor y = inner.keyed({{"draft", 5}})(x);
    return affine(y, static_cast<float>(current_key().number("draft")), 0);
  });
  const std::vector<float> x = random_floats(8);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(values(outer.keyed({{"draft", 2}})(tensor({8}, x))), affine_of(x, 10, 0));
}

TEST_P(KeyedCallsTest, EagerRunsSeeTheKeyToo) {
  const Function f = scaled({.enabled = false});
  const std::vector<float> x = random_floats(8);
  EXPECT_EQ(values(f.keyed({{"draft", 4}})(tensor({8}, x))), affine_of(x, 4, 0));
}

TEST_P(KeyedCallsTest, TheErrorForAMissingPartShowsTheKey) {
  EXPECT_THAT([] { (void)current_key(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("outside of a step function")));
  const auto f = compile(context(), "asks", [](Tensor x) {
    return affine(x, static_cast<float>(current_key().number("draft")), 0);
  });
  const Tensor x = random_tensor({8});
  EXPECT_THAT(
      [&] {
        (void)f.keyed({{"adapter", "en"}})(x);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("no 'draft' in the key [adapter=\"en\"]")));
  EXPECT_THAT(
      [&] {
        (void)f.keyed({{"draft", "two"}})(x);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("is a string, and no number")));
}

}  // namespace
}  // namespace cgtree::testing
