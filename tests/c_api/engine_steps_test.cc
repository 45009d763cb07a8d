// Steps of an engine through C: calls and refusals.
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "interop/device/graph_api.h"
#include "tests/c_api/step_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The work is cache += tokens.
class EngineStepsTest : public CStepTest {
 protected:
  void SetUp() override {
    CStepTest::SetUp();
    if (IsSkipped()) return;
    EXPECT_DONE(cgt_stream_create(c_device(device()), 0, &stream_));
    cache_ = make_tensor_of(device(), {0, 0});
  }
  void TearDown() override {
    if (IsSkipped()) return;
    cache_ = OwnedTensor();
    CStepTest::TearDown();
    EXPECT_DONE(cgt_stream_destroy(stream_));
  }

  OwnedFunction make_steps(std::uint32_t of_cache = CGT_INPUT_MUTATED) {
    const cgt_input_options bindings[] = {
        {.struct_size = sizeof(cgt_input_options), .flags = CGT_INPUT_COPIED, .name = "tokens"},
        {.struct_size = sizeof(cgt_input_options), .flags = of_cache, .name = "cache"}};
    const cgt_function_options options = {
        .struct_size = sizeof(options), .inputs = bindings, .input_count = 2};
    OwnedFunction steps;
    EXPECT_DONE(
        cgt_steps_create(context_, "decode", &options, CGT_CAPTURE_MODE_THREAD_LOCAL, steps.out()));
    return steps;
  }
  static cgt_binding binding_of(cgt_tensor tensor) {
    const cgt_tensor_info info = info_of(tensor);
    return CGT_BINDING(info.data, static_cast<std::size_t>(info.elements) * sizeof(float));
  }
  cgt_status begin(cgt_function steps, cgt_tensor tokens, std::int64_t draft,
                   std::int32_t* must_run) {
    const cgt_binding bindings[] = {binding_of(tokens), binding_of(cache_)};
    const cgt_key_part key[] = {CGT_KEY_NUMBER("draft", draft), CGT_KEY_TEXT("adapter", "en")};
    return cgt_step_begin(steps, key, 2, bindings, 2, &stream_, must_run);
  }
  void enqueue(cgt_function steps) {
    const StreamRef stream(device(), static_cast<StreamHandle>(stream_.native));
    void *tokens = nullptr, *cache = nullptr;
    EXPECT_DONE(cgt_step_address(steps, 0, &tokens));
    EXPECT_DONE(cgt_step_address(steps, 1, &cache));
    const float one = 1;
    const std::int64_t count = 2;
    check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(count),
                                        arguments_of(one, tokens, cache, count)),
          "axpy");
  }
  // Returns the number of times that the work was enqueued.
  int call(cgt_function steps, cgt_tensor tokens, std::int64_t draft) {
    std::int32_t must_run = -1;
    int runs = 0;
    EXPECT_DONE(begin(steps, tokens, draft, &must_run));
    while (must_run == 1) {
      enqueue(steps);
      ++runs;
      EXPECT_DONE(cgt_step_end(steps, &must_run));
    }
    EXPECT_EQ(must_run, 0);
    EXPECT_DONE(cgt_stream_synchronize(stream_));
    return runs;
  }
  cgt_stream stream_ = {};
  OwnedTensor cache_;
};
CGTREE_ON_ALL_DEVICES(EngineStepsTest);

TEST_P(EngineStepsTest, WorkIsReplayedWithTokensFromWhereverTheyAre) {
  const OwnedFunction steps = make_steps();
  const OwnedTensor first = make_tensor_of(device(), {1, 2}),
                    second = make_tensor_of(device(), {10, 20});
  EXPECT_EQ(call(steps, first, 0), 1);
  EXPECT_EQ(call(steps, second, 0), 1);
  EXPECT_EQ(call(steps, second, 0), 0);
  EXPECT_EQ(call(steps, first, 0), 0);
  EXPECT_EQ(call(steps, first, 1), 1);  // another key
  EXPECT_THAT(values_of(cache_), ElementsAre(23, 46));
  EXPECT_EQ(stats(steps)["replays"], 2);
}

// User data of a break: the address of the cache, and the numbers of calls and releases.
struct BreakInC {
  void* cache = nullptr;
  int calls = 0;
  int releases = 0;
  cgt_status status = CGT_OK;

