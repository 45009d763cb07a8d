// Leaves the core of a context alone: nothing is told of its calls, and no ranks agree.
#include "base/error.h"
#include "cgtree/tree/surroundings.h"

namespace cgtree {

std::unique_ptr<CallObserver> make_observer(const ContextOptions& options, const ContextMemory&) {
  if (!options.event_file.empty()) {
    throw InvalidArgument(
        "ContextOptions::event_file in a build of the core alone: link //:cgtree");
  }
  return std::make_unique<CallObserver>();
}

std::unique_ptr<Ballot> make_ballot(const ContextOptions& options) {
  if (options.group != nullptr) {
    throw InvalidArgument("ContextOptions::group in a build of the core alone: link //:cgtree");
  }
  return nullptr;
}

}  // namespace cgtree
