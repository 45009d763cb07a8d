// Gives each graph of ggml a key, and its launches to cgtree::Steps.
#include "integrations/common/cuda_graphs.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ggml-impl.h>

#include "base/frame.h"
#include "cgtree/context.h"
#include "cgtree/steps.h"
#include "extensions/watch/watch.h"
#include "integrations/common/cuda_stream.h"

namespace cgtree_ggml {
namespace {

std::atomic<std::uint64_t> pools_freed{0};

std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using Product = unsigned __int128;
  const Product product = Product{a ^ 0x9e3779b97f4a7c15} * (b ^ 0xd1b54a32d192ed03);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// What a tensor is, and how it lies in memory. Not the object's own address, nor its name.
std::uint64_t hash_of_shape(const ggml_tensor& tensor) noexcept {
  std::uint64_t hash = std::uint64_t{tensor.type} << 32 | tensor.op;
  for (int i = 0; i < GGML_MAX_DIMS; ++i)
    hash = mix(hash ^ static_cast<std::uint64_t>(tensor.ne[i]), tensor.nb[i]);
  return hash;
}

std::uint64_t hash_of_layout(const ggml_tensor& tensor) noexcept {
  return mix(reinterpret_cast<std::uintptr_t>(tensor.data), hash_of_shape(tensor));
}

// Views are no work; what they are is in the layouts of the tensors that are read.
bool is_work(const ggml_tensor& node) noexcept {
  return node.op != GGML_OP_NONE && node.op != GGML_OP_RESHAPE && node.op != GGML_OP_VIEW &&
         node.op != GGML_OP_PERMUTE && node.op != GGML_OP_TRANSPOSE;
}

// Which copies write at addresses that the table has.
using IsInTable = bool (*)(const ggml_tensor& from, const ggml_tensor& to);

bool all_are(const ggml_tensor&, const ggml_tensor&) noexcept {
  return true;
}

// Those that copy() makes. All copies of half precision go through ggml_cuda_cpy(); others may be
// part of another operation's kernel.
bool halves_are(const ggml_tensor& from, const ggml_tensor& to) noexcept {
  return from.type == GGML_TYPE_F32 && to.type == GGML_TYPE_F16 && ggml_is_contiguous(&from) &&
         ggml_is_contiguous(&to);
}

bool is_in(const ggml_tensor& node, IsInTable is_in_table) {
  return node.op == GGML_OP_CPY && is_in_table(*node.src[0], *node.src[1]);
}

// Equal graphs launch equal work: the same operations, in the same order, at the same addresses,
// but for those in the table.
std::uint64_t hash_of(const ggml_cgraph& graph, IsInTable is_in_table) noexcept {
  std::uint64_t hash = 0;
  for (int n = 0; n < graph.n_nodes; ++n) {
    const ggml_tensor& node = *graph.nodes[n];
    if (!is_work(node)) continue;
    const bool is_moved = is_in(node, is_in_table);
    std::uint64_t of_node = is_moved ? hash_of_shape(node) : hash_of_layout(node);
    of_node ^= static_cast<std::uint32_t>(node.flags);
    std::array<std::uint64_t, sizeof(node.op_params) / 8> params;
    std::memcpy(params.data(), node.op_params, sizeof(node.op_params));
    for (std::size_t i = 0; i < params.size(); i += 2)
      of_node = mix(of_node ^ params[i], params[i + 1]);
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
      if (node.src[i] == nullptr) continue;
      const ggml_tensor& source = *node.src[i];
      hash = mix(hash, (is_moved && i == 1 ? hash_of_shape(source) : hash_of_layout(source)) + i);
    }
    hash = mix(hash, of_node);
  }
  return hash;
}

// The table of the graph that a thread evaluates.
struct Table {
  const std::vector<char*>* destinations = nullptr;
  char** on_device = nullptr;
  std::size_t next = 0;  // the entry that is looked at first
};
Table& evaluated() noexcept {
  return cgtree::of_thread<Table>();
}

// A graph that ggml has numbered does not change as long as it has the number. 0: it has none, as
// in versions of ggml that number no graphs.
template <typename Graph>
std::uint64_t number_of(const Graph& graph) noexcept {
  if constexpr (requires { graph.uid; }) return graph.uid;
  return 0;
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// ggml may let a kernel begin before the one in front of it has ended (programmatic dependent
// launch). In a graph, also one that was captured without cgtree, results then differ from run to
// run: seen with whisper.cpp at the commit that its page names. ggml reads the variable at its
// first launch.
[[maybe_unused]] const bool kernels_wait =
    is_enabled() && setenv("GGML_CUDA_PDL", "0", /*overwrite=*/0) == 0;

}  // namespace

class Recordings {
 public:
  explicit Recordings(cgtree::StreamRef stream)
      : context_(stream.device(), {.stream = stream,
                                   .extensions = {cgtree::watch(
                                       {.event_file = environment("GGML_CUDA_CGTREE_EVENTS")})}}) {}