  // cache += value * cache, with the value of binding 1.
  static cgt_status run(void* user, const cgt_step_values* values) {
    auto& self = *static_cast<BreakInC*>(user);
    ++self.calls;
    const void* value = nullptr;
    std::size_t bytes = 0;
    cgt_stream stream = {};
    EXPECT_DONE(cgt_step_value(values, 1, &value, &bytes));
    EXPECT_EQ(bytes, sizeof(float));
    EXPECT_DONE(cgt_current_stream(&stream));
    EXPECT_NE(cgt_step_value(values, 0, &value, &bytes), CGT_OK);
    const StreamRef on(Device{static_cast<DeviceType>(stream.device.type), stream.device.id},
                       static_cast<StreamHandle>(stream.native));
    const std::int64_t count = 2;
    check(on.graphs().launch_kernel(
              on.handle(), axpy_kernel(), dims_for(count),
              arguments_of(*static_cast<const float*>(value), self.cache, self.cache, count)),
          "axpy");
    return self.status;
  }
  static void release(void* user) { ++static_cast<BreakInC*>(user)->releases; }
};

TEST_P(EngineStepsTest, ABreakSeesTheStepBlockOfEachCall) {
  BreakInC in_break;
  {
    const cgt_input_options bindings[] = {
        {.struct_size = sizeof(cgt_input_options), .flags = CGT_INPUT_MUTATED, .name = "cache"},
        {.struct_size = sizeof(cgt_input_options), .name = "factor", .host_bytes = sizeof(float)}};
    const cgt_function_options options = {
        .struct_size = sizeof(options), .inputs = bindings, .input_count = 2};
    OwnedFunction steps;
    EXPECT_DONE(
        cgt_steps_create(context_, "decode", &options, CGT_CAPTURE_MODE_THREAD_LOCAL, steps.out()));
    cache_ = make_tensor_of(device(), {1, 2});
    in_break.cache = info_of(cache_).data;
    for (int call = 0; call < 5; ++call) {
      const float factor = static_cast<float>(call);
      const cgt_binding given[] = {binding_of(cache_), CGT_BINDING(&factor, sizeof(factor))};
      std::int32_t must_run = 0;
      EXPECT_DONE(cgt_step_begin(steps, nullptr, 0, given, 2, &stream_, &must_run));
      while (must_run == 1) {
        EXPECT_DONE(cgt_eager_break(&BreakInC::run, &in_break, &BreakInC::release));
        EXPECT_DONE(cgt_step_end(steps, &must_run));
      }
      EXPECT_DONE(cgt_stream_synchronize(stream_));
      EXPECT_EQ(in_break.calls, call + 1);
    }
    EXPECT_THAT(values_of(cache_), ElementsAre(120, 240));
    EXPECT_EQ(in_break.releases, 1);  // after the warm-up; the recording keeps its own
    in_break.status = CGT_INVALID_ARGUMENT;
    const float factor = 0;
    const cgt_binding given[] = {binding_of(cache_), CGT_BINDING(&factor, sizeof(factor))};
    std::int32_t must_run = 0;
    EXPECT_FAILS(cgt_step_begin(steps, nullptr, 0, given, 2, &stream_, &must_run),
                 CGT_INVALID_ARGUMENT, "eager break");
    const cgt_binding wrong[] = {binding_of(cache_), CGT_BINDING(&factor, 2)};
    EXPECT_FAILS(cgt_step_begin(steps, nullptr, 0, wrong, 2, &stream_, &must_run),
                 CGT_INVALID_ARGUMENT, "declared with 4");
  }
  EXPECT_EQ(in_break.releases, 2);
  EXPECT_FAILS(cgt_eager_break(&BreakInC::run, &in_break, &BreakInC::release), CGT_INVALID_ARGUMENT,
               "outside of a step");
  EXPECT_EQ(in_break.releases, 3);
}

TEST_P(EngineStepsTest, ADecisionOfTheHostIsAskedBeforeEachReplay) {
  struct Splits {
    std::int64_t now = 1;
    int releases = 0;
  } splits;
  const auto ask = [](void* user) { return static_cast<Splits*>(user)->now; };
  const auto release = [](void* user) { ++static_cast<Splits*>(user)->releases; };
  {
    OwnedFunction steps;
    EXPECT_DONE(
        cgt_steps_create(context_, "decode", nullptr, CGT_CAPTURE_MODE_THREAD_LOCAL, steps.out()));
    cache_ = make_tensor_of(device(), {1, 2});
    for (int call = 0; call < 12; ++call) {
      splits.now = 1 + call % 2;
      const cgt_binding given[] = {binding_of(cache_)};
      std::int32_t must_run = 0;
      EXPECT_DONE(cgt_step_begin(steps, nullptr, 0, given, 1, &stream_, &must_run));
      EXPECT_EQ(must_run, call < 4 ? 1 : 0) << call;
      while (must_run == 1) {
        std::int64_t answer = 0;
        EXPECT_DONE(cgt_decide("splits", ask, &splits, release, &answer));
        EXPECT_EQ(answer, splits.now);
        EXPECT_DONE(cgt_step_end(steps, &must_run));
      }
    }
    EXPECT_EQ(splits.releases, 0);
  }
  EXPECT_EQ(splits.releases, 4);  // two warm-ups and two recordings
  std::int64_t answer = 0;
  EXPECT_DONE(cgt_decide("splits", ask, &splits, release, &answer));  // outside a step
  EXPECT_EQ(splits.releases, 5);
  EXPECT_FAILS(cgt_decide("splits", nullptr, &splits, release, &answer), CGT_INVALID_ARGUMENT,
               "the function of a guard");
  EXPECT_EQ(splits.releases, 6);
}

