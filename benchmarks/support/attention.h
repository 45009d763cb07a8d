// Decode attention in splits, for both devices: the work of a step whose launch the host decides.
#pragma once

#include <cstdint>

#include "interop/device/stream.h"

namespace cgtree::benchmarks {

// One query of float[heads][kWidth] against a cache of keys and values, each
// float[heads][capacity][kWidth], of which the first `*length` tokens are valid.
struct Attention {
  static constexpr int kWidth = 64;
  static constexpr int kSplit = 256;  // tokens of a split

  const float* query;
  const float* keys;
  const float* values;
  const int* length;  // on the device
  float* scores;      // float[heads][splits * kSplit]
  float* partial;     // float[heads][splits][kWidth + 2]
  float* output;      // float[heads][kWidth]
  int heads;
  int capacity;
};

// Enqueues three kernels, which attend to the first splits * kSplit tokens.
void launch_attention(StreamRef stream, const Attention& attention, int splits);

}  // namespace cgtree::benchmarks
