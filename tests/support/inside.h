// The inside of a context: facts for tests that users do not need.
#pragma once

#include <cstddef>

#include "cgtree/context.h"
#include "interop/tensor/tensor.h"

namespace cgtree {
class ContextMemory;
}

namespace cgtree::testing {

// Aborts if an invariant of the context does not hold.
void validate(const Context& context);
// Throws ConcurrentUse if a thread is inside the context.
void check_idle(const Context& context);
std::size_t recordings_of(const Context& context);
// Returns true if replays call extensions.
bool watches_replays(const Context& context);
// Returns true if the address lies in a pool of the context.
bool owns(const Context& context, const void* address);
// Returns true if the tensor is an output of the context.
bool manages(const Context& context, const Tensor& tensor);
// Callers include cgtree/memory/context_memory.h.
ContextMemory& memory_of(const Context& context);

}  // namespace cgtree::testing
