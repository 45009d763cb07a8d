// An encoder: embedding, layers of attention and feed-forward, the mean over all tokens, scores.
// Normalization precedes each block; arithmetic is in half precision.
#include "integrations/tensorrt/network.h"

#include <cmath>
#include <initializer_list>
#include <random>

namespace cgtree_tensorrt {
namespace {

using nvinfer1::Dims;
using nvinfer1::ITensor;
using nvinfer1::MatrixOperation;

Dims dims(std::initializer_list<std::int64_t> sizes) {
  Dims result{};
  for (const std::int64_t size : sizes)
    result.d[result.nbDims++] = size;
  return result;
}

class Layers {
 public:
  Layers(nvinfer1::INetworkDefinition& network, const NetworkOptions& options, Weights& weights)
      : network_(network), options_(options), weights_(weights), random_(options.seed) {}

  void add() {
    const int width = options_.width;
    ITensor* tokens = network_.addInput(kTokens, nvinfer1::DataType::kINT32, dims({-1, -1}));
    if (tokens == nullptr) throw TensorRtError("TensorRT refused the input of the network");
    ITensor* x = output(network_.addGather(random({options_.vocabulary, width}, 1), *tokens, 0));
    for (int layer = 0; layer < options_.layers; ++layer) {
      x = sum(*x, *attention(*normalized(*x)));
      x = sum(*x, *feed_forward(*normalized(*x)));
    }
    constexpr std::uint32_t kOverTokens = 1U << 1;
    ITensor* mean = output(
        network_.addReduce(*normalized(*x), nvinfer1::ReduceOperation::kAVG, kOverTokens, false));
    ITensor* scores = product(*mean, random({width, options_.classes}, 1 / std::sqrt(width)));
    scores = output(network_.addCast(*scores, nvinfer1::DataType::kFLOAT));
    scores->setName(kScores);
    network_.markOutput(*scores);
  }

 private:
  template <typename Layer>
  static ITensor* output(Layer* layer) {
    if (layer == nullptr) throw TensorRtError("TensorRT refused a layer of the network");
    return layer->getOutput(0);
  }

  // Numbers of a normal distribution.
  ITensor& random(std::initializer_list<std::int64_t> sizes, double deviation) {
    std::normal_distribution<float> normal(0, static_cast<float>(deviation));
    return constant(sizes, [&] { return normal(random_); });
  }

  template <typename Next>
  ITensor& constant(std::initializer_list<std::int64_t> sizes, const Next& next) {
    std::int64_t count = 1;
    for (const std::int64_t size : sizes)
      count *= size;
    std::vector<float>& numbers = weights_.emplace_back();
    numbers.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      numbers.push_back(next());
    ITensor* const full = output(
        network_.addConstant(dims(sizes), {nvinfer1::DataType::kFLOAT, numbers.data(), count}));
    return *output(network_.addCast(*full, nvinfer1::DataType::kHALF));
  }

  ITensor* product(ITensor& a, ITensor& b, MatrixOperation b_is = MatrixOperation::kNONE) {
    return output(network_.addMatrixMultiply(a, MatrixOperation::kNONE, b, b_is));
  }

  ITensor* sum(ITensor& a, ITensor& b) {
    return output(network_.addElementWise(a, b, nvinfer1::ElementWiseOperation::kSUM));
  }

  // Of tokens: batch x length x `from` to batch x length x `to`.
  ITensor* linear(ITensor& x, int from, int to, double scale = 1) {
    return product(x, random({1, from, to}, scale / std::sqrt(from)));
  }

  ITensor* normalized(ITensor& x) {
    constexpr std::uint32_t kOverWidth = 1U << 2;
    ITensor& scale = constant({1, 1, options_.width}, [] { return 1.0F; });
    ITensor& bias = constant({1, 1, options_.width}, [] { return 0.0F; });
    return output(network_.addNormalizationV2(x, scale, bias, kOverWidth));
  }

  // Swaps tokens and heads: before or after it, the last dimension is split into heads.
  ITensor* split(ITensor& x) {
    nvinfer1::IShuffleLayer* const shuffle = network_.addShuffle(x);
    ITensor* const result = output(shuffle);
    shuffle->setReshapeDimensions(
        dims({0, 0, options_.heads, options_.width / options_.heads}));  // 0: unchanged
    shuffle->setSecondTranspose({{0, 2, 1, 3}});
    return result;
  }
  ITensor* join(ITensor& x) {
    nvinfer1::IShuffleLayer* const shuffle = network_.addShuffle(x);
    ITensor* const result = output(shuffle);
    shuffle->setFirstTranspose({{0, 2, 1, 3}});
    shuffle->setReshapeDimensions(dims({0, 0, options_.width}));
    return result;
  }

  ITensor* attention(ITensor& x) {
    const int width = options_.width;
    const double scale = 1 / std::sqrt(static_cast<double>(width) / options_.heads);
    ITensor* queries = split(*linear(x, width, width, scale));
    ITensor* keys = split(*linear(x, width, width));
    ITensor* values = split(*linear(x, width, width));
    nvinfer1::ISoftMaxLayer* const softmax =
        network_.addSoftMax(*product(*queries, *keys, MatrixOperation::kTRANSPOSE));
    ITensor* shares = output(softmax);
    softmax->setAxes(1U << 3);
    return linear(*join(*product(*shares, *values)), width, width);
  }

  ITensor* feed_forward(ITensor& x) {
    const int width = options_.width;
    ITensor* inner = output(
        network_.addActivation(*linear(x, width, 4 * width), nvinfer1::ActivationType::kGELU_TANH));
    return linear(*inner, 4 * width, width);
  }

  nvinfer1::INetworkDefinition& network_;
  const NetworkOptions& options_;
  Weights& weights_;
  std::mt19937_64 random_;
};

}  // namespace

void add_layers(nvinfer1::INetworkDefinition& network, const NetworkOptions& options,
                Weights& weights) {
  Layers(network, options, weights).add();
}

}  // namespace cgtree_tensorrt
