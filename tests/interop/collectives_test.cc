// Collectives of host devices, on each executor, and of GPUs: eager and captured, against plain
// loops; ranks with different calls fail, and do not wait forever.
#include "extensions/ranks/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "extensions/ranks/group.h"
#include "interop/device/graph.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"
#include "tests/support/ranks.h"

namespace cgtree::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The objects of a rank's thread: its end, and a stream of its device.
struct Rank {
  explicit Rank(std::shared_ptr<Collectives> own)
      : collectives(std::move(own)), stream(collectives->device()) {}

  int number() const { return collectives->rank(); }
  int count() const { return collectives->size(); }
  template <typename T>
  Tensor tensor(const std::vector<T>& values) const {
    Tensor made =
        empty({static_cast<std::int64_t>(values.size())}, dtype_of<T>, collectives->device());
    write(made, values);
    return made;
  }
  template <typename T>
  void write(const Tensor& tensor, const std::vector<T>& values) const {
    tensor.copy_from_host(values.data(), values.size() * sizeof(T), stream);
  }
  template <typename T>
  std::vector<T> read(const Tensor& tensor) const {
    std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
    tensor.copy_to_host(values.data(), values.size() * sizeof(T), stream);
    return values;
  }

  std::shared_ptr<Collectives> collectives;
  Stream stream;
};

class CollectivesTest : public ::testing::TestWithParam<RanksUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_RANKS_ARE_MISSING(GetParam()); }

  // Calls `body` on a thread for each rank.
  void run(int size, const std::function<void(Rank&)>& body,
           std::chrono::milliseconds limit = 60s) const {
    run_ranks(GetParam().make(size, limit), [&](std::shared_ptr<Collectives> end) {
      Rank rank(std::move(end));
      body(rank);
    });
    if (GetParam().findings) {
      EXPECT_THAT(GetParam().findings(), IsEmpty());
    }
  }
};

// Cases that hang on a GPU, where a rank does not see the calls of others.
class HostCollectivesTest : public CollectivesTest {};

// Returns the message of the GroupError that `call` throws, or "".
std::string failure_of(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const GroupError& error) {
    return std::string(error.message());
  }
}

// ---- Random programs ----------------------------------------------------------------------------

struct Operation {
  enum class Kind { kAllReduce, kAllGather, kBroadcast, kExchange } kind;
  Reduction reduction;
  int peer;              // the root, or the distance to the receiver
  std::size_t from, to;  // indices of buffers
};

constexpr std::size_t kBuffers = 3;

template <typename T>
struct Program {
  int ranks;
  std::size_t elements;
  std::vector<Operation> operations;
  using Buffers = std::vector<std::vector<T>>;  // kBuffers, and one of ranks * elements

  template <typename Random>
  static Program make(Random& random, int most_ranks) {
    Program program{2 + static_cast<int>(random() % static_cast<unsigned>(most_ranks - 1)),
                    1 + random() % 70,
                    {}};
    const std::size_t count = 1 + random() % 6;
    for (std::size_t i = 0; i < count; ++i) {
      const auto kind = static_cast<typename Operation::Kind>(random() % 4);
      const int other = static_cast<int>(random() % static_cast<unsigned>(program.ranks));
      Operation operation{kind, static_cast<Reduction>(random() % 4), other, random() % kBuffers,
                          random() % kBuffers};
      if (kind == Operation::Kind::kExchange) {
        operation.peer = std::max(other, 1);
        operation.to = (operation.from + 1) % kBuffers;
      }
      program.operations.push_back(operation);
    }
    return program;
  }

  template <typename Random>
  std::vector<Buffers> inputs(Random& random) const {
    std::vector<Buffers> all(static_cast<std::size_t>(ranks), Buffers(kBuffers + 1));
    for (Buffers& buffers : all) {
      for (std::size_t i = 0; i <= kBuffers; ++i) {
        buffers[i].resize(i < kBuffers ? elements : elements * static_cast<std::size_t>(ranks));
        for (T& value : buffers[i])
          value = static_cast<T>(static_cast<int>(random() % 200) - 100) / static_cast<T>(3);
      }
    }
    return all;
  }

