// Step functions through C: all permitted actions.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "interop/tensor/stream_synchronization.h"
#include "tests/c_api/step_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class StepsTest : public CStepTest {};
CGTREE_ON_ALL_DEVICES(StepsTest);

TEST_P(StepsTest, OutputsGoIntoBuffersOfTheCaller) {
  const OwnedFunction function = compile(affine_step);
  const OwnedTensor buffer = make_tensor(device(), {2});
  for (int i = 0; i < 3; ++i) {
    const OwnedTensor x = make_tensor_of(device(), {1.0f * i, 2});
    const cgt_tensor input = x, into = buffer;
    OwnedTensor y;
    EXPECT_DONE(cgt_call_keyed(function, nullptr, 0, &input, 1, &into, 1, y.out(), 1));
    EXPECT_EQ(info_of(y).data, info_of(buffer).data);
    EXPECT_THAT(values_of(buffer), ElementsAre(2.0f * i + 1, 5));
  }
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  const cgt_tensor input = x, none = nullptr;
  OwnedTensor y;
  EXPECT_DONE(cgt_call_keyed(function, nullptr, 0, &input, 1, &none, 1, y.out(), 1));
  EXPECT_NE(info_of(y).data, info_of(buffer).data);
}

TEST_P(StepsTest, IntegersOfTheKeyAreRoundedUpAndTheStepFunctionSeesThem) {
  std::vector<std::int64_t> seen;
  const std::int64_t values[] = {2, 8};
  const cgt_axis_options draft = {.struct_size = sizeof(draft),
                                  .policy = CGT_AXIS_BUCKETS,
                                  .name = "draft",
                                  .sizes = values,
                                  .size_count = 2};
  const cgt_function_options options = {
      .struct_size = sizeof(options), .keys = &draft, .key_count = 1};
  const OwnedFunction function = compile(
      [&](auto... arguments) {
        EXPECT_DONE(cgt_current_key_number("draft", &seen.emplace_back()));
        EXPECT_EQ(text_of(cgt_current_key_text, "adapter"), "en");
        std::int64_t none = 0;
        EXPECT_EQ(cgt_current_key_number("adapter", &none), CGT_INVALID_ARGUMENT);
        return affine_step(arguments...);
      },
      1, &options);
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  const cgt_tensor input = x;
  for (const std::int64_t number : {1, 2, 3, 0, 9}) {
    const cgt_key_part key[] = {CGT_KEY_NUMBER("draft", number), CGT_KEY_TEXT("adapter", "en")};
    OwnedTensor y;
    EXPECT_DONE(cgt_call_keyed(function, key, 2, &input, 1, nullptr, 0, y.out(), 1));
    EXPECT_THAT(values_of(y), ElementsAre(3, 5));
  }
  EXPECT_THAT(seen, ElementsAre(2, 2, 8, 9));

  const cgt_key_part key[] = {CGT_KEY_NUMBER("draft", 2), CGT_KEY_TEXT("adapter", "en")};
  EXPECT_THAT(text_of(cgt_function_explain, function, key, 2, &input, 1), HasSubstr("replay"));
  EXPECT_THAT(text_of(cgt_function_inspect, function, key, 2, &input, 1),
              HasSubstr("have run alone"));
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_THAT(text_of(cgt_function_compare_captures, function, key, 2, &input, 1),
              HasSubstr("the same 2 nodes"));
  EXPECT_EQ(seen.size(), 5u);
  EXPECT_THAT(text_of(cgt_function_compare_runs, function, key, 2, &input, 1),
              HasSubstr("the same 2 nodes"));
  EXPECT_EQ(text_of(cgt_function_suggest_buckets_json, function, 2), R"({"draft":[3,9]})");
  OwnedTensor y;
  const cgt_key_part wrong[] = {CGT_KEY_TEXT("draft", "two")};
  EXPECT_EQ(cgt_call_keyed(function, wrong, 1, &input, 1, nullptr, 0, y.out(), 1),
            CGT_INVALID_ARGUMENT);
  EXPECT_EQ(cgt_call(function, &input, 1, y.out(), 1), CGT_INVALID_ARGUMENT);
  std::int64_t none = 0;
  EXPECT_EQ(cgt_current_key_number("draft", &none), CGT_INVALID_ARGUMENT);
}

