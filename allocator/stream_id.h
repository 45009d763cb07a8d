// What the allocator knows of a stream: its number.
#pragma once

#include <cstdint>

namespace cgtree {

// On a device, the number of the stream's handle (interop/handles.h).
using StreamId = std::uintptr_t;

}  // namespace cgtree