  // Integers wrap, as they do on devices.
  static T apply(T a, T b, Reduction reduction) {
    using Word = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
    switch (reduction) {
      case Reduction::kSum:
        return static_cast<T>(static_cast<Word>(a) + static_cast<Word>(b));
      case Reduction::kProduct:
        return static_cast<T>(static_cast<Word>(a) * static_cast<Word>(b));
      case Reduction::kMinimum:
        return std::min(a, b);
      default:
        return std::max(a, b);
    }
  }

  // The plain model: runs all ranks on one thread, one after another.
  void run(std::vector<Buffers>& all) const {
    for (const Operation& operation : operations) {
      const std::vector<Buffers> before = all;
      for (int rank = 0; rank < ranks; ++rank) {
        Buffers& own = all[static_cast<std::size_t>(rank)];
        const auto of = [&](int other) -> const std::vector<T>& {
          return before[static_cast<std::size_t>((other + ranks) % ranks)][operation.from];
        };
        switch (operation.kind) {
          case Operation::Kind::kAllReduce:
            own[operation.to] = of(0);
            for (int other = 1; other < ranks; ++other) {
              for (std::size_t i = 0; i < elements; ++i) {
                T& value = own[operation.to][i];
                value = apply(value, of(other)[i], operation.reduction);
              }
            }
            break;
          case Operation::Kind::kAllGather:
            own[kBuffers].clear();
            for (int other = 0; other < ranks; ++other)
              own[kBuffers].insert(own[kBuffers].end(), of(other).begin(), of(other).end());
            break;
          case Operation::Kind::kBroadcast:
            own[operation.from] = of(operation.peer);
            break;
          case Operation::Kind::kExchange:
            own[operation.to] = of(rank - operation.peer);
            break;
        }
      }
    }
  }

  void enqueue(const Rank& rank, const std::vector<Tensor>& buffers) const {
    Collectives& own = *rank.collectives;
    for (const Operation& operation : operations) {
      const Tensor& from = buffers[operation.from];
      const Tensor& to = buffers[operation.to];
      switch (operation.kind) {
        case Operation::Kind::kAllReduce:
          own.all_reduce(rank.stream, from, to, operation.reduction);
          break;
        case Operation::Kind::kAllGather:
          own.all_gather(rank.stream, from, buffers[kBuffers]);
          break;
        case Operation::Kind::kBroadcast:
          own.broadcast(rank.stream, from, operation.peer);
          break;
        case Operation::Kind::kExchange:
          own.begin_group();
          own.receive(rank.stream, to, (rank.number() - operation.peer + ranks) % ranks);
          own.send(rank.stream, from, (rank.number() + operation.peer) % ranks);
          own.end_group();
          break;
      }
    }
  }
};

// Runs a program eagerly, and then its graph with new inputs.
template <typename T, typename Random, typename Run>
void check_program(Random& random, int most_ranks, const Run& run) {
  constexpr std::size_t kRounds = 4;
  const auto program = Program<T>::make(random, most_ranks);
  std::vector<std::vector<typename Program<T>::Buffers>> inputs;
  for (std::size_t round = 0; round < kRounds; ++round)
    inputs.push_back(program.inputs(random));
  auto expected = inputs;
  for (auto& round : expected)
    program.run(round);

  run(program.ranks, [&](Rank& rank) {
    const auto number = static_cast<std::size_t>(rank.number());
    std::vector<Tensor> buffers;
    for (const std::vector<T>& values : inputs[0][number])
      buffers.push_back(rank.tensor(values));
    GraphAPI& api = rank.stream.ref().graphs();
    Capture capture(rank.stream, CaptureMode::kThreadLocal);
    program.enqueue(rank, buffers);
    Graph graph;
    check(capture.end(&graph), "end the capture");
    const GraphExec exec(api, graph);
    for (std::size_t round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i <= kBuffers; ++i)
        rank.write(buffers[i], inputs[round][number][i]);
      if (round == 0) {
        program.enqueue(rank, buffers);
      } else {
        check(api.launch(exec.handle(), rank.stream.ref().handle()), "launch");
      }
      rank.collectives->synchronize(rank.stream);
      for (std::size_t i = 0; i <= kBuffers; ++i) {
        EXPECT_EQ(rank.read<T>(buffers[i]), expected[round][number][i])
            << "rank " << number << " of " << program.ranks << ", round " << round << ", buffer "
            << i;
      }
    }
  });
}

