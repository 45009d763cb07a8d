// Branches and loops on the device: a recording with them equals eager calls.
#include "extensions/flow/control_flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "cgtree/steps.h"
#include "cgtree/values/eager_break.h"
#include "extensions/flow/condition_kernels.h"
#include "extensions/scopes/scope.h"
#include "extensions/sizes/precapture.h"
#include "extensions/sizes/size_learner.h"
#include "extensions/verify/verify.h"
#include "extensions/watch/monitor.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "interop/device/kernel.h"
#include "interop/random/random.h"
#include "simulator/host_device.h"
#include "tests/support/flags.h"
#include "tests/support/flow_steps.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/host_slot.h"
#include "tests/support/test_kernels.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

class ControlFlowTest : public TreeTest {
 protected:
  Tensor flag(std::int32_t value) {
    return from_host(Shape(), std::span<const std::int32_t>(&value, 1), device());
  }
  Tensor number(float value) { return tensor({1}, std::span<const float>(&value, 1)); }
  // Enqueues y += x on the current stream.
  static void add_to(const Tensor& y, const Tensor& x) {
    const float one = 1;
    const float* const from = x.data<float>();
    float* const to = y.data<float>();
    const std::int64_t count = y.elements();
    enqueue_kernel(current_stream(), axpy_kernel(), dims_for(count),
                   arguments_of(one, from, to, count));
  }
  // Enqueues y *= 2 on a stream that is forked from the current stream and joined to it.
  static void double_on(StreamRef side, const Tensor& y) {
    side.wait_for(current_stream());
    {
      const StreamScope scope(side);
      update(y, 2, 0);
    }
    current_stream().wait_for(side);
  }
  static std::int32_t value(const Tensor& tensor) { return tensor.to_vector<std::int32_t>()[0]; }

  // Calls f until it has replayed several times. call(i) makes the arguments and checks the result.
  template <typename Function, typename Call>
  void call_often(const Function& f, Call call) {
    for (int i = 0; i < 8; ++i)
      call(i);
    EXPECT_EQ(f.stats().recordings, 1u) << to_string(f.stats());
    EXPECT_EQ(f.stats().replays, 6u) << to_string(f.stats());
  }

  // Calls f eight times: the second call, which would record, runs eagerly. Each result is 2 x + 1
  // if the flag is set, and x otherwise.
  template <typename Function>
  void expect_recorded_later(const Function& f) {
    for (int i = 0; i < 8; ++i) {
      const std::vector<float> x = random_floats(8);
      const Tensor y = f(tensor({8}, x), flag(i % 2));
      EXPECT_EQ(values(y), i % 2 != 0 ? affine_of(x, 2, 1) : x) << i;
    }
    EXPECT_EQ(f.stats().replays, 5u) << to_string(f.stats());
  }

  // Calls f three times: it runs eagerly, for a reason with this text.
  template <typename Function>
  void expect_not_recorded(const Function& f, const std::string& text) {
    for (int call = 0; call < 3; ++call)
      (void)f(random_tensor({8}), flag(0));
    EXPECT_EQ(f.stats().skipped(SkipReason::kCaptureFailed), 2u);
    const std::string why = to_string(f.explain(random_tensor({8}), flag(0)));
    EXPECT_NE(why.find(text), std::string::npos) << why;
  }
  // Calls f three times: each call throws InvalidArgument with this text.
  template <typename Function>
  void expect_refused(const Function& f, const std::string& text) {
    for (int call = 0; call < 3; ++call) {
      try {
        (void)f(random_tensor({8}), flag(1));
        ADD_FAILURE() << "nothing was thrown";
      } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
      }
    }
    EXPECT_EQ(f.stats().failures, 3u);
  }
};
CGTREE_ON_ALL_DEVICES(ControlFlowTest);

TEST_P(ControlFlowTest, ABranchTakesTheWayThatEachReplayIsGiven) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    branch(
        taken, [&] { update(y, 2, 1); }, [&] { update(y, 3, 0); });
    return affine(y, 1, 1);
  });
  call_often(f, [&](int i) {
    const std::vector<float> x = random_floats(100);
    const int taken = i % 3;
    const std::vector<float> y = taken != 0 ? affine_of(x, 2, 1) : affine_of(x, 3, 0);
    EXPECT_EQ(values(f(tensor({100}, x), flag(taken))), affine_of(y, 1, 1)) << i;
  });
}

// Only the first byte is read, with every value in the bytes after it.
TEST_P(ControlFlowTest, AFlagMayBeABool) {
  const std::vector<std::uint8_t> bytes = {0, 1, 1, 0, 0, 1, 0, 1, 1};
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    const Tensor first(taken.storage(), taken.byte_offset(), Shape(), DType::kBool);
    branch(first, [&] { update(y, 2, 0); });
    (void)loop(2, [&] {
      update(y, 1, 1);
      return first;
    });
    return y;
  });
  call_often(f, [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    const std::vector<std::uint8_t> flags = {bytes[at], bytes[at + 1], 1, 1};
    const std::vector<float> x = random_floats(8);
    const std::vector<float> expected =
        flags[0] != 0 ? affine_of(affine_of(affine_of(x, 2, 0), 1, 1), 1, 1) : affine_of(x, 1, 1);
    EXPECT_EQ(values(f(tensor({8}, x), from_host({4}, std::span(flags), device()))), expected) << i;
  });
}

TEST_P(ControlFlowTest, ABranchWithoutASecondWayDoesNothing) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    branch(taken, [&] { update(y, 2, 1); });
    return y;
  });
  call_often(f, [&](int i) {
    const std::vector<float> x = random_floats(10);
    EXPECT_EQ(values(f(tensor({10}, x), flag(i % 2))), i % 2 != 0 ? affine_of(x, 2, 1) : x) << i;
  });
}

TEST_P(ControlFlowTest, AChoiceOutOfRangeRunsNoBody) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor index) {
    Tensor y = affine(x, 1, 0);
    choose(index, {[&] { update(y, 2, 0); }, [&] { update(y, 3, 0); }, [&] { update(y, 4, 0); }});
    return y;
  });
  const std::vector<int> indices = {1, 0, 2, 3, -1, 0, 1000000, 2};
  call_often(f, [&](int i) {
    const int index = indices[static_cast<std::size_t>(i)];
    const std::vector<float> x = random_floats(10);
    const float scale = index < 0 || index > 2 ? 1 : static_cast<float>(index + 2);
    EXPECT_EQ(values(f(tensor({10}, x), flag(index))), affine_of(x, scale, 0)) << i;
  });
}

TEST_P(ControlFlowTest, ALoopRunsUntilItsFlagIsZeroOrItsLimitIsReached) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor wanted) {
    Tensor y = affine(x, 1, 0);
    Tensor left = affine(wanted, 1, 0);
    Tensor goes_on = empty(Shape(), DType::kInt32);
    Tensor rounds = loop(10, [&] {
      update(y, 1, 1);
      update(left, 1, -1);
      compare(left, 0, goes_on);
      return goes_on;
    });
    return std::pair<Tensor, Tensor>(y, rounds);
  });
  const std::vector<int> wanted = {3, 1, 10, 7, 0, 25, 2, 4};
  call_often(f, [&](int i) {
    const int asked = wanted[static_cast<std::size_t>(i)];
    const std::vector<float> x = random_floats(10);
    const auto [y, rounds] = f(tensor({10}, x), number(static_cast<float>(asked)));
    std::vector<float> expected = x;
    for (int round = 0; round < std::clamp(asked, 1, 10); ++round)
      expected = affine_of(expected, 1, 1);
    EXPECT_EQ(values(y), expected) << i;
    EXPECT_EQ(value(rounds), std::clamp(asked, 1, 10)) << i;
  });
}

// All allocations in a body are scratch memory, including a flag.
TEST_P(ControlFlowTest, BodiesNestAndHaveScratchMemoryOfTheirOwn) {
  const auto step = [](Tensor x, Tensor n) {
    Tensor y = affine(x, 1, 0);
    Tensor left = affine(n, 1, 0);
    (void)loop(20, [&] {
      Tensor index = empty(Shape(), DType::kInt32);
      round_down(affine(left, 0.5F, 0), index);
      choose(index, {[&] { update(y, 1, 1); },
                     [&] {
                       Tensor odd = empty(Shape(), DType::kInt32);
                       compare(left, 2, odd);  // left is 3 and 2 in this body
                       branch(
                           odd, [&] { update(affine(y, 1, 0), 5, 0), update(y, 2, 0); },
                           [&] { update(y, 1, -2); });
                     },
                     [&] {
                       Tensor again = affine(left, 1, 0);
                       (void)loop(3, [&] {
                         update(y, 1, 0.5F);
                         update(again, 1, -2);
                         Tensor goes_on = empty(Shape(), DType::kInt32);
                         compare(again, 1, goes_on);
                         return goes_on;
                       });
                     }});
      update(left, 1, -1);
      Tensor goes_on = empty(Shape(), DType::kInt32);
      compare(left, 0, goes_on);
      return goes_on;
    });
    return add(y, x);
  };
  CompiledFunction f = compile(context(), "f", step);
  CompiledFunction eager = compile(context(), "eager", step, {.enabled = false});
  call_often(f, [&](int i) {
    const Tensor x = random_tensor({17});
    const Tensor n = number(static_cast<float>((3 * i + 2) % 7));
    EXPECT_EQ(values(f(x, n)), values(eager(x, n))) << i;
  });
}

