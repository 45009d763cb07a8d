// LlamaReference: the logits of a Llama model in plain loops over doubles, for one request at a
// time, following only the published architecture: without a cache, batches or fused operations.
//
// Source: modeling_llama.py of Hugging Face's transformers.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "examples/serve/config.h"

namespace cgtree::serve {

class LlamaReference {
 public:
  using Matrix = std::vector<std::vector<double>>;  // rows

  // The weights by their names in a checkpoint, row-major {out, in}.
  LlamaReference(const ModelConfig& config, std::map<std::string, std::vector<double>> weights)
      : c_(config), weights_(std::move(weights)) {}

  // Returns the logits after each of the tokens.
  Matrix logits(const std::vector<std::int32_t>& tokens) const {
    const auto n = tokens.size();
    const auto hidden = static_cast<std::size_t>(c_.hidden);
    Matrix x(n);
    for (std::size_t t = 0; t < n; ++t) {
      const auto& table = weights_.at("model.embed_tokens.weight");
      const auto row = table.begin() + tokens[t] * c_.hidden;
      x[t].assign(row, row + c_.hidden);
    }
    for (std::int64_t layer = 0; layer < c_.layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      Matrix normed(n);
      for (std::size_t t = 0; t < n; ++t)
        normed[t] = rms_norm(x[t], prefix + "input_layernorm.weight");
      const Matrix attended = attention(normed, prefix + "self_attn.");
      for (std::size_t t = 0; t < n; ++t) {
        for (std::size_t i = 0; i < hidden; ++i)
          x[t][i] += attended[t][i];
        const auto fed =
            mlp(rms_norm(x[t], prefix + "post_attention_layernorm.weight"), prefix + "mlp.");
        for (std::size_t i = 0; i < hidden; ++i)
          x[t][i] += fed[i];
      }
    }
    Matrix result(n);
    for (std::size_t t = 0; t < n; ++t) {
      result[t] = linear(rms_norm(x[t], "model.norm.weight"),
                         c_.tied ? "model.embed_tokens.weight" : "lm_head.weight");
    }
    return result;
  }

 private:
  std::vector<double> linear(const std::vector<double>& x, const std::string& name) const {
    const std::vector<double>& w = weights_.at(name);
    std::vector<double> y(w.size() / x.size(), 0.0);
    for (std::size_t o = 0; o < y.size(); ++o) {
      for (std::size_t i = 0; i < x.size(); ++i)
        y[o] += w[o * x.size() + i] * x[i];
    }
    return y;
  }

  std::vector<double> rms_norm(std::vector<double> x, const std::string& name) const {
    double squares = 0;
    for (const double value : x)
      squares += value * value;
    const double root = std::sqrt(squares / static_cast<double>(x.size()) + c_.norm_epsilon);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = x[i] / root * weights_.at(name)[i];
    return x;
  }

  std::vector<double> mlp(const std::vector<double>& x, const std::string& prefix) const {
    std::vector<double> gate = linear(x, prefix + "gate_proj.weight");
    const std::vector<double> up = linear(x, prefix + "up_proj.weight");
    for (std::size_t i = 0; i < gate.size(); ++i)
      gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    return linear(gate, prefix + "down_proj.weight");
  }

  // _compute_llama3_parameters(), and the plain 1 / theta^(2i/d).
  double inverse_frequency(std::size_t i) const {
    const double d = static_cast<double>(c_.head_size);
    const double inverse = 1.0 / std::pow(c_.rope_theta, static_cast<double>(2 * i) / d);
    if (!c_.rope_scaling) return inverse;
    const RopeScaling& s = *c_.rope_scaling;
    const double wavelength = 2 * M_PI / inverse;
    const double low = s.original_context / s.low_frequency_factor;
    const double high = s.original_context / s.high_frequency_factor;
    if (wavelength < high) return inverse;
    if (wavelength > low) return inverse / s.factor;
    const double smooth = (s.original_context / wavelength - s.low_frequency_factor) /
                          (s.high_frequency_factor - s.low_frequency_factor);
    return (1 - smooth) / s.factor * inverse + smooth * inverse;
  }

  // x * cos + rotate_half(x) * sin for the head at offset `first`.
  void rotate(std::vector<double>& x, std::size_t first, std::size_t position) const {
    const auto d = static_cast<std::size_t>(c_.head_size);
    const std::vector<double> head(x.begin() + static_cast<std::ptrdiff_t>(first),
                                   x.begin() + static_cast<std::ptrdiff_t>(first + d));
    for (std::size_t i = 0; i < d; ++i) {
      const double angle = static_cast<double>(position) * inverse_frequency(i % (d / 2));
      const double rotated = i < d / 2 ? -head[i + d / 2] : head[i - d / 2];
      x[first + i] = head[i] * std::cos(angle) + rotated * std::sin(angle);
    }
  }

  Matrix attention(const Matrix& x, const std::string& prefix) const {
    const std::size_t n = x.size();
    const auto d = static_cast<std::size_t>(c_.head_size);
    const auto heads = static_cast<std::size_t>(c_.heads);
    const auto kv_heads = static_cast<std::size_t>(c_.kv_heads);
    Matrix q(n), k(n), v(n), result(n);
    for (std::size_t t = 0; t < n; ++t) {
      q[t] = linear(x[t], prefix + "q_proj.weight");
      k[t] = linear(x[t], prefix + "k_proj.weight");
      v[t] = linear(x[t], prefix + "v_proj.weight");
      for (std::size_t h = 0; h < heads; ++h)
        rotate(q[t], h * d, t);
      for (std::size_t h = 0; h < kv_heads; ++h)
        rotate(k[t], h * d, t);
    }
    for (std::size_t t = 0; t < n; ++t) {
      std::vector<double> all(heads * d, 0.0);
      for (std::size_t h = 0; h < heads; ++h) {
        const std::size_t kv = h / (heads / kv_heads);  // repeat_kv()
        std::vector<double> weights(t + 1);
        double sum = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          double score = 0;
          for (std::size_t i = 0; i < d; ++i)
            score += q[t][h * d + i] * k[s][kv * d + i];
          weights[s] = std::exp(score / std::sqrt(static_cast<double>(d)));
          sum += weights[s];
        }
        for (std::size_t s = 0; s <= t; ++s) {
          for (std::size_t i = 0; i < d; ++i)
            all[h * d + i] += weights[s] / sum * v[s][kv * d + i];
        }
      }
      result[t] = linear(all, prefix + "o_proj.weight");
    }
    return result;
  }

  ModelConfig c_;
  std::map<std::string, std::vector<double>> weights_;
};

}  // namespace cgtree::serve
