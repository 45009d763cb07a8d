// Communicators: collectives inside steps, with a context per rank, equal plain loops, and are
// refused where their order among the ranks would be unknown.
#include "extensions/ranks/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "cgtree/cgtree.h"
#include "extensions/flow/control_flow.h"
#include "extensions/ranks/collectives.h"
#include "extensions/ranks/group.h"
#include "interop/device/graph.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"
#include "tests/support/flags.h"
#include "tests/support/rank_threads.h"
#include "tests/support/ranks.h"
#include "tests/support/steps.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kCount = 40;
using Values = std::vector<float>;

// Returns a tensor that is written on `stream`. A plain copy would use the legacy stream of the
// current device, which waits for work of other ranks on that device's blocking streams.
Tensor tensor_of(const Values& values, StreamRef stream) {
  const Tensor made =
      empty({static_cast<std::int64_t>(values.size())}, DType::kFloat32, stream.device());
  made.copy_from_host(values.data(), values.size() * sizeof(float), stream);
  return made;
}

// The stream, context and communicator of a rank's thread.
struct RankContext {
  explicit RankContext(std::shared_ptr<Collectives> own)
      : stream(own->device()),
        collectives(std::move(own)),
        context(collectives->device()),
        communicator(context, collectives) {}

  int rank() const { return collectives->rank(); }
  int size() const { return collectives->size(); }
  Tensor tensor(const Values& values) const { return tensor_of(values, stream); }

  Stream stream;
  std::shared_ptr<Collectives> collectives;
  Context context;
  Communicator communicator;
};

class CommunicatorTest : public ::testing::TestWithParam<RanksUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_RANKS_ARE_MISSING(GetParam());
    random_.seed(seed_);
    RecordProperty("seed", std::to_string(seed_));
  }
  void TearDown() override {
    if (HasFailure()) std::fprintf(stderr, "seed %u\n", seed_);
  }

  void run(int size, const std::function<void(RankContext&)>& body) {
    run_ranks(GetParam().make(std::min(size, GetParam().most)),
              [&](std::shared_ptr<Collectives> end) {
                RankContext rank(std::move(end));
                body(rank);
              });
    if (GetParam().findings) {
      EXPECT_THAT(GetParam().findings(), IsEmpty());
    }
  }

  // Inputs by step and rank: small integers, so that all sums are exact.
  std::vector<std::vector<Values>> numbers(std::size_t steps) {
    std::vector<std::vector<Values>> all(steps, std::vector<Values>(8, Values(kCount)));
    for (auto& step : all) {
      for (Values& values : step) {
        for (float& value : values)
          value = static_cast<float>(random_() % 64);
      }
    }
    return all;
  }
  static Values sum(const std::vector<Values>& of_ranks, int size, float scale = 1,
                    float shift = 0) {
    Values sum(of_ranks[0].size(), 0.0f);
    for (int rank = 0; rank < size; ++rank) {
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] += scale * of_ranks[static_cast<std::size_t>(rank)][i] + shift;
    }
    return sum;
  }

  const unsigned seed_ = std::random_device{}();
  std::mt19937 random_;
};

// Returns the message of the InvalidArgument that `call` throws, or "".
std::string refusal(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const InvalidArgument& error) {
    return std::string(error.message());
  }
}

TEST_P(CommunicatorTest, AStepFunctionGivesTheSumWhileItIsWarmedUpRecordedAndReplayed) {
  constexpr std::size_t kSteps = 12;
  const auto inputs = numbers(kSteps);
  run(4, [&](RankContext& rank) {
    CompiledFunction step = compile(rank.context, "step", [&](Tensor x) {
      const Tensor part = affine(x, 2, 1);
      rank.communicator.all_reduce(part);
      return affine(part, 3, 0);
    });
    for (const std::vector<Values>& of_ranks : inputs) {
      rank.context.mark_step();
      const Tensor y = step(rank.tensor(of_ranks[static_cast<std::size_t>(rank.rank())]));
      Values expected = sum(of_ranks, rank.size(), 2, 1);
      for (float& value : expected)
        value *= 3;
      EXPECT_EQ(y.to_vector<float>(), expected);
    }
    EXPECT_EQ(step.stats().recordings, 1u);
    EXPECT_EQ(step.stats().replays, kSteps - 2);
  });
}