TEST_P(ControlFlowTest, ABranchReturnsWhatItsBodyReturns) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    const Tensor before = affine(x, 1, 1);
    Tensor y = branch(
        taken, [&] { return affine(affine(before, 2, 0), 1, 1); }, [&] { return before; });
    return branch(
        taken,
        [&] {  // results of branches in branches
          return branch(
              taken, [&] { return affine(y, 4, 0); }, [&] { return y; });
        },
        [&] { return y; });
  });
  call_often(f, [&](int i) {
    const std::vector<float> x = random_floats(30);
    std::vector<float> expected = affine_of(x, 1, 1);
    if (i % 2 != 0) expected = affine_of(affine_of(affine_of(expected, 2, 0), 1, 1), 4, 0);
    EXPECT_EQ(values(f(tensor({30}, x), flag(i % 2))), expected) << i;
  });
}

// The last body takes all other numbers, so that there is always a result.
TEST_P(ControlFlowTest, AChoiceWithResultsHasABodyForEachNumber) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor index) {
    const std::vector<std::function<std::vector<Tensor>()>> bodies = {
        [&] {
          return std::vector<Tensor>{affine(x, 2, 0), x.transpose(0, 1)};
        },
        [&] {
          return std::vector<Tensor>{x, affine(x.transpose(0, 1), 3, 0)};
        },
        [&] {
          return std::vector<Tensor>{affine(x, 0, 7), x.transpose(0, 1)};
        }};
    std::vector<Tensor> results = choose_results(index, bodies);
    return std::pair(results[0], results[1]);
  });
  const std::vector<int> indices = {1, 0, 2, 3, -1, 0, 1, 2};
  call_often(f, [&](int i) {
    const int index = indices[static_cast<std::size_t>(i)];
    const std::vector<float> x = random_floats(9);
    const auto [first, second] = f(tensor({3, 3}, x), flag(index));
    std::vector<float> expected = std::vector<float>(9, 7);
    if (index == 0) expected = affine_of(x, 2, 0);
    if (index == 1) expected = x;
    EXPECT_EQ(values(first), expected) << i;
    std::vector<float> transposed(9);
    for (std::size_t k = 0; k < 9; ++k)
      transposed[k] = x[k % 3 * 3 + k / 3];
    EXPECT_EQ(values(second), index == 1 ? affine_of(transposed, 3, 0) : transposed) << i;
  });
}

TEST_P(ControlFlowTest, BodiesThatReturnOtherShapesKeepTheStepFromBeingRecorded) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    return branch(
        taken, [&] { return affine(x, 2, 0); }, [&] { return affine(x.slice(0, 0, 3), 2, 0); });
  });
  expect_not_recorded(f, "result 0 of otherwise() of branch() is float32 {3}");
  const Stream stream(device());
  const StreamScope scope(stream);
  const auto nothing = [] { return Tensor(); };
  EXPECT_THROW((void)branch(flag(1), nothing, nothing), InvalidArgument);
}

TEST_P(ControlFlowTest, ABodyMayForkASideStream) {
  const Stream side(device());
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    branch(taken, [&] {
      const StreamRef main = current_stream();
      side.ref().wait_for(main);
      Tensor z;
      {
        const StreamScope scope(side);
        z = affine(affine(y, 3, 0), 1, 1);
      }
      const Tensor w = affine(y, 2, 0);
      main.wait_for(side);
      update(y, 0, 1);
      add_to(y, add(z, w));
    });
    return y;
  });
  call_often(f, [&](int i) {
    const std::vector<float> x = random_floats(1000);
    std::vector<float> expected = x;
    if (i % 2 != 0) {
      for (float& value : expected)
        value = 1 + ((3 * value + 1) + 2 * value);
    }
    EXPECT_EQ(values(f(tensor({1000}, x), flag(i % 2))), expected) << i;
  });
}

TEST_P(ControlFlowTest, ASideStreamOfAStepMayBranch) {
  const Stream side(device());
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    Tensor z = affine(x, 1, 0);
    side.ref().wait_for(current_stream());
    {
      const StreamScope scope(side);
      branch(
          taken, [&] { update(y, 2, 0); }, [&] { add_to(y, affine(y, 4, 0)); });
    }
    branch(taken, [&] { add_to(z, affine(z, 2, 0)); });  // beside the other branch
    current_stream().wait_for(side);
    return add(y, z);
  });
  call_often(f, [&](int i) {
    const std::vector<float> x = random_floats(500);
    std::vector<float> expected = x;
    for (float& value : expected)
      value = i % 2 != 0 ? 2 * value + (value + 2 * value) : (value + 4 * value) + value;
    EXPECT_EQ(values(f(tensor({500}, x), flag(i % 2))), expected) << i;
  });
}

// Memory that a body uses is not used again by work beside it.
TEST_P(ControlFlowTest, WorkBesideABodySharesNoMemoryWithIt) {
  const Stream side(device());
  std::set<std::uintptr_t> in_body, beside, behind;
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    Tensor z = affine(x, 1, 0);
    branch(taken, [&] {
      for (std::set<std::uintptr_t>* const seen : {&in_body, &beside, &behind})
        seen->clear();
      const StreamRef main = current_stream();
      side.ref().wait_for(main);
      branch(taken, [&] {
        in_body.clear();
        for (const float scale : {1.0F, 2.0F, 0.5F})
          in_body.insert(affine(y, scale, 0).address());
        const Tensor scratch = affine(y, 2, 0);
        in_body.insert(scratch.address());
        add_to(y, scratch);
      });
      {
        const StreamScope scope(side);
        const Tensor scratch = affine(z, 4, 0);
        beside.insert(scratch.address());
        add_to(z, scratch);
      }
      main.wait_for(side);
      const Tensor scratch = affine(y, 1, 0);
      behind.insert(scratch.address());
      add_to(y, scratch);
    });
    return add(y, z);
  });
  call_often(f, [&](int i) {
    const std::vector<float> x = random_floats(300);
    std::vector<float> expected = x;
    for (float& value : expected)
      value = i % 2 != 0 ? 6 * value + (value + 4 * value) : value + value;
    const std::vector<float> found = values(f(tensor({300}, x), flag(i % 2)));
    for (std::size_t k = 0; k < found.size(); ++k)
      ASSERT_FLOAT_EQ(found[k], expected[k]) << i;
    if (i == 1) {  // recorded
      EXPECT_EQ(in_body.size(), 4u) << "used once, while it may run beside other work";
      for (const std::uintptr_t address : in_body)
        EXPECT_FALSE(beside.contains(address));
    }
  });
}

// A forked stream stays in its capture until the end, as in CUDA.
TEST_P(ControlFlowTest, ASideStreamThatIsForkedOutsideIsNotOneOfABody) {
  const Stream side(device());
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    double_on(side, y);
    branch(taken, [&] { double_on(side, y); });
    return y;
  });
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> x = random_floats(8);
    EXPECT_EQ(values(f(tensor({8}, x), flag(i % 2))), affine_of(x, i % 2 != 0 ? 4 : 2, 0)) << i;
  }
  EXPECT_EQ(f.stats().skipped(SkipReason::kCaptureFailed), 3u);
}

// The refusal comes before the real capture: a driver does not survive a capture that fails in a
// body.
TEST_P(ControlFlowTest, ASideStreamThatABodyForksIsNotOneOfABodyInIt) {
  const Stream side(device());
  int captures = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    branch(taken, [&] {
      captures += current_stream().is_capturing() ? 1 : 0;
      double_on(side, y);
      branch(taken, [&] { double_on(side, y); });
    });
    return y;
  });
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> x = random_floats(8);
    EXPECT_EQ(values(f(tensor({8}, x), flag(i % 2))), affine_of(x, i % 2 != 0 ? 4 : 1, 0)) << i;
  }
  EXPECT_EQ(f.stats().skipped(SkipReason::kCaptureFailed), 3u);
  EXPECT_EQ(captures, 1) << "not captured to be kept";
}

TEST_P(ControlFlowTest, TheBodiesOfAChoiceShareScratchWhichNothingElseLiesIn) {
  std::vector<std::uintptr_t> first, second;
  std::uintptr_t before = 0, after = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    const Tensor held = affine(x, 1, 0);
    Tensor y = affine(x, 1, 0);
    before = held.address();
    first.clear();
    second.clear();
    const auto body = [&](std::vector<std::uintptr_t>& seen, float scale) {
      const Tensor kept = affine(y, 1, 0);
      seen.push_back(kept.address());
      for (int i = 0; i < 3; ++i) {
        const Tensor scratch = affine(y, scale, 0);
        seen.push_back(scratch.address());
        update(y, 0, 0);
        add_to(y, scratch);
      }
    };
    branch(
        taken, [&] { body(first, 2); }, [&] { body(second, 4); });
    const Tensor z = add(y, held);
    after = z.address();
    return z;
  });
  call_often(f, [&](int i) {
    const std::vector<float> x = random_floats(1000);
    std::vector<float> expected = x;
    for (float& value : expected)
      value += (i % 2 != 0 ? 8 : 64) * value;
    EXPECT_EQ(values(f(tensor({1000}, x), flag(i % 2))), expected) << i;
    if (i == 1) {  // recorded
      EXPECT_EQ(first, second);
      EXPECT_EQ(std::set<std::uintptr_t>(first.begin(), first.end()).size(), 2u);
      EXPECT_EQ(std::count(first.begin(), first.end(), before), 0);
    }
  });
}

