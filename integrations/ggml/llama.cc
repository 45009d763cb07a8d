// Makes random weights, and builds the graph of a step as llama.cpp does without flash attention.
#include "integrations/ggml/llama.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <ggml-alloc.h>

namespace decode {
namespace {

constexpr float kEpsilon = 1e-5F;
constexpr float kEmbedding = 2;  // weight of a token that has a successor

// Fills a tensor with numbers distributed uniformly in [-scale, scale].
void fill_random(ggml_tensor* tensor, float scale, std::mt19937_64& random) {
  std::vector<ggml_fp16_t> table(4096);
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] = ggml_fp32_to_fp16(scale * (static_cast<float>(i) / 2047.5F - 1));
  std::vector<ggml_fp16_t> row(static_cast<std::size_t>(ggml_nelements(tensor)));
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    bits = i % 5 == 0 ? random() : bits >> 12;
    row[i] = table[bits % table.size()];
  }
  ggml_backend_tensor_set(tensor, row.data(), 0, row.size() * sizeof(ggml_fp16_t));
}

void fill_ones(ggml_tensor* tensor) {
  const std::vector<float> ones(static_cast<std::size_t>(ggml_nelements(tensor)), 1);
  ggml_backend_tensor_set(tensor, ones.data(), 0, ones.size() * sizeof(float));
}

std::vector<ggml_fp16_t> read(const ggml_tensor* tensor) {
  std::vector<ggml_fp16_t> values(static_cast<std::size_t>(ggml_nelements(tensor)));
  ggml_backend_tensor_get(tensor, values.data(), 0, values.size() * sizeof(ggml_fp16_t));
  return values;
}

// Makes the head expect each token's embedding in the row of its successor. The layers between add
// noise, which outweighs it now and then.
void prefer_successors(const ModelSize& size, ggml_tensor* embedding, ggml_tensor* head) {
  const auto width = static_cast<std::size_t>(size.width);
  const auto vocabulary = static_cast<std::size_t>(size.vocabulary);
  const std::vector<ggml_fp16_t> tokens = read(embedding);
  std::vector<ggml_fp16_t> rows = read(head);
  // The product with the successor's row must be about the largest of all others.
  const float others = std::sqrt(2 * std::log(static_cast<float>(vocabulary)) *
                                 (1 + 0.1F * static_cast<float>(size.layers)));
  const float share = std::min(1.15F * others / std::sqrt(static_cast<float>(width)), 0.95F);
  const float rest = std::sqrt(1 - share * share);
  const float unit = share / (kEmbedding * std::sqrt(static_cast<float>(width)));
  for (std::size_t token = 0; token < vocabulary; ++token) {
    const std::size_t successor = (token * 7919 + 13) % vocabulary;
    for (std::size_t i = 0; i < width; ++i) {
      ggml_fp16_t& weight = rows[successor * width + i];
      weight = ggml_fp32_to_fp16(rest * ggml_fp16_to_fp32(weight) +
                                 unit * ggml_fp16_to_fp32(tokens[token * width + i]));
    }
  }
  ggml_backend_tensor_set(head, rows.data(), 0, rows.size() * sizeof(ggml_fp16_t));
}

ggml_tensor* norm(ggml_context* context, ggml_tensor* in, ggml_tensor* weight) {
  return ggml_mul(context, ggml_rms_norm(context, in, kEpsilon), weight);
}

ggml_tensor* input(ggml_tensor* tensor) {
  ggml_set_input(tensor);
  return tensor;
}

}  // namespace

