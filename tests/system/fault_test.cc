// Each call of the device and each host allocation fails in turn: a call of a function either
// throws and leaves tree, pool and stream unchanged, or runs eagerly and reports the reason.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cgtree/cgtree.h"
#include "extensions/ranks/group.h"
#include "extensions/watch/monitor.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "interop/random/random.h"
#include "tests/allocator/host_allocation_limit.h"
#include "tests/support/counting_segments.h"
#include "tests/support/failing_device.h"
#include "tests/support/inside.h"
#include "tests/support/rank_threads.h"
#include "tests/support/steps.h"
#include "tests/support/test_kernels.h"

namespace cgtree::testing {
namespace {

using Floats = std::vector<float>;

Floats affine_of(Floats x, float scale, float shift) {
  for (float& value : x)
    value = scale * value + shift;
  return x;
}

// A loop that warms up, records, replays, patches and branches; each call is retried until it
// succeeds.
class Program {
 public:
  // Injects faults: begin() is called before each call, end() after it, also if it throws.
  struct Saboteur {
    std::function<void()> begin;
    std::function<void()> end;
  };

  Program(Device device, Saboteur saboteur)
      : device_(device), saboteur_(std::move(saboteur)), segments_(device) {
    attempt([&] { context_.emplace(device_, ContextOptions{.segments = &segments_}); });
    f_ = compile(*context_, "f", [](Tensor x) { return affine(affine(x, 2, 0), 1, 1); });
    g_ = compile(*context_, "g", [](Tensor x) { return std::pair(affine(x, -1, 0), x); });
    h_ = compile(*context_, "h",
                 [](Tensor x) {
                   update(x, 1, 1);
                   return affine(x, 2, 0);
                 },
                 {.inputs = {{.is_mutated = true}}});
    r_ = compile(
        *context_, "r",
        [](Tensor x, Tensor y) {
          update(x, 1, 1);
          return add(affine(x, 2, 0), y);
        },
        {.inputs = {{.is_mutated = true, .rebind = Rebind::kAlways}, {.rebind = Rebind::kAlways}},
         .outputs = {{.rebind = Rebind::kAlways}}});
    inputs_[0] = fresh(1);
    inputs_[1] = fresh(2);
  }

  void run() {
    for (int round = 0; round < 3; ++round) {
      context_->mark_step();
      held_.clear();
      f(0);              // warm-up; recording; replay
      f(1);              // recording; replay with moved inputs; replay while an output is held
      g(held_[0]);       // a managed input
      h();               // a mutated eager input, and a buffer
      r();               // the same without copies
      if (round == 2) {  // a branch, for which the pool is restored
        held_.erase(held_.begin());
        g(held_[0]);
      }
    }
    held_.clear();
    EXPECT_EQ(context_->stats().live_outputs, 0u);
    cgtree::testing::validate(*context_);
  }

  // Destroys everything under faults. Returns the number of segments that are left.
  int end() {
    inputs_[0] = inputs_[1] = Tensor();
    saboteur_.begin();
    f_.reset();
    g_.reset();
    h_.reset();
    r_.reset();
    context_.reset();
    saboteur_.end();
    return segments_.held();
  }

  int thrown() const { return thrown_; }
  std::uint64_t skipped() const { return skipped_; }

 private:
  struct Held {
    Tensor tensor;
    Floats values;
  };

  Tensor fresh(float first) {
    return from_host<float>({3}, Floats{first, first + 1, first + 2}, device_);
  }

  void f(int input) {
    Tensor y;
    call([&] { y = (*f_)(inputs_[input]); });
    const auto first = static_cast<float>(input + 1);
    held_.push_back({y, affine_of({first, first + 1, first + 2}, 2, 1)});
    expect_values();
  }

  void g(const Held& x) {
    std::pair<Tensor, Tensor> y;
    const Held input = x;
    call([&] { y = (*g_)(input.tensor); });
    held_.push_back({y.first, affine_of(input.values, -1, 0)});
    held_.push_back({y.second, input.values});
    expect_values();
  }

