// Gives each graph of ggml a key, and its launches to cgtree_steps.h. Written in C++17, as ggml is.
#include "integrations/common/cgtree_ggml.h"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif
#include <ggml-impl.h>

#include "bindings/steps/cgtree_steps.h"

namespace cgtree_ggml {

static std::atomic<std::uint64_t> pools_freed{0};

static std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using Product = unsigned __int128;
  const Product product = Product{a ^ 0x9e3779b97f4a7c15} * (b ^ 0xd1b54a32d192ed03);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// The type, operation, sizes and strides of a tensor, without the object's address and name.
static std::uint64_t hash_of_shape(const ggml_tensor& tensor) noexcept {
  std::uint64_t hash = static_cast<std::uint64_t>(tensor.type) << 32 | tensor.op;
  for (int i = 0; i < GGML_MAX_DIMS; ++i)
    hash = mix(hash ^ static_cast<std::uint64_t>(tensor.ne[i]), tensor.nb[i]);
  return hash;
}

static std::uint64_t hash_of_layout(const ggml_tensor& tensor) noexcept {
  return mix(reinterpret_cast<std::uintptr_t>(tensor.data), hash_of_shape(tensor));
}

// Views are not work: the layouts of the tensors that are read include them.
static bool is_work(const ggml_tensor& node) noexcept {
  return node.op != GGML_OP_NONE && node.op != GGML_OP_RESHAPE && node.op != GGML_OP_VIEW &&
         node.op != GGML_OP_PERMUTE && node.op != GGML_OP_TRANSPOSE;
}

// Returns whether the table has the address at which a copy writes.
using IsInTable = bool (*)(const ggml_tensor& from, const ggml_tensor& to);

static bool all_are(const ggml_tensor&, const ggml_tensor&) noexcept {
  return true;
}

// The copies that copy() makes. All copies of half precision go through ggml_cuda_cpy(); others may
// be part of another operation's kernel.
static bool halves_are(const ggml_tensor& from, const ggml_tensor& to) noexcept {
  return from.type == GGML_TYPE_F32 && to.type == GGML_TYPE_F16 && ggml_is_contiguous(&from) &&
         ggml_is_contiguous(&to);
}

static bool is_in(const ggml_tensor& node, IsInTable is_in_table) {
  return node.op == GGML_OP_CPY && is_in_table(*node.src[0], *node.src[1]);
}

// Equal graphs launch equal work: the same operations, in the same order, at the same addresses,
// except addresses in the table.
static std::uint64_t hash_of(const ggml_cgraph& graph, IsInTable is_in_table) noexcept {
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
      hash = mix(hash, (is_moved && i == 1 ? hash_of_shape(source) : hash_of_layout(source)) +
                           static_cast<std::uint64_t>(i));
    }
    hash = mix(hash, of_node);
  }
  return hash;
}

// A graph that ggml has numbered does not change as long as it has the number. 0: it has no number,
// as in versions of ggml that do not number graphs.
template <typename Graph>
static auto number_of(const Graph& graph, int) noexcept -> decltype(std::uint64_t{graph.uid}) {
  return graph.uid;
}
template <typename Graph>
static std::uint64_t number_of(const Graph&, long) noexcept {
  return 0;
}

// ggml may let a kernel begin before its predecessor has ended (programmatic dependent launch). In
// a graph, also one that was captured without cgtree, results then differ from run to run: seen
// with whisper.cpp at the commit that its page names. ggml reads the variable at its first launch.
[[maybe_unused]] static const bool kernels_wait =
    is_enabled() && setenv("GGML_CUDA_PDL", "0", /*overwrite=*/0) == 0;

struct GraphKey {
  std::int64_t nodes = 0;
  std::uint64_t hash = 0;
};
static constexpr char kKeyNames[] = "nodes graph";  // of its integers

class Recordings {
 public:
  Recordings() {
    cudaGetDevice(&device_);
    if (const char* const name = std::getenv("GGML_CUDA_CGTREE_EVENTS"); name != nullptr)
      events_.reset(std::fopen(name, "a"));
  }
  ~Recordings() { drop(); }

  bool compute(cudaStream_t stream, const ggml_cgraph& graph,
               const std::function<void()>& evaluate) {
    destinations_.clear();
    for (int n = 0; n < graph.n_nodes; ++n) {
      const ggml_tensor& node = *graph.nodes[n];
      if (is_in(node, halves_are)) destinations_.push_back(static_cast<char*>(node.src[1]->data));
    }
    return compute(stream, graph, destinations_, halves_are, [&](char** table) {
      table_ = table;
      next_ = 0;
      evaluate();
      table_ = nullptr;
    });
  }

  bool compute(cudaStream_t stream, const ggml_cgraph& graph,
               const std::vector<char*>& destinations,
               const std::function<void(char** table)>& evaluate) {
    return compute(stream, graph, destinations, all_are, evaluate);
  }

  // Searches by address, not only in order: an operation may make further copies.
  char* const* entry_for(const ggml_tensor& from, const ggml_tensor& to) const {
    if (table_ == nullptr || !halves_are(from, to)) return nullptr;
    for (std::size_t n = 0; n < destinations_.size(); ++n) {
      const std::size_t i = (next_ + n) % destinations_.size();
      if (destinations_[i] != to.data) continue;
      next_ = i + 1;
      return table_ + i;
    }
    return nullptr;
  }

