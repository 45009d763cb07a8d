// Computes steps of a Llama on a backend of ggml, and times the host's work for each.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "integrations/ggml/llama.h"

namespace decode {

// Times of the host's work for one step, in microseconds.
struct StepTimes {
  double build = 0;   // the graph and its memory; 0 for a step of the same shape as the last
  double inputs = 0;  // their copies are enqueued
  double submit = 0;  // the call of ggml that computes
  double wait = 0;    // until the tokens are available

  void operator+=(const StepTimes& other) {
    build += other.build;
    inputs += other.inputs;
    submit += other.submit;
    wait += other.wait;
  }
};

class Stopwatch {
 public:
  // Returns the microseconds since the last call.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double, std::micro> passed = now - std::exchange(last_, now);
    return passed.count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// The tokens of a step, and the lengths of their sequences before it.
struct Batch {
  std::vector<std::int32_t> tokens;  // by sequence
  std::vector<int> lengths;
};

// As llama.cpp does, it builds a graph only for a shape that differs from the last step's, and
// always in the same memory; all graphs share this memory, which is reserved for the largest.
class Engine {
 public:
  // `device` is "cpu" or "gpu".
  Engine(const std::string& device, const ModelSize& size, int max_tokens, std::uint64_t seed);

  // Returns the likeliest token after each, valid until the next call.
  const std::vector<std::int32_t>& compute(const Batch& batch, StepTimes* times);

  // Returns the bytes of the device's memory that all programs use; 0 on a CPU.
  std::size_t used_bytes() const;
  int nodes() const { return ggml_graph_n_nodes(step_.graph); }
  // Returns the number of parts into which ggml cuts a step: 1 if the device computes all of it.
  int splits() const { return ggml_backend_sched_get_n_splits(scheduler_.get()); }

 private:
  template <auto Free>
  struct Freed {
    template <typename T>
    void operator()(T* owned) const {
      Free(owned);
    }
  };
  using Backend = std::unique_ptr<ggml_backend, Freed<ggml_backend_free>>;

  void build(const Shape& shape);
  void fill(const Batch& batch);
  template <typename T>
  void set(ggml_tensor* tensor, const std::vector<T>& values);

  Backend device_, cpu_;
  Llama model_;
  std::vector<std::byte> memory_;  // of the tensor objects of the graph
  std::unique_ptr<ggml_backend_sched, Freed<ggml_backend_sched_free>> scheduler_;
  std::unique_ptr<ggml_context, Freed<ggml_free>> context_;
  Shape shape_;
  Step step_;
  std::vector<std::int32_t> positions_, next_;
  std::vector<std::int64_t> k_rows_, v_rows_;
  std::vector<float> mask_;
};

}  // namespace decode