  // A call that fails in an eager run may have written its input, but never twice.
  void h() {
    const Tensor given = from_host<float>({3}, bumped_, device_);
    const Tensor buffer = from_host<float>({3}, Floats{-9, -9, -9}, device_);
    const Floats before = bumped_;
    bumped_ = affine_of(before, 1, 1);
    call([&] { (void)h_->into(buffer)(given); }, [&] { given.copy_from<float>(before); });
    EXPECT_EQ(given.to_vector<float>(), bumped_);
    EXPECT_EQ(buffer.to_vector<float>(), affine_of(bumped_, 2, 0));
  }

  // One of several patches may fail.
  void r() {
    const Tensor given = from_host<float>({3}, bumped_, device_);
    const Tensor other = from_host<float>({3}, Floats{1, 2, 3}, device_);
    const Tensor buffer = from_host<float>({3}, Floats{-9, -9, -9}, device_);
    const Floats before = bumped_;
    bumped_ = affine_of(before, 1, 1);
    call([&] { (void)r_->into(buffer)(given, other); }, [&] { given.copy_from<float>(before); });
    EXPECT_EQ(given.to_vector<float>(), bumped_);
    Floats expected = affine_of(bumped_, 2, 0);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] += static_cast<float>(i + 1);
    EXPECT_EQ(buffer.to_vector<float>(), expected);
  }

  template <typename Act>
  void call(Act act, const std::function<void()>& after_failure = {}) {
    const ContextStats before = context_->stats();
    const std::size_t recordings = recordings_of(*context_);
    attempt([&] { act(); },
            [&] {
              EXPECT_EQ(recordings_of(*context_), recordings);
              EXPECT_EQ(context_->stats().live_outputs, before.live_outputs);
              EXPECT_EQ(context_->stats().failures, before.failures + 1);
              if (after_failure) after_failure();
            });
    skipped_ = context_->stats().skipped();
  }

  // Calls act() until it succeeds; it may throw once.
  void attempt(const std::function<void()>& act, const std::function<void()>& after_failure = {}) {
    for (int tries = 0;; ++tries) {
      ASSERT_LT(tries, 2) << "thrown with nothing left to fail";
      saboteur_.begin();
      try {
        act();
        saboteur_.end();
        return;
      } catch (const Error&) {
        saboteur_.end();
      } catch (const std::bad_alloc&) {
        saboteur_.end();
      }
      ++thrown_;
      if (after_failure) after_failure();
      expect_usable();
    }
  }

  void expect_usable() {
    if (!context_) return;
    cgtree::testing::validate(*context_);
    EXPECT_FALSE(context_->stream().is_capturing());
    expect_values();
  }

  void expect_values() const {
    for (const Held& held : held_)
      EXPECT_EQ(held.tensor.to_vector<float>(), held.values);
  }

  const Device device_;
  const Saboteur saboteur_;
  CountingSegments segments_;
  std::optional<Context> context_;
  std::optional<CompiledFunction<Tensor(Tensor)>> f_;
  std::optional<CompiledFunction<std::pair<Tensor, Tensor>(Tensor)>> g_;
  std::optional<CompiledFunction<Tensor(Tensor)>> h_;
  std::optional<CompiledFunction<Tensor(Tensor, Tensor)>> r_;
  Floats bumped_ = {0, 1, 2};
  Tensor inputs_[2];
  std::vector<Held> held_;
  int thrown_ = 0;
  std::uint64_t skipped_ = 0;
};

class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([](LogLevel, const std::string&) {});
  }
  void TearDown() override { set_log_sink(nullptr); }
};