TEST_P(StepsTest, CallsLaunchOnTheStreamThatIsPushed) {
  std::vector<std::uintptr_t> ran_on;
  const OwnedFunction function = compile([&](auto... arguments) {
    ran_on.push_back(reinterpret_cast<std::uintptr_t>(current().native()));
    EXPECT_DONE(cgt_stream_push(c_stream(current())));  // left open
    return affine_step(arguments...);
  });
  cgt_stream mine = {}, where = {};
  EXPECT_DONE(cgt_stream_create(c_device(device()), 0, &mine));
  OwnedTensor x = make_tensor_of(device(), {1, 2}), y;
  EXPECT_DONE(cgt_stream_push(mine));
  for (int i = 0; i < 3; ++i) {
    EXPECT_DONE(call(function, x, y));
    EXPECT_THAT(values_of(y), ElementsAre(3, 5));
  }
  EXPECT_DONE(cgt_context_stream(context_, &where));
  EXPECT_EQ(where.native, mine.native);
  EXPECT_EQ(ran_on.at(0), mine.native);
  EXPECT_DONE(cgt_stream_pop());
  EXPECT_FAILS(cgt_stream_pop(), CGT_INVALID_ARGUMENT, "no cgt_stream_push() is open");
  EXPECT_FAILS(cgt_current_stream(&where), CGT_INVALID_ARGUMENT, "");

  EXPECT_DONE(cgt_stream_destroy(mine));  // the context moves to another stream
  EXPECT_DONE(cgt_context_stream(context_, &where));
  EXPECT_NE(where.native, mine.native);
  EXPECT_DONE(call(function, x, y));
  EXPECT_THAT(values_of(y), ElementsAre(3, 5));
}

TEST_P(StepsTest, MemoryThatAnotherStreamReadsIsNotUsedAgainBeforeItHasBeenRead) {
  const OwnedFunction function = compile(affine_step);
  OwnedTensor x = make_tensor_of(device(), {1, 2}), other = make_tensor_of(device(), {5, 6}), y;
  for (int i = 0; i < 3; ++i)
    EXPECT_DONE(call(function, x, y));
  const OwnedTensor read = make_tensor(device(), {2});
  cgt_stream mine = {}, calls = {};
  EXPECT_DONE(cgt_stream_create(c_device(device()), 0, &mine));
  EXPECT_DONE(cgt_context_stream(context_, &calls));
  EXPECT_DONE(cgt_stream_wait(mine, calls));
  const cgt_tensor_info from = info_of(y), to = info_of(read);
  const StreamRef stream(device(), static_cast<StreamHandle>(mine.native));
  check(stream.api().copy(stream.handle(), to.data, from.data, from.bytes), "copy");
  EXPECT_DONE(cgt_tensor_note_use(y, &mine));
  y = OwnedTensor();
  for (int i = 0; i < 4; ++i)
    EXPECT_DONE(call(function, other, y));

  EXPECT_DONE(cgt_stream_synchronize(mine));
  EXPECT_THAT(values_of(read), ElementsAre(3, 5));
  EXPECT_FAILS(cgt_tensor_note_use(y, nullptr), CGT_INVALID_ARGUMENT, "no stream is current");
  y = OwnedTensor();
  EXPECT_DONE(cgt_stream_destroy(mine));
  std::size_t bytes = 1;
  EXPECT_DONE(cgt_context_trim(context_, &bytes));
  EXPECT_EQ(bytes, 0u);  // the recordings need all of the memory
}

TEST_P(StepsTest, MemoryThatIsNoTensorIsDeclaredByNameAndItsRecordingsGoWithIt) {
  const OwnedFunction function = compile(affine_step);
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  OwnedTensor y;
  for (int i = 0; i < 2; ++i)
    EXPECT_DONE(call(function, x, y));
  std::size_t dropped = 7;
  EXPECT_DONE(cgt_context_invalidate(context_, info_of(x).data, 0, &dropped));
  EXPECT_EQ(dropped, 0u);
  EXPECT_DONE(cgt_context_invalidate(context_, info_of(y).data, 4, &dropped));
  EXPECT_EQ(dropped, 1u);

  EXPECT_DONE(cgt_context_declare(context_, "table", info_of(x).data, 8));
  EXPECT_FAILS(cgt_context_declare(context_, "other", info_of(x).data, 4), CGT_INVALID_ARGUMENT,
               "overlaps with 'table'");
  EXPECT_FAILS(cgt_context_declare(context_, nullptr, info_of(x).data, 4), CGT_INVALID_ARGUMENT,
               "the name of the memory");
  EXPECT_DONE(cgt_context_undeclare(context_, "table"));
  EXPECT_FAILS(cgt_context_undeclare(context_, "table"), CGT_INVALID_ARGUMENT, "'table'");
}