Llama::Llama(const ModelSize& size, ggml_backend_t backend, std::uint64_t seed)
    : size_(size), layers_(static_cast<std::size_t>(size.layers)) {
  context_ = ggml_init({ggml_tensor_overhead() * (layers_.size() * 11 + 3), nullptr, true});
  std::vector<ggml_tensor*> matrices;
  std::vector<ggml_tensor*> norms;
  const auto matrix = [&](int in, int out) {
    return matrices.emplace_back(ggml_new_tensor_2d(context_, GGML_TYPE_F16, in, out));
  };
  const auto weights = [&] {
    return norms.emplace_back(ggml_new_tensor_1d(context_, GGML_TYPE_F32, size.width));
  };
  const auto cache = [&](int inner, int outer) {
    return ggml_new_tensor_3d(context_, GGML_TYPE_F16, inner, outer, size.sequences);
  };
  const int kv = size.kv_width();
  for (Layer& layer : layers_) {
    layer.attention_norm = weights();
    layer.query = matrix(size.width, size.width);
    layer.key = matrix(size.width, kv);
    layer.value = matrix(size.width, kv);
    layer.output = matrix(size.width, size.width);
    layer.ffn_norm = weights();
    layer.gate = matrix(size.width, size.ffn);
    layer.up = matrix(size.width, size.ffn);
    layer.down = matrix(size.ffn, size.width);
    layer.keys = cache(kv, size.context);
    layer.values = cache(size.context, kv);
  }
  embedding_ = matrix(size.width, size.vocabulary);
  output_norm_ = weights();
  head_ = matrix(size.width, size.vocabulary);
  buffer_ = ggml_backend_alloc_ctx_tensors(context_, backend);
  if (buffer_ == nullptr) throw std::runtime_error("no memory for the weights and the caches");
  ggml_backend_buffer_clear(buffer_, 0);
  ggml_backend_buffer_set_usage(buffer_, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  std::mt19937_64 random(seed);
  for (ggml_tensor* tensor : matrices)
    fill_random(tensor, std::sqrt(3 / static_cast<float>(tensor->ne[0])), random);
  std::for_each(norms.begin(), norms.end(), fill_ones);
  if (!size.has_successors) return;
  fill_random(embedding_, kEmbedding * std::sqrt(3.0F), random);
  prefer_successors(size, embedding_, head_);
}

Llama::~Llama() {
  ggml_backend_buffer_free(buffer_);
  ggml_free(context_);
}

// Writes the new keys and values, and attends to the first cells of the caches.
ggml_tensor* Llama::attend(ggml_context* context, const Step& step, const Shape& shape,
                           const Layer& layer, ggml_tensor* in) const {
  const int width = size_.head_width();
  const int all = shape.all_tokens();
  const auto rotated = [&](ggml_tensor* weights, int heads) {
    ggml_tensor* const made =
        ggml_reshape_3d(context, ggml_mul_mat(context, weights, in), width, heads, all);
    return ggml_rope_ext(context, made, step.positions, nullptr, width, GGML_ROPE_TYPE_NORMAL,
                         size_.context, 10000, 1, 0, 1, 0, 0);
  };
  ggml_tensor* query = rotated(layer.query, size_.heads);
  ggml_tensor* const key = rotated(layer.key, size_.kv_heads);
  ggml_tensor* const value = ggml_mul_mat(context, layer.value, in);

  ggml_tensor* const key_rows =
      ggml_reshape_2d(context, layer.keys, size_.kv_width(), size_.context * size_.sequences);
  ggml_tensor* const value_rows =
      ggml_reshape_2d(context, layer.values, 1, ggml_nelements(layer.values));
  for (ggml_tensor* const written :
       {ggml_set_rows(context, key_rows, ggml_reshape_2d(context, key, size_.kv_width(), all),
                      step.k_rows),
        ggml_set_rows(context, value_rows,
                      ggml_reshape_2d(context, value, 1, ggml_nelements(value)), step.v_rows)}) {
    ggml_build_forward_expand(step.graph, written);
  }

  const auto& k = *layer.keys;
  const auto& v = *layer.values;
  ggml_tensor* const keys =
      ggml_view_4d(context, layer.keys, width, shape.cells, size_.kv_heads, shape.sequences,
                   k.nb[1], k.nb[0] * static_cast<std::size_t>(width), k.nb[2], 0);
  ggml_tensor* const values =
      ggml_view_4d(context, layer.values, shape.cells, width, size_.kv_heads, shape.sequences,
                   v.nb[1], v.nb[1] * static_cast<std::size_t>(width), v.nb[2], 0);
  query = ggml_reshape_4d(context, query, width, size_.heads, shape.tokens, shape.sequences);
  query = ggml_permute(context, query, 0, 2, 1, 3);

  ggml_tensor* scores = ggml_mul_mat(context, keys, query);
  ggml_mul_mat_set_prec(scores, GGML_PREC_F32);
  scores =
      ggml_soft_max_ext(context, scores, step.mask, 1 / std::sqrt(static_cast<float>(width)), 0);
  ggml_tensor* const mixed =
      ggml_permute(context, ggml_mul_mat(context, values, scores), 0, 2, 1, 3);
  return ggml_mul_mat(context, layer.output, ggml_cont_2d(context, mixed, size_.width, all));
}

Step Llama::step(ggml_context* context, const Shape& shape) const {
  const int all = shape.all_tokens();
  Step step;
  step.graph = ggml_new_graph_custom(context, max_nodes(), false);
  step.tokens = input(ggml_new_tensor_1d(context, GGML_TYPE_I32, all));
  step.positions = input(ggml_new_tensor_1d(context, GGML_TYPE_I32, all));
  step.k_rows = input(ggml_new_tensor_1d(context, GGML_TYPE_I64, all));
  step.v_rows = input(ggml_new_tensor_1d(context, GGML_TYPE_I64, all * size_.kv_width()));
  step.mask = input(
      ggml_new_tensor_4d(context, GGML_TYPE_F32, shape.cells, shape.tokens, 1, shape.sequences));
  ggml_tensor* state = ggml_get_rows(context, embedding_, step.tokens);
  for (const Layer& layer : layers_) {
    ggml_tensor* in = norm(context, state, layer.attention_norm);
    state = ggml_add(context, attend(context, step, shape, layer, in), state);
    in = norm(context, state, layer.ffn_norm);
    ggml_tensor* const gated = ggml_swiglu_split(context, ggml_mul_mat(context, layer.gate, in),
                                                 ggml_mul_mat(context, layer.up, in));
    state = ggml_add(context, ggml_mul_mat(context, layer.down, gated), state);
  }
  state = ggml_mul_mat(context, head_, norm(context, state, output_norm_));
  step.next = ggml_argmax(context, state);
  ggml_set_output(step.next);
  ggml_build_forward_expand(step.graph, step.next);
  return step;
}

}  // namespace decode