// A recording has a separate stream for each body. All ranks take the same branches.
TEST_P(CommunicatorTest, CollectivesInBodiesAreRecorded) {
  constexpr std::size_t kSteps = 8;
  const auto inputs = numbers(kSteps);
  run(3, [&](RankContext& rank) {
    CompiledFunction step = compile(rank.context, "step", [&](Tensor x, Tensor rounds) {
      const Tensor y = affine(x, 1, 0);
      const Tensor left = affine(rounds, 1, 0);
      const Tensor goes_on = empty(Shape(), DType::kInt32);
      (void)loop(4, [&] {
        rank.communicator.all_reduce(y);
        update(left, 1, -1);
        compare(left, 0, goes_on);
        branch(goes_on, [&] { rank.communicator.all_reduce(y); });
        return goes_on;
      });
      return affine(y, 1, 0);
    });
    for (std::size_t i = 0; i < kSteps; ++i) {
      const std::size_t rounds = i % 3 + 1;
      const Tensor y = step(rank.tensor(inputs[i][static_cast<std::size_t>(rank.rank())]),
                            rank.tensor(Values{static_cast<float>(rounds)}));
      Values expected = sum(inputs[i], rank.size());
      for (float& value : expected)
        value *= std::pow(static_cast<float>(rank.size()), static_cast<float>(2 * rounds - 2));
      EXPECT_EQ(y.to_vector<float>(), expected) << i;
    }
    EXPECT_EQ(step.stats().replays, kSteps - 2);
  });
}

// A collective that runs beside other work of the step has no order among the ranks, on any stream.
TEST_P(CommunicatorTest, CollectivesBesideOtherWorkAreRefusedInBodies) {
  run(2, [&](RankContext& rank) {
    const Stream side(rank.context.device()), inner(rank.context.device());
    int refused = 0;
    int tries = 0;
    const auto use = [&](const Tensor& y) {
      ++tries;
      refused += !refusal([&] { rank.communicator.all_reduce(y); }).empty();
    };
    CompiledFunction step = compile(rank.context, "step", [&](Tensor x, Tensor taken) {
      const Tensor y = affine(x, 1, 0);
      const Tensor flag = empty(Shape(), DType::kInt32);
      compare(taken, 0, flag);
      const StreamRef main = current_stream();
      side.ref().wait_for(main);
      {
        const StreamScope scope(side);
        branch(flag, [&] {
          use(y);
          branch(flag, [&] { use(y); });
        });
      }
      main.wait_for(side);
      branch(flag, [&] {
        const StreamRef own = current_stream();
        inner.ref().wait_for(own);
        {
          const StreamScope scope(inner);
          use(y);
        }
        own.wait_for(inner);
        rank.communicator.all_reduce(y);
      });
      return y;
    });
    for (int i = 0; i < 4; ++i) {
      rank.context.mark_step();
      const Tensor y = step(rank.tensor(Values(kCount, 2.0f)), rank.tensor(Values{1}));
      EXPECT_EQ(y.to_vector<float>(), Values(kCount, 2.0f * static_cast<float>(rank.size())));
    }
    EXPECT_EQ(step.stats().replays, 2u) << to_string(step.stats());
    EXPECT_GT(tries, 6);
    EXPECT_EQ(refused, tries);
  });
}

