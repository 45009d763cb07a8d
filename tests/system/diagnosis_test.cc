// Each reason that keeps a function from replaying is named, with a remedy, in the explanation, the
// log, the metrics and the snapshot.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cgtree/values/graph_scope.h"
#include "extensions/watch/monitor.h"
#include "interop/device/graph.h"
#include "interop/device/graph_api.h"
#include "tests/support/captured_log.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using F = CompiledFunction<Tensor(Tensor)>;
using Pair = CompiledFunction<Tensor(Tensor, Tensor)>;
using Words = std::vector<std::string>;

// The texts about a function, by place.
struct Diagnosis {
  std::string explanation, log, metrics, snapshot, stats;
};

class DiagnosisTest : public TreeTest {
 public:
  // Returns the texts about the function while `f` and its context exist.
  template <typename Function, typename... Inputs>
  Diagnosis look(const Function& f, const CapturedLog& log, const Inputs&... inputs) {
    Diagnosis all{to_string(f.explain(inputs...)), "", metrics_text(context()),
                  snapshot_json(context()), ""};
    for (const std::string& line : log.lines())
      all.log += line + "\n";
    if constexpr (requires { f.stats(); }) all.stats = to_string(f.stats());
    return all;
  }
  Tensor of_size(std::int64_t size) { return random_tensor({size}); }
  F function(CompileOptions options = {}) {
    return compile(
        context(), "f", [](Tensor x) { return affine(x, 2, 0); }, std::move(options));
  }
  F with_axis(AxisOptions axis, CompileOptions options = {}) {
    axis.name = "n";
    options.inputs = {{.name = "x", .dynamic = {{0, "n"}}}};
    options.outputs = {{.dynamic = {{0, "n"}}}};
    options.axes = {std::move(axis)};
    return function(std::move(options));
  }
  Pair with_weights(CompileOptions options = {}) {
    options.inputs = {{.name = "weights", .is_static = true}, {.name = "x"}};
    return compile(
        context(), "f", [](Tensor w, Tensor x) { return add(w, x); }, std::move(options));
  }
  void open(ContextOptions options) { make_context(std::move(options)); }
  void step() { context().mark_step(); }
  Context& the_context() { return context(); }
};

// Words that each place must contain for one reason. The log is quiet if the caller asked for the
// behaviour.
struct Reason {
  std::string name;
  std::function<Diagnosis(DiagnosisTest&)> plant;
  Words explanation, log, metrics, snapshot;
};

void call_for_each_size(const F& f, DiagnosisTest& test, std::int64_t from, std::int64_t to,
                        int times = 1) {
  for (std::int64_t size = from; size <= to; ++size) {
    test.step();
    const Tensor x = test.of_size(size);
    for (int i = 0; i < times; ++i)
      (void)f(x);
  }
}