TEST_P(ControlFlowTest, ABodyUsesAgainTheMemoryThatItHasLetGoOf) {
  std::set<std::uintptr_t> seen;
  const auto step = [&](int length) {
    return [&seen, length](Tensor x, Tensor goes_on) {
      Tensor y = affine(x, 1, 0);
      (void)loop(2, [&] {
        seen.clear();
        Tensor link = y;
        for (int i = 0; i < length; ++i) {
          link = affine(link, 1, 1);
          seen.insert(link.address());
        }
        update(y, 0, 0);
        add_to(y, link);
        return goes_on;
      });
      return y;
    };
  };
  const auto footprint_of = [&](int length) {
    make_context({});
    CompiledFunction f = compile(context(), "f", step(length));
    call_often(f, [&](int i) {
      const std::vector<float> x = random_floats(1000);
      std::vector<float> expected = x;
      for (int k = 0; k < length * (1 + i % 2); ++k)
        expected = affine_of(expected, 1, 1);
      EXPECT_EQ(values(f(tensor({1000}, x), flag(i % 2))), expected) << i;
      if (i == 1) {  // recorded
        EXPECT_EQ(seen.size(), 2u);
      }
    });
    const nlohmann::json snapshot = nlohmann::json::parse(snapshot_json(context()));
    return snapshot["nodes"][0]["footprint_bytes"].get<std::size_t>();
  };
  EXPECT_EQ(footprint_of(10), footprint_of(2));
}

// The next round of the loop reads it.
TEST_P(ControlFlowTest, OuterMemoryReleasedByABodyIsNotReusedInIt) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor goes_on) {
    Tensor y = affine(x, 1, 0);
    std::vector<Tensor> held(2, affine(x, 4, 0));  // the code of a body runs twice
    (void)loop(2, [&] {
      {
        const Tensor read = held.back();
        held.pop_back();
        add_to(y, read);
      }
      update(empty({8}, DType::kFloat32), 0, 0);
      return goes_on;
    });
    return add(y, affine(x, 1, 0));
  });
  call_often(f, [&](int i) {
    const std::vector<float> x = random_floats(8);
    std::vector<float> y = x;
    for (std::size_t k = 0; k < y.size(); ++k)
      y[k] = ((i % 2 != 0 ? y[k] + 4 * x[k] : y[k]) + 4 * x[k]) + x[k];
    EXPECT_EQ(values(f(tensor({8}, x), flag(i % 2))), y) << i;
  });
}

// The same holds for memory of the surrounding body, and for work beside it that may still read.
TEST_P(ControlFlowTest, MemoryReadByABodysSideStreamIsNotReusedBeforeTheJoin) {
  const Stream side(device());
  std::uintptr_t first = 0, beside = 0, nested = 0, behind = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    Tensor z = affine(x, 1, 0);
    branch(taken, [&] {
      const StreamRef main = current_stream();
      Tensor read = affine(y, 2, 0);
      first = read.address();
      side.ref().wait_for(main);
      {
        const StreamScope scope(side);
        add_to(z, read);
      }
      read = Tensor();
      {
        const Tensor scratch = affine(y, 4, 0);
        beside = scratch.address();
        add_to(y, scratch);
      }
      branch(taken, [&] {
        const Tensor scratch = affine(y, 2, 0);
        nested = scratch.address();
        add_to(y, scratch);
      });
      main.wait_for(side);
      const Tensor scratch = affine(y, 2, 0);
      behind = scratch.address();
      add_to(y, scratch);
    });
    return add(y, z);
  });
  call_often(f, [&](int i) {
    const std::vector<float> x = random_floats(300);
    std::vector<float> expected = x;
    for (float& value : expected) {
      const float five = value + 4 * value;
      const float fifteen = five + 2 * five;
      value = i % 2 != 0 ? (fifteen + 2 * fifteen) + (value + 2 * value) : value + value;
    }
    EXPECT_EQ(values(f(tensor({300}, x), flag(i % 2))), expected) << i;
    if (i != 1) return;  // recorded
    EXPECT_NE(beside, first);
    EXPECT_NE(nested, first);
    EXPECT_NE(nested, beside);
    EXPECT_TRUE(behind == first || behind == beside || behind == nested);
  });
}

TEST_P(ControlFlowTest, NodesOfBodiesCount) {
  const auto step = [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    (void)loop(3, [&] {
      for (int i = 0; i < 5; ++i)
        update(y, 1, 1);
      branch(taken, [&] { update(y, 2, 0); });
      return taken;
    });
    return y;
  };
  // affine(); the start and the node of the loop; five updates, a branch of two nodes with one
  // inside, and the end of the round.
  constexpr std::size_t kNodes = 1 + 2 + (5 + 2 + 1 + 1);
  CompiledFunction f = compile(context(), "f", step);
  for (int i = 0; i < 3; ++i)
    (void)f(random_tensor({8}), flag(i % 2));
  EXPECT_EQ(f.stats().replays, 1u);
  const nlohmann::json node = nlohmann::json::parse(snapshot_json(context()))["nodes"][0];
  EXPECT_EQ(node["graph_nodes"], kNodes + 1) << "with that of the inputs";
  EXPECT_EQ(node["kernel_nodes"], kNodes + 1 - 2);
}

TEST_P(ControlFlowTest, ABodyMayCallAnotherCompiledFunction) {
  CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 3, 1); });
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    branch(taken, [&] { add_to(y, g(y)); });
    return y;
  });
  call_often(f, [&](int i) {
    const std::vector<float> x = random_floats(8);
    std::vector<float> expected = x;
    if (i % 2 != 0) {
      for (float& value : expected)
        value += 3 * value + 1;
    }
    EXPECT_EQ(values(f(tensor({8}, x), flag(i % 2))), expected) << i;
  });
}

TEST_P(ControlFlowTest, PaddedInputsStepBlocksAndBuffersReachBodies) {
  struct Block {
    float limit;
  };
  CompiledFunction f = compile(context(), "f",
                               [&](Tensor x, Tensor block) {
                                 Tensor y = affine(x, 1, 0);
                                 const Tensor limit(block.storage(), 0, {1}, DType::kFloat32);
                                 const Tensor taken = empty(Shape(), DType::kInt32);
                                 compare(limit, 0, taken);
                                 branch(taken, [&] { add_to(y, x); });
                                 return y;
                               },
                               {.inputs = {{.dynamic = {{0, "rows"}}}},
                                .buckets = {{"rows", {8, 16}}},
                                .outputs = {{.dynamic = {{0, "rows"}}}}});
  for (int i = 0; i < 8; ++i) {
    const std::int64_t rows = 3 + i % 5;
    const std::vector<float> x = random_floats(rows);
    const Block block{static_cast<float>(i % 3 - 1)};
    const Tensor buffer = tensor({rows}, std::vector<float>(static_cast<std::size_t>(rows), NAN));
    (void)f.into(buffer)(tensor({rows}, x), step_block(block));
    EXPECT_EQ(values(buffer), affine_of(x, block.limit > 0 ? 2 : 1, 0)) << i;
  }
  EXPECT_EQ(f.stats().replays, 6u) << to_string(f.stats());
}

TEST_P(ControlFlowTest, LengthsOfAxesReachBodies) {
  CompiledFunction f = compile(
      context(), "f",
      [&](Tensor x, Tensor taken, Tensor none) {
        return std::pair(affine(x, 2, 0),
                         branch(
                             taken, [] { return axis_length("rows"); }, [&] { return none; }));
      },
      {.inputs = {{.dynamic = {{0, "rows"}}}},
       .buckets = {{"rows", {8}}},
       .outputs = {{.dynamic = {{0, "rows"}}}}});
  const std::int64_t minus = -1;
  const Tensor none = from_host(Shape(), std::span<const std::int64_t>(&minus, 1), device());
  call_often(f, [&](int i) {
    const std::int64_t rows = 1 + 3 * i % 8;
    const std::vector<float> x = random_floats(rows);
    const auto [y, length] = f(tensor({rows}, x), flag(i / 2 % 2), none);
    EXPECT_EQ(values(y), affine_of(x, 2, 0)) << i;
    EXPECT_EQ(length.to_vector<std::int64_t>()[0], i / 2 % 2 != 0 ? rows : -1) << i;
  });
}

