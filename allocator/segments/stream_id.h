// What the allocator knows of a stream: its number.
#pragma once

#include <cstdint>

namespace cgtree {

// On a device, the number of the stream's handle (interop/device/graph_api.h).
using StreamId = std::uintptr_t;

// In the place of a stream: all work that uses the memory has ended.
inline constexpr StreamId kIdle = ~StreamId{0};

}  // namespace cgtree
