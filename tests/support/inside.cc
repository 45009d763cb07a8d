// Reads facts from the engine of a context.
#include "tests/support/inside.h"

#include "cgtree/tree/engine.h"

namespace cgtree::testing {

void validate(const Context& context) {
  context.share_engine()->validate();
}

void check_idle(const Context& context) {
  context.share_engine()->check_idle();
}

std::size_t recordings_of(const Context& context) {
  return context.share_engine()->tree.nodes().size();
}

bool watches_replays(const Context& context) {
  return context.share_engine()->extensions.wants().replays;
}

bool owns(const Context& context, const void* address) {
  return memory_of(context).owns(address);
}

bool manages(const Context& context, const Tensor& tensor) {
  return memory_of(context).manages(*tensor.storage());
}

ContextMemory& memory_of(const Context& context) {
  return *context.share_engine()->memory;
}

}  // namespace cgtree::testing
