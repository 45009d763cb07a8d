// The host device's executors: they run work in all orders that CUDA permits, and in no other.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "interop/device/device_api.h"
#include "simulator/host_device.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

// Appends its letter to a text.
struct Letters {
  std::mutex mutex;
  std::string text;
};

void write_letter(const LaunchDims&, const void* const* arguments) {
  Letters& letters = **static_cast<Letters* const*>(arguments[0]);
  const std::lock_guard lock(letters.mutex);
  letters.text += *static_cast<const char*>(arguments[1]);
}

class Script {
 public:
  explicit Script(const HostDeviceOptions& options)
      : device(make_host_device(options)), bench({"host", Device::host(), device.get(), ""}) {}

  void write(StreamHandle stream, char letter) {
    Letters* const address = &letters;
    check(bench.graphs.launch_kernel(stream, {"letter", write_letter, nullptr}, {},
                                     arguments_of(address, letter)),
          "launch");
  }
  const std::string& text() {
    check(bench.api.synchronize_device(0), "synchronize");
    return letters.text;
  }
  ExecHandle end(StreamHandle stream) { return bench.instantiate(bench.end(stream)); }

  Letters letters;
  std::unique_ptr<DeviceAPI> device;
  DeviceBench bench;
};

// The texts that `act` writes in many random orders.
std::set<std::string> orders(const std::function<void(Script&)>& act, int tries = 200) {
  std::set<std::string> texts;
  const unsigned seed = std::random_device()();
  for (int i = 0; i < tries; ++i) {
    Script script({.executor = HostExecutor::kRandom, .seed = seed + static_cast<unsigned>(i)});
    act(script);
    texts.insert(script.text());
  }
  return texts;
}

using Texts = std::set<std::string>;

TEST(RandomExecutorTest, RunsStreamsInEveryOrderAndEachStreamInItsOwn) {
  EXPECT_EQ(orders([](Script& s) {
              const StreamHandle first = s.bench.stream();
              const StreamHandle second = s.bench.stream();
              s.write(first, 'a');
              s.write(first, 'b');
              s.write(second, 'x');
            }),
            (Texts{"abx", "axb", "xab"}));
}

TEST(RandomExecutorTest, AnEventOrdersTwoStreams) {
  EXPECT_EQ(orders([](Script& s) {
              const StreamHandle first = s.bench.stream();
              const StreamHandle second = s.bench.stream();
              s.write(first, 'a');
              s.bench.order(first, second);
              s.write(first, 'b');
              s.write(second, 'x');
            }),
            (Texts{"abx", "axb"}));
}

TEST(RandomExecutorTest, AWaitTakesTheRecordThatWasLastWhenItWasMade) {
  EXPECT_EQ(orders([](Script& s) {
              const StreamHandle first = s.bench.stream();
              const StreamHandle second = s.bench.stream();
              const EventHandle event = s.bench.event();
              s.write(first, 'a');
              check(s.bench.graphs.record_event(event, first), "record");
              check(s.bench.graphs.wait_event(second, event), "wait");
              s.write(first, 'b');
              check(s.bench.graphs.record_event(event, first), "record");
              s.write(second, 'x');
            }),
            (Texts{"abx", "axb"}));
}

TEST(RandomExecutorTest, TheLegacyStreamWaitsForBlockingStreamsAndTheyForIt) {
  const auto around_legacy = [](StreamKind kind) {
    return [kind](Script& s) {
      const StreamHandle stream = s.bench.stream(kind);
      s.write(stream, 'a');
      s.write(StreamHandle::kLegacy, 'L');
      s.write(stream, 'b');
    };
  };
  EXPECT_EQ(orders(around_legacy(StreamKind::kBlocking)), (Texts{"aLb"}));
  EXPECT_EQ(orders(around_legacy(StreamKind::kNonBlocking)), (Texts{"Lab", "aLb", "abL"}));
}

TEST(RandomExecutorTest, ThePerThreadStreamIsABlockingOne) {
  EXPECT_EQ(orders([](Script& s) {
              s.write(StreamHandle::kPerThread, 'a');
              std::thread([&] { s.write(StreamHandle::kPerThread, 'b'); }).join();
              s.write(StreamHandle::kLegacy, 'L');
            }),
            (Texts{"abL", "baL"}));
}

TEST(RandomExecutorTest, BranchesOfAGraphRunInEveryOrder) {
  EXPECT_EQ(orders([](Script& s) {
              const StreamHandle origin = s.bench.stream();
              const StreamHandle side = s.bench.stream();
              check(s.bench.graphs.begin_capture(origin, CaptureMode::kThreadLocal), "begin");
              s.write(origin, 'a');
              s.bench.order(origin, side);
              s.write(origin, 'b');
              s.write(side, 'x');
              s.bench.order(side, origin);
              s.write(origin, 'z');
              check(s.bench.graphs.launch(s.end(origin), origin), "launch");
            }),
            (Texts{"abxz", "axbz"}));
}