// Precaptured and learned recordings, whose bodies see padded inputs.
TEST_P(ControlFlowTest, SizesAreRecordedAheadAndLearnedWithBranchesAndLoops) {
  const Generator generator(seed_);
  const auto step = [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    branch(taken, [&] { update(y, 2, 1); });
    const auto body = [&] {
      (void)uniform({1}, generator);
      update(y, 1, 1);
      return taken;
    };
    (void)loop(2, body, {generator});
    return y;
  };
  const MakeInputs make_inputs = [&](const CallSizes& sizes) {
    return std::vector<Tensor>{random_tensor({sizes["rows"]}), flag(1)};
  };
  const auto expect_replays = [&](const auto& f, std::int64_t most) {
    const std::uint64_t before = f.stats().replays;
    for (std::int64_t rows = 1; rows <= most; ++rows) {
      const bool is_taken = rows % 3 == 0;
      const std::vector<float> x = random_floats(rows);
      std::vector<float> expected = affine_of(is_taken ? affine_of(x, 2, 1) : x, 1, 1);
      if (is_taken) expected = affine_of(expected, 1, 1);
      EXPECT_EQ(values(f(tensor({rows}, x), flag(is_taken ? 1 : 0))), expected) << rows;
    }
    EXPECT_EQ(f.stats().replays, before + static_cast<std::uint64_t>(most));
  };
  CompiledFunction ahead = compile(context(), "ahead", step,
                                   {.inputs = {{.dynamic = {{0, "rows"}}}},
                                    .buckets = {{"rows", {4, 8}}},
                                    .outputs = {{.dynamic = {{0, "rows"}}}}});
  EXPECT_EQ(precapture(ahead, {}, make_inputs).count(Precaptured::Outcome::kRecorded), 2u);
  expect_replays(ahead, 8);

  CompiledFunction learned = compile(context(), "learned", step,
                                     {.inputs = {{.dynamic = {{0, "rows"}}}},
                                      .axes = {{.name = "rows", .policy = AxisPolicy::kLearned}},
                                      .outputs = {{.dynamic = {{0, "rows"}}}}});
  SizeLearner learner(learned, make_inputs, {.generators = {generator}});
  (void)learned(random_tensor({6}), flag(0));
  const std::uint64_t offset = generator.state().offset;
  for (int i = 0; i < 8; ++i)
    (void)learner.idle(std::chrono::seconds(100));
  EXPECT_EQ(generator.state().offset, offset) << "they were put back";
  expect_replays(learned, 6);
}

// The scratch memory of bodies belongs to the footprint of a recording.
TEST_P(ControlFlowTest, OutputsThatAreHeldAreNotOverwrittenByBodies) {
  const std::vector<Stream> sides = flow_sides(device());
  std::vector<Flow> flows;
  using Function = CompiledFunction<Tensor(Tensor)>;
  std::vector<Function> functions;
  for (int i = 0; i < 4; ++i)
    flows.push_back(draw_flow(random_));
  for (int i = 0; i < 4; ++i) {
    functions.push_back(compile(context(), "f", [&, i](Tensor x) {
      Tensor y = affine(x, 1, 0);
      run_flow(flows[static_cast<std::size_t>(i)], y, sides);
      return y;
    }));
  }
  std::vector<std::pair<Tensor, std::vector<float>>> held;
  for (int call = 0; call < 60; ++call) {
    const std::size_t number = random_() % 4;
    std::vector<float> x = random_floats(300);
    Tensor y = functions[number](tensor({300}, x));
    run_flow(flows[number], x);
    held.emplace_back(std::move(y), std::move(x));
    if (random_() % 2 == 0) held.erase(held.begin());
    for (const auto& [output, expected] : held)
      ASSERT_EQ(values(output), expected) << call;
  }
}

TEST_P(ControlFlowTest, OutsideOfAStepItRunsOnTheCurrentStream) {
  const Stream stream(device());
  const StreamScope scope(stream);
  const Tensor x = tensor({4}, random_floats(4));
  const Tensor goes_on = flag(0);
  const std::vector<float> before = values(x);
  branch(
      flag(0), [&] { update(x, 0, 0); }, [&] { update(x, 2, 0); });
  choose(flag(5), {[&] { update(x, 0, 0); }});
  branch(
      flag(-3), [&] { update(x, 1, 2); }, [&] { update(x, 0, 0); });
  const Tensor rounds = loop(3, [&] {
    update(x, 1, 1);
    return goes_on;
  });
  stream.synchronize();
  EXPECT_EQ(values(x), affine_of(affine_of(affine_of(before, 2, 0), 1, 2), 1, 1));
  EXPECT_EQ(value(rounds), 1);
}

TEST_P(ControlFlowTest, WorkBetweenBeginAndEndMayBranch) {
  const Stream stream(device());
  Tensor cache = tensor({8}, std::vector<float>(8, 0));
  const Tensor taken = flag(0);
  Steps steps(context(), "decode",
              {.bindings = {{.name = "cache", .is_mutated = true}, {.name = "taken"}}});
  const std::vector<Binding> bindings{
      {reinterpret_cast<const void*>(cache.address()), cache.bytes()},
      {reinterpret_cast<const void*>(taken.address()), taken.bytes()}};
  float expected = 0;
  for (std::int32_t i = 0; i < 8; ++i) {
    const std::int32_t value = i % 2;
    taken.copy_from(std::span<const std::int32_t>(&value, 1));
    for (Step step = steps.begin({}, bindings, stream); step.must_run(); step.end()) {
      branch(
          taken, [&] { update(cache, 1, 1); }, [&] { update(cache, 1, 10); });
    }
    expected += value != 0 ? 1 : 10;
    stream.synchronize();
    EXPECT_EQ(values(cache), std::vector<float>(8, expected)) << i;
  }
  EXPECT_EQ(steps.stats().replays, 6u) << to_string(steps.stats());
}

TEST_P(ControlFlowTest, ReplaysAreVerified) {
  make_context({.extensions = {verify({.every = 1})}});
  CompiledFunction f = compile(context(), "f",
                               [&](Tensor x, Tensor left) {
                                 (void)loop(5, [&] {
                                   update(x, 2, 1);
                                   update(left, 1, -1);
                                   Tensor goes_on = empty(Shape(), DType::kInt32);
                                   compare(left, 0, goes_on);
                                   return goes_on;
                                 });
                                 return affine(x, 1, 0);
                               },
                               {.inputs = {{.is_mutated = true}, {.is_mutated = true}}});
  for (int i = 0; i < 8; ++i) {
    const Tensor x = random_tensor({8});
    const Tensor left = number(static_cast<float>(i % 4 + 1));
    std::vector<float> expected = values(x);
    for (int round = 0; round < i % 4 + 1; ++round)
      expected = affine_of(expected, 2, 1);
    EXPECT_EQ(values(f(x, left)), expected) << i;
    EXPECT_EQ(values(x), expected) << i;
  }
  EXPECT_EQ(f.stats().verified, 6u);
  EXPECT_EQ(f.stats().differed, 0u);
}

TEST_P(ControlFlowTest, TheAuditSeesWhatBodiesReferTo) {
  const Tensor kept = random_tensor({8});
  const Tensor unknown = random_tensor({8});
  const std::uintptr_t address = unknown.address();
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    branch(taken, [&] {
      add_to(y, kept);
      branch(taken, [&] {
        check(current_stream().graphs().memset(current_stream().handle(),
                                               reinterpret_cast<void*>(address), 0, 4),
              "fill");
      });
    });
    return y;
  });
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({8}), flag(1));
  const nlohmann::json audit = nlohmann::json::parse(snapshot_json(context()))["nodes"][0]["audit"];
  EXPECT_EQ(audit["unseen"], nlohmann::json::array());
  ASSERT_EQ(audit["foreign"].size(), 1u) << audit;
  EXPECT_EQ(audit["foreign"][0]["kernel"], "a memset");
  std::set<std::string> owners;
  for (const nlohmann::json& memory : audit["memory"])
    owners.insert(memory["owner"].get<std::string>());
  EXPECT_TRUE(owners.contains("kept")) << audit;
}

TEST_P(ControlFlowTest, NodesOfABodyHaveTheScopesThatWereOpen) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    const Scope scope("gate");
    branch(taken, [&] {
      update(y, 2, 0);
      {
        const Scope inner("inner");
        update(y, 2, 0);
        branch(taken, [&] {
          update(y, 2, 0);
          const Scope innermost("innermost");
          update(y, 2, 0);
        });
        update(y, 2, 0);
      }
      update(y, 2, 0);
    });
    return y;
  });
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({8}), flag(1));
  const nlohmann::json scopes =
      nlohmann::json::parse(snapshot_json(context()))["nodes"][0]["scopes"];
  const auto paths = scopes["paths"].get<std::vector<std::string>>();
  std::map<std::string, int> nodes;
  for (const nlohmann::json& path : scopes["node_paths"])
    ++nodes[paths[path.get<std::size_t>()]];
  // A branch has the kernel that sets its condition, and its conditional node.
  EXPECT_EQ(nodes["gate"], 2 + 2) << scopes;
  EXPECT_EQ(nodes["gate/inner"], 1 + 2 + 1 + 1) << scopes;
  EXPECT_EQ(nodes["gate/inner/innermost"], 1) << scopes;
}

TEST_P(ControlFlowTest, RebindingAndSharingLeaveRecordingsWithBranchesAlone) {
  CompiledFunction f = compile(context(), "f",
                               [&](Tensor x, Tensor taken) {
                                 Tensor y = affine(x, 1, 0);
                                 branch(taken, [&] { add_to(y, x); });
                                 return y;
                               },
                               {.inputs = {{.rebind = Rebind::kAlways}}, .max_switch_nodes = 100});
  std::vector<Tensor> held;
  for (int i = 0; i < 8; ++i) {
    const std::vector<float> x = random_floats(8);
    held.push_back(f(tensor({8}, x), flag(i % 2)));
    EXPECT_EQ(values(held.back()), affine_of(x, i % 2 != 0 ? 2 : 1, 0)) << i;
  }
  EXPECT_GT(f.stats().recordings, 1u);
}

