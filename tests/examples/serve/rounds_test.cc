// Rounds give the tokens of single steps; the proposals of a draft change the number of tokens per
// round.
#include "examples/serve/rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "base/error.h"
#include "examples/serve/server.h"
#include "tests/examples/serve/serve_devices.h"
#include "tests/support/devices.h"

namespace cgtree::serve {
namespace {

using Numbers32 = std::vector<std::int32_t>;

constexpr int kMaxBatch = 4;

class RoundsTest : public ::testing::TestWithParam<testing::DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    stream_ = std::make_unique<Stream>(device());
  }
  void TearDown() override {
    if (HasFailure()) std::fprintf(stderr, "seed %u\n", seed_);
  }

  Device device() const { return GetParam().device; }
  int number(int first, int last) {
    return std::uniform_int_distribution<int>(first, last)(random_);
  }
  Tensor tensor(const Shape& shape, const Numbers32& values) {
    return from_host(shape, std::span(values), device());
  }

  Numbers32 values(const Tensor& tensor) {
    stream_->synchronize();
    return tensor.to_vector<std::int32_t>();
  }

  const unsigned seed_ = std::random_device()();
  std::mt19937 random_{seed_};
  std::unique_ptr<Stream> stream_;
};
INSTANTIATE_TEST_SUITE_P(Devices, RoundsTest, ::testing::ValuesIn(testing::devices_under_test()),
                         [](const auto& info) { return info.param.name; });

// Compared with a plain model that takes one row at a time.
TEST_P(RoundsTest, TokensAreTakenUpToTheFirstProposalThatIsWrong) {
  for (int trial = 0; trial < 50; ++trial) {
    const int rows = number(1, 300), width = number(1, 5), columns = number(3, 5);
    const auto at = [&](int row, int column) {
      return static_cast<std::size_t>(row * columns + column);
    };
    Numbers32 batch(static_cast<std::size_t>(rows * columns)), left, chosen, next;
    for (int r = 0; r < rows; ++r) {
      const bool is_padding = number(0, 4) == 0;
      left.push_back(is_padding ? -1 : number(1, 6));
      for (int c = 0; c < columns; ++c)
        batch[at(r, c)] = is_padding ? -1 : number(0, 2);
    }
    for (int i = 0; i < rows * width; ++i)
      chosen.push_back(number(0, 2));

    const StreamRef stream = *stream_;
    const Tensor on_device = tensor({rows, columns}, batch), lefts = tensor({rows}, left);
    const Tensor verify = empty({rows * width, columns}, DType::kInt32, device());
    const Tensor draft = empty({rows, columns}, DType::kInt32, device());
    const Tensor proposed = tensor(Shape(), {77});
    lay_out_proposals(stream, on_device, lefts, draft, verify, proposed);
    EXPECT_EQ(values(draft), batch);
    std::vector<Numbers32> proposals;
    for (int i = 0; i < width; ++i) {
      next.clear();
      for (int r = 0; r < rows; ++r)
        next.push_back(number(0, 2));
      proposals.push_back(next);
      propose(stream, tensor({rows}, next), draft, verify, proposed);
      const Numbers32 fed = values(draft);
      for (int r = 0; r < rows; ++r) {
        const bool is_fed =
            batch[at(r, 1)] >= 0 && i + 1 < std::min(width, left[static_cast<std::size_t>(r)]);
        EXPECT_EQ(fed[at(r, 0)], is_fed ? next[static_cast<std::size_t>(r)] : -1);
        EXPECT_EQ(fed[at(r, 1)], is_fed ? batch[at(r, 1)] + i + 1 : -1);
      }
    }
    const Numbers32 checked = values(verify);
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < width; ++i) {
        const bool is_there = batch[at(r, 1)] >= 0 && i < left[static_cast<std::size_t>(r)];
        const int row = r * width + i;
        EXPECT_EQ(checked[at(row, 1)], is_there ? batch[at(r, 1)] + i : -1);
        for (int c = 2; c < columns; ++c)
          EXPECT_EQ(checked[at(row, c)], batch[at(r, c)]);
        if (!is_there || i == 0) continue;
        EXPECT_EQ(checked[at(row, 0)],
                  proposals[static_cast<std::size_t>(i - 1)][static_cast<std::size_t>(r)]);
      }
      EXPECT_EQ(checked[at(r * width, 0)], batch[at(r, 0)]);
    }

    const Tensor tokens = tensor({rows, width}, Numbers32(chosen.size(), 99));
    const Tensor goes_on = tensor(Shape(), {99});
    accept(stream, tensor({rows * width}, chosen), width == 1 ? on_device : verify, on_device,
           lefts, tokens, goes_on);
    Numbers32 expected(chosen.size(), -1);
    bool any = false;
    for (int r = 0; r < rows; ++r) {
      const auto row = static_cast<std::size_t>(r);
      if (batch[at(r, 1)] < 0) continue;
      int count = 0;
      for (bool is_right = true; is_right && count < std::min(width, left[row]);) {
        const auto place = static_cast<std::size_t>(r * width + count);
        expected[place] = chosen[place];
        is_right =
            count + 1 < width && proposals[static_cast<std::size_t>(count)][row] == chosen[place];
        ++count;
      }
      left[row] -= count;
      batch[at(r, 0)] =
          left[row] > 0 ? expected[static_cast<std::size_t>(r * width + count - 1)] : -1;
      batch[at(r, 1)] = left[row] > 0 ? batch[at(r, 1)] + count : -1;
      any = any || left[row] > 0;
    }
    EXPECT_EQ(values(tokens), expected);
    EXPECT_EQ(values(on_device), batch);
    EXPECT_EQ(values(lefts), left);
    EXPECT_EQ(values(goes_on)[0], any ? 1 : 0);
  }
}