TEST_P(CollectivesTest, RandomProgramsEqualPlainLoops) {
  SCOPED_TRACE(ranks_seed());
  std::mt19937_64 random(ranks_seed());
  const auto run_program = [&](int size, const std::function<void(Rank&)>& body) {
    run(size, body);
  };
  for (int i = 0; i < 4 && !HasFailure(); ++i) {
    check_program<float>(random, GetParam().most, run_program);
    check_program<double>(random, GetParam().most, run_program);
    check_program<std::int8_t>(random, GetParam().most, run_program);
    check_program<std::int32_t>(random, GetParam().most, run_program);
    check_program<std::uint64_t>(random, GetParam().most, run_program);
  }
}

// ---- Other properties ---------------------------------------------------------------------------

TEST_P(CollectivesTest, ARankMayVoteBeforeItWaitsForItsWork) {
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(2);
  run(2, [&](Rank& rank) {
    Group& group = *groups[static_cast<std::size_t>(rank.number())];
    const Tensor x = rank.tensor<float>({1.0f});
    for (int i = 0; i < 20; ++i) {
      rank.collectives->all_reduce(rank.stream, x, x, Reduction::kMaximum);
      if (rank.number() == i % 2) rank.collectives->synchronize(rank.stream);
      EXPECT_TRUE(agree(group, true));
      rank.collectives->synchronize(rank.stream);
    }
  });
}

// As cudaFree() waits for its own device only. On the inline executor, which has no queue, the
// other rank may not have arrived yet.
TEST_P(HostCollectivesTest, FreeingMemoryDoesNotWaitForOtherRanks) {
  std::atomic<bool> is_enqueued{GetParam().name == "inline"};
  run(2, [&](Rank& rank) {
    Tensor more = rank.tensor<float>({5.0f});
    const Tensor x = rank.tensor<float>({1.0f});
    if (rank.number() == 0) {
      while (!is_enqueued)
        std::this_thread::yield();
      more = Tensor();
    }
    rank.collectives->all_reduce(rank.stream, x, x, Reduction::kSum);
    is_enqueued = true;
    rank.collectives->synchronize(rank.stream);
    EXPECT_EQ(rank.read<float>(x), std::vector<float>{2.0f});
  });
}

TEST_P(CollectivesTest, EmptyTensorsNeedNoRank) {
  run(1, [](Rank& rank) {
    const Tensor none = empty({0}, DType::kFloat32, rank.collectives->device());
    rank.collectives->all_reduce(rank.stream, none, none, Reduction::kSum);
    rank.collectives->broadcast(rank.stream, none, 0);
  });
}