TEST_P(ControlFlowTest, RandomBranchesAndLoopsDoWhatPlainArithmeticDoes) {
  const std::vector<Stream> sides = flow_sides(device());
  std::uint64_t replays = 0;
  for (int program = 0; program < 40; ++program) {
    const Flow flow = draw_flow(random_);
    CompiledFunction f = compile(context(), "f", [&](Tensor x) {
      Tensor y = affine(x, 1, 0);
      run_flow(flow, y, sides);
      return y;
    });
    for (int i = 0; i < 6; ++i) {
      std::vector<float> x = random_floats(20);
      const Tensor y = f(tensor({20}, x));
      run_flow(flow, x);
      ASSERT_EQ(values(y), x) << "call " << i << " of program " << program;
    }
    replays += f.stats().replays;
  }
  EXPECT_EQ(replays, 160u);
}

// ---- Random numbers ----

// The draws of a body in round `round` of a branch or loop whose block of the generator is at
// `call`.
std::vector<float> drawn_in(const PhiloxPosition& call, std::int32_t round, std::size_t count) {
  const PhiloxPosition at = draws_of_round(philox(call.seed, call.offset, 0), round);
  std::vector<float> drawn;
  for (std::size_t i = 0; i < count; ++i)
    drawn.push_back(to_uniform(philox(at.seed, at.offset, i / 4).words[i % 4]));
  return drawn;
}

TEST_P(ControlFlowTest, ALoopDrawsAnewInEachRoundAndMovesItsGeneratorByOneBlock) {
  const Generator generator(seed_);
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor wanted) {
    Tensor y = affine(x, 1, 0);
    Tensor left = affine(wanted, 1, 0);
    const auto body = [&] {
      add_to(y, uniform({10}, generator));
      Tensor goes_on = empty(Shape(), DType::kInt32);
      update(left, 1, -1);
      compare(left, 0, goes_on);
      return goes_on;
    };
    (void)loop(10, body, {generator});
    return std::pair(y, uniform({4}, generator));
  });
  std::set<float> seen;
  std::size_t rounds = 0;
  call_often(f, [&](int i) {
    const int wanted = i * 3 % 7 + 1;
    const auto offset = static_cast<std::uint64_t>(2 * i);
    std::vector<float> expected = random_floats(10);
    const auto [y, behind] = f(tensor({10}, expected), number(static_cast<float>(wanted)));
    for (int round = 0; round < wanted; ++round, ++rounds) {
      const std::vector<float> drawn = drawn_in({seed_, offset}, round, 10);
      for (std::size_t k = 0; k < drawn.size(); ++k)
        expected[k] += drawn[k];
      seen.insert(drawn[0]);
    }
    EXPECT_EQ(values(y), expected) << i;
    std::vector<float> next;
    for (const std::uint32_t word : philox(seed_, offset, 1).words)
      next.push_back(to_uniform(word));
    EXPECT_EQ(values(behind), next) << i;
    EXPECT_EQ(generator.state().offset, offset + 2) << i;
  });
  EXPECT_GT(seen.size(), rounds - 3);
}

TEST_P(ControlFlowTest, WhicheverWayIsTakenABranchMovesItsGeneratorsAlike) {
  const Generator first(seed_), second(seed_ + 1);
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    branch(taken,
           [&] {
             add_to(y, uniform({8}, first));
             add_to(y, uniform({8}, second));
             add_to(y, uniform({8}, first));
           },
           nullptr, {first, second});
    return y;
  });
  call_often(f, [&](int i) {
    const auto offset = static_cast<std::uint64_t>(i);
    std::vector<float> expected = random_floats(8);
    const Tensor y = f(tensor({8}, expected), flag(i / 2 % 2));
    if (i / 2 % 2 != 0) {
      const std::vector<float> own = drawn_in({seed_, offset}, 0, 16);
      const std::vector<float> other = drawn_in({seed_ + 1, offset}, 0, 8);
      for (std::size_t k = 0; k < 8; ++k)
        expected[k] = ((expected[k] + own[k]) + other[k]) + own[8 + k];
    }
    EXPECT_EQ(values(y), expected) << i;
    EXPECT_EQ(first.state().offset, offset + 1) << i;
    EXPECT_EQ(second.state().offset, offset + 1) << i;
  });
}

TEST_P(ControlFlowTest, RandomProgramsDrawInReplaysWhatEagerOnesDraw) {
  const std::vector<Stream> sides = flow_sides(device());
  std::uint64_t replays = 0;
  for (int program = 0; program < 30; ++program) {
    const Flow flow = draw_flow(random_, /*draws=*/true);
    const Generator generator(seed_), twins(seed_);
    const auto step = [&](const Generator& from) {
      return [&flow, &sides, from](Tensor x) {
        Tensor y = affine(x, 1, 0);
        run_flow(flow, y, sides, &from);
        return y;
      };
    };
    CompiledFunction f = compile(context(), "f", step(generator));
    CompiledFunction eager = compile(context(), "eager", step(twins), {.enabled = false});
    PhiloxPosition at{seed_, 0};
    for (int i = 0; i < 6; ++i) {
      std::vector<float> x = random_floats(20);
      const Tensor y = f(tensor({20}, x));
      ASSERT_EQ(values(y), values(eager(tensor({20}, x)))) << "call " << i << " of " << program;
      run_flow(flow, x, &at);
      ASSERT_EQ(values(y), x) << "call " << i << " of program " << program;
      ASSERT_EQ(generator.state().offset, at.offset) << "call " << i << " of program " << program;
    }
    replays += f.stats().replays;
  }
  EXPECT_EQ(replays, 120u);
}

TEST_P(ControlFlowTest, VerificationRepeatsWhatBodiesDraw) {
  make_context({.extensions = {verify({.every = 1})}});
  const Generator generator(seed_);
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    const auto body = [&] {
      branch(taken, [&] { add_to(y, uniform({8}, generator)); }, nullptr, {generator});
      return taken;
    };
    (void)loop(3, body, {generator});
    return y;
  });
  for (int i = 0; i < 8; ++i)
    (void)f(random_tensor({8}), flag(i % 3));
  EXPECT_EQ(f.stats().verified, 6u);
  EXPECT_EQ(f.stats().differed, 0u);
  EXPECT_EQ(generator.state().offset, 8u);
}

TEST_P(ControlFlowTest, OutsideOfAStepABodyDrawsToo) {
  const Stream stream(device());
  const StreamScope scope(stream);
  const Generator generator(seed_);
  const Tensor y = tensor({8}, std::vector<float>(8, 0));
  const Tensor goes_on = flag(1);
  const auto body = [&] {
    add_to(y, uniform({8}, generator, device()));
    return goes_on;
  };
  (void)loop(2, body, {generator});
  stream.synchronize();
  std::vector<float> expected = drawn_in({seed_, 0}, 0, 8);
  const std::vector<float> second = drawn_in({seed_, 0}, 1, 8);
  for (std::size_t k = 0; k < 8; ++k)
    expected[k] += second[k];
  EXPECT_EQ(values(y), expected);
  EXPECT_EQ(generator.state().offset, 1u);
}

// A body may catch the failure and use less memory.
TEST_P(ControlFlowTest, ABodyMayGoOnAfterMemoryHasRunOut) {
  make_context({.max_bytes = std::size_t{16} << 20});
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    branch(taken, [&] {
      EXPECT_THROW((void)empty({std::int64_t{64} << 20}, DType::kFloat32), OutOfMemory);
      add_to(y, affine(x, 2, 0));
    });
    return y;
  });
  call_often(f, [&](int i) {
    const std::vector<float> x = random_floats(8);
    EXPECT_EQ(values(f(tensor({8}, x), flag(1 - i % 2))), affine_of(x, i % 2 != 0 ? 1 : 3, 0)) << i;
  });
}

// Its draws equal those with the generator given once, and it advances by a block for each time
// that it is given.
TEST_P(ControlFlowTest, AGeneratorThatIsGivenTwiceDrawsInReplaysWhatItDrawsEagerly) {
  const Generator generator(seed_), twin(seed_);
  const auto step = [&](const Generator& from) {
    return [this, from](Tensor x, Tensor goes_on) {
      Tensor y = affine(x, 1, 0);
      add_to(y, uniform({8}, from));
      const auto body = [&] {
        add_to(y, uniform({8}, from));
        branch(goes_on, [&] { add_to(y, uniform({8}, from)); }, nullptr, {from, from});
        add_to(y, uniform({8}, from));
        return goes_on;
      };
      (void)loop(3, body, {from, from});
      add_to(y, uniform({8}, from));
      return y;
    };
  };
  CompiledFunction f = compile(context(), "f", step(generator));
  CompiledFunction eager = compile(context(), "eager", step(twin), {.enabled = false});
  call_often(f, [&](int i) {
    const std::vector<float> x = random_floats(8);
    if (i % 3 == 2) {
      generator.set_seed(seed_ + static_cast<std::uint64_t>(i));
      twin.set_seed(seed_ + static_cast<std::uint64_t>(i));
    }
    const Tensor goes_on = flag(i % 2);
    EXPECT_EQ(values(f(tensor({8}, x), goes_on)), values(eager(tensor({8}, x), goes_on))) << i;
    EXPECT_EQ(generator.state().offset, twin.state().offset);
  });
}

