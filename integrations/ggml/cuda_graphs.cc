// Gives each graph of ggml a key, and its launches to cgtree::Steps.
#include "integrations/ggml/cuda_graphs.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <ggml-impl.h>

#include "cgtree/context.h"
#include "cgtree/steps.h"

namespace cgtree_ggml {
namespace {

std::atomic<std::uint64_t> pools_freed{0};

std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using Product = unsigned __int128;
  const Product product = Product{a ^ 0x9e3779b97f4a7c15} * (b ^ 0xd1b54a32d192ed03);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// What is read, or written, and how it lies there. Not the object's own address, nor its name.
std::uint64_t hash_of_layout(const ggml_tensor& tensor) noexcept {
  std::uint64_t hash = mix(reinterpret_cast<std::uintptr_t>(tensor.data),
                           std::uint64_t{tensor.type} << 32 | tensor.op);
  for (int i = 0; i < GGML_MAX_DIMS; ++i)
    hash = mix(hash ^ static_cast<std::uint64_t>(tensor.ne[i]), tensor.nb[i]);
  return hash;
}

// Equal graphs launch equal work: the same operations, in the same order, at the same addresses.
// Views are no work; what they are is in the layouts of the tensors that are read.
std::uint64_t hash_of(const ggml_cgraph& graph) noexcept {
  std::uint64_t hash = 0;
  for (int n = 0; n < graph.n_nodes; ++n) {
    const ggml_tensor& node = *graph.nodes[n];
    if (ggml_op_is_empty(node.op)) continue;
    std::uint64_t of_node = hash_of_layout(node) ^ static_cast<std::uint32_t>(node.flags);
    std::array<std::uint64_t, sizeof(node.op_params) / 8> params;
    std::memcpy(params.data(), node.op_params, sizeof(node.op_params));
    for (std::size_t i = 0; i < params.size(); i += 2)
      of_node = mix(of_node ^ params[i], params[i + 1]);
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
      if (node.src[i] != nullptr) hash = mix(hash, hash_of_layout(*node.src[i]) + i);
    }
    hash = mix(hash, of_node);
  }
  return hash;
}

// Requires: the device of the stream is current.
cgtree::StreamRef ref_to(cudaStream_t stream) {
  cgtree::Device device = cgtree::Device::cuda();
  cudaGetDevice(&device.id);
  return {device, static_cast<cgtree::StreamHandle>(reinterpret_cast<std::uintptr_t>(stream))};
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

class Recordings {
 public:
  explicit Recordings(cgtree::StreamRef stream)
      : context_(stream.device(),
                 {.stream = stream, .event_file = environment("GGML_CUDA_CGTREE_EVENTS")}) {}

  void compute(const ggml_cgraph& graph, const std::function<void()>& evaluate) {
    if (const std::uint64_t freed = pools_freed; freed != pools_freed_ || !steps_) {
      pools_freed_ = freed;
      steps_.emplace(context_, "graph",
                     cgtree::StepsOptions{.bindings = {},
                                          .capture_mode = cgtree::CaptureMode::kRelaxed,
                                          .at_limit = cgtree::AtLimit::kEvict});
    }
    for (cgtree::Step step = steps_->begin(key_of(graph), {}); step.must_run(); step.end())
      evaluate();
  }

 private:
  // A graph that ggml has numbered does not change as long as it has the number.
  const cgtree::Key& key_of(const ggml_cgraph& graph) {
    auto& [uid, key] = numbered_[graph.uid % numbered_.size()];
    if (uid == 0 || uid != graph.uid) {
      key = cgtree::Key{{"nodes", graph.n_nodes}, {"graph", hash_of(graph)}};
      uid = graph.uid;
    }
    return key;
  }

  cgtree::Context context_;
  std::optional<cgtree::Steps> steps_;
  std::uint64_t pools_freed_ = 0;
  std::array<std::pair<std::uint64_t, cgtree::Key>, 16> numbered_;
};

bool is_enabled() {
  static const bool is_off = environment("GGML_CUDA_CGTREE") == "0";
  return !is_off;
}

bool compute(std::shared_ptr<Recordings>& recordings, cudaStream_t stream, const ggml_cgraph& graph,
             const std::function<void()>& evaluate) {
  try {
    if (recordings == nullptr) recordings = std::make_shared<Recordings>(ref_to(stream));
    recordings->compute(graph, evaluate);
    return true;
  } catch (const std::exception& error) {
    GGML_LOG_ERROR("%s: %s\n", __func__, error.what());
    return false;
  }
}

void pool_was_freed() noexcept {
  ++pools_freed;
}

}  // namespace cgtree_ggml