  void compute(const ggml_cgraph& graph, const std::function<void()>& evaluate) {
    destinations_.clear();
    for (int n = 0; n < graph.n_nodes; ++n) {
      const ggml_tensor& node = *graph.nodes[n];
      if (is_in(node, halves_are)) destinations_.push_back(static_cast<char*>(node.src[1]->data));
    }
    compute(graph, destinations_, halves_are, [&](char** table) {
      struct Scope {
        ~Scope() { evaluated() = {}; }
      } const scope;
      evaluated() = {&destinations_, table, 0};
      evaluate();
    });
  }

  void compute(const ggml_cgraph& graph, const std::vector<char*>& destinations,
               const std::function<void(char** table)>& evaluate) {
    compute(graph, destinations, all_are, evaluate);
  }

 private:
  void compute(const ggml_cgraph& graph, const std::vector<char*>& destinations,
               IsInTable is_in_table, const std::function<void(char** table)>& evaluate) {
    if (const std::uint64_t freed = pools_freed; freed != pools_freed_) {
      pools_freed_ = freed;
      steps_.clear();
    }
    const cgtree::Binding table{destinations.data(), destinations.size() * sizeof(char*)};
    const std::span<const cgtree::Binding> bindings(&table, destinations.empty() ? 0 : 1);
    for (cgtree::Step step = steps_for(table.bytes).begin(key_of(graph, is_in_table), bindings);
         step.must_run(); step.end()) {
      evaluate(bindings.empty() ? nullptr : static_cast<char**>(step.address(0)));
    }
  }

  // A step block has one size, and a model few: that of the graph of all its layers.
  cgtree::Steps& steps_for(std::size_t table_bytes) {
    if (const auto found = steps_.find(table_bytes); found != steps_.end()) return found->second;
    cgtree::StepsOptions options{.bindings = {},
                                 .capture_mode = cgtree::CaptureMode::kRelaxed,
                                 .at_limit = cgtree::AtLimit::kEvict};
    if (table_bytes != 0)
      options.bindings.push_back({.name = "destinations", .host_bytes = table_bytes});
    return steps_.try_emplace(table_bytes, context_, "graph", std::move(options)).first->second;
  }

  const cgtree::Key& key_of(const ggml_cgraph& graph, IsInTable is_in_table) {
    const std::uint64_t number = number_of(graph);
    auto& [known, key] = numbered_[number % numbered_.size()];
    if (known == 0 || known != number) {
      key = cgtree::Key{{"nodes", graph.n_nodes}, {"graph", hash_of(graph, is_in_table)}};
      known = number;
    }
    return key;
  }

  cgtree::Context context_;
  std::map<std::size_t, cgtree::Steps> steps_;  // by the bytes of the table
  std::vector<char*> destinations_;
  std::uint64_t pools_freed_ = 0;
  std::array<std::pair<std::uint64_t, cgtree::Key>, 16> numbered_;
};

bool is_enabled() {
  static const bool is_off = environment("GGML_CUDA_CGTREE") == "0";
  return !is_off;
}

namespace {

template <typename... Arguments>
bool compute_with(std::shared_ptr<Recordings>& recordings, cudaStream_t stream,
                  const Arguments&... arguments) {
  try {
    if (recordings == nullptr) recordings = std::make_shared<Recordings>(ref_to(stream));
    recordings->compute(arguments...);
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cgtree: %s\n", error.what());
    return false;
  }
}

}  // namespace

bool compute(std::shared_ptr<Recordings>& recordings, cudaStream_t stream, const ggml_cgraph& graph,
             const std::function<void()>& evaluate) {
  return compute_with(recordings, stream, graph, evaluate);
}

bool compute(std::shared_ptr<Recordings>& recordings, cudaStream_t stream, const ggml_cgraph& graph,
             const std::vector<char*>& destinations,
             const std::function<void(char** table)>& evaluate) {
  return compute_with(recordings, stream, graph, destinations, evaluate);
}

// By the address, and not only in order: an operation may copy something by the way.
char* const* entry_for(const ggml_tensor& from, const ggml_tensor& to) noexcept {
  Table& table = evaluated();
  if (table.on_device == nullptr || !halves_are(from, to)) return nullptr;
  const std::vector<char*>& destinations = *table.destinations;
  for (std::size_t n = 0; n < destinations.size(); ++n) {
    const std::size_t i = (table.next + n) % destinations.size();
    if (destinations[i] != to.data) continue;
    table.next = i + 1;
    return table.on_device + i;
  }
  return nullptr;
}

void pool_was_freed() noexcept {
  ++pools_freed;
}

}  // namespace cgtree_ggml