TEST_P(EngineStepsTest, WorkThatRefusesItsCaptureRunsOnceMoreAndThenWithoutAGraph) {
  OwnedFunction steps;
  EXPECT_DONE(
      cgt_steps_create(context_, "decode", nullptr, CGT_CAPTURE_MODE_THREAD_LOCAL, steps.out()));
  cache_ = make_tensor_of(device(), {1, 2});
  for (int call = 0; call < 4; ++call) {
    const cgt_binding given[] = {binding_of(cache_)};
    std::int32_t must_run = 0;
    int runs = 0;
    EXPECT_DONE(cgt_step_begin(steps, nullptr, 0, given, 1, &stream_, &must_run));
    while (must_run == 1) {
      ++runs;
      EXPECT_DONE(cgt_refuse_capture(call < 2 ? "the engine would not enqueue" : nullptr));
      EXPECT_DONE(cgt_step_end(steps, &must_run));
    }
    EXPECT_EQ(runs, call == 1 ? 2 : 1);
  }
}

using InBreak = std::function<void(const cgt_step_values*)>;

// Adds a break to the step that calls in_break, which must outlive it.
void add_break(InBreak& in_break) {
  EXPECT_DONE(cgt_eager_break(
      [](void* user, const cgt_step_values* values) -> cgt_status {
        (*static_cast<InBreak*>(user))(values);
        return CGT_OK;
      },
      &in_break, nullptr));
}

TEST_P(EngineStepsTest, ATensorThatABreakDestroysIsReleasedWhenTheOutermostCallReturns) {
  const OwnedFunction steps = make_steps();
  const OwnedTensor tokens = make_tensor_of(device(), {1, 2});
  const OwnedTensor memory = make_tensor_of(device(), {3, 4});
  int released = 0;
  cgt_tensor imported = nullptr;
  const auto import = [&] {
    const cgt_tensor_info info = info_of(memory);
    const cgt_cai array = {.struct_size = sizeof(array),
                           .version = 3,
                           .ndim = 1,
                           .shape = info.shape,
                           .data = reinterpret_cast<std::uintptr_t>(info.data),
                           .typestr = "<f4"};
    const cgt_cai_import_options options = {.struct_size = sizeof(options), .consumer = &stream_};
    EXPECT_DONE(cgt_tensor_from_cai(
        &array, &released, [](void* count) { ++*static_cast<int*>(count); }, &options, &imported));
  };
  int breaks = 0;
  InBreak in_break = [&](const cgt_step_values*) {
    EXPECT_DONE(cgt_tensor_destroy(imported));
    EXPECT_EQ(released, breaks);  // an outer call may still use it as an input
    ++breaks;
  };
  for (int call = 0; call < 4; ++call) {
    import();
    std::int32_t must_run = 0;
    EXPECT_DONE(begin(steps, tokens, 0, &must_run));
    EXPECT_EQ(released, call < 2 ? call : call + 1);
    while (must_run == 1) {
      enqueue(steps);
      add_break(in_break);
      EXPECT_EQ(released, call == 0 ? 1 : call);
      EXPECT_DONE(cgt_step_end(steps, &must_run));
    }
    EXPECT_EQ(released, call + 1);
    EXPECT_EQ(breaks, call + 1);
    EXPECT_DONE(cgt_stream_synchronize(stream_));
  }
  EXPECT_THAT(values_of(cache_), ElementsAre(4, 8));
}

