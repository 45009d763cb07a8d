// Contexts that share memory outside all contexts: their calls are ordered by its uses.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cgtree/steps.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "interop/tensor/empty.h"
#include "tests/cgtree/stream_order_fixture.h"
#include "tests/support/call_trace.h"
#include "tests/support/step_work.h"

namespace cgtree::testing {
namespace {

class SharedMemoryTest : public StreamOrderTest {
 protected:
  using Writer = CompiledFunction<void(Tensor, Tensor)>;
  using Reader = CompiledFunction<Tensor(Tensor)>;

  // Returns tensors of 0, 1, and so on. They live for the whole test, because a free waits for the
  // device.
  static std::vector<Tensor> inputs(Device device, int count = 10) {
    std::vector<Tensor> made;
    for (int i = 0; i < count; ++i)
      made.push_back(filled(device, static_cast<float>(i)));
    return made;
  }
  static CompileOptions writes_second(bool is_static) {
    return {.inputs = {{}, {.is_static = is_static, .is_mutated = true}}};
  }
  // Writes x, slowly, into every element of `cache`.
  static Writer writer(Context& context, bool is_static, CompileOptions options = {}) {
    options.inputs = writes_second(is_static).inputs;
    return compile(
        context, "prefill",
        [](Tensor x, Tensor cache) {
          const Tensor y = twice(x);
          update(cache, 0, 0);
          update(cache, 0, -1);
          enqueue_copy(current_stream(), cache, y);
        },
        options);
  }
  static Reader reader(Context& context, bool is_static, CompileOptions options = {}) {
    options.inputs = {{.is_static = is_static}};
    return compile(
        context, "decode", [](Tensor cache) { return affine(cache, 1, 1); }, options);
  }
  // Launches the caller's graph behind the context's stream, and waits for all work.
  static void launch_behind(const Context& context, const Graph& graph, const Stream& stream) {
    stream.ref().wait_for(context.stream());
    const GraphExec exec(stream.ref().graphs(), graph);
    check(exec.api().launch(exec.handle(), stream.ref().handle()), "launch");
    wait_for_all(context.device());
  }
  // Calls both functions in turn: decode() must read the values of the last prefill().
  template <typename MakeWriter, typename MakeReader>
  void expect_in_turn(MakeWriter make_writer, MakeReader make_reader) {
    expect_right_in_any_order([&](Device device) {
      Context a(device, {.name = "prefill"}), b(device, {.name = "decode"});
      const std::vector<Tensor> x = inputs(device);
      const Tensor cache = filled(device, 0);
      const Writer prefill = make_writer(a);
      const Reader decode = make_reader(b);
      std::vector<Tensor> made;
      bool is_right = true;
      for (int round = 1; round <= 6; ++round) {
        prefill(x[round], cache);
        made.push_back(decode(cache));
      }
      for (int round = 1; round <= 6; ++round)
        is_right = is_right && holds(made[round - 1], static_cast<float>(2 * round + 1));
      return is_right;
    });
  }
};

TEST_F(SharedMemoryTest, AStaticCacheIsReadWhenItWasWrittenAndWrittenWhenItWasRead) {
  expect_in_turn([](Context& a) { return writer(a, true); },
                 [](Context& b) { return reader(b, true); });
}

TEST_F(SharedMemoryTest, ACacheThatIsCopiedInIsOrderedToo) {
  expect_in_turn([](Context& a) { return writer(a, true); },
                 [](Context& b) { return reader(b, false); });
}

TEST_F(SharedMemoryTest, ACacheThatIsCopiedBackIsOrderedToo) {
  expect_in_turn([](Context& a) { return writer(a, false); },
                 [](Context& b) { return reader(b, false); });
}

TEST_F(SharedMemoryTest, CallsThatRunEagerlyAreOrderedToo) {
  expect_in_turn([](Context& a) { return writer(a, true, {.enabled = false}); },
                 [](Context& b) { return reader(b, true); });
  expect_in_turn([](Context& a) { return writer(a, true); },
                 [](Context& b) { return reader(b, true, {.enabled = false}); });
}

// The second context appears when the first one replays, and no input moves.
TEST_F(SharedMemoryTest, ANeighbourThatComesLateIsWaitedForByReplays) {
  expect_right_in_any_order([](Device device) {
    Context a(device);
    const std::vector<Tensor> x = inputs(device);
    const Tensor cache = filled(device, 0);
    const Writer prefill = writer(a, true);
    const Tensor one = filled(device, 1);
    for (int call = 0; call < 4; ++call)
      prefill(one, cache);
    Context b(device);
    const Reader decode = reader(b, true);
    bool is_right = true;
    for (int round = 2; round <= 5; ++round) {
      const Tensor read = decode(cache);  // written in the last round
      prefill(x[round], cache);
      is_right = is_right && holds(read, static_cast<float>(2 * (round - 1) + 1));
    }
    return is_right && prefill.stats().replays >= 6;
  });
}

// An engine of one context reads memory that a recording of another left allocated, on its own
// stream.
TEST_F(SharedMemoryTest, MemoryLeftByAGraphIsReadBeforeTheEndOfItsRecordingFreesIt) {
  expect_right_in_any_order(
      [](Device device) {
        Context a(device), b(device);
        Steps writes(a, "writes", {.bindings = {{.name = "x"}}, .keeps_allocations = true});
        Steps reads(b, "reads",
                    {.bindings = {{.name = "left"}, {.name = "y", .is_mutated = true}}});
        const Tensor x = filled(device, 2), y = filled(device, 0);
        void* left = nullptr;
        for (int call = 0; call < 4; ++call) {
          const Binding of_writer[] = {{x.data(), x.bytes()}};
          for (Step step = writes.begin({}, of_writer); step.must_run(); step.end()) {
            const StreamRef stream = current_stream();
            check(stream.graphs().allocate_in_order(stream.handle(), x.bytes(), &left), "allocate");
            check(stream.api().copy(stream.handle(), left, step.address(0), x.bytes()), "copy");
          }
          if (call == 0) {  // left by the warm-up, without a graph
            check(a.stream().graphs().free_in_order(a.stream().handle(), left), "free");
            continue;
          }
          const Binding of_reader[] = {{left, x.bytes()}, {y.data(), y.bytes()}};
          for (Step step = reads.begin({}, of_reader); step.must_run(); step.end()) {
            for (int i = 0; i < 4; ++i)
              axpy(1, step.address(0), step.address(1), kSize);
          }
        }
        (void)writes.invalidate(left, 1);
        wait_for_all(device);
        return writes.stats().replays == 2 && holds(y, 24);
      },
      /*free_waits=*/false);
}

// All calls with the cache are replays with moved inputs.
TEST_F(SharedMemoryTest, ACacheThatAContextReadsBeforeItWritesItIsOrdered) {
  expect_right_in_any_order([](Device device) {
    Context a(device), b(device);
    const std::vector<Tensor> x = inputs(device);
    const Writer prefill = writer(a, false);
    const Reader look = reader(a, false);
    const Reader decode = reader(b, false);
    const Tensor of_a = filled(device, 0), of_b = filled(device, 0);
    for (int call = 0; call < 3; ++call) {
      prefill(x[0], of_a);
      (void)look(of_a);
      (void)decode(of_b);
    }
    const Tensor cache = filled(device, 0);
    std::vector<Tensor> made;
    for (int round = 1; round <= 6; ++round) {
      (void)look(cache);
      prefill(x[round], cache);
      made.push_back(decode(cache));
    }
    bool is_right = true;
    for (int round = 1; round <= 6; ++round)
      is_right = is_right && holds(made[round - 1], static_cast<float>(2 * round + 1));
    return is_right;
  });
}

// More caches than the number of uses that a context remembers.
TEST_F(SharedMemoryTest, ManyCachesAreReadWhenTheyWereWritten) {
  expect_right_in_any_order([](Device device) {
    constexpr std::size_t kCaches = 24;
    Context a(device), b(device);
    const std::vector<Tensor> x = inputs(device);
    std::vector<Tensor> caches;
    for (std::size_t i = 0; i < kCaches; ++i)
      caches.push_back(filled(device, 0));
    const Writer prefill = writer(a, false);
    const Reader decode = reader(b, false);
    std::vector<std::pair<Tensor, float>> made;
    for (int round = 1; round <= 3; ++round) {
      for (const Tensor& cache : caches)
        prefill(x[static_cast<std::size_t>(round)], cache);
      for (const Tensor& cache : caches)
        made.emplace_back(decode(cache), static_cast<float>(2 * round + 1));
    }
    return std::ranges::all_of(made, [](const auto& one) { return holds(one.first, one.second); });
  });
}

TEST_F(SharedMemoryTest, TwoWritersAreOrdered) {
  expect_right_in_any_order([](Device device) {
    Context a(device), b(device);
    const std::vector<Tensor> x = inputs(device);
    const Tensor cache = filled(device, 0);
    const Writer first = writer(a, true), second = writer(b, true);
    bool is_right = true;
    for (int round = 1; round <= 5; ++round) {
      first(x[round], cache);
      second(x[round + 2], cache);
      wait_for_all(device);
      is_right = is_right && holds(cache, static_cast<float>(2 * round + 4));
    }
    return is_right;
  });
}

// Prefill writes logits to the caller's buffer, another buffer at each call; decode reads it.
TEST_F(SharedMemoryTest, ABufferThatAnOutputGoesIntoIsOrdered) {
  expect_right_in_any_order([](Device device) {
    Context a(device), b(device);
    const Reader make = compile(a, "make", [](Tensor x) { return twice(x); });
    const Reader take = reader(b, false);
    const std::vector<Tensor> x = inputs(device);
    const Tensor buffers[] = {filled(device, 0), filled(device, 0)};
    std::vector<Tensor> made;
    for (int round = 1; round <= 8; ++round) {
      const Tensor& buffer = buffers[round % 2];
      (void)make.into(buffer)(x[round]);
      made.push_back(take(buffer));
    }
    bool is_right = true;
    for (int round = 1; round <= 8; ++round)
      is_right = is_right && holds(made[round - 1], static_cast<float>(2 * round + 1));
    return is_right;
  });
}

// Engines bind their memory by address, and the reader's binding begins in the middle.
TEST_F(SharedMemoryTest, BindingsOfStepsAreOrdered) {
  for (const bool is_copied : {false, true}) {
    expect_right_in_any_order([&](Device device) {
      Context a(device), b(device);
      const std::vector<Tensor> x = inputs(device);
      const Tensor cache = filled(device, 0), read = filled(device, 0);
      const Tensor half = cache.slice(0, kSize / 2, kSize);
      Steps prefill(
          a, "prefill",
          {.bindings = {{.name = "x", .is_copied = true}, {.name = "kv", .is_mutated = true}}});
      const CompiledFunction decode = compile(b, "decode", [](Tensor x) { return affine(x, 1, 1); },
                                              {.inputs = {{.is_static = !is_copied}}});
      bool is_right = true;
      const Stream stream(device);
      for (int round = 1; round <= 6; ++round) {
        const Binding bindings[] = {{x[round].data(), x[round].bytes()},
                                    {cache.data(), cache.bytes()}};
        for (Step step = prefill.begin(Key{{"n", 1}}, bindings, stream); step.must_run();
             step.end()) {
          update(cache, 0, -1);
          check(device_api(device).copy(stream.ref().handle(), cache.data(), step.address(0),
                                        cache.bytes()),
                "copy");
        }
        const Tensor y = decode(half);
        is_right = is_right && y.to_vector<float>() ==
                                   std::vector<float>(kSize / 2, static_cast<float>(round + 1));
      }
      return is_right;
    });
  }
}

TEST_F(SharedMemoryTest, ANestedCallIsOrdered) {
  expect_right_in_any_order([](Device device) {
    Context a(device), b(device);
    const std::vector<Tensor> x = inputs(device);
    const Tensor cache = filled(device, 0);
    const Writer inner = writer(a, true);
    const CompiledFunction outer = compile(a, "outer", [&](Tensor x) {
      inner(x, cache);
      return affine(x, 1, 0);
    });
    const Reader decode = reader(b, true);
    bool is_right = true;
    for (int round = 1; round <= 5; ++round) {
      (void)outer(x[round]);
      const Tensor read = decode(cache);
      if (round == 3) a.eager([&] { inner(x[round], cache); });
      is_right = is_right && holds(read, static_cast<float>(2 * round + 1));
    }
    return is_right && outer.stats().replays == 3;
  });
}

// The reader's recording has the cache in its closure. Its warm-up is not ordered.
TEST_F(SharedMemoryTest, ARecordingThatReadsTheCacheThroughItsClosureIsOrdered) {
  expect_right_in_any_order([](Device device) {
    Context a(device), b(device);
    const std::vector<Tensor> x = inputs(device);
    const Tensor cache = filled(device, 0), one = filled(device, 1);
    const Writer prefill = writer(a, true);
    const Reader decode = compile(b, "decode", [&](Tensor x) { return add(x, cache); });
    bool is_right = true;
    (void)decode(one);
    b.synchronize();
    for (int round = 1; round <= 5; ++round) {
      prefill(x[round], cache);
      const Tensor read = decode(one);
      is_right = is_right && holds(read, static_cast<float>(2 * round + 1));
    }
    return is_right && decode.stats().replays == 4;
  });
}

// The same holds for an output: its owner orders the read with its own work.
TEST_F(SharedMemoryTest, AnOutputThatARecordingReadsThroughItsClosureIsReadWhenItWasWritten) {
  for (const bool by_owner : {true, false}) {
    expect_right_in_any_order([&](Device device) {
      Context a(device), b(device), c(device);
      const std::vector<Tensor> x = inputs(device);
      const Tensor one = filled(device, 1);
      const CompiledFunction make = compile(a, "make", [](Tensor x) { return affine(x, 1, 0); });
      const Tensor y = make(one);
      a.keep(y);
      const Writer write = writer(b, true);
      Context& reading = by_owner ? a : c;
      const Reader read = compile(reading, "read", [&](Tensor x) { return add(x, y); });
      a.synchronize();
      (void)read(one);
      reading.synchronize();
      bool is_right = true;
      for (int round = 1; round <= 5; ++round) {
        write(x[round], y);
        is_right = is_right && holds(read(one), static_cast<float>(2 * round + 1));
      }
      return is_right && read.stats().replays == 4;
    });
  }
}

// The audit of a graph finds the memory that the recording reads; without the audit, it may read
// all declared memory.
TEST_F(SharedMemoryTest, ADeclaredCacheIsReadByTheContextThatDeclaresIt) {
  expect_right_in_any_order([](Device device) {
    Context a(device), b(device);
    const std::vector<Tensor> x = inputs(device);
    const Tensor cache = filled(device, 0), one = filled(device, 1);
    const Writer prefill = writer(a, true);
    const void* const address = cache.data();
    b.declare("kv", address, cache.bytes());
    const Reader decode = compile(b, "decode", [&, address](Tensor x) {
      Tensor y = affine(x, 1, 0);
      check(device_api(device).copy(current_stream().handle(), y.data(), address, y.bytes()),
            "copy");
      return y;
    });
    bool is_right = true;
    for (int round = 1; round <= 5; ++round) {
      prefill(x[round], cache);
      is_right = is_right && holds(decode(one), static_cast<float>(2 * round));
    }
    return is_right && decode.stats().replays == 3;
  });
}

TEST_F(SharedMemoryTest, AThreadThatIsToldThatACallHasReturnedComesBehindIt) {
  expect_right_in_any_order([](Device device) {
    Context a(device), b(device);
    const std::vector<Tensor> x = inputs(device);
    const Tensor cache = filled(device, 0);
    const Writer prefill = writer(a, true);
    const Reader decode = reader(b, true);
    bool is_right = true;
    for (int round = 1; round <= 4; ++round) {
      std::thread([&] { prefill(x[round], cache); }).join();
      Tensor read;
      std::thread([&] { read = decode(cache); }).join();
      is_right = is_right && holds(read, static_cast<float>(2 * round + 1));
    }
    return is_right;
  });
}

TEST_F(SharedMemoryTest, AContextThatEndsLeavesItsLastUseBehind) {
  expect_right_in_any_order([](Device device) {
    Context b(device);
    const std::vector<Tensor> x = inputs(device);
    const Tensor cache = filled(device, 0);
    const Reader decode = reader(b, true);
    bool is_right = true;
    for (int round = 1; round <= 4; ++round) {
      {
        Context a(device);
        writer(a, true)(x[round], cache);
      }
      const Tensor read = decode(cache);
      is_right = is_right && holds(read, static_cast<float>(2 * round + 1));
    }
    return is_right;
  });
}

// The caller launches the graph behind the context's stream.
TEST_F(SharedMemoryTest, ACallThatTheCallerCapturesComesBehindTheNeighbour) {
  expect_right_in_any_order([](Device device) {
    Context a(device), b(device);
    const std::vector<Tensor> x = inputs(device);
    const Tensor cache = filled(device, 0), into = filled(device, 0);
    const Writer prefill = writer(a, true);
    const Reader decode = reader(b, true);
    for (int call = 0; call < 3; ++call) {
      prefill(x[7], cache);
      (void)decode(cache);
    }
    const Stream stream(device);
    prefill(x[3], cache);
    Graph graph;
    {
      Capture capture(stream, CaptureMode::kThreadLocal);
      const StreamScope scope(stream);
      (void)decode.into(into)(cache);
      check(capture.end(&graph), "end");
    }
    const GraphExec exec(stream.ref().graphs(), graph);
    check(exec.api().launch(exec.handle(), b.stream().handle()), "launch");
    prefill(x[5], cache);
    wait_for_all(device);
    return holds(into, 7);
  });
}

// Each launch of the graph uses the cache, without a call.
TEST_F(SharedMemoryTest, EachLaunchOfAGraphThatTheCallerHasCapturedIsWaitedFor) {
  for (const bool is_known_before : {false, true}) {
    expect_right_in_any_order([&](Device device) {
      Context a(device), b(device);
      const std::vector<Tensor> x = inputs(device);
      const Tensor cache = filled(device, 0), input = filled(device, 0);
      const Writer prefill = writer(a, true);
      const Reader decode = reader(b, true);
      for (int call = 0; call < 3; ++call) {
        prefill(input, cache);
        if (is_known_before) (void)decode(cache);
      }
      const Stream stream(device);
      Graph graph;
      {
        Capture capture(stream, CaptureMode::kThreadLocal);
        const StreamScope scope(stream);
        prefill(input, cache);
        check(capture.end(&graph), "end");
      }
      const GraphExec exec(stream.ref().graphs(), graph);
      bool is_right = true;
      for (int round = 1; round <= 4; ++round) {
        enqueue_copy(a.stream(), input, x[round]);
        check(exec.api().launch(exec.handle(), a.stream().handle()), "launch");
        const Tensor read = decode(cache);
        is_right = is_right && holds(read, static_cast<float>(2 * round + 1));
      }
      return is_right;
    });
  }
}

// The neighbour's use ends on the stream that captures, on which no event can be recorded. The
// caller launches the graph behind that use.
TEST_F(SharedMemoryTest, ACapturedCallTakesWhatANeighbourWroteOnTheStreamThatCaptures) {
  enum class Call { kAtHome, kOnTheStream, kNested };
  for (const Call call : {Call::kAtHome, Call::kOnTheStream, Call::kNested}) {
    expect_right_in_any_order([call](Device device) {
      const Stream stream(device);
      Context a(device), b(device);
      const Tensor x = filled(device, 3), cache = filled(device, 0), into = filled(device, 0);
      const Writer prefill = writer(a, true);
      const Reader decode = reader(b, true);
      const Reader outer = compile(b, "outer", [&](Tensor) { return decode(cache); });
      Graph graph;
      {
        const StreamScope scope(stream);
        if (call != Call::kAtHome) (void)decode(x);
        prefill(x, cache);
        Capture capture(stream, CaptureMode::kThreadLocal);
        const StreamScope inside(stream);
        (void)(call == Call::kNested ? outer.into(into)(x) : decode.into(into)(cache));
        check(capture.end(&graph), "end");
      }
      launch_behind(b, graph, stream);
      return holds(into, 7);
    });
  }
}

// The neighbour's stream and its use of the cache are in the same capture.
TEST_F(SharedMemoryTest, ACallOnABranchOfACaptureComesBehindANeighbourInIt) {
  expect_right_in_any_order([](Device device) {
    const Stream stream(device), branch(device);
    Context a(device), b(device);
    const std::vector<Tensor> x = inputs(device, 4);
    const Tensor cache = filled(device, 0), into = filled(device, 0);
    const Writer prefill = writer(a, true);
    const Reader decode = reader(b, true);
    Graph graph;
    {
      const StreamScope scope(stream);
      prefill(x[1], cache);
    }
    {
      Capture capture(stream, CaptureMode::kThreadLocal);
      branch.ref().wait_for(stream);
      {
        const StreamScope inside(stream);
        prefill(x[3], cache);
      }
      {
        const StreamScope inside(branch);
        (void)decode.into(into)(cache);
      }
      stream.ref().wait_for(branch);
      check(capture.end(&graph), "end");
    }
    launch_behind(b, graph, stream);
    return holds(into, 7);
  });
}

// A capture includes the neighbour's stream, and the call is outside the capture.
TEST_F(SharedMemoryTest, ACallThatCannotWaitForANeighbourIsRefused) {
  for (const bool is_captured : {false, true}) {
    expect_right_in_any_order([is_captured](Device device) {
      const Stream stream(device), second(device);
      Context a(device), b(device);
      const Tensor x = filled(device, 3), cache = filled(device, 0);
      const Writer prefill = writer(a, true);
      const Reader decode = reader(b, true);
      {
        const StreamScope scope(stream);
        prefill(x, cache);
      }
      const Capture capture(stream, CaptureMode::kThreadLocal);
      std::optional<Capture> other;
      if (is_captured) other.emplace(second, CaptureMode::kThreadLocal);
      const StreamScope inside(second);
      try {
        (void)decode(cache);
        return false;
      } catch (const CaptureError& error) {
        return std::string(error.what()).find("are used by two contexts") != std::string::npos;
      }
    });
  }
}

// Each owner of memory orders its own work. Here another context does the work.
TEST_F(SharedMemoryTest, AnOutputThatAnotherContextWritesIsReadWhenItWasWritten) {
  enum class Made { kReplayed, kCopied, kEagerly };
  for (const Made made : {Made::kReplayed, Made::kCopied, Made::kEagerly}) {
    for (const bool by_owner : {true, false}) {
      expect_right_in_any_order([&](Device device) {
        Context a(device), b(device), c(device);
        const std::vector<Tensor> x = inputs(device);
        const CompiledFunction make = compile(a, "make", [](Tensor x) { return affine(x, 1, 0); },
                                              {.enabled = made != Made::kEagerly});
        const Reader read = reader(by_owner ? a : c, false);
        const Writer write = writer(b, false);
        std::vector<Tensor> kept;
        for (int call = 0; made == Made::kCopied && call < 10; ++call)
          kept.push_back(make(x[0]));
        bool is_right = true;
        for (int round = 1; round <= 3; ++round) {
          const Tensor y = make(x[round]);
          write(x[round + 2], y);
          is_right = is_right && holds(read(y), static_cast<float>(2 * (round + 2) + 1));
          if (made == Made::kCopied) kept.push_back(y);
        }
        return is_right;
      });
    }
  }
}

// Random programs of three contexts over three buffers: the results equal those of a model that
// runs one call after another.
TEST_F(SharedMemoryTest, RandomCallsOfThreeContextsAreAsIfMadeOnOneStream) {
  std::mt19937 random(std::random_device{}());
  expect_right_in_any_order([&](Device device) {
    struct Server {
      explicit Server(Device device)
          : context(device),
            write_static(writer(context, true)),
            write_copied(writer(context, false)),
            read_static(reader(context, true)),
            read_copied(reader(context, false)),
            make(compile(context, "make", [](Tensor x) { return twice(x); })) {}

      Context context;
      Writer write_static, write_copied;
      Reader read_static, read_copied, make;
    };
    const auto pick = [&](std::size_t count) { return random() % count; };
    const std::vector<Tensor> x = inputs(device, 31);
    std::vector<Tensor> buffers;
    for (int i = 0; i < 3; ++i)
      buffers.push_back(filled(device, 0));
    std::vector<std::unique_ptr<Server>> servers;
    for (int i = 0; i < 3; ++i)
      servers.push_back(std::make_unique<Server>(device));
    std::vector<float> model(3, 0);
    std::vector<std::pair<Tensor, float>> made;
    for (int call = 0; call < 30; ++call) {
      std::unique_ptr<Server>& server = servers[pick(3)];
      const std::size_t i = pick(3);
      const auto value = static_cast<float>(call + 1);
      switch (pick(6)) {
        case 0:
          server->write_static(x[call + 1], buffers[i]);
          model[i] = 2 * value;
          break;
        case 1:
          server->write_copied(x[call + 1], buffers[i]);
          model[i] = 2 * value;
          break;
        case 2:
          made.emplace_back(server->read_static(buffers[i]), model[i] + 1);
          break;
        case 3:
          made.emplace_back(server->read_copied(buffers[i]), model[i] + 1);
          break;
        case 4:
          (void)server->make.into(buffers[i])(x[call + 1]);
          model[i] = 2 * value;
          break;
        default:
          if (pick(5) == 0) {
            made.clear();
            server = std::make_unique<Server>(device);
          }
      }
    }
    bool is_right = true;
    for (const auto& [tensor, expected] : made)
      is_right = is_right && holds(tensor, expected);
    wait_for_all(device);
    for (std::size_t i = 0; i < 3; ++i)
      is_right = is_right && holds(buffers[i], model[i]);
    return is_right;
  });
}

class NeighbourCostTest : public ::testing::Test {
 protected:
  void SetUp() override { HostSlot::instance().put(trace_.device()); }
  void TearDown() override { HostSlot::instance().put(host_device_api()); }