TEST(RandomExecutorTest, LaunchesOfOneExecDoNotMixWhileTwoExecsDo) {
  const auto two_launches = [](bool is_same) {
    return [is_same](Script& s) {
      const StreamHandle first = s.bench.stream();
      const StreamHandle second = s.bench.stream();
      check(s.bench.graphs.begin_capture(first, CaptureMode::kThreadLocal), "begin");
      s.write(first, 'a');
      s.write(first, 'b');
      const GraphHandle graph = s.bench.end(first);
      const ExecHandle exec = s.bench.instantiate(graph);
      check(s.bench.graphs.launch(exec, first), "launch");
      check(s.bench.graphs.launch(is_same ? exec : s.bench.instantiate(graph), second), "launch");
    };
  };
  EXPECT_EQ(orders(two_launches(true)), (Texts{"abab"}));
  EXPECT_EQ(orders(two_launches(false)), (Texts{"abab", "aabb"}));
}

TEST(RandomExecutorTest, ADestroyedExecStillRunsWhatWasLaunched) {
  EXPECT_EQ(orders([](Script& s) {
              const StreamHandle stream = s.bench.stream();
              check(s.bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin");
              s.write(stream, 'a');
              const ExecHandle exec = s.end(stream);
              check(s.bench.graphs.launch(exec, stream), "launch");
              s.bench.forget(exec);
              check(s.bench.graphs.destroy_exec(exec), "destroy");
              s.write(stream, 'b');
            }),
            (Texts{"ab"}));
}

TEST(RandomExecutorTest, WaitingForOneStreamMayLeaveAnotherPending) {
  int pending = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    Script script({.executor = HostExecutor::kRandom, .seed = seed});
    const StreamHandle first = script.bench.stream();
    script.write(first, 'a');
    script.write(script.bench.stream(), 'x');
    check(script.bench.api.synchronize_stream(first), "synchronize");
    EXPECT_NE(script.letters.text.find('a'), std::string::npos);
    pending += script.letters.text.find('x') == std::string::npos;
  }
  EXPECT_GT(pending, 0);
  EXPECT_LT(pending, 100);
}

TEST(RandomExecutorTest, RepeatedQueriesMakeWorkComplete) {
  int asked = 0;
  for (unsigned seed = std::random_device()(); asked == 0; ++seed) {
    Script script({.executor = HostExecutor::kRandom, .seed = seed});
    const StreamHandle stream = script.bench.stream();
    const EventHandle event = script.bench.event();
    for (int i = 0; i < 20; ++i)
      script.write(stream, 'a');
    check(script.bench.graphs.record_event(event, stream), "record");
    while (script.bench.graphs.query_event(event) == Code::kNotReady)
      ++asked;
    EXPECT_EQ(script.letters.text.size(), 20u) << seed;
  }
}

TEST(RandomExecutorTest, OneSeedGivesOneOrder) {
  const unsigned seed = std::random_device()();
  std::string texts[2];
  for (std::string& text : texts) {
    Script script({.executor = HostExecutor::kRandom, .seed = seed});
    for (char letter = 'a'; letter <= 'z'; ++letter)
      script.write(script.bench.stream(), letter);
    text = script.text();
  }
  EXPECT_EQ(texts[0], texts[1]);
}

// CUDA may stage a pageable source or read it later; it reads a pinned one later.
TEST(RandomExecutorTest, ReadsPinnedMemoryWhenTheCopyRunsAndPageableMemoryEarlyOrThen) {
  std::set<float> from_pinned;
  std::set<float> from_pageable;
  for (unsigned seed = 0; seed < 100; ++seed) {
    Script script({.executor = HostExecutor::kRandom, .seed = seed});
    const StreamHandle stream = script.bench.stream();
    float* const x = script.bench.floats(2);
    float* const pinned = script.bench.pinned_floats(1, 1);
    float pageable = 1;
    script.write(stream, 'a');  // keeps the copy from running when it is added
    check(script.bench.api.copy(stream, x, pinned, sizeof(float)), "copy");
    check(script.bench.api.copy(stream, x + 1, &pageable, sizeof(float)), "copy");
    *pinned = pageable = 2;
    from_pinned.insert(script.bench.read(x));
    from_pageable.insert(script.bench.read(x + 1));
  }
  EXPECT_TRUE(from_pinned.contains(2));
  EXPECT_EQ(from_pageable, (std::set<float>{1, 2}));
}

TEST(RandomExecutorTest, AFailureIsAnsweredByTheNextSynchronization) {
  const auto fail = [](const LaunchDims&, const void* const*) {
    throw std::runtime_error("assertion in a kernel");
  };
  for (const HostExecutor executor : {HostExecutor::kRandom, HostExecutor::kThreads}) {
    Script script({.executor = executor});
    const StreamHandle stream = script.bench.stream();
    EXPECT_EQ(script.bench.graphs.launch_kernel(stream, {"fail", fail, nullptr}, {}, {}),
              Code::kSuccess);
    EXPECT_EQ(script.bench.api.synchronize_stream(stream), Code::kLaunchFailure);
    EXPECT_EQ(script.bench.api.synchronize_stream(stream), Code::kSuccess);
  }
}