TEST_P(EngineStepsTest, AStepIsNotEndedInItsOwnBreak) {
  const OwnedFunction steps = make_steps();
  const OwnedTensor tokens = make_tensor_of(device(), {1, 2});
  std::int32_t inner = -1;
  int breaks = 0;
  bool is_running = true;  // false while the step ends or replays
  InBreak in_break = [&](const cgt_step_values*) {
    ++breaks;
    EXPECT_NE(cgt_step_end(steps, &inner), CGT_OK);
    EXPECT_EQ(last_error().status, CGT_INVALID_ARGUMENT);
    EXPECT_EQ(inner, is_running ? 1 : 0);
  };
  for (int call = 0; call < 4; ++call) {
    std::int32_t must_run = 0;
    is_running = call == 0;
    EXPECT_DONE(begin(steps, tokens, 0, &must_run));
    while (must_run == 1) {
      enqueue(steps);
      add_break(in_break);
      enqueue(steps);
      EXPECT_DONE(cgt_step_end(steps, &must_run));
    }
    EXPECT_DONE(cgt_stream_synchronize(stream_));
  }
  EXPECT_EQ(breaks, 4);
  EXPECT_EQ(stats(steps)["failures"], 0);
  EXPECT_THAT(values_of(cache_), ElementsAre(8, 16));
}

// In an eager run, the step is left when the break returns; in a call of end(), it ends.
TEST_P(EngineStepsTest, AStepThatIsLeftOrDestroyedInItsOwnBreakIsGoneWhenTheBreakReturns) {
  const OwnedTensor tokens = make_tensor_of(device(), {1, 2});
  for (const bool destroys : {false, true}) {
    for (const int last : {0, 1, 2}) {
      OwnedFunction steps = make_steps();
      int call = 0;
      InBreak in_break = [&](const cgt_step_values*) {
        if (call < last) return;
        if (destroys) {
          steps.reset();
        } else if (call < 2) {
          EXPECT_DONE(cgt_step_leave(steps));
        }
      };
      std::int32_t must_run = 0;
      for (; call <= last; ++call) {
        EXPECT_DONE(begin(steps, tokens, 0, &must_run));
        if (must_run == 0) continue;
        enqueue(steps);
        add_break(in_break);
        if (call == 0 && last == 0) {
          EXPECT_NE(cgt_step_end(steps, &must_run), CGT_OK);  // it is closed
          EXPECT_NE(cgt_current_stream(&stream_), CGT_OK);
        } else {
          EXPECT_DONE(cgt_step_end(steps, &must_run));
          EXPECT_EQ(must_run, 0);
        }
      }
      EXPECT_DONE(cgt_context_mark_step(context_));
      EXPECT_DONE(cgt_stream_synchronize(stream_));
    }
  }
  EXPECT_THAT(values_of(cache_), ElementsAre(12, 24));
}

TEST_P(EngineStepsTest, AStepKeepsItsStreamWhateverIsPoppedMeanwhile) {
  const OwnedTensor tokens = make_tensor_of(device(), {1, 2});
  cgt_stream side = {}, current = {};
  EXPECT_DONE(cgt_stream_create(c_device(device()), 0, &side));
  for (const bool is_popped : {true, false}) {
    const OwnedFunction steps = make_steps();
    for (int call = 0; call < 2; ++call) {
      EXPECT_DONE(cgt_stream_push(side));
      std::int32_t must_run = 0;
      EXPECT_DONE(begin(steps, tokens, 0, &must_run));
      EXPECT_DONE(
          cgt_stream_push(side));  // a scope that begins and ends inside the step is permitted
      EXPECT_DONE(cgt_stream_pop());
      if (is_popped) {
        EXPECT_DONE(cgt_stream_pop());
      }
      EXPECT_DONE(cgt_current_stream(&current));
      EXPECT_EQ(current.native, stream_.native);
      enqueue(steps);
      EXPECT_DONE(cgt_step_end(steps, &must_run));
      if (!is_popped) {
        EXPECT_DONE(cgt_current_stream(&current));
        EXPECT_EQ(current.native, side.native);
        EXPECT_DONE(cgt_stream_pop());
      }
      EXPECT_FAILS(cgt_current_stream(&current), CGT_INVALID_ARGUMENT, "no stream is current");
    }
  }
  EXPECT_DONE(cgt_stream_synchronize(stream_));
  EXPECT_DONE(cgt_stream_destroy(side));
  EXPECT_THAT(values_of(cache_), ElementsAre(4, 8));
}

