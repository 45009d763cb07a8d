// Handles a device gives out: opaque numbers, one type per kind of object.
#pragma once

#include <cstdint>

namespace cgtree {

// On the cuda device a stream handle is the cudaStream_t itself; the two numbers below are CUDA's.
enum class StreamHandle : std::uintptr_t { kNull = 0, kLegacy = 1, kPerThread = 2 };
enum class EventHandle : std::uintptr_t { kNull = 0 };
enum class GraphHandle : std::uintptr_t { kNull = 0 };
enum class NodeHandle : std::uintptr_t { kNull = 0 };
enum class ExecHandle : std::uintptr_t { kNull = 0 };

}  // namespace cgtree
