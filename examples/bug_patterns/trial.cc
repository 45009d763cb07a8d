// The steps of a trial have random inputs, and each result is compared bit for bit.
#include "examples/bug_patterns/trial.h"

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "extensions/watch/monitor.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "interop/tensor/empty.h"

namespace cgtree::bug_patterns {
namespace {

constexpr int kStepsBefore = 3;  // through a context: warm up, record, replay
constexpr int kStepsAfter = 2;

std::vector<float> random_input(std::mt19937& random) {
  std::vector<float> x(kCount);
  for (float& value : x)  // small integers, so that products are exact
    value = static_cast<float>(random() % 1000 + 1);
  return x;
}

// Returns the foreign pointers of the snapshot as text (docs/snapshot.md).
std::vector<std::string> foreign_pointers(const Context& context) {
  std::vector<std::string> texts;
  const nlohmann::json snapshot = nlohmann::json::parse(snapshot_json(context));
  for (const nlohmann::json& node : snapshot["nodes"]) {
    for (const nlohmann::json& pointer : node["audit"]["foreign"])
      texts.push_back(pointer["what"]);
  }
  return texts;
}

// Runs all steps. `run` returns y for an x; `context` may be null.
Trial run_steps(Pattern& pattern, Device device, const std::function<Tensor(const Tensor&)>& run,
                const Context* context) {
  Trial trial;
  std::mt19937 random(std::random_device{}());
  const auto step = [&] {
    const std::vector<float> x = random_input(random);
    const std::vector<float> y = run(from_host<float>({kCount}, x, device)).to_vector<float>();
    ++(y == pattern.expected(x) && pattern.is_intact() ? trial.right : trial.wrong);
  };
  try {
    for (int i = 0; i < kStepsBefore; ++i)
      step();
    if (context != nullptr) trial.foreign = foreign_pointers(*context);
    pattern.go_on();
    for (int i = 0; i < kStepsAfter; ++i)
      step();
  } catch (const Error& error) {
    trial.refusal = error.message();
  }
  return trial;
}

}  // namespace

Trial try_bare_graph(const PatternInfo& info, Device device) {
  const std::unique_ptr<Pattern> pattern = info.make(device);
  const Tensor x = empty({kCount}, DType::kFloat32, device);
  const Tensor y = empty({kCount}, DType::kFloat32, device);
  const Stream stream(device);
  Graph graph;
  Capture capture(stream, CaptureMode::kThreadLocal);
  pattern->enqueue(stream, x.data<float>(), y.data<float>());
  check(capture.end(&graph), "capture the step");
  const GraphExec exec(stream.ref().graphs(), graph);
  const auto launch = [&](const Tensor& input) {
    x.copy_from<float>(input.to_vector<float>());
    check(exec.api().launch(exec.handle(), stream.ref().handle()), "launch the graph");
    stream.synchronize();
    return y;
  };
  return run_steps(*pattern, device, launch, nullptr);
}

Trial try_context(const PatternInfo& info, Device device, const ContextOptions& options) {
  const std::unique_ptr<Pattern> pattern = info.make(device);
  Context context(device, options);
  const auto step = compile(context, "step", [&](Tensor x) {
    Tensor y = empty(x.shape(), x.dtype());
    pattern->enqueue(current_stream(), x.data<float>(), y.data<float>());
    return y;
  });
  return run_steps(*pattern, device, std::ref(step), &context);
}

Trial try_repaired(const PatternInfo& info, Device device, const ContextOptions& options) {
  const std::unique_ptr<Pattern> pattern = info.make(device);
  Context context(device, options);
  return run_steps(*pattern, device, pattern->repaired(context), &context);
}

}  // namespace cgtree::bug_patterns
