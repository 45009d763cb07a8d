// Measures which faults of a recording an inspection names, and its duration. A fault is planted in
// a decoding step of a Llama model, between the model and the choice of the token:
//
//   none            all is well; each thing that is named is false
//   stale-pointer   a kernel writes a table that is freed after the capture
//   workspace       a memset clears a workspace that is freed after the capture
//   scalar          a number that the host passes to a kernel changes after the capture
//   draw            a seed that the host draws at each call
//   edge            a wait for another stream, forgotten when the step was captured
//
// A process has one fault: the first two end its use of the device.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/serve/options.h"
#include "benchmarks/serve/report.h"
#include "benchmarks/support/kernels.h"
#include "cgtree/cgtree.h"
#include "examples/serve/model.h"
#include "examples/serve/numbers.h"
#include "extensions/inspect/inspect.h"
#include "extensions/scopes/scope.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/tensor/copy.h"

namespace cgtree::serve {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr const char* kPlanted = "planted";                 // the scope of the fault
constexpr std::size_t kTableBytes = std::size_t{64} << 20;  // so that the driver unmaps it

struct FaultOptions {
  std::string device = "auto";
  std::string model = "1b";
  std::string fault = "none";
  std::int64_t context = 1024;
  std::string json;
  std::string commit;
};

class Bench {
 public:
  Bench(const FaultOptions& options, Device device)
      : options_(options),
        model_(named_config(options.model), Shard(),
               random_weights(named_config(options.model), Shard(), 1, device),
               options.context / kBlockSize * kBlockSize + kBlockSize),
        api_(device_api(device)) {
    check(api_.alloc_data_space(device.id, kTableBytes, &table_), "allocate a table");
  }

  Json measure() {
    Context context(model_.device());
    const std::int64_t blocks = model_.context() / kBlockSize;
    std::vector<std::int32_t> row = {1, static_cast<std::int32_t>(options_.context)};
    for (std::int64_t block = 0; block < blocks; ++block)
      row.push_back(static_cast<std::int32_t>(block));
    const Tensor input = from_host<std::int32_t>({1, 2 + blocks}, row, model_.device());
    const Tensor cache = model_.make_kv_cache(blocks);
    const auto decode =
        compile(context, "decode", [this](Tensor in, Tensor kv) { return step(in, kv); },
                {.inputs = {{.is_static = true}, {.is_static = true, .is_mutated = true}}});
    for (int call = 0; call < 3; ++call)
      static_cast<void>(decode(input, cache));
    context.synchronize();
    is_broken_ = true;
    if (has_fault("stale-pointer") || has_fault("workspace"))
      check(api_.free_data_space(model_.device().id, std::exchange(table_, nullptr)), "free");

    // The device must not be called after an inspection: its error may be sticky.
    auto begin = Clock::now();
    const CaptureComparison changed = compare_captures(decode, input, cache);
    const auto compared = Clock::now() - begin;
    begin = Clock::now();
    const InspectionReport report = inspect(decode, input, cache);
    const auto inspected = Clock::now() - begin;

    const auto is_planted = [](const InspectedNode& node) { return node.scope == kPlanted; };
    std::size_t named = 0, misnamed = 0;
    const auto count = [&](const InspectedNode& node) {
      ++(is_planted(node) && !has_no_fault() ? named : misnamed);
    };
    if (report.failed) count(*report.failed);
    if (changed.recorded) count(*changed.recorded);
    // A pointer to the caller's memory is suspected while the table lives, too.
    for (const InspectedNode& node : report.suspects)
      misnamed += !is_planted(node);
    return {{"fault", options_.fault},
            {"model", options_.model},
            {"nodes", report.nodes},
            {"runs", report.runs},
            {"named", named > 0},
            {"misnamed", misnamed},
            {"inspect_ms", std::chrono::duration<double, std::milli>(inspected).count()},
            {"compare_ms", std::chrono::duration<double, std::milli>(compared).count()},
            {"inspection", to_string(report)},
            {"comparison", to_string(changed)}};
  }
  // Each node that is then named is a false report.
  bool has_no_fault() const { return has_fault("none"); }