// Workspaces and tensors, in rounds, in nested bodies, and beside a side stream.
TEST_P(ControlFlowTest, WorkspacesOfBodiesShareNoMemoryWithWhatLives) {
  const std::vector<Stream> sides = flow_sides(device());
  const auto by_workspace = [](const Tensor& y, const Tensor& x) {  // y += x
    const Workspace space(x.device(), x.bytes());
    const StreamRef stream = current_stream();
    check(stream.api().copy(stream.handle(), space.data(), x.data(), x.bytes()), "copy");
    const float one = 1;
    const auto* const from = static_cast<const float*>(space.data());
    float* const to = y.data<float>();
    const std::int64_t count = y.elements();
    enqueue_kernel(stream, axpy_kernel(), dims_for(count), arguments_of(one, from, to, count));
  };
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    (void)loop(2, [&] {
      by_workspace(y, x);
      const Tensor kept = affine(y, 1, 0);
      double_on(sides[0], y);
      branch(taken, [&] {
        by_workspace(y, kept);
        double_on(sides[1], y);
        by_workspace(y, kept);
      });
      by_workspace(y, kept);
      return taken;
    });
    return y;
  });
  call_often(f, [&](int i) {
    const bool is_taken = i % 2 != 0;
    const std::vector<float> x = random_floats(300);
    std::vector<float> y = x;
    for (int round = 0; round < (is_taken ? 2 : 1); ++round) {
      for (std::size_t k = 0; k < y.size(); ++k) {
        const float kept = y[k] + x[k];
        y[k] = 2 * kept;
        if (is_taken) y[k] = 2 * (y[k] + kept) + kept;
        y[k] += kept;
      }
    }
    EXPECT_EQ(values(f(tensor({300}, x), flag(is_taken ? 1 : 0))), y) << i;
  });
}

// ---- Refusals ----

TEST_P(ControlFlowTest, AHostFunctionInABodyKeepsTheStepFromBeingRecorded) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    branch(
        taken, [&] { update(x, 1, 0); },
        [&] {
          const StreamRef stream = current_stream();
          check(stream.graphs().launch_host_function(
                    stream.handle(), [](void*) {}, nullptr),
                "call back");
        });
    return affine(x, 1, 0);
  });
  expect_not_recorded(f, "otherwise() of branch() calls a host function");
}

TEST_P(ControlFlowTest, ReadingBackInABodyKeepsTheStepFromBeingRecorded) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    (void)loop(3, [&] {
      float value = 0;
      x.slice(0, 0, 1).copy_to_host(&value, sizeof(value), current_stream());
      update(x, 1, value);
      return taken;
    });
    return affine(x, 1, 0);
  });
  expect_not_recorded(f, "the body of loop() does what cannot be captured");
}

// As a binding that turns an error into an exception of another language.
TEST_P(ControlFlowTest, ABodyThatBreaksItsCaptureIsRefusedWhateverItThrows) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor on) {
    Tensor y = affine(x, 1, 0);
    (void)loop(2, [&] {
      update(y, 2, 0);
      const StreamRef stream = current_stream();
      if (stream.is_capturing()) {
        (void)stream.api().synchronize_stream(stream.handle());
        (void)stream.graphs().take_last_error();
        throw std::runtime_error("boom");
      }
      return on;
    });
    return y;
  });
  expect_not_recorded(f, "the body of loop() does what cannot be captured (boom)");
}

TEST_P(ControlFlowTest, ABodyDrawsOnlyFromWhatItsCallAndThoseAroundItAreGiven) {
  const Generator generator(7);
  const std::vector<Generator> given{Generator(1), generator};
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor index) {
    choose(index, {[] {}, [&] { add_to(x, uniform({8}, generator)); }}, {Generator(3)});
    return affine(x, 1, 0);
  });
  expect_refused(f, "body 1 of choose() uses a generator that its branch or loop was not given");
  CompiledFunction nested = compile(context(), "nested", [&](Tensor x, Tensor taken) {
    branch(taken, [&] {
      branch(
          taken, [&] { add_to(x, uniform({8}, generator)); }, nullptr, given);
    });
    return affine(x, 1, 0);
  });
  expect_refused(nested, "then() of branch() uses a generator that its branch or loop was not");
  EXPECT_EQ(generator.state().offset, 0u);
}

// The trial of the body finds it.
TEST_P(ControlFlowTest, ABodyThatDrawsFromAnotherGeneratorKeepsTheStepFromBeingRecorded) {
  const Generator generator(7);
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    branch(taken, [&] { add_to(x, uniform({8}, generator)); });
    return affine(x, 1, 0);
  });
  expect_not_recorded(f, "then() of branch() uses a generator that its branch or loop was not");
  EXPECT_EQ(generator.state().offset, 0u);
}

TEST_P(ControlFlowTest, ABodyAsksForNoPositionOfAGenerator) {
  const Generator generator(7);
  const auto use = [&](const std::function<void()>& ask) {
    CompiledFunction f = compile(context(), "f", [&, ask](Tensor x, Tensor taken) {
      branch(taken, ask, nullptr, {generator});
      return affine(x, 1, 0);
    });
    expect_refused(f, "then() of branch() asks for the position of a generator, or sets it");
  };
  const GeneratorState before = generator.state();
  use([&] { (void)generator.state(); });
  use([&] { generator.set_seed(3); });
  use([&] { generator.set_state(before); });
  EXPECT_EQ(generator.state(), before);
}

TEST_P(ControlFlowTest, ABodyHasNoBreaks) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor index) {
    branch(index, [&] { eager_break([](const StepValues&) {}); });
    return affine(x, 1, 0);
  });
  expect_refused(f, "then() of branch() calls eager_break()");
}

TEST_P(ControlFlowTest, ABodyKeepsNoTensorThatItHasMade) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    branch(taken, [&] { y = affine(y, 2, 0); });
    return y;
  });
  expect_refused(f, "then() of branch() keeps 1 of the tensors it has made");
}

TEST_P(ControlFlowTest, AFlagIsOneElementOfItsTypeOnTheDevice) {
  const auto refuses = [&](const std::function<void()>& call, const std::string& text) {
    const Stream stream(device());
    const StreamScope scope(stream);
    try {
      call();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  const auto nothing = [] {};
  const Tensor two = from_host({2}, std::span<const std::int32_t>({1, 0}), device());
  refuses([&] { branch(Tensor(), nothing); }, "the predicate of branch() is no tensor");
  refuses([&] { branch(number(1), nothing); }, "is float32");
  refuses([&] { branch(two, nothing); }, "is int32 {2}");
  refuses([&] { branch(flag(1), nullptr); }, "then() of branch() is missing");
  refuses([&] { choose(number(0), {nothing}); }, "the index of choose() is float32");
  refuses([&] { choose(flag(0), {}); }, "without bodies");
  refuses([&] { choose(flag(0), {nothing, nullptr}); }, "body 1 of choose() is missing");
  refuses([&] { (void)loop(3, [] { return Tensor(); }); }, "what the body of loop() returns is no");
  refuses([&] { (void)loop(0, [&] { return flag(0); }); }, "at most 0 rounds");
  refuses([&] { (void)loop(std::int64_t{1} << 31, [&] { return flag(0); }); }, "2147483648 rounds");
  refuses([&] { (void)loop(3, nullptr); }, "the body of loop() is missing");
  if (device() == Device::host()) return;
  refuses([&] { branch(scalar(std::int32_t{1}), nothing); }, "on host");
}

// ---- Bodies that cannot be recorded ----

TEST_P(ControlFlowTest, AnExceptionInABodyLeavesTheCallAndNothingElse) {
  bool throws = true;
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    branch(taken, [&] {
      const Tensor scratch = affine(y, 2, 0);
      if (throws) throw std::runtime_error("boom");
      add_to(y, scratch);
    });
    return y;
  });
  EXPECT_THROW((void)f(random_tensor({8}), flag(1)), std::runtime_error);
  EXPECT_EQ(stats().live_outputs, 0u);
  throws = false;
  call_often(f, [&](int i) {
    const std::vector<float> x = random_floats(8);
    EXPECT_EQ(values(f(tensor({8}, x), flag(i % 2))), affine_of(x, i % 2 != 0 ? 3 : 1, 0)) << i;
  });
}

// As after any exception during a recording, the call runs eagerly.
TEST_P(ControlFlowTest, AStepWhoseBodyHasThrownWhileItWasRecordedIsRecordedLater) {
  for (const bool is_of_std : {true, false}) {
    bool throws = true;
    CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
      const Tensor y = affine(x, 1, 0);
      branch(taken, [&] {
        branch(taken, [&] {
          if (current_stream().is_capturing() && std::exchange(throws, false)) {
            if (is_of_std) throw std::runtime_error("boom");
            throw 1;
          }
          update(y, 2, 1);
        });
      });
      return y;
    });
    expect_recorded_later(f);
    EXPECT_FALSE(throws);
  }
}

