// The layers of the network, in TensorRT's terms.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include <NvInfer.h>

#include "integrations/tensorrt/tensorrt_model.h"

namespace cgtree_tensorrt {

inline constexpr const char* kTokens = "tokens";
inline constexpr const char* kScores = "scores";

// The weights of a network, which TensorRT borrows until the network is built.
using Weights = std::deque<std::vector<float>>;

// Adds the layers from kTokens, int32 of batch x length, to kScores, float of batch x classes.
// Throws TensorRtError if TensorRT refuses a layer.
void add_layers(nvinfer1::INetworkDefinition& network, const NetworkOptions& options,
                Weights& weights);

}  // namespace cgtree_tensorrt