TEST_P(StepsTest, MemoryOfACallersGraphIsKeptUntilItsReleaseIsReported) {
  const OwnedFunction function = compile(affine_step);
  cgt_stream mine = {};
  EXPECT_DONE(cgt_stream_create(c_device(device()), 0, &mine));
  const StreamRef stream(device(), static_cast<StreamHandle>(mine.native));
  OwnedTensor x = make_tensor_of(device(), {1, 2}), y;
  EXPECT_DONE(cgt_stream_push(mine));
  std::uint64_t id = 0;
  {
    Capture open(stream, CaptureMode::kThreadLocal);
    id = capture_of(stream);
    EXPECT_NE(id, 0u);
    EXPECT_DONE(call(function, x, y));
    Graph captured;
    EXPECT_EQ(open.end(&captured), Code::kSuccess);
  }
  EXPECT_DONE(cgt_stream_pop());
  std::size_t released = 0;
  EXPECT_DONE(cgt_context_release_captured(context_, id + 1, &released));
  EXPECT_EQ(released, 0u);
  EXPECT_DONE(cgt_context_release_captured(context_, id, &released));
  EXPECT_EQ(released, 2u);  // of the input and the output
  EXPECT_DONE(cgt_context_release_captured(context_, 0, nullptr));
  EXPECT_DONE(cgt_stream_retire(mine));
  EXPECT_DONE(cgt_stream_destroy(mine));
}

TEST_P(StepsTest, AStepMayReturnAnyStatusOfTheHeader) {
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  for (const cgt_status status : {CGT_INTERNAL, CGT_VERIFY_FAILED}) {
    const OwnedFunction function =
        compile([&](const cgt_tensor*, std::size_t, cgt_tensor*, std::size_t) -> cgt_status {
          cgt_set_error("the engine's own check");
          return status;
        });
    OwnedTensor y;
    EXPECT_FAILS(call(function, x, y), status, "the engine's own check");
  }
}

TEST_P(StepsTest, AStaleOutputIsNamed) {
  const OwnedFunction function = compile(affine_step);
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  OwnedTensor y;
  EXPECT_DONE(call(function, x, y));
  EXPECT_DONE(cgt_context_mark_step(context_));

  float values[2];
  EXPECT_FAILS(cgt_tensor_copy_to_host(y, values, sizeof(values)), CGT_STALE_TENSOR, "decode");
}

TEST_P(StepsTest, HandlesThatAStepMakesEndWithItAsThoseOfItsInputsDo) {
  std::vector<cgt_tensor> made;
  const OwnedFunction function = compile([&](const cgt_tensor* inputs, auto... rest) {
    cgt_tensor scratch = nullptr;
    const std::int64_t size = 128;
    EXPECT_DONE(cgt_tensor_empty(CGT_FLOAT32, 1, &size, nullptr, &scratch));
    made = {scratch, inputs[0]};
    return affine_step(inputs, rest...);
  });

  expect_to_work(function);

  for (const cgt_tensor tensor : made)
    EXPECT_FAILS(cgt_tensor_destroy(tensor), CGT_INVALID_HANDLE, "destroyed");
}

TEST_P(StepsTest, AnInputThatTheStepDestroysStaysUntilTheCallIsOver) {
  cgt_tensor victim = nullptr;
  const OwnedFunction function = compile([&](const cgt_tensor* inputs, auto... rest) {
    EXPECT_DONE(cgt_tensor_destroy(victim));  // the caller's handle of the input
    EXPECT_FAILS(cgt_tensor_destroy(victim), CGT_INVALID_HANDLE, "destroyed");
    return affine_step(inputs, rest...);
  });
  for (int i = 0; i < 2; ++i) {
    victim = make_tensor_of(device(), {1, 2}).release();
    OwnedTensor y;
    EXPECT_DONE(call(function, victim, y));
    EXPECT_THAT(values_of(y), ElementsAre(3, 5));
  }
}