TEST_P(EngineStepsTest, AStepThatIsLeftHasNotHappened) {
  const OwnedFunction steps = make_steps();
  const OwnedTensor tokens = make_tensor_of(device(), {1, 2});
  for (int i = 0; i < 2; ++i) {
    std::int32_t must_run = 0;
    EXPECT_DONE(begin(steps, tokens, 0, &must_run));
    EXPECT_EQ(must_run, 1);
    EXPECT_DONE(cgt_step_leave(steps));
    EXPECT_EQ(call(steps, tokens, 0), 1);
  }
  EXPECT_EQ(call(steps, tokens, 0), 0);
  EXPECT_THAT(values_of(cache_), ElementsAre(3, 6));
}

TEST_P(EngineStepsTest, AnInvalidatedStepIsRecordedAgain) {
  const OwnedFunction steps = make_steps();
  const OwnedTensor tokens = make_tensor_of(device(), {1, 2});
  for (int i = 0; i < 3; ++i)
    call(steps, tokens, 0);
  std::size_t dropped = 0;
  const cgt_binding cache = binding_of(cache_);
  EXPECT_DONE(cgt_steps_invalidate(steps, cache.address, cache.bytes, &dropped));
  EXPECT_EQ(dropped, 1u);
  const cgt_binding bindings[] = {binding_of(tokens), cache};
  const cgt_key_part key[] = {CGT_KEY_NUMBER("draft", 0), CGT_KEY_TEXT("adapter", "en")};
  EXPECT_THAT(text_of(cgt_steps_explain, steps, key, 2, bindings, 2), HasSubstr("record"));
  EXPECT_EQ(call(steps, tokens, 0), 1);
}

TEST_P(EngineStepsTest, MisuseIsAStatusAndChangesNothing) {
  const OwnedFunction steps = make_steps();
  const OwnedTensor tokens = make_tensor_of(device(), {1, 2});
  std::int32_t must_run = 0;
  void* address = nullptr;
  EXPECT_FAILS(cgt_step_end(steps, &must_run), CGT_INVALID_ARGUMENT, "no step is open");
  EXPECT_FAILS(cgt_step_leave(steps), CGT_INVALID_ARGUMENT, "no step is open");
  EXPECT_FAILS(cgt_step_address(steps, 0, &address), CGT_INVALID_ARGUMENT, "no step is open");
  EXPECT_DONE(begin(steps, tokens, 0, &must_run));
  EXPECT_FAILS(begin(steps, tokens, 0, &must_run), CGT_INVALID_ARGUMENT, "a step is open");
  EXPECT_FAILS(cgt_step_address(steps, 2, &address), CGT_INVALID_ARGUMENT, "with 2 bindings");
  std::thread([&] {
    EXPECT_FAILS(cgt_step_end(steps, &must_run), CGT_INVALID_ARGUMENT, "on another thread");
    EXPECT_FAILS(cgt_step_leave(steps), CGT_INVALID_ARGUMENT, "on another thread");
    EXPECT_FAILS(cgt_function_destroy(steps), CGT_INVALID_ARGUMENT, "on another thread");
  }).join();
  enqueue(steps);
  EXPECT_DONE(cgt_step_end(steps, &must_run));

  const cgt_binding null[] = {CGT_BINDING(nullptr, 8)};
  EXPECT_FAILS(cgt_step_begin(steps, nullptr, 0, null, 1, &stream_, &must_run),
               CGT_INVALID_ARGUMENT, "binding 0 'tokens' of 'decode' is null");
  EXPECT_FAILS(cgt_step_begin(steps, nullptr, 1, nullptr, 0, &stream_, &must_run),
               CGT_INVALID_ARGUMENT, "key");
  const cgt_key_part nameless = CGT_KEY_NUMBER(nullptr, 0);
  EXPECT_FAILS(cgt_step_begin(steps, &nameless, 1, nullptr, 0, &stream_, &must_run),
               CGT_INVALID_ARGUMENT, "key part 0");
  EXPECT_FAILS(cgt_step_end(reinterpret_cast<cgt_function>(cgt_context(context_)), &must_run),
               CGT_INVALID_HANDLE, "the handle of a context: expected a function");
  cgt_function none = nullptr;
  EXPECT_FAILS(cgt_steps_create(context_, "x", nullptr, 3, &none), CGT_INVALID_ARGUMENT,
               "capture mode is 3");
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(call(steps, tokens, 0), 1);
  EXPECT_EQ(call(steps, tokens, 0), 0);
  EXPECT_THAT(values_of(cache_), ElementsAre(3, 6));
}