// Serves the same requests in several ways.
class ServedRoundsTest : public RoundsTest {
 protected:
  struct Served {
    std::vector<Numbers32> tokens;
    std::int64_t rounds = 0;
    FunctionStats stats;
  };
  void SetUp() override {
    RoundsTest::SetUp();
    if (IsSkipped()) return;
    requests_ = seeded_requests(seed_, 12);
    options_.max_batch = kMaxBatch;
    options_.vocabulary = static_cast<std::int32_t>(config_.vocabulary);
    options_.context = 176;
    options_.seed = seed_;
    model_ = std::make_unique<Model>(
        config_, Shard(), random_weights(config_, Shard(), seed_, device()), options_.context);
  }
  // All steps have kMaxBatch rows, so that the result of a row does not depend on other rows.
  Served serve(const RoundsOptions& rounds, bool is_compiled, float temperature = 0) {
    CompileOptions decode = decode_options({}), prefill = prefill_options({}, {});
    decode.enabled = prefill.enabled = is_compiled;
    Server server(*model_, options_, decode, prefill, temperature, {}, {}, rounds);
    server.pad_to({{kMaxBatch}, {kMaxBatch}, {options_.max_prompt}});
    Scheduler scheduler(requests_, options_);
    Served served;
    while (scheduler.begin_step()) {
      server.launch(scheduler);
      std::int64_t handed_out = 0;
      server.wait([&](std::span<const std::int32_t> tokens) {
        EXPECT_EQ(std::ssize(tokens), std::ssize(scheduler.rows()) * rounds.width());
        handed_out += std::ranges::count_if(tokens, [](std::int32_t token) { return token >= 0; });
        ++served.rounds;
      });
      if (rounds.depth() > 1) {
        EXPECT_EQ(handed_out,
                  std::ranges::count_if(server.next(), [](std::int32_t t) { return t >= 0; }));
      }
      scheduler.end_step(server.first(), server.next(), server.depth());
    }
    served.tokens = scheduler.tokens();
    served.stats = server.decode_stats();
    return served;
  }

