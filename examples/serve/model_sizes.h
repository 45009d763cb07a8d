// ModelSizes: the numbers that fix a model, and the memory they ask for.
#pragma once

#include <cstdint>

#include "interop/device/device.h"

namespace cgtree::serve {

struct ModelSizes {
  std::int64_t layers = 2;
  std::int64_t hidden = 64;  // a multiple of heads
  std::int64_t heads = 4;
  std::int64_t vocabulary = 256;
  std::int64_t context = 64;  // positions that attention looks back on
  std::int64_t slots = 8;     // requests decoded together
};

std::int64_t count_parameters(const ModelSizes& sizes);

// Bytes of device memory.
struct MemoryNeeds {
  std::int64_t weights = 0;
  std::int64_t kv_cache = 0;
  std::int64_t step = 0;  // temporaries, with what pools round up

  std::int64_t total() const { return weights + kv_cache + step; }
};

// `prompt`: tokens fed at once for a request, at most.
MemoryNeeds estimate_memory(const ModelSizes& sizes, std::int64_t prompt);

// `lanes`: contexts that exist at once, each with its KV cache. Throws OutOfMemory that shows needs
// and free memory, before anything is allocated. Passes on a device that does not tell what is
// free.
void expect_memory(const ModelSizes& sizes, std::int64_t prompt, std::int64_t lanes, Device device);

}  // namespace cgtree::serve