TEST_P(EngineStepsTest, AFunctionOfTheOtherKindIsRefused) {
  const OwnedFunction compiled = compile(affine_step);
  OwnedFunction steps;
  EXPECT_DONE(
      cgt_steps_create(context_, "engine", nullptr, CGT_CAPTURE_MODE_THREAD_LOCAL, steps.out()));
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  const cgt_tensor inputs[] = {x};
  cgt_tensor y = nullptr;
  EXPECT_FAILS(cgt_call(steps, inputs, 1, &y, 1), CGT_INVALID_ARGUMENT,
               "'engine' was made by cgt_steps_create()");
  const char* text = nullptr;
  EXPECT_FAILS(cgt_function_explain(steps, nullptr, 0, inputs, 1, &text), CGT_INVALID_ARGUMENT,
               "expected a function made by cgt_compile()");
  EXPECT_FAILS(cgt_function_histogram_json(steps, "rows", &text), CGT_INVALID_ARGUMENT,
               "expected a function made by cgt_compile()");
  std::int32_t must_run = 0;
  EXPECT_FAILS(cgt_step_begin(compiled, nullptr, 0, nullptr, 0, &stream_, &must_run),
               CGT_INVALID_ARGUMENT, "expected a function made by cgt_steps_create()");
  EXPECT_FAILS(cgt_step_end(compiled, &must_run), CGT_INVALID_ARGUMENT, "made by cgt_compile()");
  EXPECT_FAILS(cgt_steps_invalidate(compiled, info_of(x).data, 8, nullptr), CGT_INVALID_ARGUMENT,
               "made by cgt_compile()");
  EXPECT_EQ(y, nullptr);
}

TEST_P(EngineStepsTest, ABindingIsCheckedUnlessItIsCopied) {
  cgt_input_options role = {.struct_size = sizeof(role), .flags = CGT_INPUT_MUTATED, .name = "kv"};
  cgt_function_options options = {
      .struct_size = sizeof(options), .inputs = &role, .input_count = 1};
  OwnedFunction steps;
  EXPECT_DONE(
      cgt_steps_create(context_, "decode", &options, CGT_CAPTURE_MODE_THREAD_LOCAL, steps.out()));
  const cgt_binding cache = binding_of(cache_);
  for (int i = 0; i < 3; ++i) {
    std::int32_t must_run = 0;
    EXPECT_DONE(cgt_step_begin(steps, nullptr, 0, &cache, 1, &stream_, &must_run));
    while (must_run == 1) {
      void* address = nullptr;
      EXPECT_DONE(cgt_step_address(steps, 0, &address));
      EXPECT_EQ(address, cache.address);
      EXPECT_DONE(cgt_step_end(steps, &must_run));
    }
  }
  role.flags = CGT_INPUT_STATIC;
  OwnedFunction refused;
  EXPECT_FAILS(
      cgt_steps_create(context_, "decode", &options, CGT_CAPTURE_MODE_THREAD_LOCAL, refused.out()),
      CGT_INVALID_ARGUMENT, "binding 0 'kv' has CGT_INPUT_STATIC");
  role.flags = CGT_INPUT_MUTATED;
  for (const double tolerance : {0.5, -HUGE_VAL}) {
    role.tolerance = tolerance;
    EXPECT_FAILS(cgt_steps_create(context_, "decode", &options, CGT_CAPTURE_MODE_THREAD_LOCAL,
                                  refused.out()),
                 CGT_INVALID_ARGUMENT, "bytes have none");
  }
  role.tolerance = 0;
  role.flags = CGT_INPUT_COPIED;
  const cgt_step step = {
      sizeof(step), 0,
      [](void*, const cgt_tensor*, size_t, cgt_tensor*, size_t) -> cgt_status { return CGT_OK; },
      nullptr, nullptr};
  OwnedFunction none;
  EXPECT_FAILS(cgt_compile(context_, "f", &step, &options, none.out()), CGT_INVALID_ARGUMENT,
               "CGT_INPUT_COPIED is for cgt_steps_create()");
  role.flags = CGT_INPUT_SESSION;
  EXPECT_FAILS(cgt_compile(context_, "f", &step, &options, none.out()), CGT_INVALID_ARGUMENT,
               "CGT_INPUT_SESSION is for cgt_steps_create()");
  role.flags = CGT_INPUT_SESSION | CGT_INPUT_COPIED;
  EXPECT_FAILS(cgt_steps_create(context_, "f", &options, CGT_CAPTURE_MODE_THREAD_LOCAL, none.out()),
               CGT_INVALID_ARGUMENT, "has CGT_INPUT_SESSION, and may lie anywhere");
}

