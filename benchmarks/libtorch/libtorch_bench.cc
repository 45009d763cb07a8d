// Host cost of a call of a PyTorch step function in C++, compared with the launch of a PyTorch
// graph with the same work. Needs a GPU and the headers of PyTorch.
//
//   libtorch_bench [--json=FILE]
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/torch/torch.h"
#include "cgtree/cgtree.h"

namespace cgtree {
namespace {

struct Row {
  std::string what;
  double microseconds = 0;
};

// Returns the median time of one call, of batches that are short enough for the queue.
double time_of(const std::function<void()>& call) {
  constexpr int kBatches = 60, kCalls = 50;
  std::vector<double> times;
  for (int batch = 0; batch < kBatches; ++batch) {
    c10::cuda::device_synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i)
      call();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    times.push_back(time.count() / kCalls);
  }
  std::nth_element(times.begin(), times.begin() + kBatches / 2, times.end());
  return times[kBatches / 2];
}

using Step = std::function<at::Tensor(std::span<const at::Tensor>)>;

double time_of_bare_graph(const std::vector<at::Tensor>& inputs, const Step& step) {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  (void)step(inputs);
  at::cuda::CUDAGraph graph;
  graph.register_generator_state(at::cuda::detail::getDefaultCUDAGenerator());
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  const at::Tensor output = step(inputs);
  graph.capture_end();
  return time_of([&] { graph.replay(); });
}

double time_of_calls(const std::vector<std::vector<at::Tensor>>& lists, const Step& step,
                     bool is_static) {
  Context context(Device::cuda());
  CompileOptions options;
  options.inputs.resize(lists[0].size());
  for (InputOptions& input : options.inputs)
    input.is_static = is_static;
  auto f = compile(
      context, "f", [&](std::span<const at::Tensor> inputs) { return step(inputs); }, options);
  std::size_t next = 0;
  const auto call = [&] { (void)f(lists[next++ % lists.size()]); };
  for (int i = 0; i < 20; ++i)
    call();
  return time_of(call);
}

std::vector<at::Tensor> make_inputs(std::size_t count) {
  std::vector<at::Tensor> inputs;
  for (std::size_t i = 0; i < count; ++i)
    inputs.push_back(at::randn({64}, at::kCUDA));
  return inputs;
}

std::vector<Row> measure() {
  const Step add = [](std::span<const at::Tensor> inputs) {
    return inputs.front() + inputs.back();
  };
  const Step drop = [](std::span<const at::Tensor> inputs) {
    return at::dropout(inputs[0], 0.5, true);
  };
  std::vector<Row> rows;
  for (const std::size_t count : {1, 16, 300}) {
    const std::string tensors = std::to_string(count) + " tensors, ";
    const std::vector<at::Tensor> inputs = make_inputs(count), others = make_inputs(count);
    rows.push_back({tensors + "a bare graph of PyTorch", time_of_bare_graph(inputs, add)});
    rows.push_back({tensors + "static", time_of_calls({inputs}, add, true)});
    rows.push_back({tensors + "copied, where they were", time_of_calls({inputs}, add, false)});
    rows.push_back({tensors + "copied, moved", time_of_calls({inputs, others}, add, false)});
  }
  const std::vector<at::Tensor> inputs = make_inputs(1);
  rows.push_back({"dropout, a bare graph of PyTorch", time_of_bare_graph(inputs, drop)});
  rows.push_back({"dropout", time_of_calls({inputs}, drop, true)});
  return rows;
}

int run(const std::string& json) {
  const c10::InferenceMode inference;
  const std::vector<Row> rows = measure();
  for (const Row& row : rows)
    std::printf("%-44s%8.2f us\n", row.what.c_str(), row.microseconds);
  if (json.empty()) return 0;
  std::ofstream file(json);
  file << "{\"rows\": [";
  for (const Row& row : rows) {
    file << (&row == rows.data() ? "" : ",") << "\n  {\"what\": \"" << row.what
         << "\", \"microseconds\": " << row.microseconds << "}";
  }
  file << "]}\n";
  return file.flush() ? 0 : 2;
}

}  // namespace
}  // namespace cgtree

int main(int argc, char** argv) {
  std::string json;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with("--json=")) {
      std::printf("usage: libtorch_bench [--json=FILE]\n");
      return argument == "--help" ? 0 : 2;
    }
    json = argument.substr(7);
  }
  try {
    return cgtree::run(json);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "libtorch_bench: %s\n", error.what());
    return 2;
  }
}