 private:
  bool has_fault(const char* name) const { return options_.fault == name; }

  Tensor step(const Tensor& in, const Tensor& kv) {
    const Tensor logits = model_.decode(in, kv, nullptr);
    plant();
    const Tensor next = model_.choose_tokens(logits, 0, Generator(), nullptr);
    return next;
  }

  void plant() {
    const Scope scope(kPlanted);
    const StreamRef stream = current_stream();
    const Tensor scratch = empty({1, 64}, model_.dtype());
    if (has_fault("stale-pointer")) {
      benchmarks::launch_trivial_kernel(stream, static_cast<float*>(table_));
    } else if (has_fault("workspace")) {
      check(stream.graphs().memset(stream.handle(), table_, 0, 4096), "clear the workspace");
    } else if (has_fault("edge")) {
      const Stream side(model_.device());
      side.ref().wait_for(stream);
      fill_uniform(stream, scratch, {.seed = 1, .columns = 64}, 0, 1);
      if (is_broken_) side.ref().wait_for(stream);
      fill_uniform(side, scratch, {.seed = 2, .columns = 64}, 0, 1);
      stream.wait_for(side);
    } else {
      const float center = has_fault("scalar") && is_broken_ ? 1 : 0;
      const std::uint64_t seed = has_fault("draw") ? ++drawn_ : 1;
      fill_uniform(stream, scratch, {.seed = seed, .columns = 64}, center, 1);
    }
  }

  FaultOptions options_;
  Model model_;
  DeviceAPI& api_;
  void* table_ = nullptr;
  bool is_broken_ = false;
  std::uint64_t drawn_ = 0;
};

int run(const FaultOptions& options, const std::string& command) {
  const Device device = parse_device(options.device);
  const bool frees = options.fault == "stale-pointer" || options.fault == "workspace";
  if (frees && device.type == DeviceType::kHost)
    throw InvalidArgument("memory that was freed ends a process of the host device; name a GPU");
  const DeviceFacts facts = device_facts(device);
  auto* const bench = new Bench(options, device);  // never destroyed: the device may be gone
  Json json = bench->measure();
  json["gpu"] = facts.name;
  json["driver"] = facts.driver;
  json["command"] = command;
  json["commit"] = options.commit;
  fmt::print("{}\n", json.dump(2));
  if (!options.json.empty()) write_whole(from_caller(options.json), json.dump(2) + "\n");
  std::fflush(stdout);
  const bool is_right = json["misnamed"] == 0 && json["named"] == !bench->has_no_fault();
  std::_Exit(is_right ? 0 : 1);
}

}  // namespace
}  // namespace cgtree::serve

int main(int argc, char** argv) {
  cgtree::serve::FaultOptions options;
  CLI::App app("Which faults of a recording does an inspection name, and how long does it take?");
  app.option_defaults()->always_capture_default();
  app.add_option("--device", options.device, "auto, host, cuda or cuda:N");
  app.add_option("--model", options.model)->check(CLI::IsMember({"tiny", "1b", "8b"}));
  app.add_option("--fault", options.fault)
      ->check(CLI::IsMember({"none", "stale-pointer", "workspace", "scalar", "draw", "edge"}));
  app.add_option("--context", options.context, "positions in the KV cache already")
      ->check(CLI::Range(1, 131'071));
  app.add_option("--json", options.json, "file to write the result to");
  app.add_option("--commit", options.commit, "named in the result");
  CLI11_PARSE(app, argc, argv);
  try {
    return cgtree::serve::run(options, fmt::format("{}", fmt::join(argv, argv + argc, " ")));
  } catch (const std::exception& error) {
    fmt::print(stderr, "faults_bench: {}\n", error.what());
    return 2;
  }
}