// Two kernels, each of which waits until the other runs.
struct Meeting {
  std::atomic<int> present{0};
};

void meet(const LaunchDims&, const void* const* arguments) {
  Meeting& meeting = **static_cast<Meeting* const*>(arguments[0]);
  ++meeting.present;
  meeting.present.notify_all();
  for (int seen = meeting.present; seen < 2; seen = meeting.present)
    meeting.present.wait(seen);
}

TEST(ThreadsExecutorTest, TwoStreamsRunAtOnce) {
  Script script({.executor = HostExecutor::kThreads});
  Meeting meeting;
  Meeting* const address = &meeting;
  for (int i = 0; i < 2; ++i) {
    check(script.bench.graphs.launch_kernel(script.bench.stream(), {"meet", meet, nullptr}, {},
                                            arguments_of(address)),
          "launch");
  }
  EXPECT_EQ(script.bench.api.synchronize_device(0), Code::kSuccess);
  EXPECT_EQ(meeting.present, 2);
}

struct Crowd {
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
};

void crowd(const LaunchDims&, const void* const* arguments) {
  Crowd& crowd = **static_cast<Crowd* const*>(arguments[0]);
  const int inside = ++crowd.inside;
  if (inside > crowd.most) crowd.most = inside;
  for (int i = 0; i < 100; ++i)
    std::this_thread::yield();
  --crowd.inside;
}

TEST(ThreadsExecutorTest, OneExecRunsOnceAtATime) {
  Script script({.executor = HostExecutor::kThreads});
  const StreamHandle streams[] = {script.bench.stream(), script.bench.stream()};
  Crowd inside;
  Crowd* const address = &inside;
  check(script.bench.graphs.begin_capture(streams[0], CaptureMode::kThreadLocal), "begin");
  check(script.bench.graphs.launch_kernel(streams[0], {"crowd", crowd, nullptr}, {},
                                          arguments_of(address)),
        "capture");
  const ExecHandle exec = script.end(streams[0]);
  for (int i = 0; i < 100; ++i)
    check(script.bench.graphs.launch(exec, streams[i % 2]), "launch");

  EXPECT_EQ(script.bench.api.synchronize_device(0), Code::kSuccess);
  EXPECT_EQ(inside.most, 1);
}

TEST(ThreadsExecutorTest, TheDeviceEndsWhenItsWorkHasRun) {
  Letters letters;
  {
    const auto device = make_host_device({.executor = HostExecutor::kThreads});
    StreamHandle stream = StreamHandle::kNull;
    check(device->create_stream(0, StreamKind::kNonBlocking, &stream), "create");
    Letters* const address = &letters;
    for (char letter = 'a'; letter < 'k'; ++letter) {
      check(device->graphs()->launch_kernel(stream, {"letter", write_letter, nullptr}, {},
                                            arguments_of(address, letter)),
            "launch");
    }
  }
  EXPECT_EQ(letters.text, "abcdefghij");
}

TEST(MakeHostDeviceTest, HasAsManyDevicesAsItIsTold) {
  const auto device = make_host_device({.devices = 2});

  EXPECT_EQ(device->attribute(1, DeviceAttribute::kExists), AttributeValue{std::int64_t{1}});
  EXPECT_EQ(device->attribute(2, DeviceAttribute::kExists), AttributeValue{std::int64_t{0}});
  EXPECT_THROW((void)make_host_device({.devices = 0}), InvalidArgument);
}

TEST(MakeHostDeviceTest, ErrorsModesAndPerThreadStreamsAreItsOwn) {
  const auto one = make_host_device({});
  const auto other = make_host_device({});
  CaptureMode mode = CaptureMode::kRelaxed;
  check(one->graphs()->exchange_capture_mode(&mode), "exchange");
  EXPECT_EQ(one->synchronize_device(99), Code::kInvalidDevice);
  check(one->graphs()->begin_capture(StreamHandle::kPerThread, CaptureMode::kGlobal), "begin");

  EXPECT_EQ(other->graphs()->peek_last_error(), Code::kSuccess);
  EXPECT_EQ(host_device_api().graphs()->peek_last_error(), Code::kSuccess);
  CaptureInfo info;
  check(other->graphs()->capture_info(StreamHandle::kPerThread, &info), "ask");
  EXPECT_EQ(info.status, CaptureStatus::kNone);
  mode = CaptureMode::kThreadLocal;
  check(other->graphs()->exchange_capture_mode(&mode), "exchange");
  EXPECT_EQ(mode, CaptureMode::kGlobal);
  EXPECT_EQ(one->graphs()->take_last_error(), Code::kInvalidDevice);
}

}  // namespace
}  // namespace cgtree::testing
