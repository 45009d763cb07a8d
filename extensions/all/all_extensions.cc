// Gives each context the extensions of the library.
#include <memory>

#include "cgtree/tree/engine.h"
#include "extensions/all/log_writer.h"
#include "extensions/audit/graph_examiner.h"
#include "extensions/verify/replay_verifier.h"
#include "extensions/watch/event_log.h"

namespace cgtree {
namespace {

template <typename Kind>
void add_unless_there(Engine& engine, const ExtensionFactory& make) {
  if (engine.extensions.find<Kind>() == nullptr) engine.extensions.add(make(engine));
}

}  // namespace

void add_extensions(Engine& engine) {
  use_spdlog();
  add_unless_there<EventLog>(engine, watch());
  add_unless_there<GraphExaminer>(engine, audit());
  add_unless_there<ReplayVerifier>(engine, verify());
}

}  // namespace cgtree