TEST_P(EngineStepsTest, ABindingPerSessionHasOneRecordingForAllSessions) {
  OwnedFunction steps = make_steps(CGT_INPUT_MUTATED | CGT_INPUT_SESSION);
  const OwnedTensor tokens = make_tensor_of(device(), {1, 2});
  int runs = 0;
  for (int session = 0; session < 4; ++session) {
    const OwnedTensor before = std::exchange(cache_, make_tensor_of(device(), {0, 0}));
    for (int i = 0; i < 2; ++i)
      runs += call(steps, tokens, 0);
    EXPECT_THAT(values_of(cache_), ElementsAre(2, 4));
  }
  EXPECT_EQ(runs, 3);  // two of the first session, and one of the second
  EXPECT_EQ(stats(steps)["recordings"], 1);
}

// The work of enqueue(), with a factor that the host decides.
struct WorkInC {
  cgt_stream stream;
  float factor;
  cgt_status status = CGT_OK;

  static cgt_status run(void* user, void* const* addresses, std::size_t bindings) {
    const auto& self = *static_cast<WorkInC*>(user);
    EXPECT_EQ(bindings, 2u);
    cgt_stream current = {};
    EXPECT_DONE(cgt_current_stream(&current));
    EXPECT_EQ(current.native, self.stream.native);
    const StreamRef on(device_of(self.stream), static_cast<StreamHandle>(self.stream.native));
    const void* const tokens = addresses[0];
    const std::int64_t count = 2;
    check(on.graphs().launch_kernel(on.handle(), axpy_kernel(), dims_for(count),
                                    arguments_of(self.factor, tokens, addresses[1], count)),
          "axpy");
    return self.status;
  }
  static Device device_of(cgt_stream stream) {
    return {static_cast<DeviceType>(stream.device.type), stream.device.id};
  }
};

TEST_P(EngineStepsTest, ARecordingIsInspectedAndComparedWithANewCapture) {
  const OwnedFunction steps = make_steps();
  const OwnedTensor tokens = make_tensor_of(device(), {1, 2});
  for (int i = 0; i < 3; ++i)
    call(steps, tokens, 0);
  const cgt_binding bindings[] = {binding_of(tokens), binding_of(cache_)};
  const cgt_key_part key[] = {CGT_KEY_NUMBER("draft", 0), CGT_KEY_TEXT("adapter", "en")};
  EXPECT_THAT(text_of(cgt_steps_inspect, steps, key, 2, bindings, 2, &stream_),
              HasSubstr("have run alone"));
  EXPECT_THAT(values_of(cache_), ElementsAre(4, 8));
  EXPECT_THAT(text_of(cgt_steps_inspect, steps, nullptr, 0, bindings, 2, &stream_),
              HasSubstr("no recording would be replayed"));
  WorkInC work = {.stream = stream_, .factor = 1};
  const auto compared = [&] {
    return text_of(cgt_steps_compare_captures, steps, key, 2, bindings, 2, &stream_, WorkInC::run,
                   static_cast<void*>(&work));
  };
  EXPECT_THAT(compared(), HasSubstr("the same 1 nodes"));
  work.factor = 3;
  EXPECT_THAT(compared(), HasSubstr("parameter 0 has 0x3f800000"));
  work.status = CGT_INVALID_ARGUMENT;
  EXPECT_THAT(compared(), HasSubstr("the work of 'decode'"));
  EXPECT_THAT(values_of(cache_), ElementsAre(4, 8));
  const char* text = nullptr;
  EXPECT_FAILS(
      cgt_steps_compare_captures(steps, key, 2, bindings, 2, &stream_, nullptr, nullptr, &text),
      CGT_INVALID_ARGUMENT, "the work of a step");
  EXPECT_FAILS(cgt_function_inspect(steps, nullptr, 0, nullptr, 0, &text), CGT_INVALID_ARGUMENT,
               "cgt_compile()");
  EXPECT_EQ(call(steps, tokens, 0), 0);
}

TEST_P(EngineStepsTest, AKeyTellsUnsignedNumbersFromNegativeOnes) {
  const OwnedFunction steps = make_steps();
  const OwnedTensor tokens = make_tensor_of(device(), {1, 2});
  const cgt_binding bindings[] = {binding_of(tokens), binding_of(cache_)};
  cgt_key_part key = CGT_KEY_NUMBER("seed", -1);
  EXPECT_THAT(text_of(cgt_steps_explain, steps, &key, 1, bindings, 2), HasSubstr("warm"));
  std::int32_t must_run = 0;
  for (const unsigned flags : {0u, unsigned{CGT_KEY_UNSIGNED}}) {
    key.flags = flags;
    EXPECT_DONE(cgt_step_begin(steps, &key, 1, bindings, 2, &stream_, &must_run));
    std::int64_t number = 0;
    EXPECT_DONE(cgt_current_key_number("seed", &number));
    EXPECT_EQ(number, -1);  // the same 64 bits as unsigned
    enqueue(steps);
    EXPECT_DONE(cgt_step_end(steps, &must_run));
  }
  EXPECT_EQ(stats(steps)["warm_ups"], 2);
  key.flags = 2;
  EXPECT_FAILS(cgt_step_begin(steps, &key, 1, bindings, 2, &stream_, &must_run),
               CGT_INVALID_ARGUMENT, "cgt_key_part: flags are");
}

