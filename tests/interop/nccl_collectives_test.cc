// Properties of NCCL collectives that only GPUs show: graphs with and without mixing, and ranks
// that do not arrive. collectives_test and communicator_test check the results.
#include "extensions/ranks/nccl_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "extensions/ranks/group.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"
#include "tests/support/ranks.h"

namespace cgtree::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Values = std::vector<float>;

// Returns the reason why NCCL cannot be used, or "".
std::string nccl_problem() {
  try {
    static_cast<void>(make_nccl_id());
    return "";
  } catch (const Error& error) {
    return std::string(error.message());
  }
}

TEST(NcclIdTest, AllRanksGetTheIdOfRankZeroOrItsFailure) {
  const std::string problem = nccl_problem();
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(3);
  std::vector<std::optional<NcclId>> ids(3);
  std::vector<std::string> failures(3);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        try {
          ids[i] = share_nccl_id(*groups[i]);
        } catch (const Error& error) {
          failures[i] = error.message();
        }
      });
    }
  }
  if (problem.empty()) {
    ASSERT_TRUE(ids[0] && ids[1] && ids[2]);
    EXPECT_EQ(*ids[0], *ids[1]);
    EXPECT_EQ(*ids[0], *ids[2]);
    EXPECT_NE(*ids[0], NcclId());
  } else {
    EXPECT_EQ(failures[0], problem);
    EXPECT_THAT(failures[1], HasSubstr("rank 0 could not make an id"));
    EXPECT_EQ(failures[2], failures[1]);
  }
}

TEST(NcclCollectivesArgumentsTest, ItNeedsAGpuForEachRank) {
  EXPECT_THROW(make_nccl_collectives({}, 0, 1, Device::host()), InvalidArgument);
  EXPECT_THROW(make_nccl_collectives({}, 0, 1, Device::cuda(99)), InvalidArgument);
  EXPECT_THROW(make_nccl_collectives(std::span<const Device>()), InvalidArgument);
  const Device twice[] = {Device::cuda(), Device::cuda()};
  EXPECT_THROW(make_nccl_collectives(twice), InvalidArgument);
}

class NcclCollectivesTest : public ::testing::Test {
 protected:
  static RanksUnderTest gpus() {
    for (const RanksUnderTest& ranks : ranks_under_test()) {
      if (ranks.type == DeviceType::kCuda) return ranks;
    }
    RanksUnderTest none{"cuda", DeviceType::kCuda, 0};
    none.missing = "built without CUDA";
    none.is_too_few_devices = true;
    return none;
  }
  void SetUp() override { CGTREE_SKIP_IF_RANKS_ARE_MISSING(gpus()); }

  static std::vector<std::unique_ptr<Collectives>> make(const NcclOptions& options = {}) {
    const Device devices[] = {Device::cuda(0), Device::cuda(1)};
    return make_nccl_collectives(devices, options);
  }
};

Tensor tensor_of(const Values& values, StreamRef stream) {
  const Tensor made =
      empty({static_cast<std::int64_t>(values.size())}, DType::kFloat32, stream.device());
  made.copy_from_host(values.data(), values.size() * sizeof(float), stream);
  return made;
}

Values read(const Tensor& tensor, StreamRef stream) {
  Values values(static_cast<std::size_t>(tensor.elements()));
  tensor.copy_to_host(values.data(), tensor.bytes(), stream);
  return values;
}

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const GroupError& error) {
    return std::string(error.message());
  }
}

// Each all-reduce turns x into 2x.
TEST_F(NcclCollectivesTest, GraphsOfManyAllReducesAreReplayedWithAndWithoutMixing) {
  constexpr int kReduces = 5;
  for (const bool mixing : {false, true}) {
    SCOPED_TRACE(mixing);
    run_ranks(make({.graph_mixing = mixing}), [&](std::shared_ptr<Collectives> own) {
      const Stream stream(own->device());
      const Tensor x = tensor_of({1, 2, 3}, stream);
      const auto enqueue = [&] {
        for (int i = 0; i < kReduces; ++i)
          own->all_reduce(stream, x, x, Reduction::kSum);
      };
      enqueue();
      own->synchronize(stream);
      EXPECT_EQ(read(x, stream), (Values{32, 64, 96}));
      Capture capture(stream, CaptureMode::kThreadLocal);
      enqueue();
      Graph graph;
      check(capture.end(&graph), "end the capture");
      const GraphExec exec(stream.ref().graphs(), graph);
      for (int replay = 0; replay < 20; ++replay) {
        const Values values{1, static_cast<float>(replay), 3};
        x.copy_from_host(values.data(), sizeof(float) * values.size(), stream);
        check(exec.api().launch(exec.handle(), stream.ref().handle()), "launch");
        if (replay % 3 == 0) enqueue();  // in the same order on both ranks
        own->synchronize(stream);
        const float factor = replay % 3 == 0 ? 1024 : 32;
        EXPECT_EQ(read(x, stream), (Values{factor, factor * values[1], 3 * factor}));
      }
    });
  }
}