// The capture of the trial is then not joined, which is not counted as a broken capture.
TEST_P(ControlFlowTest, ABodyThatThrowsWhileItIsForkedIsRecordedLater) {
  const Stream side(device());
  bool throws = true;
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    const Tensor y = affine(x, 1, 0);
    branch(taken, [&] {
      side.ref().wait_for(current_stream());
      {
        const StreamScope scope(side);
        update(y, 2, 1);
        if (current_stream().is_capturing() && std::exchange(throws, false))
          throw std::runtime_error("boom");
      }
      current_stream().wait_for(side);
    });
    return y;
  });
  expect_recorded_later(f);
  EXPECT_FALSE(throws);
}

// The exception also keeps the step from joining its streams, which is not counted as a failure of
// the capture.
TEST_P(ControlFlowTest, ABodyThatThrowsWhileItsStepIsForkedIsRecordedLater) {
  for (const bool is_out_of_memory : {false, true}) {
    const Stream side(device());
    bool throws = true;
    CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
      const Tensor y = affine(x, 1, 0);
      const Tensor z = affine(x, 1, 0);
      side.ref().wait_for(current_stream());
      {
        const StreamScope scope(side);
        update(z, 3, 0);
      }
      branch(taken, [&] {
        update(y, 2, 1);
        if (!current_stream().is_capturing() || !std::exchange(throws, false)) return;
        if (is_out_of_memory) throw OutOfMemory("no memory");
        throw std::runtime_error("boom");
      });
      current_stream().wait_for(side);
      return add(y, z);
    });
    for (int i = 0; i < 8; ++i) {
      const std::vector<float> x = random_floats(8);
      std::vector<float> expected = i % 2 != 0 ? affine_of(x, 2, 1) : x;
      for (std::size_t j = 0; j < x.size(); ++j)
        expected[j] += 3 * x[j];
      EXPECT_EQ(values(f(tensor({8}, x), flag(i % 2))), expected) << i;
    }
    EXPECT_GE(f.stats().replays, 5u) << to_string(f.stats());
    EXPECT_FALSE(throws);
  }
}

// A step function that continues after an exception of a body during its recording is not recorded.
TEST_P(ControlFlowTest, AnExceptionThatTheStepFunctionSwallowsBreaksItsRecording) {
  for (const int passes : {0, 1, 2, 3}) {  // twice the captures in which the body does not throw
    const bool is_of_std = passes % 2 == 0;
    int calls_of_body = 0;
    CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
      Tensor y = affine(x, 1, 0);
      try {
        branch(taken, [&] {
          if (current_stream().is_capturing() && ++calls_of_body > passes / 2) {
            if (is_of_std) throw std::runtime_error("boom");
            throw 1;
          }
          update(y, 2, 0);
        });
      } catch (const std::runtime_error&) {
      } catch (int) {
      }
      return y;
    });
    for (int i = 0; i < 5; ++i) {
      const std::vector<float> x = random_floats(8);
      EXPECT_EQ(values(f(tensor({8}, x), flag(1))), affine_of(x, 2, 0)) << i;
    }
    EXPECT_EQ(f.stats().recordings, 0u);
    EXPECT_EQ(f.stats().skipped(SkipReason::kCaptureFailed), 4u);
  }
}

// As with memory that runs out anywhere in a recording: the call runs eagerly, and the function may
// be recorded later.
TEST_P(ControlFlowTest, ACallRunsEagerlyWhereMemoryRunsOutInABodyThatIsCaptured) {
  make_context({.max_bytes = std::size_t{16} << 20});
  bool is_large = true;
  bool swallows = false;
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    try {
      branch(taken, [&] {
        if (is_large) (void)empty({std::int64_t{64} << 20}, DType::kFloat32);
        update(y, 2, 0);
      });
    } catch (const OutOfMemory&) {
      if (!swallows) throw;
    }
    return y;
  });
  const Tensor not_taken = flag(0);
  (void)f(random_tensor({8}), not_taken);  // the warm-up
  const std::vector<float> y = random_floats(8);
  EXPECT_EQ(values(f(tensor({8}, y), not_taken)), y);
  swallows = true;
  EXPECT_EQ(values(f(tensor({8}, y), not_taken)), y);
  EXPECT_EQ(f.stats().recordings, 0u);
  EXPECT_EQ(f.stats().skipped(SkipReason::kPoolLimit), 1u) << to_string(f.stats());
  EXPECT_EQ(f.stats().skipped(SkipReason::kCaptureFailed), 1u) << to_string(f.stats());
  is_large = false;
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> x = random_floats(8);
    EXPECT_EQ(values(f(tensor({8}, x), flag(i % 2))), affine_of(x, i % 2 != 0 ? 2 : 1, 0)) << i;
  }
  EXPECT_EQ(f.stats().replays, 3u) << to_string(f.stats());
}

// The trial of the outer body finds it: no real capture is left incomplete.
TEST_P(ControlFlowTest, ABodyThatSwallowsARefusalOfABranchInItIsRefusedByItsTrial) {
  int captures = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    const Tensor y = affine(x, 1, 0);
    branch(taken, [&] {
      captures += current_stream().is_capturing() ? 1 : 0;
      update(y, 2, 1);
      try {
        Tensor kept;
        branch(taken, [&] { kept = affine(y, 1, 0); });
      } catch (const InvalidArgument&) {
      }
    });
    return y;
  });
  for (int i = 0; i < 5; ++i) {
    const std::vector<float> x = random_floats(8);
    const int taken = i == 0 ? 0 : i % 2;
    EXPECT_EQ(values(f(tensor({8}, x), flag(taken))), taken != 0 ? affine_of(x, 2, 1) : x) << i;
  }
  EXPECT_EQ(captures, 1) << "not captured to be kept";
  EXPECT_EQ(f.stats().recordings, 0u);
  const std::string why = to_string(f.explain(random_tensor({8}), flag(0)));
  EXPECT_NE(why.find("then() of branch() keeps 1 of the tensors it has made"), std::string::npos)
      << why;
}

// The caller gets the first refusal, not the exception that the step function throws after it.
TEST_P(ControlFlowTest, AStepThatThrowsBehindARefusalIsToldTheRefusal) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    try {
      branch(taken, [&] {
        check(current_stream().graphs().launch_host_function(
                  current_stream().handle(), [](void*) {}, nullptr),
              "call back");
      });
    } catch (const InvalidArgument&) {
      throw std::runtime_error("boom");
    }
    return affine(x, 1, 0);
  });
  expect_not_recorded(f, "then() of branch() calls a host function");
}

// ---- Bodies whose two runs differ ----

// Work of a body, by the number of the run of its code.
struct Changing {
  std::string what;
  std::function<void(const Tensor& y, const Tensor& taken, int run)> enqueue;
};

// A recording would keep the work of the second run; none is dropped or kept silently.
TEST_P(ControlFlowTest, ABodyThatEnqueuesOtherWorkWhenItsCodeRunsAgainIsNotRecorded) {
  const Tensor a = random_tensor({8});
  const Tensor b = random_tensor({8});
  const std::vector<Changing> all = {
      {"a parameter",
       [](const Tensor& y, const Tensor&, int run) { update(y, 1, static_cast<float>(run)); }},
      {"the number of nodes",
       [](const Tensor& y, const Tensor&, int run) {
         for (int i = 0; i <= run % 2; ++i)
           update(y, 1, 1);
       }},
      {"the kernel",
       [](const Tensor& y, const Tensor&, int run) {
         if (run % 2 == 0) {
           add_to(y, y);
         } else {
           update(y, 2, 0);
         }
       }},
      {"the size of the work",
       [](const Tensor& y, const Tensor&, int run) { update(y.slice(0, 0, 4 + run % 2), 1, 1); }},
      {"what it reads",
       [&](const Tensor& y, const Tensor&, int run) { add_to(y, run % 2 == 0 ? a : b); }},
      {"which of its temporaries it reads",
       [](const Tensor& y, const Tensor&, int run) {
         const Tensor first = affine(y, 2, 0);
         const Tensor second = affine(y, 3, 0);
         add_to(y, run % 2 == 0 ? first : second);
       }},
      {"what it fills with",
       [](const Tensor& y, const Tensor&, int run) {
         check(current_stream().graphs().memset(current_stream().handle(), y.data(),
                                                static_cast<std::uint8_t>(run % 2), y.bytes()),
               "fill");
       }},
      {"where a branch in it lies",
       [](const Tensor& y, const Tensor& taken, int run) {
         if (run % 2 == 0) update(y, 2, 0);
         branch(taken, [&] { update(y, 1, 1); });
         if (run % 2 != 0) update(y, 2, 0);
       }},
      {"what a branch in it does",
       [](const Tensor& y, const Tensor& taken, int run) {
         branch(taken, [&] { update(y, 1, static_cast<float>(run)); });
       }},
  };
  for (const Changing& one : all) {
    for (const bool is_loop : {false, true}) {
      int run = 0;
      int last = 0;
      const Tensor zero = flag(0);
      CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
        const Tensor y = affine(x, 1, 0);
        const auto body = [&] {
          last = run++;
          one.enqueue(y, taken, last);
        };
        if (is_loop) {
          (void)loop(3, [&] {
            body();
            return zero;
          });
        } else {
          branch(taken, body);
        }
        return y;
      });
      for (int i = 0; i < 4; ++i) {
        const std::vector<float> x = random_floats(8);
        const Tensor got = f(tensor({8}, x), flag(1));
        const Tensor y = tensor({8}, x);  // as in the last run
        context().eager([&] { one.enqueue(y, flag(1), last); });
        EXPECT_EQ(values(got), values(y)) << one.what << ", call " << i;
      }
      EXPECT_EQ(f.stats().recordings, 0u) << one.what;
      const std::string why = to_string(f.explain(random_tensor({8}), flag(1)));
      EXPECT_NE(why.find("does not enqueue the same each time that its code runs"),
                std::string::npos)
          << one.what << ": " << why;
    }
  }
}