TEST_P(CommunicatorTest, AllItsOperationsAreRecorded) {
  const auto inputs = numbers(6);
  run(3, [&](RankContext& rank) {
    const int size = rank.size();
    CompiledFunction step = compile(rank.context, "step", [&](Tensor x) {
      Communicator& own = rank.communicator;
      const Tensor all = empty({size * kCount}, DType::kFloat32);
      const Tensor first = affine(x, 1, 0);
      const Tensor least = empty({kCount}, DType::kFloat32);
      const Tensor left = empty({kCount}, DType::kFloat32);
      own.all_gather(x, all);
      own.broadcast(first, 0);
      own.all_reduce(x, least, Reduction::kMinimum);
      own.grouped([&] {
        own.send(x, (own.rank() + 1) % size);
        own.receive(left, (own.rank() + size - 1) % size);
      });
      return std::vector<Tensor>{all, first, least, left};
    });
    for (const std::vector<Values>& of_ranks : inputs) {
      rank.context.mark_step();
      const auto own = static_cast<std::size_t>(rank.rank());
      const std::vector<Tensor> outputs = step(rank.tensor(of_ranks[own]));
      Values all;
      Values least = of_ranks[0];
      for (std::size_t other = 0; other < static_cast<std::size_t>(size); ++other) {
        all.insert(all.end(), of_ranks[other].begin(), of_ranks[other].end());
        for (std::size_t i = 0; i < least.size(); ++i)
          least[i] = std::min(least[i], of_ranks[other][i]);
      }
      EXPECT_EQ(outputs[0].to_vector<float>(), all);
      EXPECT_EQ(outputs[1].to_vector<float>(), of_ranks[0]);
      EXPECT_EQ(outputs[2].to_vector<float>(), least);
      const auto ranks = static_cast<std::size_t>(size);
      EXPECT_EQ(outputs[3].to_vector<float>(), of_ranks[(own + ranks - 1) % ranks]);
    }
    EXPECT_EQ(step.stats().replays, inputs.size() - 2);
  });
}

TEST_P(CommunicatorTest, WorkBetweenBeginAndEndGivesTheSum) {
  constexpr std::size_t kSteps = 8;
  const auto inputs = numbers(kSteps);
  run(4, [&](RankContext& rank) {
    const Tensor tokens = rank.tensor(Values(kCount));
    Steps steps(rank.context, "decode", {.bindings = {{.name = "tokens", .is_mutated = true}}});
    const Binding binding{reinterpret_cast<const void*>(tokens.address()), tokens.bytes()};
    std::size_t replays = 0;
    for (const std::vector<Values>& of_ranks : inputs) {
      const Values& own = of_ranks[static_cast<std::size_t>(rank.rank())];
      tokens.copy_from_host(own.data(), own.size() * sizeof(float), rank.context.stream());
      Step step = steps.begin({}, {&binding, 1});
      replays += step.replayed();
      for (; step.must_run(); step.end())
        rank.communicator.all_reduce(tokens);
      Values got(kCount);
      tokens.copy_to_host(got.data(), tokens.bytes(), rank.context.stream());
      EXPECT_EQ(got, sum(of_ranks, rank.size()));
    }
    EXPECT_EQ(replays, kSteps - 2);
  });
}

TEST_P(CommunicatorTest, EagerWorkAndReplaysAreInOneOrder) {
  constexpr std::size_t kSteps = 6;
  const auto inputs = numbers(kSteps);
  run(2, [&](RankContext& rank) {
    CompiledFunction step = compile(rank.context, "step", [&](Tensor x) {
      const Tensor y = affine(x, 1, 0);
      rank.communicator.all_reduce(y);
      return y;
    });
    for (const std::vector<Values>& of_ranks : inputs) {
      rank.context.mark_step();
      const Tensor x = rank.tensor(of_ranks[static_cast<std::size_t>(rank.rank())]);
      const Tensor y = step(x);
      const Tensor z = rank.context.eager([&] {
        const Tensor more = affine(y, 1, 1);
        rank.communicator.all_reduce(more);
        return more;
      });
      Values expected = sum(of_ranks, rank.size());
      for (float& value : expected)
        value = static_cast<float>(rank.size()) * (value + 1);
      EXPECT_EQ(z.to_vector<float>(), expected);
    }
    EXPECT_EQ(step.stats().replays, kSteps - 2);
  });
}

TEST_P(CommunicatorTest, UsesOutsideOfItsContextsStepsAreRefused) {
  run(2, [&](RankContext& rank) {
    const Tensor x = rank.tensor(Values(kCount));
    Communicator& own = rank.communicator;
    const Stream stream(rank.context.device());
    EXPECT_THAT(refusal([&] { own.all_reduce(x); }), HasSubstr("outside of any step"));
    EXPECT_THAT(refusal([&] { (void)own.native(); }), HasSubstr("outside of any step"));
    EXPECT_THAT(refusal([&] { own.grouped([] {}); }), HasSubstr("outside of any step"));
    {
      const StreamScope scope(stream);
      EXPECT_THAT(refusal([&] { own.broadcast(x, 0); }), HasSubstr("Context::eager()"));
    }
    Context other(rank.context.device());
    other.eager([&] {
      EXPECT_THAT(refusal([&] { own.all_reduce(x); }), HasSubstr("step of another context"));
    });
    EXPECT_FALSE(rank.collectives->is_aborted());
  });
}

