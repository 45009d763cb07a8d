// World: captures by the caller that include calls.
#include "tests/system/world.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "base/error.h"
#include "interop/device/graph.h"
#include "interop/device/graph_api.h"
#include "interop/tensor/stream_synchronization.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {

// Returns a tensor whose producer, a library or another context, may still be working. The other
// context has made it, or has written it on the stream that captures.
World::Variable World::lent_or_fresh(const WorldOperation& operation) {
  if (operation.choice % 3 != 2 && program_.has(Feature::kImports)) {
    ++totals_.done["a call in a capture has an imported input"];
    return import_of(fresh(operation.x));
  }
  Variable x = fresh(operation.x);
  if (operation.choice % 3 != 2 || contexts_.size() < 2) return x;
  WorldOperation what = without_fault(operation);
  what.context = static_cast<std::uint8_t>((operation.context + 1u) % contexts_.size());
  const bool writes = operation.choice % 2 == 0;
  if (writes) what.stream = static_cast<std::uint8_t>(operation.stream % kStreams + 1);
  const Deed deed = writes ? Deed::kBump : Deed::kChain;
  std::vector<Tensor> outputs;
  if (!run_call(what, use(what.context).function(deed), {&x.tensor, 1}, {}, writes, outputs))
    return fresh(operation.x);
  const ModelTensor made = results_of(deed, x.model, {}, 0)[0];
  ++totals_.done[writes ? "a call in a capture reads what another context has written"
                        : "a call in a capture has an output of another context"];
  return writes ? std::move(x) : Variable{outputs.at(0), made};
}

void World::capture(const WorldOperation& operation) {
  const StreamRef stream = streams_[operation.stream % kStreams]->ref();
  const Deed deeds[] = {Deed::kChain, Deed::kBig, Deed::kFork};
  const Deed deed = deeds[operation.y % (program_.has(Feature::kForks) ? 3 : 2)];
  // With kForks the call may be on a branch of the capture.
  const int forks = program_.has(Feature::kForks) ? operation.to % 3 : 0;
  const StreamRef branch = streams_[(operation.stream + (forks > 0)) % kStreams]->ref();
  Captured made;
  settle();
  made.x = lent_or_fresh(operation);
  WorldContext& with = context(operation);
  std::vector<Tensor> outputs;
  Code code = Code::kSuccess;
  bool is_refused = false;
  std::string missed;
  const auto record = [&] {
    try {
      Capture open(stream, CaptureMode::kThreadLocal);
      made.id = capture_of(stream);
      if (forks > 0) make_wait(branch, stream, forks == 1);
      {
        const StreamScope scope(branch);
        ++with.calls;
        outputs = with.function(deed)({&made.x.tensor, 1});
      }
      if (forks > 0) make_wait(stream, branch, forks == 1);
      code = open.end(&made.graph);
    } catch (const CaptureError& error) {
      missed = error.what();
    } catch (const Error&) {
      is_refused = true;  // the context may refuse
    }
  };
  if (program_.has(Feature::kThreads) && operation.choice % 2 == 0) {
    ++totals_.done["a thread of its own captures"];
    std::thread(record).join();
  } else {
    record();
  }
  if (!missed.empty()) throw Difference("a call in a capture is not made part of it: " + missed);
  if (is_refused) {
    ++totals_.refused;
    return;
  }
  if (!ok(code))
    throw Difference(fmt::format("a foreign capture fails: {}", static_cast<int>(code)));
  made.exec = GraphExec(stream.graphs(), made.graph);
  made.context = operation.context % static_cast<int>(contexts_.size());
  made.y = {outputs.at(0), results_of(deed, made.x.model, {}, 0)[0]};
  captured_.push_back(std::move(made));
  WorldOperation first = operation;
  first.x = static_cast<std::uint8_t>(captured_.size() - 1);
  launch(first);
}

void World::launch(const WorldOperation& operation) {
  if (captured_.empty()) return;
  Captured& graph = captured_[operation.x % captured_.size()];
  if (!graph.has_graph()) return;
  const StreamRef stream = streams_[operation.stream % kStreams]->ref();
  wait_for_all(stream);
  const Code code = stream.graphs().launch(graph.exec.handle(), stream.handle());
  if (!ok(code))
    throw Difference(fmt::format("a foreign launch fails: {}", static_cast<int>(code)));
  all_wait_for(stream);
  ++totals_.launches;
}

// Ends a graph, whose memory may then be used again; its output is still held.
void World::release(const WorldOperation& operation) {
  if (captured_.empty()) return;
  Captured& graph = captured_[operation.x % captured_.size()];
  if (!graph.has_graph()) return;
  settle();
  graph.drop_graph();
  graph.x = {};
  Context& held_in = use(graph.context).context();
  if (held_in.release_captured(graph.id) == 0) throw Difference("nothing was kept for a capture");
  if (held_in.release_captured(graph.id) != 0) throw Difference("a capture was released twice");
  for (const auto& other : contexts_)
    (void)other->context().release_captured(graph.id);  // an input may belong to another context
}

}  // namespace cgtree::testing