TEST_P(HostCollectivesTest, RanksThatCallDifferentThingsFailAndSaySo) {
  using Call = std::function<void(Collectives&, StreamRef, const Tensor&)>;
  const auto reduce = [](Reduction reduction) -> Call {
    return [=](Collectives& own, StreamRef stream, const Tensor& x) {
      own.all_reduce(stream, x, x, reduction);
    };
  };
  const Call broadcast = [](Collectives& own, StreamRef stream, const Tensor& x) {
    own.broadcast(stream, x, 1);
  };
  const Call half = [](Collectives& own, StreamRef stream, const Tensor& x) {
    own.all_reduce(stream, x.slice(0, 0, 2), x.slice(0, 2, 4), Reduction::kSum);
  };
  struct {
    Call calls[2];
    std::string texts[2];
  } const cases[] = {{{reduce(Reduction::kSum), reduce(Reduction::kMaximum)},
                      {"all_reduce(sum) of 4 float32", "all_reduce(maximum) of 4 float32"}},
                     {{reduce(Reduction::kSum), broadcast},
                      {"all_reduce(sum) of 4 float32", "broadcast from rank 1 of 4 float32"}},
                     {{half, reduce(Reduction::kSum)},
                      {"all_reduce(sum) of 2 float32", "all_reduce(sum) of 4 float32"}}};
  for (const auto& [calls, texts] : cases) {
    run(2, [&](Rank& rank) {
      const std::vector<float> values{1, 2, 3, 4};
      const Tensor x = rank.tensor(values);
      const auto number = static_cast<std::size_t>(rank.number());
      const std::string failure = failure_of([&] {
        calls[number](*rank.collectives, rank.stream, x);
        rank.collectives->synchronize(rank.stream);
      });
      EXPECT_THAT(failure, AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr(texts[0]),
                                 HasSubstr(texts[1]), HasSubstr("in one order")));
      EXPECT_TRUE(rank.collectives->is_aborted());
      EXPECT_EQ(rank.read<float>(x), values) << "what failed writes nothing";
      EXPECT_EQ(failure_of([&] { rank.collectives->broadcast(rank.stream, x, 0); }), failure);
    });
  }
}

TEST_P(HostCollectivesTest, ARankThatDoesNotComeIsNamed) {
  run(
      3,
      [](Rank& rank) {
        if (rank.number() != 1) return;
        const Tensor x = rank.tensor<float>({1.0f});
        EXPECT_EQ(failure_of([&] {
                    rank.collectives->all_reduce(rank.stream, x, x, Reduction::kSum);
                    rank.collectives->synchronize(rank.stream);
                  }),
                  "ranks 0, 2 of 3 did not come within 50 ms");
      },
      50ms);
}

TEST_P(HostCollectivesTest, ASendThatNoRankReceivesIsNamed) {
  run(
      2,
      [](Rank& rank) {
        if (rank.number() != 1) return;
        const Tensor x = rank.tensor<float>({1.0f});
        EXPECT_EQ(failure_of([&] {
                    rank.collectives->send(rank.stream, x, 0);
                    rank.collectives->synchronize(rank.stream);
                  }),
                  "rank 0 of 2 did not receive within 50 ms: rank 1 calls send to rank 0 of 1 "
                  "float32");
      },
      50ms);
}

TEST_P(HostCollectivesTest, ASendAndItsReceiveMustNameTheSameElements) {
  run(2, [](Rank& rank) {
    const Tensor x = rank.tensor<float>(std::vector<float>(rank.number() == 0 ? 3 : 4));
    EXPECT_EQ(failure_of([&] {
                if (rank.number() == 0) rank.collectives->send(rank.stream, x, 1);
                if (rank.number() == 1) rank.collectives->receive(rank.stream, x, 0);
                rank.collectives->synchronize(rank.stream);
              }),
              "rank 1 calls receive from rank 0 of 4 float32 where rank 0 calls send to rank 1 of "
              "3 float32: both must name the same");
  });
}

TEST_P(HostCollectivesTest, ARankThatLeavesFailsThoseThatWaitForIt) {
  std::vector<std::unique_ptr<Collectives>> ends = GetParam().make(3);
  const std::jthread last([end = std::move(ends[2])]() mutable {
    std::this_thread::sleep_for(20ms);  // the other rank usually waits by then
    end.reset();
  });
  Rank rank(std::move(ends[0]));
  const Tensor x = rank.tensor<float>({1.0f});
  EXPECT_EQ(failure_of([&] {
              rank.collectives->all_reduce(rank.stream, x, x, Reduction::kSum);
              rank.collectives->synchronize(rank.stream);
            }),
            "rank 2 of 3 has left the communicator");
}