TEST_P(EngineStepsTest, ATextOfAKeyHasTheBytesThatItSays) {
  const OwnedFunction steps = make_steps();
  const OwnedTensor tokens = make_tensor_of(device(), {1, 2});
  const cgt_binding bindings[] = {binding_of(tokens), binding_of(cache_)};
  cgt_key_part key = CGT_KEY_TEXT("adapter", "en-GB");
  key.text_bytes = 2;
  std::int32_t must_run = 0;
  EXPECT_DONE(cgt_step_begin(steps, &key, 1, bindings, 2, &stream_, &must_run));
  EXPECT_EQ(text_of(cgt_current_key_text, "adapter"), "en");
  EXPECT_DONE(cgt_step_leave(steps));
  key.text = "en\0GB";
  key.text_bytes = 5;
  EXPECT_FAILS(cgt_step_begin(steps, &key, 1, bindings, 2, &stream_, &must_run),
               CGT_INVALID_ARGUMENT, "control character");
}

// As a program for a later version passes them.
TEST_P(EngineStepsTest, PartsOfKeysAndBindingsMayGrow) {
  struct LaterPart {
    cgt_key_part part;
    std::uint64_t further;
  } key[2] = {{CGT_KEY_NUMBER("draft", 0), 0}, {CGT_KEY_TEXT("adapter", "en"), 0}};
  struct LaterBinding {
    cgt_binding binding;
    std::uint64_t further;
  };
  const OwnedFunction steps = make_steps();
  const OwnedTensor tokens = make_tensor_of(device(), {1, 2});
  LaterBinding bindings[2] = {{binding_of(tokens), 0}, {binding_of(cache_), 0}};
  for (auto& one : key)
    one.part.struct_size = sizeof(one);
  for (auto& one : bindings)
    one.binding.struct_size = sizeof(one);
  EXPECT_EQ(call(steps, tokens, 0), 1);
  EXPECT_EQ(call(steps, tokens, 0), 1);
  std::int32_t must_run = -1;
  EXPECT_DONE(cgt_step_begin(steps, &key[0].part, 2, &bindings[0].binding, 2, &stream_, &must_run));
  EXPECT_EQ(must_run, 0) << "it is the same call";
  bindings[1].further = 1;
  EXPECT_FAILS(cgt_step_begin(steps, &key[0].part, 2, &bindings[0].binding, 2, &stream_, &must_run),
               CGT_INVALID_ARGUMENT, "cgt_binding: struct_size is");
  bindings[1].further = 0;
  bindings[1].binding.flags = 4;
  EXPECT_FAILS(cgt_step_begin(steps, &key[0].part, 2, &bindings[0].binding, 2, &stream_, &must_run),
               CGT_INVALID_ARGUMENT, "cgt_binding: flags are 0x4");
  key[0].part.struct_size = 0;
  EXPECT_FAILS(cgt_step_begin(steps, &key[0].part, 2, nullptr, 0, &stream_, &must_run),
               CGT_INVALID_ARGUMENT, "cgt_key_part: struct_size is 0");
}

TEST_P(EngineStepsTest, TheNullStreamIsTheLegacyStream) {
  EXPECT_DONE(cgt_stream_push({c_device(device()), 0}));
  cgt_stream now = {};
  EXPECT_DONE(cgt_current_stream(&now));
  EXPECT_EQ(now.native, 1u);
  EXPECT_DONE(cgt_stream_pop());
}

TEST_P(EngineStepsTest, StepsThatEndWhileAStepIsOpenLeaveIt) {
  OwnedFunction steps = make_steps();
  const OwnedTensor tokens = make_tensor_of(device(), {1, 2});
  std::int32_t must_run = 0;
  EXPECT_DONE(begin(steps, tokens, 0, &must_run));
  steps.reset();
  EXPECT_THAT(values_of(cache_), ElementsAre(0, 0));
}

}  // namespace
}  // namespace cgtree::testing