std::vector<Reason> reasons() {
  std::vector<Reason> all;
  all.push_back({"another shape at each call",
                 [](DiagnosisTest& test) {
                   const CapturedLog log;
                   const F f = test.function({.inputs = {{.name = "x"}}});
                   call_for_each_size(f, test, 1, 40);
                   return test.look(f, log, test.of_size(41));
                 },
                 {"input 0 'x': float32 {40} in the last, float32 {41} given",
                  "declare axis 0 of 'x' in InputOptions::dynamic and give it buckets"},
                 {"never_recorded function=f", "float32 {15} in the last", "declare axis 0 of 'x'"},
                 {"cgtree_warm_ups_total", "function=\"f\",cause=\"shape\"} 39"},
                 {"\"shape\": 39", "float32 {40}"}});
  all.push_back({"a step that always throws",
                 [](DiagnosisTest& test) {
                   const CapturedLog log;
                   int call = 0;
                   const F f = compile(test.the_context(), "f", [&](Tensor) -> Tensor {
                     throw std::runtime_error(fmt::format("no page {} is left", ++call));
                   });
                   const Tensor x = test.of_size(2);
                   for (int i = 0; i < 40; ++i)
                     EXPECT_THROW((void)f(x), std::runtime_error);
                   EXPECT_EQ(log.lines().size(), 6u);  // at the 1st, 2nd, 4th, 8th, 16th and 32nd
                   EXPECT_EQ(f.stats().last_failure, "no page 40 is left");
                   const Diagnosis diagnosis = test.look(f, log, x);
                   EXPECT_THAT(diagnosis.stats, HasSubstr("no page 40 is left"));
                   return diagnosis;
                 },
                 {"the last call threw \"no page 40 is left\"", "mend what the last call threw"},
                 {"failure function=f failures=32", "no page 32 is left"},
                 {"function=\"f\",outcome=\"failure\"} 40"},
                 {"\"last_failure\": \"no page 40 is left\""}});
  all.push_back({"an address that moves at each call",
                 [](DiagnosisTest& test) {
                   const CapturedLog log;
                   const Pair f = test.with_weights({.max_recordings = 16});
                   const Tensor x = test.of_size(2);
                   std::vector<Tensor> weights;
                   for (int i = 0; i < 40; ++i) {
                     test.step();
                     (void)f(weights.emplace_back(test.of_size(2)), x);
                   }
                   return test.look(f, log, test.of_size(2), x);
                 },
                 {"static input 0 'weights': 0x",
                  "keep 'weights' at one address, or do not declare it static: then it is copied"},
                 {"skip function=f reason=backs_off recordings=9", "keep 'weights' at one address"},
                 {"cgtree_recordings_total", "function=\"f\",cause=\"static_moved\"} 8"},
                 {"\"static_moved\": 8"}});
  all.push_back({"a static input replaced where it must not move",
                 [](DiagnosisTest& test) {
                   const CapturedLog log;
                   const Pair f = test.with_weights({.on_static_change = OnStaticChange::kThrow});
                   const Tensor x = test.of_size(2);
                   const Tensor weights = test.of_size(2), replaced = test.of_size(2);
                   for (int i = 0; i < 3; ++i)
                     (void)f(weights, x);
                   EXPECT_THROW((void)f(replaced, x), CaptureError);
                   return test.look(f, log, replaced, x);
                 },
                 {"throw (static_changed)", "static input 0 'weights': 0x", "keep 'weights'"},
                 {"failure function=f", "static input 0 'weights'"},
                 {"outcome=\"failure\"} 1"},
                 {"\"last_failure\"", "static input 0 'weights'"}});
  all.push_back(
      {"outputs that are held",
       [](DiagnosisTest& test) {
         const CapturedLog log;
         const F f = test.function();
         const Tensor x = test.of_size(2);
         std::vector<Tensor> held;
         for (int i = 0; i < 16; ++i)
           held.push_back(f(x));
         return test.look(f, log, x);
       },
       {"output 0 of 'f' at", "is held", "its outputs are copied"},
       {"held_outputs function=f recordings=6", "its calls copy their outputs", "mark_step()"},
       {"function=\"f\",cause=\"output_held\"} 5"},
       {"\"output_held\": 5"}});
  all.push_back({"a synchronisation in the step",
                 [](DiagnosisTest& test) {
                   const CapturedLog log;
                   const F f = compile(test.the_context(), "f", [](Tensor x) {
                     current_stream().synchronize();
                     return affine(x, 2, 0);
                   });
                   const Tensor x = test.of_size(2);
                   for (int i = 0; i < 8; ++i)
                     (void)f(x);
                   return test.look(f, log, x);
                 },
                 {"run_eagerly (capture_failed)", "synchronize", "move what synchronises"},
                 {"skip function=f reason=capture_failed", "move what synchronises"},
                 {"function=\"f\",reason=\"capture_failed\"} 7"},
                 {"\"capture_failed\": 7", "\"capture_failure\": \"capture of 'f' failed"}});
  all.push_back({"the limit of a function",
                 [](DiagnosisTest& test) {
                   const CapturedLog log;
                   const F f = test.function({.max_recordings = 1});
                   call_for_each_size(f, test, 2, 5, 3);
                   return test.look(f, log, test.of_size(5));
                 },
                 {"run_eagerly (function_limit)", "1 recordings, max_recordings is 1",
                  "raise CompileOptions::max_recordings", "declare the axis that varies, axis 0,"},
                 {"skip function=f reason=function_limit", "raise max_recordings of the function"},
                 {"reason=\"function_limit\"} 6"},
                 {"\"function_limit\": 6"}});
  all.push_back(
      {"recordings that are evicted in turn",
       [](DiagnosisTest& test) {
         const CapturedLog log;
         const F f = test.function({.max_recordings = 1, .at_limit = AtLimit::kEvict});
         for (int i = 0; i < 16; ++i)
           call_for_each_size(f, test, 2, 3);
         return test.look(f, log, test.of_size(3));
       },
       {"run_eagerly (backs_off)", "recordings in a row were dropped", "raise the limit"},
       {"skip function=f reason=backs_off", "recordings in a row were dropped", "raise the limit"},
       {"function=\"f\",cause=\"made_again\"} 3", "cgtree_evictions_total"},
       {"\"made_again\": 3"}});
  all.push_back({"the limit of time",
                 [](DiagnosisTest& test) {
                   test.open({.max_recording_time = std::chrono::microseconds(0)});
                   const CapturedLog log;
                   const F f = test.function();
                   const Tensor x = test.of_size(2);
                   for (int i = 0; i < 4; ++i)
                     (void)f(x);
                   return test.look(f, log, x);
                 },
                 {"run_eagerly (time_limit)", "raise ContextOptions::max_recording_time"},
                 {"reason=time_limit", "raise max_recording_time of the context"},
                 {"reason=\"time_limit\"} 4"},
                 {"\"time_limit\": 4"}});
  all.push_back({"the budget of graphs",
                 [](DiagnosisTest& test) {
                   test.open({.max_graph_bytes = 1});
                   const CapturedLog log;
                   const F f = test.function();
                   const Tensor x = test.of_size(2);
                   for (int i = 0; i < 6; ++i)
                     (void)f(x);
                   return test.look(f, log, x);
                 },
                 {"run_eagerly (graph_bytes_limit)", "raise ContextOptions::max_graph_bytes"},
                 {"reason=graph_bytes_limit", "raise max_graph_bytes of the context"},
                 {"reason=\"graph_bytes_limit\"}"},
                 {"\"graph_bytes_limit\":"}});
  all.push_back(
      {"a key that changes at each call",
       [](DiagnosisTest& test) {
         const CapturedLog log;
         const F f = test.function();
         const Tensor x = test.of_size(2);
         for (int i = 0; i < 40; ++i)
           (void)f.keyed({{"request", i}})(x);
         return test.look(f.keyed({{"request", 40}}), log, x);
       },
       {"key [request=39] in the last, [request=40] given", "leave out of the key"},
       {"never_recorded function=f", "key [request=14] in the last", "leave out of the key"},
       {"function=\"f\",cause=\"key\"} 39"},
       {"\"key\": 39"}});
  all.push_back({"a frozen function",
                 [](DiagnosisTest& test) {
                   const CapturedLog log;
                   const F f = test.function();
                   const Tensor x = test.of_size(2), other = test.of_size(3);
                   (void)f(x);
                   (void)f(x);
                   f.freeze();
                   for (int i = 0; i < 4; ++i)
                     (void)f(other);
                   return test.look(f, log, other);
                 },
                 {"run_eagerly (frozen)", "unfreeze() it, or record such calls before freeze()"},
                 {"reason=frozen", "unfreeze() it"},
                 {"reason=\"frozen\"} 4", "cgtree_frozen_functions"},
                 {"\"frozen\": 4"}});
  all.push_back({"a size above the largest bucket",
                 [](DiagnosisTest& test) {
                   const CapturedLog log;
                   const F f = test.with_axis({.policy = AxisPolicy::kBuckets, .sizes = {2, 4}});
                   call_for_each_size(f, test, 5, 12);
                   return test.look(f, log, test.of_size(9));
                 },
                 {"run_eagerly (above_largest_bucket)", "axis 'n' is 9", "add a larger bucket"},
                 {"reason=above_largest_bucket", "add a larger bucket"},
                 {"reason=\"above_largest_bucket\"} 8"},
                 {"\"above_largest_bucket\": 8"}});
  all.push_back({"an input on another device",
                 [](DiagnosisTest& test) {
                   const CapturedLog log;
                   const Pair f =
                       compile(test.the_context(), "f", [](Tensor, Tensor y) { return y; });
                   const Tensor x = test.of_size(2);
                   const Tensor elsewhere = from_host<float>({2}, {1, 2}, Device::host(1));
                   for (int i = 0; i < 4; ++i)
                     (void)f(x, elsewhere);
                   return test.look(f, log, x, elsewhere);
                 },
                 {"run_eagerly (other_device)", "input 1 is on host:1", "copy the input"},
                 {"reason=other_device", "copy the input"},
                 {"reason=\"other_device\"} 4"},
                 {"\"other_device\": 4"}});
  all.push_back({"a capture of other code",
                 [](DiagnosisTest& test) {
                   const CapturedLog log;
                   const F f = test.function();
                   const Tensor x = test.of_size(2);
                   const StreamRef stream = test.the_context().stream();
                   GraphAPI& graphs = stream.graphs();
                   check(graphs.begin_capture(stream.handle(), CaptureMode::kRelaxed), "begin");
                   (void)f(x);
                   const Explanation why = f.explain(x);
                   GraphHandle graph = {};
                   check(graphs.end_capture(stream.handle(), &graph), "end");
                   const Graph owned(graphs, graph);
                   test.the_context().release_captured();
                   Diagnosis diagnosis = test.look(f, log, x);
                   diagnosis.explanation = to_string(why);
                   return diagnosis;
                 },
                 {"run_eagerly (foreign_capture)", "leave the capture to cgtree"},
                 {"reason=foreign_capture", "leave the capture to cgtree"},
                 {"reason=\"foreign_capture\"} 1"},
                 {"\"foreign_capture\": 1"}});
  all.push_back({"a function that is switched off",
                 [](DiagnosisTest& test) {
                   const CapturedLog log;
                   const F f = test.function({.enabled = false});
                   const Tensor x = test.of_size(2);
                   for (int i = 0; i < 4; ++i)
                     (void)f(x);
                   return test.look(f, log, x);
                 },
                 {"run_eagerly (disabled)", "CompileOptions::enabled = true"},
                 {},  // quiet, as the caller asked for it
                 {"reason=\"disabled\"} 4"},
                 {"\"disabled\": 4"}});
  return all;
}

