// Compares recordings, and patches one executable graph for each of them in turn.
#include "extensions/rebind/shared_exec.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "extensions/rebind/read_graph.h"
#include "interop/device/device_api.h"

namespace cgtree {
namespace {

std::vector<NodeHandle> nodes_of(GraphAPI& graphs, const Graph& graph) {
  std::vector<NodeHandle> nodes;
  check(graphs.graph_nodes(graph.handle(), &nodes), "list the nodes of a graph");
  return nodes;
}

std::optional<NodePatch> patch_of(GraphAPI& graphs, NodeHandle node) {
  NodePatch patch;
  if (!ok(graphs.prepare_patch(node, &patch))) return std::nullopt;
  return patch;
}

// Returns whether two alike nodes of this type are equal without a patch. The parameters of other
// nodes without a patch cannot be read.
bool is_told_by_alike(GraphAPI& graphs, NodeHandle node) {
  NodeType type = NodeType::kOther;
  return ok(graphs.node_type(node, &type)) && (type == NodeType::kHost || type == NodeType::kEmpty);
}

}  // namespace

class SharedExec::Share final : public Attachment {
 public:
  Share(std::shared_ptr<SharedExec> exec, std::uint64_t number, std::vector<Difference> differences)
      : exec_(std::move(exec)), number_(number), differences_(std::move(differences)) {
    for (const Difference& one : differences_)
      ++exec_->nodes_[one.node].users;
  }
  ~Share() override {
    for (const Difference& one : differences_)
      --exec_->nodes_[one.node].users;
  }

  // Attachment.
  bool take() override {
    if (exec_->current_ == number_) [[likely]] {
      return false;
    }
    check(exec_->switch_to(differences_), "patch an executable graph that recordings share");
    exec_->current_ = number_;
    return true;
  }

 private:
  const std::shared_ptr<SharedExec> exec_;
  const std::uint64_t number_;
  const std::vector<Difference> differences_;
};

SharedExec::SharedExec(DeviceAPI& api, Recording& first)
    : api_(api), device_(first.device.id), graph_(first.graph), exec_(*api.graphs(), first.graph) {
  for (const NodeHandle node : nodes_of(*api.graphs(), first.graph)) {
    Node& made = nodes_.emplace_back();
    made.handle = node;
    made.is_of_step = !is_root_or_tail(first, node);
    if (made.is_of_step) made.first = patch_of(*api.graphs(), node);
  }
  first.exec = exec_;
}

std::unique_ptr<Attachment> SharedExec::share_of_first() {
  return std::make_unique<Share>(shared_from_this(), 1, std::vector<Difference>());
}

bool SharedExec::compare(const std::vector<NodeHandle>& nodes, const Recording& recording,
                         std::vector<Difference>* differences) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node& known = nodes_[i];
    if (known.is_of_step == is_root_or_tail(recording, nodes[i])) return false;
    if (!known.is_of_step) continue;
    std::optional<NodePatch> patch = patch_of(*api_.graphs(), nodes[i]);
    if (patch.has_value() != known.first.has_value()) return false;
    if (!patch) {
      if (!is_told_by_alike(*api_.graphs(), nodes[i])) return false;
      continue;
    }
    if (patch->bytes == known.first->bytes && patch->dims == known.first->dims) continue;
    if (patch->bytes.size() != known.first->bytes.size()) return false;
    patch->node = known.handle;
    differences->push_back({i, *std::move(patch)});
  }
  return true;
}

std::unique_ptr<Attachment> SharedExec::join(Recording& recording, std::size_t max_nodes) {
  if (is_closed_) return nullptr;
  const DeviceScope current(api_, device_);
  if (!api_.graphs()->are_alike(graph_.handle(), recording.graph.handle())) return nullptr;
  const std::vector<NodeHandle> nodes = nodes_of(*api_.graphs(), recording.graph);
  std::vector<Difference> differences;
  if (!compare(nodes, recording, &differences)) return nullptr;
  const auto is_new = [&](const Difference& one) { return nodes_[one.node].users == 0; };
  const auto differing =
      std::ranges::count_if(nodes_, [](const Node& one) { return one.users > 0; }) +
      std::ranges::count_if(differences, is_new);
  if (static_cast<std::size_t>(differing) > max_nodes) return nullptr;
  for (const Difference& one : differences) {
    Node& node = nodes_[one.node];
    if (std::exchange(node.differs, true)) continue;
    node.bytes = node.first->bytes;
    node.dims = node.first->dims;
  }
  // Tried before other state depends on it. The first launch asks again, which tells it to patch
  // its root and tail nodes.
  is_closed_ = !ok(switch_to(differences));
  if (is_closed_) {
    (void)api_.graphs()->take_last_error();
    return nullptr;
  }
  auto share = std::make_unique<Share>(shared_from_this(), ++shares_, std::move(differences));
  for (std::vector<GatherNode>* const own : {&recording.roots, &recording.tails}) {
    for (GatherNode& one : *own) {
      const auto at = std::ranges::find(nodes, one.node()) - nodes.begin();
      one.stand_for(nodes_[static_cast<std::size_t>(at)].handle);
    }
  }
  recording.exec = exec_;
  return share;
}

Code SharedExec::switch_to(const std::vector<Difference>& differences) {
  current_ = 0;
  const DeviceScope current(api_, device_);
  auto next = differences.begin();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (!node.differs) continue;
    const bool is_own = next != differences.end() && next->node == i;
    const NodePatch* const wanted = is_own ? &(next++)->patch : &*node.first;
    if (node.bytes == wanted->bytes && node.dims == wanted->dims) continue;
    node.bytes.reset();
    if (const Code code = api_.graphs()->set_node(exec_.handle(), *wanted); !ok(code)) return code;
    node.bytes = wanted->bytes;
    node.dims = wanted->dims;
  }
  return Code::kSuccess;
}

void SharedExecs::share(std::uint32_t function, DeviceAPI& api, Recording& recording,
                        std::size_t max_nodes) {
  for (auto& [unused, execs] : by_function_)
    std::erase_if(execs, [](const auto& exec) { return exec.expired(); });
  std::erase_if(by_function_, [](const auto& entry) { return entry.second.empty(); });
  std::vector<std::weak_ptr<SharedExec>>& known = by_function_[function];
  for (const std::weak_ptr<SharedExec>& one : known) {
    recording.share = one.lock()->join(recording, max_nodes);
    if (recording.share == nullptr) continue;
    recording.costs.graph_bytes = 0;
    return;
  }
  const auto exec = std::make_shared<SharedExec>(api, recording);
  recording.share = exec->share_of_first();
  known.push_back(exec);
}

}  // namespace cgtree
