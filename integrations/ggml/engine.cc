// Builds, fills and computes the graphs of steps.
#include "integrations/ggml/engine.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace decode {
namespace {

ggml_backend* open(enum ggml_backend_dev_type type) {
  ggml_backend* const opened = ggml_backend_init_by_type(type, nullptr);
  if (opened == nullptr) throw std::runtime_error("ggml has no such device");
  return opened;
}

// llama.cpp attends to a multiple of 256 cells.
int cells_for(const Batch& batch, int tokens, int context) {
  const int longest = *std::max_element(batch.lengths.begin(), batch.lengths.end()) + tokens;
  return std::min((longest + 255) / 256 * 256, context);
}

}  // namespace

Engine::Engine(const std::string& device, const ModelSize& size, int max_tokens, std::uint64_t seed)
    : device_(device == "cpu" ? nullptr : open(GGML_BACKEND_DEVICE_TYPE_GPU)),
      cpu_(open(GGML_BACKEND_DEVICE_TYPE_CPU)),
      model_(size, device_ ? device_.get() : cpu_.get(), seed) {
  const std::size_t nodes = model_.max_nodes();
  memory_.resize(2 * nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes, false));
  std::vector<ggml_backend_t> backends;
  if (device_) backends.push_back(device_.get());
  backends.push_back(cpu_.get());
  scheduler_.reset(ggml_backend_sched_new(backends.data(), nullptr,
                                          static_cast<int>(backends.size()), nodes, false, false));
  build({size.sequences, max_tokens, size.context});
  if (!ggml_backend_sched_reserve(scheduler_.get(), step_.graph)) {
    throw std::runtime_error("no memory for the largest graph");
  }
  shape_ = {};
}

void Engine::build(const Shape& shape) {
  context_.reset(ggml_init({memory_.size(), memory_.data(), true}));
  step_ = model_.step(context_.get(), shape);
  shape_ = shape;
  ggml_backend_sched_reset(scheduler_.get());
  ggml_backend_t const backend = device_ ? device_.get() : cpu_.get();
  for (ggml_tensor* input :
       {step_.tokens, step_.positions, step_.k_rows, step_.v_rows, step_.mask}) {
    ggml_backend_sched_set_tensor_backend(scheduler_.get(), input, backend);
  }
}

template <typename T>
void Engine::set(ggml_tensor* tensor, const std::vector<T>& values) {
  ggml_backend_tensor_set_async(device_ ? device_.get() : cpu_.get(), tensor, values.data(), 0,
                                values.size() * sizeof(T));
}

void Engine::fill(const Batch& batch) {
  const ModelSize& size = model_.size();
  positions_.clear();
  k_rows_.clear();
  v_rows_.clear();
  mask_.assign(static_cast<std::size_t>(shape_.all_tokens() * shape_.cells), -INFINITY);
  for (int sequence = 0; sequence < shape_.sequences; ++sequence) {
    for (int token = 0; token < shape_.tokens; ++token) {
      const int position = batch.lengths[static_cast<std::size_t>(sequence)] + token;
      const std::size_t row = positions_.size();
      positions_.push_back(position);
      k_rows_.push_back(std::int64_t{sequence} * size.context + position);
      for (int i = 0; i < size.kv_width(); ++i) {
        v_rows_.push_back((std::int64_t{sequence} * size.kv_width() + i) * size.context + position);
      }
      std::fill_n(mask_.begin() + static_cast<std::ptrdiff_t>(row) * shape_.cells, position + 1, 0);
    }
  }
  set(step_.tokens, batch.tokens);
  set(step_.positions, positions_);
  set(step_.k_rows, k_rows_);
  set(step_.v_rows, v_rows_);
  set(step_.mask, mask_);
}

const std::vector<std::int32_t>& Engine::compute(const Batch& batch, StepTimes* times) {
  Stopwatch stopwatch;
  const int sequences = static_cast<int>(batch.lengths.size());
  const int tokens = static_cast<int>(batch.tokens.size()) / sequences;
  const Shape shape{sequences, tokens, cells_for(batch, tokens, model_.size().context)};
  if (!(shape == shape_)) {
    build(shape);
    if (!ggml_backend_sched_alloc_graph(scheduler_.get(), step_.graph)) {
      throw std::runtime_error("no memory for a graph");
    }
  }
  times->build = stopwatch.lap();
  fill(batch);
  times->inputs = stopwatch.lap();
  if (ggml_backend_sched_graph_compute_async(scheduler_.get(), step_.graph) !=
      GGML_STATUS_SUCCESS) {
    throw std::runtime_error("ggml could not compute a graph");
  }
  times->submit = stopwatch.lap();
  next_.resize(batch.tokens.size());
  ggml_backend_sched_synchronize(scheduler_.get());  // the copy is on another stream
  ggml_backend_tensor_get(step_.next, next_.data(), 0, next_.size() * sizeof(std::int32_t));
  times->wait = stopwatch.lap();
  return next_;
}

std::size_t Engine::used_bytes() const {
  if (!device_) return 0;
  std::size_t free = 0;
  std::size_t total = 0;
  ggml_backend_dev_memory(ggml_backend_get_device(device_.get()), &free, &total);
  return total - free;
}

}  // namespace decode