TEST_P(HostCollectivesTest, AbortEndsWhatWaits) {
  std::vector<std::unique_ptr<Collectives>> ends = GetParam().make(2);
  const std::jthread other([end = ends[1].get()] {
    std::this_thread::sleep_for(20ms);
    end->abort();
  });
  Rank rank(std::move(ends[0]));
  const Tensor x = rank.tensor<float>({1.0f});
  EXPECT_EQ(failure_of([&] {
              rank.collectives->all_reduce(rank.stream, x, x, Reduction::kSum);
              rank.collectives->synchronize(rank.stream);
            }),
            "rank 1 of 2 has aborted the communicator");
}

TEST_P(CollectivesTest, AGroupThatIsCancelledLeavesNothing) {
  run(2, [](Rank& rank) {
    const Tensor x = rank.tensor<float>({1.0f + static_cast<float>(rank.number())});
    rank.collectives->begin_group();
    rank.collectives->send(rank.stream, x, 1 - rank.number());
    rank.collectives->cancel_group();
    rank.collectives->all_reduce(rank.stream, x, x, Reduction::kSum);
    rank.collectives->synchronize(rank.stream);
    EXPECT_EQ(rank.read<float>(x), std::vector<float>{3.0f});
    EXPECT_THROW(rank.collectives->end_group(), InvalidArgument);
  });
}

TEST_P(CollectivesTest, ArgumentsThatDoNotFitAreRefusedBeforeAnyRankWaits) {
  std::vector<std::unique_ptr<Collectives>> ends = GetParam().make(2);
  Rank rank(std::move(ends[0]));
  Collectives& own = *rank.collectives;
  const Tensor x = rank.tensor<float>({1, 2, 3, 4, 5, 6});
  const Tensor table = x.reshape({2, 3});
  const Tensor bools = empty({2}, DType::kBool, own.device());
  const Tensor elsewhere = empty({6}, DType::kFloat32, ends[1]->device());
  const Stream other(ends[1]->device());

  EXPECT_THROW(own.all_reduce(rank.stream, Tensor(), x, Reduction::kSum), InvalidArgument);
  EXPECT_THROW(own.all_reduce(rank.stream, x, table, Reduction::kSum), InvalidArgument);
  EXPECT_THROW(own.all_reduce(rank.stream, elsewhere, elsewhere, Reduction::kSum), InvalidArgument);
  EXPECT_THROW(own.all_reduce(rank.stream, bools, bools, Reduction::kSum), InvalidArgument);
  EXPECT_THROW(own.all_reduce(other, x, x, Reduction::kSum), InvalidArgument);
  EXPECT_THROW(own.all_reduce({}, x, x, Reduction::kSum), InvalidArgument);
  EXPECT_THROW(own.all_gather(rank.stream, x, x), InvalidArgument);
  EXPECT_THROW(own.broadcast(rank.stream, table.transpose(0, 1), 0), InvalidArgument);
  EXPECT_THROW(own.broadcast(rank.stream, x, 2), InvalidArgument);
  EXPECT_THROW(own.send(rank.stream, x, 0), InvalidArgument);
  EXPECT_THROW(own.receive(rank.stream, x, -1), InvalidArgument);
  EXPECT_FALSE(own.is_aborted());
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesTest, ::testing::ValuesIn(ranks_under_test()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Ranks, HostCollectivesTest, ::testing::ValuesIn(host_ranks()),
                         [](const auto& info) { return info.param.name; });

TEST(MakeHostCollectivesTest, TheProcessHasEightRanks) {
  EXPECT_EQ(make_host_collectives(8).size(), 8u);
  EXPECT_THROW(make_host_collectives(9), InvalidArgument);
  EXPECT_THROW(make_host_collectives(0), InvalidArgument);
}

}  // namespace
}  // namespace cgtree::testing