TEST_P(StepsTest, AStepMayDestroyItsFunctionAndItsContext) {
  OwnedContext context;
  OwnedFunction function;
  EXPECT_DONE(cgt_context_create(c_device(device()), nullptr, context.out()));
  Body body = [&](auto... arguments) {
    function.reset();
    context.reset();
    return affine_step(arguments...);
  };
  const cgt_step step = {sizeof(step), 1, run_body, &body, nullptr};
  EXPECT_DONE(cgt_compile(context, "last", &step, nullptr, function.out()));
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  OwnedTensor y;

  EXPECT_DONE(call(function, x, y));

  EXPECT_THAT(values_of(y), ElementsAre(3, 5));
}

TEST_P(StepsTest, MetricsOfSeveralContextsAreOnePage) {
  const cgt_context_options options = {.struct_size = sizeof(options), .name = "prefill"};
  cgt_context other = nullptr;
  ASSERT_EQ(cgt_context_create(c_device(device()), &options, &other), CGT_OK);
  const OwnedFunction function = compile(affine_step);
  expect_to_work(function);
  const cgt_context both[] = {context_, other};
  const std::string text = text_of(cgt_metrics_text, both, 2);
  EXPECT_THAT(text, HasSubstr("cgtree_generations_total{context=\"prefill\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("outcome=\"warm_up\"} 1\n"));
  const cgt_context twice[] = {other, other};
  const char* none = nullptr;
  EXPECT_FAILS(cgt_metrics_text(twice, 2, &none), CGT_INVALID_ARGUMENT, "both named \"prefill\"");
  EXPECT_FAILS(cgt_metrics_text(nullptr, 1, &none), CGT_INVALID_ARGUMENT, "contexts");
  EXPECT_DONE(cgt_context_destroy(other));
}

TEST_P(StepsTest, TheLastEventsAreLinesOfJsonAndAFileHasTheSame) {
  const OwnedFunction function = compile(affine_step);
  expect_to_work(function);
  const std::string text = text_of(cgt_context_recent_events, context_);
  EXPECT_THAT(text, HasSubstr("{\"event\":\"warm_up\""));
  EXPECT_EQ(nlohmann::json::parse(text.substr(0, text.find('\n')))["event"], "open");
  const std::string path = ::testing::TempDir() + "cgtree_c_recent_events.jsonl";
  EXPECT_DONE(cgt_context_dump_events(context_, path.c_str()));
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), text);
  EXPECT_FAILS(cgt_context_dump_events(context_, "/no/such/folder/x"), CGT_INVALID_ARGUMENT,
               "No such file");
  EXPECT_FAILS(cgt_context_dump_events(context_, nullptr), CGT_INVALID_ARGUMENT, "the path");
  const int signals[] = {SIGUSR1};
  EXPECT_DONE(cgt_dump_events_on_signal(path.c_str(), signals, 1));
  std::filesystem::remove(path);
  (void)raise(SIGUSR1);
  EXPECT_TRUE(std::filesystem::remove(path));
  const int none[] = {0};
  EXPECT_FAILS(cgt_dump_events_on_signal(path.c_str(), none, 1), CGT_INVALID_ARGUMENT, "signal");
  EXPECT_FAILS(cgt_dump_events_on_signal(path.c_str(), nullptr, 1), CGT_INVALID_ARGUMENT,
               "the signals");
}