  ModelConfig config_;
  SchedulerOptions options_;
  std::vector<Request> requests_;
  std::unique_ptr<const Model> model_;
};
INSTANTIATE_TEST_SUITE_P(Devices, ServedRoundsTest,
                         ::testing::ValuesIn(testing::devices_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST_P(ServedRoundsTest, RoundsYieldTheTokensOfSteps) {
  const Served steps = serve({}, true);
  for (const std::int64_t most : {3, 16}) {
    const Served rounds = serve({.most = most}, true);
    EXPECT_EQ(rounds.tokens, steps.tokens) << most;
    EXPECT_GT(rounds.stats.replays, rounds.stats.calls / 2) << to_string(rounds.stats);
  }
}

TEST_P(ServedRoundsTest, DrawnTokensAreThoseOfAnEagerRun) {
  const Served eager = serve({.most = 8}, false, 0.9f);
  const Served compiled = serve({.most = 8}, true, 0.9f);
  EXPECT_EQ(compiled.tokens, eager.tokens);
  EXPECT_NE(compiled.tokens, serve({.most = 8}, true).tokens);
}

// With the model itself as the draft, proposals are right, except where rounding decides a tie
// differently.
TEST_P(ServedRoundsTest, ADraftChangesTheRoundsAndNotTheTokens) {
  const RoundsOptions with_draft{.most = 4, .draft = model_.get(), .proposals = 3};
  const Served eager = serve(with_draft, false);
  const Served compiled = serve(with_draft, true);
  EXPECT_EQ(compiled.tokens, eager.tokens);
  EXPECT_EQ(compiled.rounds, eager.rounds);
  const Served plain = serve({.most = 16}, true);
  EXPECT_LT(2 * compiled.rounds, plain.rounds);
  EXPECT_TRUE(device().type != DeviceType::kHost || compiled.tokens == plain.tokens);
}

// A draft with fewer layers is wrong more often, and makes proposals beyond the end of most
// requests.
TEST_P(ServedRoundsTest, AWorseDraftChangesTheRoundsAndNotTheTokens) {
  ModelConfig config = config_;
  config.layers = 1;
  Weights weights = model_->weights();
  weights.layers.resize(1);
  const Model draft(config, Shard(), std::move(weights), options_.context);
  const Served plain = serve({.most = 16}, true);
  const RoundsOptions with_draft{.most = 3, .draft = &draft, .proposals = 7};
  const Served eager = serve(with_draft, false);
  const Served compiled = serve(with_draft, true);
  EXPECT_EQ(compiled.tokens, eager.tokens);
  EXPECT_EQ(compiled.rounds, eager.rounds);
  EXPECT_TRUE(device().type != DeviceType::kHost || compiled.tokens == plain.tokens);
}

// Some rows end in the first round.
TEST_P(ServedRoundsTest, ALaunchThatIsNotReceivedDoesNotAffectTheNext) {
  constexpr std::int64_t kRounds = 3;
  const std::int64_t table = options_.context / kBlockSize;
  Context context(device(), {});
  const Generator generator(seed_);
  const RoundsOptions options{.most = kRounds};
  const auto serve_all = [&](int launches, int dropped) {
    Rounds rounds(context, *model_, options_, options, decode_options({}), prefill_options({}, {}),
                  0, generator);
    const Tensor cache = model_->make_kv_cache(kMaxBatch * table);
    std::vector<Numbers32> all;
    for (int launch = 0; launch < launches; ++launch) {
      Numbers32 batch, left;
      for (int row = 0; row < kMaxBatch; ++row) {
        batch.insert(batch.end(), {launch + row, 0});
        for (std::int64_t block = 0; block < table; ++block)
          batch.push_back(static_cast<std::int32_t>(row * table + block));
        left.push_back(1 + row);
      }
      rounds.launch(tensor({kMaxBatch, 2 + table}, batch), tensor({kMaxBatch}, left), cache);
      context.synchronize();
      if (launch < dropped) continue;
      rounds.receive(all.emplace_back(kMaxBatch * kRounds), {});
    }
    return all;
  };
  const std::vector<Numbers32> all = serve_all(5, 0);
  EXPECT_EQ(all[0][1], -1);
  EXPECT_GE(all[0][kRounds + 1], 0);
  EXPECT_EQ(serve_all(5, 4), std::vector<Numbers32>{all[4]});
}

TEST_P(ServedRoundsTest, ADraftWithATemperatureIsRefused) {
  const RoundsOptions with_draft{.most = 4, .draft = model_.get(), .proposals = 3};
  EXPECT_THROW((void)serve(with_draft, true, 0.5f), InvalidArgument);
}

}  // namespace
}  // namespace cgtree::serve
