// A model of Llama's shape with random weights, and graphs of its decoding steps, through ggml's
// public interface.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include <ggml-backend.h>
#include <ggml.h>

namespace decode {

struct ModelSize {
  int layers = 16;
  int width = 2048;
  int heads = 32;
  int kv_heads = 8;
  int ffn = 8192;
  int vocabulary = 32000;
  int context = 1024;  // tokens of a sequence at most
  int sequences = 8;   // at most
  // Each token has a successor that the model prefers, if set: the same in all models of this
  // vocabulary, so that one model can draft for another.
  bool has_successors = false;

  int head_width() const { return width / heads; }
  int kv_width() const { return head_width() * kv_heads; }
};

// A Shape determines the graph of a step: sequences 0 to `sequences` each get `tokens` tokens, and
// attend to the first `cells` cells of their caches.
struct Shape {
  int sequences = 0;
  int tokens = 0;
  int cells = 0;

  int all_tokens() const { return sequences * tokens; }
  bool operator==(const Shape& other) const {
    return sequences == other.sequences && tokens == other.tokens && cells == other.cells;
  }
};

// A Step is a graph with the tensors to fill before, and to read after it is computed. Tokens are
// ordered by sequence.
struct Step {
  ggml_cgraph* graph = nullptr;
  ggml_tensor* tokens = nullptr;     // int32 [all_tokens]
  ggml_tensor* positions = nullptr;  // int32 [all_tokens]
  ggml_tensor* k_rows = nullptr;     // int64 [all_tokens]: destinations of the keys
  ggml_tensor* v_rows = nullptr;     // int64 [all_tokens * kv_width]: destinations of the values
  ggml_tensor* mask = nullptr;       // float [cells, tokens, 1, sequences]: 0 or -infinity
  ggml_tensor* next = nullptr;       // int32 [all_tokens]: the likeliest token after each
};

// Weights in half precision and the caches of keys and values, on one backend.
class Llama {
 public:
  Llama(const ModelSize& size, ggml_backend_t backend, std::uint64_t seed);
  ~Llama();
  Llama(const Llama&) = delete;
  Llama& operator=(const Llama&) = delete;

  // Returns a graph whose tensors ggml_context `context` owns. They have no memory yet.
  Step step(ggml_context* context, const Shape& shape) const;
  // An upper bound of the number of nodes of a step.
  std::size_t max_nodes() const { return static_cast<std::size_t>(size_.layers) * 48 + 64; }
  const ModelSize& size() const { return size_; }

 private:
  struct Layer {
    ggml_tensor *attention_norm, *query, *key, *value, *output;
    ggml_tensor *ffn_norm, *gate, *up, *down;
    ggml_tensor* keys;    // cache: [kv_width, context, sequences]
    ggml_tensor* values;  // cache, transposed: [context, kv_width, sequences]
  };

  ggml_tensor* attend(ggml_context* context, const Step& step, const Shape& shape,
                      const Layer& layer, ggml_tensor* in) const;

  ModelSize size_;
  ggml_context* context_;
  ggml_backend_buffer_t buffer_;
  std::vector<Layer> layers_;
  ggml_tensor* embedding_;
  ggml_tensor* output_norm_;
  ggml_tensor* head_;
};

}  // namespace decode
