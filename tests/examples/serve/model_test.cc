// What the two step functions depend on, and what they leave unchanged.
#include "examples/serve/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cgtree/cgtree.h"

namespace cgtree::serve {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

struct Fed {
  std::int32_t token, position, slot;
};

std::vector<Device> devices() {
  std::vector<Device> found = {Device::host()};
  if (Device::best() != Device::host()) found.push_back(Device::best());
  return found;
}

// A tiny model, run eagerly.
class ModelTest : public testing::TestWithParam<Device> {
 protected:
  ModelTest() : context_(GetParam()), model_(kSizes, 11, GetParam()) { clear(); }

  // Sets every element, so that a wrong read shows.
  void clear() {
    cache_ = model_.make_kv_cache();
    cache_.copy_from<float>(Floats(static_cast<std::size_t>(cache_.elements()), 1000.0f));
  }

  Ints step(const std::vector<Fed>& rows) {
    Ints batch;
    for (const auto member : {&Fed::token, &Fed::position, &Fed::slot}) {
      for (const Fed& row : rows)
        batch.push_back(row.*member);
    }
    const Tensor input = from_host<std::int32_t>({3, std::ssize(rows)}, batch, GetParam());
    const auto decode =
        compile(context_, "decode", [this](Tensor b, Tensor c) { return model_.decode(b, c); },
                {.inputs = {{}, {.is_static = true, .is_mutated = true}}, .enabled = false});
    const Tensor next = decode(input, cache_);
    context_.synchronize();
    return next.to_vector<std::int32_t>();
  }

  // Shorter prompts end with -1.
  Ints prefill(const std::vector<Ints>& prompts, const Ints& slots) {
    std::size_t length = 0;
    for (const Ints& prompt : prompts)
      length = std::max(length, prompt.size());
    Ints tokens;
    for (Ints prompt : prompts) {
      prompt.resize(length, -1);
      tokens.insert(tokens.end(), prompt.begin(), prompt.end());
    }
    const std::int64_t count = std::ssize(prompts);
    const auto function =
        compile(context_, "prefill",
                [this](Tensor t, Tensor s, Tensor c) { return model_.prefill(t, s, c); },
                {.inputs = {{}, {}, {.is_static = true, .is_mutated = true}}, .enabled = false});
    const Tensor first = function(
        from_host<std::int32_t>({count, static_cast<std::int64_t>(length)}, tokens, GetParam()),
        from_host<std::int32_t>({count}, slots, GetParam()), cache_);
    context_.synchronize();
    return first.to_vector<std::int32_t>();
  }

  // Feeds `prompt` and then each token that comes out.
  Ints generate(const Ints& prompt, std::int32_t slot, std::size_t count) {
    Ints tokens = prompt;
    for (std::size_t i = 0; i < prompt.size() + count - 1; ++i) {
      const std::int32_t next = step({{tokens[i], static_cast<std::int32_t>(i), slot}})[0];
      if (i + 1 >= prompt.size()) tokens.push_back(next);
    }
    return tokens;
  }

  static constexpr ModelSizes kSizes = {
      .layers = 2, .hidden = 24, .heads = 3, .vocabulary = 101, .context = 8, .slots = 4};

  Context context_;
  Model model_;
  Tensor cache_;
};

TEST_P(ModelTest, TokensStayInTheVocabularyAndAreNotAllTheSame) {
  const Ints tokens = generate({1, 2, 3}, 0, 40);

  const std::set<std::int32_t> distinct(tokens.begin(), tokens.end());
  EXPECT_GT(distinct.size(), 5u);
  EXPECT_GE(*distinct.begin(), 0);
  EXPECT_LT(*distinct.rbegin(), kSizes.vocabulary);
}

TEST_P(ModelTest, TheSlotDoesNotMatter) {
  EXPECT_EQ(generate({5, 6}, 0, 20), generate({5, 6}, 3, 20));
}

TEST_P(ModelTest, AReusedSlotRemembersNothing) {
  const Ints fresh = generate({5, 6}, 1, 20);
  clear();
  generate({9, 8, 7}, 1, 20);

  EXPECT_EQ(generate({5, 6}, 1, 20), fresh);
}

TEST_P(ModelTest, TheContextMatters) {
  EXPECT_NE(generate({5, 6}, 0, 20), generate({6, 6}, 0, 20));
}

TEST_P(ModelTest, PaddedRowsTouchNothing) {
  step({{1, 0, 0}});
  const Floats before = cache_.to_vector<float>();

  step({{0, 0, -1}, {-1, -1, -1}});

  EXPECT_EQ(cache_.to_vector<float>(), before);
}

TEST_P(ModelTest, PrefillLeavesWhatFeedingTokenByTokenLeaves) {
  const std::vector<Ints> prompts = {{5, 6, 7}, {1}, {9, 8, 7, 6, 5, 4, 3, 2}};
  const Ints slots = {2, 0, 3};
  Ints expected;
  for (std::size_t i = 0; i < prompts.size(); ++i)
    expected.push_back(generate(prompts[i], slots[i], 1).back());
  const Floats fed = cache_.to_vector<float>();
  clear();

  EXPECT_EQ(prefill(prompts, slots), expected);
  EXPECT_EQ(cache_.to_vector<float>(), fed);
}

TEST_P(ModelTest, PaddingChangesNoPrefill) {
  const Ints expected = prefill({{5, 6, 7}, {1}}, {2, 0});
  const Floats written = cache_.to_vector<float>();
  clear();

  const Ints padded = prefill({{5, 6, 7, -1, -1}, {1}, {-1}, {}}, {2, 0, -1, -1});

  EXPECT_EQ(Ints(padded.begin(), padded.begin() + 2), expected);
  EXPECT_EQ(cache_.to_vector<float>(), written);
}

TEST_P(ModelTest, OneSeedGivesOneModel) {
  const Ints tokens = generate({5, 6}, 0, 20);

  model_ = Model(kSizes, 11, GetParam());
  EXPECT_EQ(generate({5, 6}, 0, 20), tokens);
  model_ = Model(kSizes, 12, GetParam());
  EXPECT_NE(generate({5, 6}, 0, 20), tokens);
}

INSTANTIATE_TEST_SUITE_P(Devices, ModelTest, testing::ValuesIn(devices()), [](const auto& device) {
  return device.param.type == DeviceType::kHost ? "Host" : "Cuda";
});

}  // namespace
}  // namespace cgtree::serve