TEST_P(CommunicatorTest, UsesOnAnotherStreamThanTheStepsAreRefused) {
  run(2, [&](RankContext& rank) {
    const Stream side(rank.context.device());
    int refused = 0;
    CompiledFunction step = compile(rank.context, "step", [&](Tensor x) {
      const Tensor y = affine(x, 1, 0);
      side.ref().wait_for(current_stream());
      {
        const StreamScope scope(side);
        refused += !refusal([&] { rank.communicator.all_reduce(y); }).empty();
      }
      current_stream().wait_for(side);
      rank.communicator.all_reduce(y);
      return y;
    });
    for (int i = 0; i < 3; ++i) {
      rank.context.mark_step();
      const Tensor y = step(rank.tensor(Values(kCount, 2.0f)));
      EXPECT_EQ(y.to_vector<float>(), Values(kCount, 2.0f * static_cast<float>(rank.size())));
    }
    EXPECT_EQ(refused, 2) << "in the warm-up and while it was recorded";
  });
}

TEST_P(CommunicatorTest, UsesWhileOtherCodeCapturesAreRefused) {
  run(2, [&](RankContext& rank) {
    const Stream stream(rank.context.device());
    const Tensor x = rank.tensor(Values(kCount));
    Capture capture(stream, CaptureMode::kThreadLocal);
    const StreamScope scope(stream);
    rank.context.eager([&] {
      EXPECT_THAT(refusal([&] { rank.communicator.all_reduce(x); }),
                  HasSubstr("other code captures"));
    });
  });
}

TEST_P(CommunicatorTest, AGroupWhoseBodyThrowsEnqueuesNothing) {
  run(2, [&](RankContext& rank) {
    rank.context.eager([&] {
      const Tensor x = affine(rank.tensor(Values(kCount, 1.0f)), 1, 0);
      EXPECT_THROW(rank.communicator.grouped([&] {
        rank.communicator.send(x, (rank.rank() + 1) % rank.size());
        throw std::runtime_error("no such token");
      }),
                   std::runtime_error);
      rank.communicator.all_reduce(x);
      EXPECT_EQ(x.to_vector<float>(), Values(kCount, static_cast<float>(rank.size())));
    });
  });
}

// The communicator and the caller's reference end first: the recording keeps the collectives.
TEST_P(CommunicatorTest, ReplaysNeedNeitherTheCommunicatorNorTheCallersReference) {
  const auto inputs = numbers(6);
  run_ranks(GetParam().make(2), [&](std::shared_ptr<Collectives> end) {
    const int own = end->rank();
    const int size = end->size();
    const Stream stream(end->device());
    Context context(end->device());
    std::optional<Communicator> communicator(std::in_place, context, std::move(end));
    CompiledFunction step = compile(context, "step", [&](Tensor x) {
      const Tensor y = affine(x, 1, 0);
      communicator->all_reduce(y);
      return y;
    });
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (i == 3) communicator.reset();
      context.mark_step();
      const Values& values = inputs[i][static_cast<std::size_t>(own)];
      const Tensor y = step(tensor_of(values, stream));
      EXPECT_EQ(y.to_vector<float>(), sum(inputs[i], size));
    }
    EXPECT_EQ(step.stats().replays, 4u);
  });
}

TEST_P(CommunicatorTest, MayOutliveItsContext) {
  run_ranks(GetParam().make(2), [&](std::shared_ptr<Collectives> end) {
    std::optional<Context> context(std::in_place, end->device());
    Communicator communicator(*context, end);
    const Stream stream(end->device());
    const Tensor x = tensor_of(Values(kCount, 1.0f), stream);
    context->eager([&] { communicator.all_reduce(x); });
    context.reset();
    EXPECT_THAT(refusal([&] { communicator.all_reduce(x); }), HasSubstr("context has ended"));
  });
}