TEST_F(NcclCollectivesTest, EachProcessMayMakeItsOwnRankFromASharedId) {
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(2);
  std::vector<std::jthread> threads;
  for (auto& group : groups) {
    threads.emplace_back([&group] {
      const auto own = make_nccl_collectives(share_nccl_id(*group), group->rank(), group->size(),
                                             Device::cuda(group->rank()));
      const Stream stream(own->device());
      const Tensor x = tensor_of({static_cast<float>(group->rank())}, stream);
      own->all_reduce(stream, x, x, Reduction::kMaximum);
      own->synchronize(stream);
      EXPECT_EQ(read(x, stream), Values{1});
      EXPECT_NE(own->native(), nullptr);
    });
  }
}

// After a failure all ranks abort: the results of other ranks would be undefined.
TEST_F(NcclCollectivesTest, SynchronizeEndsWhenAnotherRankDoesNotCome) {
  std::latch has_ended(1);
  run_ranks(make({.time_limit = 2s}), [&](std::shared_ptr<Collectives> own) {
    const Stream stream(own->device());
    const Tensor x = tensor_of({1}, stream);
    own->all_reduce(stream, x, x, Reduction::kSum);  // connects the ranks
    own->synchronize(stream);
    if (own->rank() == 1) {
      has_ended.wait();
      return own->abort();
    }
    own->all_reduce(stream, x, x, Reduction::kSum);
    EXPECT_THAT(failure_of([&] { own->synchronize(stream); }), HasSubstr("within 2000 ms"));
    EXPECT_TRUE(own->is_aborted());
    EXPECT_THAT(failure_of([&] { own->broadcast(stream, x, 0); }), HasSubstr("within 2000 ms"));
    stream.synchronize();  // the kernel has ended
    has_ended.count_down();
  });
}

// NCCL waits for graphs of an aborted communicator, which this thread ends later.
TEST_F(NcclCollectivesTest, AbortEndsAGraphThatWaitsAndDoesNotWaitItself) {
  std::latch has_ended(1);
  run_ranks(make(), [&](std::shared_ptr<Collectives> own) {
    const Stream stream(own->device());
    const Tensor x = tensor_of({1}, stream);
    own->all_reduce(stream, x, x, Reduction::kSum);
    own->synchronize(stream);
    Capture capture(stream, CaptureMode::kThreadLocal);
    own->all_reduce(stream, x, x, Reduction::kSum);
    Graph graph;
    check(capture.end(&graph), "end the capture");
    const GraphExec exec(stream.ref().graphs(), graph);
    if (own->rank() == 1) {
      has_ended.wait();
      return own->abort();
    }
    check(exec.api().launch(exec.handle(), stream.ref().handle()), "launch");
    own->abort();
    EXPECT_THAT(failure_of([&] { own->synchronize(stream); }), HasSubstr("aborted"));
    stream.synchronize();
    has_ended.count_down();
  });
}

TEST_F(NcclCollectivesTest, AGroupOverItVotes) {
  run_ranks(make(), [](std::shared_ptr<Collectives> own) {
    const std::uint64_t rank = static_cast<std::uint64_t>(own->rank());
    const std::unique_ptr<Group> group = make_collectives_group(own);
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(agree(*group, true));
      EXPECT_FALSE(agree(*group, rank == 0));
      EXPECT_EQ(gather(*group, std::vector<std::uint64_t>{rank}),
                (std::vector<std::uint64_t>{0, 1}));
    }
  });
}

}  // namespace
}  // namespace cgtree::testing