TEST_P(StepsTest, AWatchSaysHowFarReplaysHaveCome) {
  const cgt_progress_options options = {
      .struct_size = sizeof(options),
      .flags = CGT_PROGRESS_NO_TIME_LIMIT | CGT_PROGRESS_TIMES_SCOPES,
      .every_nth_replay = 2};
  Owned<cgt_progress_watch, cgt_progress_watch_destroy> watch;
  EXPECT_DONE(cgt_progress_watch_create(&options, watch.out()));
  EXPECT_DONE(cgt_context_watch_progress(context_, watch));
  EXPECT_THAT(text_of(cgt_progress_watch_report, watch), HasSubstr("no replay was watched yet"));
  EXPECT_EQ(nlohmann::json::parse(text_of(cgt_progress_watch_json, watch))["schema"],
            "cgtree.progress");
  EXPECT_DONE(cgt_context_watch_progress(context_, nullptr));
  EXPECT_EQ(text_of(cgt_progress_watch_report, watch), "");

  Owned<cgt_progress_watch, cgt_progress_watch_destroy> with_defaults;
  EXPECT_DONE(cgt_progress_watch_create(nullptr, with_defaults.out()));
  EXPECT_DONE(cgt_context_watch_progress(context_, with_defaults));
  with_defaults.reset();  // the context owns it

  const cgt_progress_options unknown = {.struct_size = sizeof(unknown), .flags = 1u << 9};
  cgt_progress_watch none = nullptr;
  EXPECT_FAILS(cgt_progress_watch_create(&unknown, &none), CGT_INVALID_ARGUMENT,
               "cgt_progress_options");
  EXPECT_FAILS(cgt_progress_watch_create(nullptr, nullptr), CGT_INVALID_ARGUMENT, "is NULL");
  const char* text = nullptr;
  EXPECT_FAILS(cgt_progress_watch_report(nullptr, &text), CGT_INVALID_HANDLE, "a watch");
  EXPECT_FAILS(cgt_context_watch_progress(context_, reinterpret_cast<cgt_progress_watch>(
                                                        static_cast<cgt_context>(context_))),
               CGT_INVALID_HANDLE, "the handle of a context: expected a watch");
  EXPECT_DONE(cgt_progress_watch_destroy(nullptr));
}

TEST_P(StepsTest, AScopeNamesTheNodesThatAreCapturedUntilItIsClosed) {
  uint64_t outer = 0;
  uint64_t inner = 0;
  EXPECT_DONE(cgt_scope_open("outer", &outer));
  EXPECT_DONE(cgt_scope_open("inner", &inner));
  const OwnedFunction function = compile(affine_step);
  expect_to_work(function);
  EXPECT_DONE(cgt_scope_close(outer));
  EXPECT_DONE(cgt_scope_close(outer));
  EXPECT_DONE(cgt_scope_close(inner));
  EXPECT_THAT(text_of(cgt_context_snapshot_json, context_), HasSubstr("\"outer/inner\""));
  EXPECT_FAILS(cgt_scope_open(nullptr, &outer), CGT_INVALID_ARGUMENT, "the name of the scope");
  EXPECT_FAILS(cgt_scope_open("x", nullptr), CGT_INVALID_ARGUMENT, "the place for the result");
}

TEST_P(StepsTest, StatisticsAndSnapshotsAreJsonUntilTheThreadsNextText) {
  const OwnedFunction function = compile(affine_step);
  expect_to_work(function);
  EXPECT_TRUE(nlohmann::json::parse(text_of(cgt_context_snapshot_json, context_)).is_object());
  const char* stats = nullptr;
  EXPECT_DONE(cgt_context_stats_json(context_, &stats));
  std::thread([&] { (void)text_of(cgt_context_snapshot_json, context_); }).join();
  EXPECT_EQ(nlohmann::json::parse(stats)["calls"], 4);
  EXPECT_FAILS(cgt_context_stats_json(context_, nullptr), CGT_INVALID_ARGUMENT, "is NULL");
}

TEST_P(StepsTest, ExplanationsNameWhatCHas) {
  const OwnedFunction function = compile(affine_step);
  std::string why;
  for (int size = 1; size <= 12; ++size) {
    std::vector<float> values(static_cast<std::size_t>(size));
    const OwnedTensor x = make_tensor_of(device(), values);
    const cgt_tensor input = x;
    why = text_of(cgt_function_explain, function, nullptr, 0, &input, 1);
    OwnedTensor output;
    EXPECT_DONE(cgt_call(function, &input, 1, output.out(), 1));
  }
  EXPECT_THAT(why, HasSubstr("declare axis 0 of input 0 in cgt_axis_options.inputs"));
  EXPECT_THAT(why, Not(HasSubstr("::")));
}

}  // namespace
}  // namespace cgtree::testing
