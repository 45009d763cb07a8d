// Gives each context all extensions.
#include "cgtree/tree/engine.h"
#include "extensions/all/graph_examiner.h"
#include "extensions/verify/replay_verifier.h"
#include "extensions/watch/event_log.h"

namespace cgtree {

void add_extensions(Engine& engine) {
  engine.extensions.add(std::make_unique<EventLog>(engine));
  engine.extensions.add(std::make_unique<GraphExaminer>(engine));
  engine.extensions.add(std::make_unique<ReplayVerifier>(engine));
}

}  // namespace cgtree