CGTREE_ON_ALL_DEVICES(DiagnosisTest);

std::string first_line(const std::string& text, const Words& words) {
  if (words.empty()) return "-";
  const std::size_t at = text.find(words.front());
  if (at == std::string::npos) return "MISSING: " + words.front();
  const std::size_t begin =
      text.rfind('\n', at) == std::string::npos ? 0 : text.rfind('\n', at) + 1;
  return text.substr(begin, std::min(text.find('\n', at) - begin, std::size_t{240}));
}

TEST_P(DiagnosisTest, EachReasonIsNamedWithItsRemedyByExplainLogMetricsAndSnapshot) {
  for (const Reason& reason : reasons()) {
    SCOPED_TRACE(reason.name);
    const Diagnosis all = reason.plant(*this);
    const std::tuple<const char*, const std::string&, const Words&> places[] = {
        {"explain", all.explanation, reason.explanation},
        {"log", all.log, reason.log},
        {"metrics", all.metrics, reason.metrics},
        {"snapshot", all.snapshot, reason.snapshot}};
    fmt::print("{}\n", reason.name);
    for (const auto& [place, text, words] : places) {
      for (const std::string& word : words)
        EXPECT_THAT(text, HasSubstr(word)) << place;
      fmt::print("  {:<9} {}\n", place, first_line(text, words));
    }
    EXPECT_THAT(all.log, Not(HasSubstr("::")));  // names of one language only
    EXPECT_THAT(all.explanation, Not(HasSubstr("to replay: nothing: the second such call")));
    make_context({});
  }
}

}  // namespace
}  // namespace cgtree::testing
