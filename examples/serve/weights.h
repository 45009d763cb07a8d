// Weights: one rank's share of a model's parameters, made from a seed or read from a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "examples/serve/config.h"
#include "examples/serve/kernels.h"
#include "interop/tensor/tensor.h"

namespace cgtree::serve {

// The share of a rank. Heads, the columns of the feed-forward network and the vocabulary of the
// head are divided; norms and the embedding are not.
struct Shard {
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
};

// All are {out, in} in the number_type() of the device. Sizes with a prime are this rank's.
struct Weights {
  struct Layer {
    Tensor attention_norm;  // {1, hidden}
    Tensor qkv;             // {(heads' + 2 kv_heads') * head_size, hidden}
    Tensor output;          // {hidden, heads' * head_size}
    Tensor ffn_norm;        // {1, hidden}
    Tensor gate_up;         // {2 ffn', hidden}
    Tensor down;            // {hidden, ffn'}
  };

  // A tensor of a checkpoint, and the rectangle of it that this rank has.
  struct Part {
    std::string name;
    std::vector<std::int64_t> shape;  // of the whole tensor, one or two sizes
    Patch patch;                      // beginning of the rank's share
    Tensor to;                        // a part of a tensor below
  };

  Tensor embedding;  // {vocabulary, hidden}
  std::vector<Layer> layers;
  Tensor final_norm;        // {1, hidden}
  Tensor head;              // {vocabulary', hidden}
  std::vector<Part> parts;  // all of them
};

// The same seed gives the same model for any number of ranks. Throw InvalidArgument as
// check_config(), OutOfMemory; load_weights() also as read_checkpoint(), and for a
// tensor that is missing or has another shape.
Weights random_weights(const ModelConfig& config, const Shard& shard, std::uint64_t seed,
                       Device device);
// Converts the tensors of the folder's files to the type of the device.
Weights load_weights(const std::filesystem::path& folder, const ModelConfig& config,
                     const Shard& shard, Device device);

}  // namespace cgtree::serve
