// Puts around the core of a context what watches it, what checks it, and what agrees with other
// ranks.
#include "cgtree/tree/surroundings.h"

#include "extensions/all/graph_pass.h"
#include "extensions/ranks/agreement.h"
#include "extensions/verify/replay_verifier.h"
#include "extensions/watch/event_log.h"

namespace cgtree {

std::unique_ptr<CallObserver> make_observer(const ContextOptions& options,
                                            const ContextMemory& memory) {
  return std::make_unique<EventLog>(options, memory);
}

std::unique_ptr<RecordingPass> make_pass(const ContextOptions& options, ContextMemory& memory) {
  return std::make_unique<GraphPass>(options, memory);
}

std::unique_ptr<Verifier> make_verifier(const ContextOptions& options, Tree& tree,
                                        ContextMemory& memory, CallObserver& events,
                                        Attempts& attempts) {
  return std::make_unique<ReplayVerifier>(options, tree, memory, events, attempts);
}

std::unique_ptr<Ballot> make_ballot(const ContextOptions& options) {
  return options.group == nullptr ? nullptr : std::make_unique<Agreement>(options);
}

}  // namespace cgtree