TEST_P(CommunicatorTest, TwoContextsOfARankNeedTwoCollectives) {
  const auto inputs = numbers(6);
  std::vector<std::unique_ptr<Collectives>> second = GetParam().make(2);
  run(2, [&](RankContext& rank) {
    const auto own = static_cast<std::size_t>(rank.rank());
    Context other(rank.context.device());
    Communicator communicator(other, std::shared_ptr<Collectives>(std::move(second[own])));
    const auto compiled = [](Context& context, Communicator& used) {
      return compile(context, "step", [&used](Tensor x) {
        const Tensor y = affine(x, 1, 0);
        used.all_reduce(y);
        return y;
      });
    };
    CompiledFunction one = compiled(rank.context, rank.communicator);
    CompiledFunction two = compiled(other, communicator);
    for (const std::vector<Values>& of_ranks : inputs) {
      rank.context.mark_step();
      other.mark_step();
      const Tensor x = rank.tensor(of_ranks[own]);
      const Tensor a = one(x);
      const Tensor b = two(x);
      EXPECT_EQ(a.to_vector<float>(), sum(of_ranks, rank.size()));
      EXPECT_EQ(b.to_vector<float>(), sum(of_ranks, rank.size()));
    }
  });
}

TEST_P(CommunicatorTest, ItsDeviceIsThatOfItsContext) {
  std::vector<std::unique_ptr<Collectives>> ends = GetParam().make(2);
  Context context({GetParam().type, 0});
  EXPECT_THROW(Communicator(context, std::move(ends[1])), InvalidArgument);
  EXPECT_THROW(Communicator(context, nullptr), InvalidArgument);
}

TEST_P(CommunicatorTest, ItsRankIsThatOfTheContextInItsGroup) {
  std::vector<std::unique_ptr<Collectives>> ends = GetParam().make(2);
  auto groups = make_thread_groups(2);
  run_on_ranks(2, [&](int rank) {
    const auto other = static_cast<std::size_t>(1 - rank);
    ContextOptions options;
    options.group = std::move(groups[static_cast<std::size_t>(rank)]);
    const std::shared_ptr<Group> group = options.group;
    Context context(ends[other]->device(), options);
    EXPECT_THAT(refusal([&] { Communicator(context, std::move(ends[other])); }),
                HasSubstr("rank " + std::to_string(rank) + " of 2 in its group"));
    (void)agree(*group, true);
  });
}

// A collective that fails in a capture has enqueued nothing on any rank.
TEST_P(CommunicatorTest, AFailedCaptureOnOneRankStillGivesTheSumOnAllRanks) {
  const std::vector<std::vector<Values>> inputs = numbers(12);
  std::vector<std::shared_ptr<Group>> groups;
  for (auto& group : make_thread_groups(std::min(4, GetParam().most)))
    groups.push_back(std::move(group));
  const auto kind = static_cast<int>(random_() % 3);
  run_ranks(GetParam().make(static_cast<int>(groups.size())),
            [&](std::shared_ptr<Collectives> end) {
              const auto own = static_cast<std::size_t>(end->rank());
              const Stream stream(end->device());
              ContextOptions options;
              options.group = groups[own];
              Context context(end->device(), options);
              Communicator communicator(context, end);
              int failures = 2;
              CompiledFunction f = compile(context, "f", [&](Tensor x) {
                Tensor y = affine(x, 1, 0);
                communicator.all_reduce(y);
                if (own == 1 && current_stream().is_capturing() && failures > 0) {
                  --failures;
                  if (kind == 0) throw std::runtime_error("the user's own");
                  if (kind == 1) throw OutOfMemory("the user's own");
                  communicator.all_reduce(y);
                  throw CaptureError(999, "the user's own");
                }
                return affine(y, 1, 0);
              });
              for (const std::vector<Values>& of_ranks : inputs) {
                context.mark_step();
                const Tensor x = tensor_of(of_ranks[own], stream);
                EXPECT_EQ(f(x).to_vector<float>(), sum(of_ranks, end->size()));
              }
              EXPECT_EQ(f.stats().recordings, 1);
              // A call without enough memory tries the capture twice.
              EXPECT_EQ(f.stats().replays, inputs.size() - (kind == 1 ? 3 : 4));
              (void)agree(*groups[own], true);
            });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorTest, ::testing::ValuesIn(ranks_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree::testing