class CallFaultTest : public FaultTest, public ::testing::WithParamInterface<Code> {};
INSTANTIATE_TEST_SUITE_P(Codes, CallFaultTest,
                         ::testing::Values(Code::kMemoryAllocation, Code::kInvalidValue,
                                           Code::kLaunchFailure, Code::kStreamCaptureUnsupported,
                                           Code::kStreamCaptureInvalidated),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(CallFaultTest, TheKthCallFailsForEveryKUntilNoneIsLeft) {
  FailingDevice& device = FailingDevice::instance();
  int thrown = 0;
  int skipped = 0;
  long k = 0;
  for (bool failed = true; failed && !HasFailure(); ++k) {
    SCOPED_TRACE(k);
    long left = k;
    failed = false;
    std::string action;
    Program program(device.device(),
                    {.begin = [&] { device.arm({.at = left, .code = GetParam()}); },
                     .end =
                         [&] {
                           left = left < 0 ? left : left - device.calls();
                           if (!device.failed_function().empty()) {
                             failed = true;
                             left = -1;
                             action = device.failed_function();
                           }
                           device.disarm();
                         }});
    program.run();
    EXPECT_EQ(program.end(), 0) << action;
    EXPECT_EQ(device.outstanding(), 0) << action;
    thrown += program.thrown() > 0;
    skipped += program.skipped() > 0;
    if (HasFailure()) std::fprintf(stderr, "action %ld: %s\n", k, action.c_str());
  }
  std::printf("%ld actions: %d threw, %d made the function eager\n", k - 1, thrown, skipped);
  EXPECT_GT(thrown, 20);
}

// A transient error that no rule of captures explains: the function is still recorded later.
TEST_F(FaultTest, ACaptureThatFailsForAMomentIsTriedAgain) {
  FailingDevice& device = FailingDevice::instance();
  for (const int failures : {1, 2, 3}) {
    SCOPED_TRACE(failures);
    Context context(device.device());
    CompiledFunction f = compile(context, "f", [](Tensor x) { return affine(x, 2, 1); });
    const Tensor x = from_host<float>({2}, Floats{1, 2}, device.device());
    (void)f(x);
    for (int call = 0; call < failures; ++call) {
      device.arm({.at = 0, .code = Code::kMemoryAllocation, .function = "end_capture"});
      EXPECT_EQ(f(x).to_vector<float>(), (Floats{3, 5}));
      EXPECT_EQ(device.failed_function(), "end_capture");
      device.disarm();
    }
    for (int call = 0; call < 2; ++call)
      EXPECT_EQ(f(x).to_vector<float>(), (Floats{3, 5}));

    const bool is_given_up = failures == 3;
    EXPECT_EQ(f.stats().recordings, is_given_up ? 0u : 1u);
    EXPECT_EQ(f.stats().skips[static_cast<int>(SkipReason::kCaptureFailed)],
              is_given_up ? 5u : static_cast<unsigned>(failures));
  }
}

// One of two nodes is patched with the input's address, and the other is not: the next call must
// patch it.
TEST_F(FaultTest, APatchThatFailsHalfWayIsMadeUpForAndTwoOfThemEndTheRebinding) {
  FailingDevice& device = FailingDevice::instance();
  Context context(device.device());
  CompiledFunction f =
      compile(context, "f", [](Tensor x) { return add(affine(x, 2, 0), affine(x, 3, 0)); },
              {.inputs = {{.rebind = Rebind::kAlways}}});
  const auto expect_call = [&](float first) {
    const Tensor x = from_host<float>({2}, Floats{first, first + 1}, device.device());
    EXPECT_EQ(f(x).to_vector<float>(), (Floats{5 * first, 5 * first + 5}));
  };
  const Tensor held = from_host<float>({2}, Floats{1, 2}, device.device());
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(f(held).to_vector<float>(), (Floats{5, 10}));
  for (int failure = 0; failure < 2; ++failure) {
    const Tensor moved = from_host<float>({2}, Floats{7, 8}, device.device());
    device.arm({.at = 1, .code = Code::kInvalidValue, .function = "set_node"});
    EXPECT_THROW((void)f(moved), DeviceError);
    EXPECT_EQ(device.failed_function(), "set_node");
    device.disarm();
    if (failure == 0) {
      EXPECT_EQ(f(moved).to_vector<float>(), (Floats{35, 40}));
    }
    EXPECT_EQ(f(held).to_vector<float>(), (Floats{5, 10}));  // the address in the unpatched node
    expect_call(11);
  }
  EXPECT_EQ(f.stats().recordings, 2u);
  device.arm({.at = 0, .code = Code::kInvalidValue, .function = "set_node"});
  expect_call(13);
  expect_call(17);
  EXPECT_EQ(device.failed_function(), "");  // the input is copied
  device.disarm();
}

// Unchanged inputs are not checked one by one, but after a failed patch the addresses in the graph
// are unknown.
TEST_F(FaultTest, ManyCopiedInputsThatStayAreFoundAgainAfterAPatchThatFailed) {
  FailingDevice& device = FailingDevice::instance();
  Context context(device.device());
  CompiledFunction f = compile(context, "f", [](std::span<const Tensor> x) {
    Tensor sum = affine(x[0], 1, 0);
    for (const Tensor& one : x.subspan(1))
      sum = add(sum, one);
    return sum;
  });
  const auto make_list = [&](float value) {
    std::vector<Tensor> list;
    for (int i = 0; i < 16; ++i)
      list.push_back(from_host<float>({1}, Floats{value}, device.device()));
    return list;
  };
  const std::vector<Tensor> held = make_list(1);
  const std::vector<Tensor> moved = make_list(2);
  for (int call = 0; call < 6; ++call)
    EXPECT_EQ(f(held).to_vector<float>(), Floats{16});
  device.arm({.at = 0, .code = Code::kInvalidValue, .function = "set_kernel_node"});
  EXPECT_THROW((void)f(moved), DeviceError);
  EXPECT_EQ(device.failed_function(), "set_kernel_node");
  device.disarm();
  EXPECT_EQ(f(held).to_vector<float>(), Floats{16});
  EXPECT_EQ(f(moved).to_vector<float>(), Floats{32});
  EXPECT_EQ(f.stats().recordings, 1u);
}

TEST_F(FaultTest, APatchThatIsRefusedWhileRecordingCostsARecordingWithCopiesAndNoCall) {
  FailingDevice& device = FailingDevice::instance();
  Context context(device.device());
  int runs = 0;
  CompiledFunction f = compile(context, "f",
                               [&](Tensor x) {
                                 ++runs;
                                 return affine(x, 2, 0);
                               },
                               {.inputs = {{.rebind = Rebind::kAlways}}});
  for (int call = 0; call < 4; ++call) {
    const auto first = static_cast<float>(call);
    const Tensor x = from_host<float>({2}, Floats{first, first + 1}, device.device());
    if (call == 1) device.arm({.at = 0, .code = Code::kInvalidValue, .function = "set_node"});
    EXPECT_EQ(f(x).to_vector<float>(), (Floats{2 * first, 2 * first + 2}));
    if (call == 1) {
      EXPECT_EQ(device.failed_function(), "set_node");
    }
    device.disarm();
  }
  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(f.stats().replays, 2u);
  EXPECT_EQ(f.stats().failures, 0u);
  EXPECT_EQ(runs, 4);  // a warm-up, a probe, and two captures
}

// Other ranks do not know of a patch that one rank's device refused.
TEST_F(FaultTest, InAGroupARefusedPatchDropsNoRecording) {
  FailingDevice& device = FailingDevice::instance();
  Context context(device.device(), {.group = std::move(make_thread_groups(1)[0])});
  CompiledFunction f = compile(context, "f", [](Tensor x) { return affine(x, 2, 0); },
                               {.inputs = {{.rebind = Rebind::kAlways}}});
  const auto call = [&](float first) {
    const Tensor x = from_host<float>({2}, Floats{first, first + 1}, device.device());
    EXPECT_EQ(f(x).to_vector<float>(), (Floats{2 * first, 2 * first + 2}));
    return x;
  };
  Tensor last;  // held, so that the next input has another address
  for (int i = 0; i < 3; ++i)
    last = call(1);
  for (int failure = 0; failure < 3; ++failure) {
    const Tensor moved = from_host<float>({2}, Floats{7, 8}, device.device());
    device.arm({.at = 0, .code = Code::kInvalidValue, .function = "set_kernel_node"});
    EXPECT_THROW((void)f(moved), DeviceError);
    EXPECT_EQ(device.failed_function(), "set_kernel_node");
    device.disarm();
    EXPECT_EQ(f.stats().kept_recordings, 1u);
    last = call(11);
  }
  EXPECT_EQ(f.stats().recordings, 1u);
}

// While memory is temporarily short, a replay leaves no marks; a later replay does, and one under
// another watch does at once.
TEST_F(FaultTest, ARecordingLeavesMarksAgainWhenMemoryWasShortInPassing) {
  using std::chrono::milliseconds;
  FailingDevice& device = FailingDevice::instance();
  Context context(device.device());
  const CompiledFunction f = compile(context, "f", [](Tensor x) { return affine(x, 2, 0); });
  const Floats values = {1, 2, 3};
  const Tensor x = from_host<float>({3}, values, device.device());
  std::shared_ptr<ProgressWatch> watch;
  const auto watch_anew = [&] {
    watch = std::make_shared<ProgressWatch>(ProgressOptions{.time_limit = milliseconds(0)});
    watch_progress(context, watch);
  };
  const auto call = [&](bool fails) {
    if (fails) device.arm({.at = 0, .code = Code::kMemoryAllocation, .function = "instantiate"});
    EXPECT_EQ(f(x).to_vector<float>(), affine_of(values, 2, 0));
    if (fails) {
      EXPECT_EQ(device.failed_function(), "instantiate");
    }
    device.disarm();
    return watch->report().at(0).replays.back();
  };
  for (int i = 0; i < 2; ++i)
    (void)f(x);
  watch_anew();
  EXPECT_NE(call(true).why_unmarked, "");
  EXPECT_NE(call(false).why_unmarked.find("memory was short"), std::string::npos);
  std::this_thread::sleep_for(milliseconds(150));
  EXPECT_EQ(call(false).why_unmarked, "");

  watch_progress(context, nullptr);
  watch_anew();
  EXPECT_NE(call(true).why_unmarked, "");
  watch_anew();
  EXPECT_EQ(call(false).why_unmarked, "");
  EXPECT_EQ(f.stats().failures, 0u);
}

// An input's address is patched into one of the recording's two executable graphs, and not into the
// other: the next call must patch it.
TEST_F(FaultTest, APatchThatFailsWhereAReplayLeavesMarksIsMadeUpFor) {
  FailingDevice& device = FailingDevice::instance();
  int thrown = 0;
  for (long at = 0; at < 4; ++at) {
    for (int failing = 2; failing < 8; ++failing) {
      Context context(device.device());
      const CompiledFunction f = compile(context, "f", [](Tensor x) { return affine(x, 2, 0); });
      watch_progress(context,
                     std::make_shared<ProgressWatch>(ProgressOptions{
                         .every_nth_replay = 2, .time_limit = std::chrono::milliseconds(0)}));
      std::vector<Tensor> inputs;
      for (const float value : {1, 2})
        inputs.push_back(from_host<float>({2}, Floats{value, 3}, device.device()));
      for (int call = 0; call < 12; ++call) {
        const std::size_t i = call < 2 ? 0 : static_cast<std::size_t>(call) / 2 % 2;
        if (call == failing)
          device.arm({.at = at, .code = Code::kInvalidValue, .function = "set_kernel_node"});
        try {
          EXPECT_EQ(f(inputs[i]).to_vector<float>(), (Floats{2 * static_cast<float>(i + 1), 6}))
              << at << ' ' << failing << ' ' << call;
        } catch (const DeviceError&) {
          EXPECT_EQ(call, failing);
          ++thrown;
        }
        device.disarm();
      }
      EXPECT_EQ(f.stats().recordings, 1u);
    }
  }
  EXPECT_GT(thrown, 0);
}

TEST_F(FaultTest, AFaultOfAKindCountsCallsOfThatKindOnly) {
  FailingDevice& device = FailingDevice::instance();
  DeviceAPI& api = device_api(device.device());
  void* data = nullptr;
  void* pinned = nullptr;
  StreamHandle stream = StreamHandle::kNull;
  device.arm({.at = 1, .code = Code::kMemoryAllocation, .kind = CallKind::kAllocate});

  EXPECT_EQ(api.create_stream(0, StreamKind::kBlocking, &stream), Code::kSuccess);
  EXPECT_EQ(api.alloc_data_space(0, 4, &data), Code::kSuccess);
  EXPECT_EQ(api.synchronize_stream(stream), Code::kSuccess);
  EXPECT_EQ(api.alloc_pinned(4, &pinned), Code::kMemoryAllocation);
  EXPECT_EQ(device.failed_function(), "alloc_pinned");
  EXPECT_EQ(device.calls(), 2);
  device.disarm();
  EXPECT_EQ(api.free_data_space(0, data), Code::kSuccess);
  EXPECT_EQ(api.destroy_stream(stream), Code::kSuccess);
  EXPECT_EQ(device.outstanding(), 0);
}

TEST_F(FaultTest, TheKthHostAllocationFailsForEveryKUntilNoneIsLeft) {
  FailingDevice& device = FailingDevice::instance();
  int thrown = 0;
  long k = 0;
  for (bool failed = true; failed && !HasFailure(); ++k) {
    SCOPED_TRACE(k);
    failed = false;
    long left = k;
    Program program(device.device(), {.begin =
                                          [&] {
                                            if (left >= 0) limit_host_allocations(left);
                                          },
                                      .end =
                                          [&] {
                                            if (left < 0) return;
                                            left = host_allocations_left();
                                            failed = host_allocations_refused() > 0;
                                            lift_host_allocation_limit();
                                            if (failed) left = -1;
                                          }});
    program.run();
    EXPECT_EQ(program.end(), 0);
    EXPECT_EQ(device.outstanding(), 0);
    thrown += program.thrown() > 0;
  }
  std::printf("%ld host allocations: %d threw\n", k - 1, thrown);
  EXPECT_GT(thrown, 20);
}

// The k-th call of the device or the k-th host allocation fails, while the second session of a key
// is captured, compared and served.
TEST_F(FaultTest, ASecondSessionIsServedOrItsCallThrows) {
  FailingDevice& failing = FailingDevice::instance();
  const Device device = failing.device();
  constexpr std::size_t kWeights = 12;  // enough for a known run of inputs
  const auto add_to = [](const void* to, const void* from) {
    const StreamRef stream = current_stream();
    const float one = 1;
    const std::int64_t count = 1;
    check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(count),
                                        arguments_of(one, from, to, count)),
          "launch axpy");
  };
  for (const bool is_of_host : {false, true}) {
    int thrown = 0;
    bool has_failed = true;
    for (long k = 0; has_failed; ++k) {
      ASSERT_LT(k, 3000);
      Context context(device);
      StepsOptions options;
      options.bindings = {{.is_mutated = true, .is_per_session = true}};
      Steps steps(context, "f", options);
      std::vector<Tensor> caches;
      std::vector<Tensor> weights;
      for (std::size_t i = 0; i < 3; ++i)
        caches.push_back(from_host<float>({1}, {0.0F}, device));
      for (std::size_t i = 0; i < kWeights; ++i)
        weights.push_back(from_host<float>({1}, {static_cast<float>(i)}, device));
      std::array<int, 3> done = {};
      const auto call = [&](std::size_t session) {
        std::vector<Binding> bound = {{caches[session].data(), 4}};
        for (const Tensor& one : weights)
          bound.push_back({one.data(), 4});
        for (Step step = steps.begin({}, bound); step.must_run(); step.end())
          for (std::size_t i = 1; i <= kWeights; ++i)
            add_to(step.address(0), step.address(i));
        ++done[session];
      };
      call(0);
      call(0);
      if (is_of_host) {
        limit_host_allocations(k);
      } else {
        failing.arm({.at = k, .code = Code::kInvalidValue});
      }
      try {
        call(1);
      } catch (const Error&) {
        ++thrown;
      } catch (const std::bad_alloc&) {
        ++thrown;
      }
      has_failed = is_of_host ? host_allocations_refused() > 0 : !failing.failed_function().empty();
      lift_host_allocation_limit();
      failing.disarm();
      (void)context.stream().graphs().take_last_error();
      context.synchronize();
      const std::vector<float> given = caches[1].to_vector<float>();
      if (done[1] == 0) caches[1].copy_from<float>(Floats{0});  // an eager run may have written it
      EXPECT_TRUE(done[1] != 1 || given == Floats{66}) << k;
      validate(context);
      for (const std::size_t session : {0, 1, 2, 1, 0, 2})
        call(session);
      context.synchronize();
      for (std::size_t i = 0; i < caches.size(); ++i)
        EXPECT_EQ(caches[i].to_vector<float>()[0], 66.0F * static_cast<float>(done[i])) << k;
    }
    std::printf("%s: %d threw\n", is_of_host ? "host" : "device", thrown);
    EXPECT_GT(thrown, is_of_host ? 20 : 3);
  }
}