 private:
  struct Closing {
    void operator()(cgs_steps* steps) const { cgs_close(steps); }
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using Steps = std::unique_ptr<cgs_steps, Closing>;

  bool compute(cudaStream_t stream, const ggml_cgraph& graph,
               const std::vector<char*>& destinations, IsInTable is_in_table,
               const std::function<void(char** table)>& evaluate) {
    if (const std::uint64_t freed = pools_freed; freed != pools_freed_) {
      pools_freed_ = freed;
      drop();
    }
    const cgs_range table{destinations.data(), destinations.size() * sizeof(char*)};
    cgs_steps* const steps = steps_for(table.bytes);
    const GraphKey& key = key_of(graph, is_in_table);
    int run = steps == nullptr ? CGS_FAILED
                               : cgs_begin(steps, &key, sizeof key, &table,
                                           destinations.empty() ? 0 : 1, stream);
    const bool has_run = run == CGS_RUN;
    for (; run == CGS_RUN; run = cgs_end(steps)) {
      evaluate(destinations.empty() ? nullptr : static_cast<char**>(cgs_address(steps, 0)));
    }
    if (run != CGS_DONE) std::fprintf(stderr, "cgtree: %s\n", cgs_why(steps));
    if (has_run && events_ != nullptr) {
      std::fprintf(events_.get(), "%s\n", cgs_why(steps));
      std::fflush(events_.get());
    }
    return run == CGS_DONE;
  }

  // A table has one size, and a model has few: that of the graph of all its layers. Null:
  // cgs_why().
  cgs_steps* steps_for(std::size_t table_bytes) {
    Steps& steps = steps_[table_bytes];
    if (steps != nullptr) return steps.get();
    const cgs_binding destinations{"destinations", CGS_HOST, table_bytes};
    cgs_options options = {};
    options.struct_size = sizeof options;
    options.key_names = kKeyNames;
    cgs_steps* opened = nullptr;
    cgs_open(&opened, "graph", device_, &destinations, table_bytes == 0 ? 0 : 1, &options);
    steps.reset(opened);
    return opened;
  }

  const GraphKey& key_of(const ggml_cgraph& graph, IsInTable is_in_table) {
    const std::uint64_t number = number_of(graph, 0);
    auto& [known, key] = numbered_[number % numbered_.size()];
    if (known == 0 || known != number) {
      key = {graph.n_nodes, hash_of(graph, is_in_table)};
      known = number;
    }
    return key;
  }

  void drop() {
    for (const auto& [table_bytes, steps] : steps_) {
      cgs_stats stats = {};
      stats.struct_size = sizeof stats;
      if (events_ == nullptr || cgs_get_stats(steps.get(), &stats) != CGS_DONE) continue;
      std::fprintf(events_.get(), "dropped: %llu recordings after %llu calls, %llu replays\n",
                   static_cast<unsigned long long>(stats.kept),
                   static_cast<unsigned long long>(stats.calls),
                   static_cast<unsigned long long>(stats.replays));
    }
    steps_.clear();
  }

  int device_ = 0;
  std::unique_ptr<std::FILE, Closing> events_;
  std::map<std::size_t, Steps> steps_;  // by the bytes of the table
  std::uint64_t pools_freed_ = pools_freed;
  std::array<std::pair<std::uint64_t, GraphKey>, 16> numbered_;
  // Of the graph being evaluated.
  std::vector<char*> destinations_;
  char** table_ = nullptr;        // on the device
  mutable std::size_t next_ = 0;  // the entry to compare first
};

bool is_enabled() {
  static const char* const value = std::getenv("GGML_CUDA_CGTREE");
  return value == nullptr || std::strcmp(value, "0") != 0;
}

bool compute(std::shared_ptr<Recordings>& recordings, cudaStream_t stream, const ggml_cgraph& graph,
             const std::function<void()>& evaluate) {
  if (recordings == nullptr) recordings = std::make_shared<Recordings>();
  return recordings->compute(stream, graph, evaluate);
}

bool compute(std::shared_ptr<Recordings>& recordings, cudaStream_t stream, const ggml_cgraph& graph,
             const std::vector<char*>& destinations,
             const std::function<void(char** table)>& evaluate) {
  if (recordings == nullptr) recordings = std::make_shared<Recordings>();
  return recordings->compute(stream, graph, destinations, evaluate);
}

char* const* entry_for(const Recordings* recordings, const ggml_tensor& from,
                       const ggml_tensor& to) {
  return recordings == nullptr ? nullptr : recordings->entry_for(from, to);
}

void pool_was_freed() noexcept {
  ++pools_freed;
}

#ifdef __CUDACC__
// Copies numbers to an address in a table on the device.
static __global__ void copy_halves(const float* from, char* const* to, long long count) {
  __half* const destination = reinterpret_cast<__half*>(*to);
  for (long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<long long>(gridDim.x) * blockDim.x) {
    destination[i] = __float2half(from[i]);
  }
}

bool copy(const Recordings* recordings, cudaStream_t stream, const ggml_tensor& from,
          const ggml_tensor& to) {
  char* const* const entry = entry_for(recordings, from, to);
  if (entry == nullptr) return false;
  constexpr long long kThreads = 256, kMostBlocks = 1024;
  const long long count = ggml_nelements(&from);
  const long long blocks = (count + kThreads - 1) / kThreads;
  copy_halves<<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), kThreads, 0,
                stream>>>(static_cast<const float*>(from.data), entry, count);
  return true;
}
#endif

}  // namespace cgtree_ggml