  Device device() const { return HostSlot::instance().device(); }
  Tensor zeros() const { return from_host<float>({3}, std::vector<float>(3), device()); }
  // Calls the function until it replays, and returns the number of driver calls of ten more
  // replays.
  template <typename Call>
  std::vector<TracedCall> calls_of_replays(const Call& call) {
    for (int i = 0; i < 4; ++i)
      call();
    trace_.clear();
    for (int i = 0; i < 10; ++i)
      call();
    return trace_.calls();
  }
  static CompiledFunction<void(Tensor)> updating(Context& context) {
    return compile(context, "update", [](Tensor x) { update(x, 1, 1); },
                   {.inputs = {{.is_static = true, .is_mutated = true}}});
  }

  CallTrace trace_{host_device_api()};
};

TEST_F(NeighbourCostTest, ContextsThatShareNothingMakeOneDriverCallForEachReplay) {
  Context a(device()), b(device());
  const auto f = updating(a), g = updating(b);
  const Tensor x = zeros(), y = zeros();

  const auto calls = calls_of_replays([&] {
    f(x);
    g(y);
  });

  EXPECT_EQ(calls.size(), 20u);
}

TEST_F(NeighbourCostTest, NeighboursOnOneStreamMakeOneDriverCallForEachReplay) {
  const Stream stream(device());
  Context a(device(), {.stream = stream.ref()}), b(device(), {.stream = stream.ref()});
  const auto f = updating(a), g = updating(b);
  const Tensor x = zeros();

  const StreamScope scope(stream);
  const auto calls = calls_of_replays([&] {
    f(x);
    g(x);
  });

  EXPECT_EQ(calls.size(), 20u) << to_string(calls.front());
}

// A neighbour without new work is waited for once.
TEST_F(NeighbourCostTest, AReplayWaitsForTheSameUseOnce) {
  Context a(device()), b(device());
  const auto f = updating(a), g = updating(b);
  const Tensor x = zeros();
  f(x);

  (void)calls_of_replays([&] { g(x); });

  EXPECT_EQ(trace_.count("wait_event"), 0u);
  EXPECT_EQ(trace_.count("record_event"), 10u);
}

// Each call of the reader waits for the owner's stream and notes a reader; there is no other cost.
TEST_F(NeighbourCostTest, AnOutputThatItsOwnerWritesMakesNoNeighbours) {
  Context a(device()), b(device());
  const CompiledFunction make = compile(a, "make", [](Tensor x) { return affine(x, 1, 1); });
  const auto update_own = updating(a);
  const CompiledFunction take = compile(b, "take", [](Tensor x) { return affine(x, 1, 1); });
  const Tensor x = zeros();

  (void)calls_of_replays([&] {
    const Tensor y = make(x);
    update_own(y);
    (void)take(y);
  });

  EXPECT_EQ(trace_.count("record_event"), 20u);
}

// Each piece has its own end of use, of which a neighbour has few. Ends that a call waits for are
// merged.
TEST_F(NeighbourCostTest, ManyPiecesThatNeighboursHaveUsedAreWaitedForOnce) {
  Context a(device()), b(device()), c(device());
  const auto update_all = updating(a);
  const auto reading = [](Context& context) {
    return compile(context, "read", [](Tensor x) { return affine(x, 1, 1); });
  };
  const auto read_first = reading(b), read_second = reading(c);
  constexpr int kPieces = 12;  // of each neighbour
  const Tensor all = from_host<float>({300}, std::vector<float>(300), device());
  update_all(all);
  for (int i = 0; i < kPieces; ++i) {
    (void)read_first(all.slice(0, 3 * i, 3 * i + 2));
    (void)read_second(all.slice(0, 150 + 3 * i, 150 + 3 * i + 2));
  }
  for (int call = 0; call < 4; ++call)
    update_all(all);
  trace_.clear();

  for (int call = 0; call < 10; ++call)
    update_all(all);

  EXPECT_EQ(trace_.count("wait_event"), 0u);
}

// Each piece has its own end of use, which stays until the piece is used again.
TEST_F(NeighbourCostTest, MemoryThatIsAnotherAtEachCallLeavesFewEvents) {
  Context a(device()), b(device());
  const auto update_one = updating(a);
  const auto read = compile(b, "read", [](Tensor x) { return affine(x, 1, 1); });
  std::vector<Tensor> pieces;
  for (int i = 0; i < 300; ++i) {
    pieces.push_back(zeros());
    update_one(pieces.back());
    EXPECT_EQ(read(pieces.back()).to_vector<float>(), std::vector<float>(3, 2));
  }
  EXPECT_LE(trace_.count("create_event"), trace_.count("destroy_event") + 80u);
}

TEST_F(NeighbourCostTest, ContextsThatOnlyReadAreNoNeighbours) {
  Context a(device()), b(device());
  const auto reads = [](Context& context) {
    return compile(context, "read", [](Tensor x) { return affine(x, 1, 1); },
                   {.inputs = {{.is_static = true}}});
  };
  const auto f = reads(a), g = reads(b);
  const Tensor x = zeros();

  const auto calls = calls_of_replays([&] {
    (void)f(x);
    (void)g(x);
  });

  EXPECT_EQ(calls.size(), 20u);
}

}  // namespace
}  // namespace cgtree::testing