TEST_F(FaultTest, ATensorThatHasNoHostMemoryGivesThatOfTheDeviceBack) {
  FailingDevice& failing = FailingDevice::instance();
  bool has_failed = true;
  for (long k = 0; has_failed; ++k) {
    limit_host_allocations(k);
    try {
      (void)empty({4}, DType::kFloat32, failing.device());
    } catch (const std::bad_alloc&) {
    }
    has_failed = host_allocations_refused() > 0;
    lift_host_allocation_limit();
    EXPECT_EQ(failing.outstanding(), 0) << k;
  }
}

// The destructor cannot report a failure.
TEST_F(FaultTest, ACaptureThatIsDroppedNeedsNoHostMemory) {
  FailingDevice& device = FailingDevice::instance();
  const Stream stream(device.device());
  const long before = device.outstanding();
  bool failed = true;
  for (long k = 0; failed; ++k) {
    {
      const Capture capture(stream, CaptureMode::kThreadLocal);
      limit_host_allocations(k);
    }
    failed = host_allocations_refused() > 0;
    lift_host_allocation_limit();
    EXPECT_FALSE(StreamRef(stream).is_capturing()) << k;
    EXPECT_EQ(StreamRef(stream).graphs().peek_last_error(), Code::kSuccess) << k;
    EXPECT_EQ(device.outstanding(), before) << k;
  }
}

