// Puts around the core of a context what watches it and what agrees with other ranks.
#include "cgtree/tree/surroundings.h"

#include "cgtree/ranks/agreement.h"
#include "cgtree/watch/event_log.h"

namespace cgtree {

std::unique_ptr<CallObserver> make_observer(const ContextOptions& options,
                                            const ContextMemory& memory) {
  return std::make_unique<EventLog>(options, memory);
}

std::unique_ptr<Ballot> make_ballot(const ContextOptions& options) {
  return options.group == nullptr ? nullptr : std::make_unique<Agreement>(options);
}

}  // namespace cgtree