TEST_P(ControlFlowTest, ABodyThatIsSetUpByItsFirstRunIsRecordedLater) {
  bool is_set_up = false;
  const Tensor table = random_tensor({8});
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    const Tensor y = affine(x, 1, 0);
    branch(taken, [&] {
      if (!std::exchange(is_set_up, true)) update(table, 0, 1);
      update(y, 2, 1);
    });
    return y;
  });
  expect_recorded_later(f);
}

// As a handle that the body releases. No recording that reads the released memory is replayed.
TEST_P(ControlFlowTest, ABodyThatThrowsWhenItsCodeRunsAgainIsNotRecorded) {
  for (const bool is_forked : {false, true}) {
    const Stream side(device());
    CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
      const Tensor y = affine(x, 1, 0);
      Tensor read = affine(x, 3, 0);
      branch(taken, [&] {
        const StreamRef own = current_stream();
        const StreamRef here = is_forked ? side.ref() : own;
        here.wait_for(own);
        {
          const StreamScope scope(here);
          update(y, 1, 0);
          add_to(y, read);
        }
        own.wait_for(here);
        read = Tensor();
      });
      return y;
    });
    for (int i = 0; i < 5; ++i) {
      const std::vector<float> x = random_floats(8);
      std::vector<float> expected = x;
      for (float& value : expected)
        value += i % 2 != 0 ? 3 * value : 0;
      EXPECT_EQ(values(f(tensor({8}, x), flag(i % 2))), expected) << i;
    }
    EXPECT_EQ(f.stats().recordings, 0u);
    const std::string why = to_string(f.explain(random_tensor({8}), flag(0)));
    EXPECT_NE(why.find("then() of branch() throws when its code runs again"), std::string::npos)
        << why;
  }
}

// Each call has the results of its run. The second attempt to capture fails like the first.
TEST_P(ControlFlowTest, ABodyThatReturnsOtherResultsWhenItsCodeRunsAgainIsNotRecorded) {
  using Results = std::vector<Tensor>;
  struct Case {
    std::string what;
    std::function<Results(const Tensor& y, const Tensor& z)> second;
  };
  const std::vector<Case> all = {
      {"1 results, and then 0", [](const Tensor&, const Tensor&) { return Results(); }},
      {"1 results, and then 2",
       [](const Tensor& y, const Tensor& z) {
         return Results{y, z};
       }},
      {"and then float32 {4}",
       [](const Tensor& y, const Tensor&) { return Results{y.slice(0, 0, 4)}; }},
      {"result 0 lies elsewhere", [](const Tensor&, const Tensor& z) { return Results{z}; }},
  };
  for (const Case& one : all) {
    int captures = 0;
    CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
      const Tensor y = affine(x, 2, 0);
      const Tensor z = affine(x, 3, 0);
      const auto body = [&] {
        const bool is_second = current_stream().is_capturing() && ++captures == 3;
        return is_second ? one.second(y, z) : Results{y};
      };
      return branch_results(taken, body, body)[0];
    });
    for (int i = 0; i < 4; ++i) {
      const std::vector<float> x = random_floats(8);
      EXPECT_EQ(values(f(tensor({8}, x), flag(1))), affine_of(x, 2, 0)) << one.what << i;
      EXPECT_EQ(f.stats().recordings, i < 2 ? 0u : 1u) << one.what << i;
    }
  }
}

TEST_P(ControlFlowTest, WhereTheCallersStreamCapturesItIsRefused) {
  const Stream stream(device());
  const Tensor x = random_tensor({8});
  const Tensor taken = flag(1);
  const StreamScope scope(stream);
  Capture capture(stream, CaptureMode::kRelaxed);
  EXPECT_THROW(branch(taken, [&] { update(x, 2, 0); }), CaptureError);
}

// A struct passed by value: the four bytes after its float hold leftovers of the stack.
struct Fill {
  float* to;
  float value;
  void operator()(std::int64_t i) const { to[i] = value; }
};

TEST(ControlFlowDeviceTest, GapsOfStructsAreNoDifferenceOfBodies) {
  Context context(Device::host());
  const auto fill = [](Tensor to, float value) {
    parallel_for(current_stream(), to.elements(), Fill{to.data<float>(), value});
  };
  CompiledFunction f = compile(context, "f", [&](Tensor index) {
    Tensor y = empty({8}, DType::kFloat32);
    fill(y, 7);
    choose(index, {[&] { fill(y, 1); },
                   [&] {
                     const Tensor scratch = empty({8}, DType::kFloat32);
                     fill(scratch, 3);
                     fill(y, 2);
                   },
                   [&] { branch(index, [&] { fill(y, 3); }); }});
    return y;
  });
  for (std::int32_t i = 0; i < 8; ++i) {
    const std::int32_t number = i % 4;
    const Tensor index =
        from_host(Shape(), std::span<const std::int32_t>(&number, 1), Device::host());
    const float expected = number < 3 ? static_cast<float>(number + 1) : 7;
    EXPECT_EQ(f(index).to_vector<float>(), std::vector<float>(8, expected)) << i;
  }
  EXPECT_EQ(f.stats().replays, 6u) << to_string(f.stats());
}

class NoConditionals final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  AttributeValue attribute(int id, DeviceAttribute attribute) noexcept override {
    if (attribute == DeviceAttribute::kSupportsConditionalNodes) return std::int64_t{0};
    return ForwardingDevice::attribute(id, attribute);
  }
};

TEST(ControlFlowDeviceTest, WithoutConditionalNodesAStepRunsEagerly) {
  const std::unique_ptr<DeviceAPI> host = make_host_device({});
  CallHook hook;
  NoConditionals device(*host, hook);
  HostSlot& slot = HostSlot::instance();
  slot.put(device);
  {
    Context context(slot.device());
    CompiledFunction f = compile(context, "f", [&](Tensor x, Tensor taken) {
      Tensor y = affine(x, 1, 0);
      branch(taken, [&] { update(y, 2, 0); });
      return y;
    });
    for (std::int32_t i = 0; i < 5; ++i) {
      const std::int32_t value = i % 2;
      const std::vector<float> x = {1, 2, 3};
      const Tensor taken =
          from_host(Shape(), std::span<const std::int32_t>(&value, 1), slot.device());
      const std::vector<float> expected = value != 0 ? std::vector<float>{2, 4, 6} : x;
      EXPECT_EQ(f(from_host({3}, std::span(x), slot.device()), taken).to_vector<float>(), expected);
    }
    EXPECT_EQ(f.stats().skipped(SkipReason::kCaptureFailed), 4u);
    EXPECT_NE(
        to_string(f.explain(from_host({3}, std::span<const float>({1, 2, 3}), slot.device()),
                            from_host(Shape(), std::span<const std::int32_t>({1}), slot.device())))
            .find("conditional nodes"),
        std::string::npos);
  }
}

// A host device on which the stream `part` belongs to a partition, and no other stream does.
class PartitionedDevice : public ForwardingDevice {
 public:
  PartitionedDevice() : ForwardingDevice(host_device_api(), hook_) {}

  Code stream_partition(StreamHandle stream, std::uint64_t* partition) override {
    *partition = stream == part ? 16 : 0;
    return Code::kSuccess;
  }
  StreamHandle part = {};

 private:
  CallHook hook_;
};

TEST(ControlFlowOfPartitionsTest, NoBodyIsRecordedForTheWholeDevice) {
  HostSlot& slot = HostSlot::instance();
  PartitionedDevice partitioned;
  slot.put(partitioned);
  const Stream part(slot.device());
  partitioned.part = part.ref().handle();
  const std::vector<float> zeros(3);
  const auto x = [&] { return from_host({3}, std::span(zeros), slot.device()); };
  const auto more = [&] {
    return from_host(Shape(), std::span<const std::int32_t>({1}), slot.device());
  };
  for (const bool is_loop : {false, true}) {
    Context context(slot.device(), {.stream = part.ref()});
    std::vector<std::uint64_t> seen;
    const CompiledFunction f = compile(context, "f", [&](Tensor in, Tensor taken) {
      Tensor y = affine(in, 1, 0);
      const auto body = [&] {
        seen.push_back(current_stream().partition());
        update(y, 2, 1);
      };
      if (is_loop) {
        (void)loop(1, [&] { return body(), taken; });
      } else {
        branch(taken, body);
      }
      return y;
    });
    for (int call = 0; call < 4; ++call)
      EXPECT_EQ(f(x(), more()).to_vector<float>(), std::vector<float>(3, 1));
    EXPECT_EQ(seen, std::vector<std::uint64_t>(4, 16));
    EXPECT_EQ(f.stats().recordings, 0u);
    EXPECT_NE(to_string(f.explain(x(), more())).find("in a context of a partition"),
              std::string::npos);
  }
  slot.put(host_device_api());
}

}  // namespace
}  // namespace cgtree::testing
