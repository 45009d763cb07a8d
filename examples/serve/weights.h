// Weights: one rank's share of a model's parameters, made up from a seed or read from a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "examples/serve/config.h"
#include "examples/serve/kernels.h"
#include "interop/tensor/tensor.h"

namespace cgtree::serve {

// Which share. Heads, the columns of the feed-forward network and the vocabulary of the head are
// divided; norms and the embedding are not.
struct Shard {
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
};

// All matrices are {out, in}. Sizes with a prime are this rank's.
struct Weights {
  struct Layer {
    Tensor attention_norm;  // {hidden}
    Tensor qkv;             // {(heads' + 2 kv_heads') * head_size, hidden}
    Tensor output;          // {hidden, heads' * head_size}
    Tensor ffn_norm;        // {hidden}
    Tensor gate_up;         // {2 ffn', hidden}
    Tensor down;            // {hidden, ffn'}
  };

  // A tensor of a checkpoint, the rectangle of it that this rank has, and where that is.
  struct Part {
    std::string name;
    std::int64_t rows, columns;  // of the whole tensor; one row: a vector
    Patch patch;                 // where the rank's share begins
    Tensor to;

    std::vector<std::int64_t> shape() const {
      return rows == 1 ? std::vector{columns} : std::vector{rows, columns};
    }
  };

  Tensor embedding;  // {vocabulary, hidden}
  std::vector<Layer> layers;
  Tensor final_norm;        // {hidden}
  Tensor head;              // {vocabulary', hidden}
  std::vector<Part> parts;  // all of them
};

// The same seed gives the same model for any number of ranks. Throw OutOfMemory; load_weights()
// also what Checkpoint throws.
Weights random_weights(const ModelConfig& config, const Shard& shard, std::uint64_t seed,
                       DType dtype, Device device);
// Converts to `dtype` what the folder's files have.
Weights load_weights(const std::filesystem::path& folder, const ModelConfig& config,
                     const Shard& shard, DType dtype, Device device);
// Writes model.safetensors. Requires: the weights of one rank of one.
void save_weights(const std::filesystem::path& folder, const Weights& weights);

}  // namespace cgtree::serve