// The other rank does not learn of the failure, and draws.
TEST(GroupFaultTest, GeneratorsStayTogetherWhereAReplayHasNoHostMemoryForItsOutputsOnOneRank) {
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(2);
  std::array<Floats, 2> drawn;
  run_on_ranks(2, [&](int rank) {
    Context context(Device::host(), {.group = std::move(groups[static_cast<std::size_t>(rank)])});
    const Generator generator(3);
    const CompiledFunction f = compile(context, "f", [&](std::span<const Tensor>) {
      const Tensor y = uniform({4}, generator);
      std::vector<Tensor> outputs;
      for (int i = 0; i < 9; ++i)  // more than fit without a heap allocation
        outputs.push_back(affine(y, 1, static_cast<float>(i)));
      return outputs;
    });
    for (int call = 0; call < 4; ++call)
      (void)f({});
    if (rank == 1) limit_host_allocations(0);
    bool has_thrown = false;
    try {
      (void)f({});
    } catch (const std::bad_alloc&) {
      has_thrown = true;
    }
    lift_host_allocation_limit();
    EXPECT_EQ(has_thrown, rank == 1);
    drawn[static_cast<std::size_t>(rank)] = f({})[0].to_vector<float>();
    EXPECT_EQ(f.stats().replays, rank == 0 ? 4u : 3u);
  });
  EXPECT_EQ(drawn[0], drawn[1]);
}

}  // namespace
}  // namespace cgtree::testing
