// Finds a recording of another session, compares the two, and lets it serve both.
#include "extensions/rebind/sessions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "extensions/rebind/node_rebinding.h"
#include "extensions/rebind/read_graph.h"

namespace cgtree {
namespace {

// A key with this many failed comparisons is not compared any more.
constexpr std::size_t kMostFailures = 4;

bool is_per_session(const Function& function, std::size_t i) noexcept {
  return function.is_callers_work && function.input_options(i).rebind != Rebind::kNever;
}

Range range_of(const InputRecord& input) {
  return {input.address, static_cast<std::size_t>(input.shape.extent()) * size_of(input.dtype)};
}

bool are_alike(const Guards& a, const Guards& b) {
  return std::ranges::equal(a, b, [](const Guard& one, const Guard& other) {
    return one.name == other.name && one.answer == other.answer;
  });
}

// Returns whether two guards ask the same question, with any answers: a recording keeps the guards
// of the session for which it was made, and asks them in the calls of all others.
bool ask_the_same(const Guard& one, const Guard& other) {
  return one.call == other.call && one.bytes == other.bytes &&
         std::memcmp(one.function.get(), other.function.get(), one.bytes) == 0;
}

// Returns whether only the memory of sessions keeps the recording from fitting the call of the
// step. A recording that already serves all sessions does not count.
bool is_of_other_session(const Recording& earlier, const CapturedStep& step) {
  const Recording& made = step.recording;
  const Function& function = step.call.function();
  const bool is_of_call = earlier.key == made.key && earlier.inputs.size() == made.inputs.size() &&
                          are_alike(earlier.guards, made.guards);
  if (!is_of_call) return false;
  bool has_moved = false;
  for (std::size_t i = 0; i < made.inputs.size(); ++i) {
    const InputRecord& first = earlier.inputs[i];
    const InputRecord& second = made.inputs[i];
    if (first.treatment != second.treatment || first.shape != second.shape) return false;
    if (may_move(first.treatment) || first.treatment == Treatment::kValue) continue;
    if (first.address == second.address) continue;
    if (!is_per_session(function, i)) return false;
    has_moved = true;
  }
  return has_moved;
}

// The addresses of a graph that no replay patches: all that a recording without an audit knows.
class OtherAddresses final : public Attachment {
 public:
  OtherAddresses(const std::vector<NodeContents>& nodes, const std::set<AddressWord>& patched) {
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      const std::vector<std::byte> bytes = address_bytes(nodes[i]);
      for (std::uint32_t offset = 0; offset < bytes.size(); offset += sizeof(std::uint64_t)) {
        if (patched.contains({i, offset})) continue;
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + offset, std::min(sizeof(word), bytes.size() - offset));
        const std::size_t number = offset / sizeof(word);
        const bool is_kernel = nodes[i].type == NodeType::kKernel;
        ranges_.push_back({word, is_kernel ? 1 : nodes[i].memory[number].bytes});
      }
    }
  }

  // Attachment.
  bool refers_to(Range range) const noexcept override {
    return std::ranges::any_of(ranges_, [&](const Range& one) { return one.overlaps(range); });
  }

 private:
  std::vector<Range> ranges_;
};

// A SessionProof compares two captures of one key, and prepares all changes to the earlier one for
// serving every session.
class SessionProof {
 public:
  // `earlier`: is_of_other_session().
  SessionProof(Recording& earlier, const CapturedStep& step)
      : earlier_(earlier), step_(step), api_(step.memory.stream().api()), inputs_(earlier.inputs) {
    find_moved();
    why_not_ = find_obstacle();
    if (why_not_.empty()) why_not_ = find_words();
  }

  // The reason why the step needs another recording, or "".
  const std::string& why_not() const noexcept { return why_not_; }
  // Patches the executable graph of the earlier recording for the memory of the call. Returns false
  // if the device refuses. Requires: the proof succeeded.
  bool patch() {
    tail_.emplace(step_.memory, rebound_, std::move(rebinding_));
    apart_ = apart_of(earlier_.apart.pairs(), inputs_);
    statics_ = InputRun(inputs_, InputRun::Of::kStatic);
    earlier_.tails.reserve(earlier_.tails.size() + 1);
    rest_.resize(rebound_.size());
    try {
      (void)tail_->bind(earlier_.exec, step_.call.inputs(), /*have_stayed=*/false);
    } catch (const Error&) {
      (void)api_.graphs()->take_last_error();
      return false;
    }
    tail_->forget_patch();  // the next replay counts as a moved one
    return true;
  }
  // Makes the earlier recording serve all sessions, and allocates nothing. The proof must be
  // destroyed outside of locks. Requires: patch() returned true, and no monitor reads.
  void apply() noexcept {
    earlier_.tails.push_back(*std::move(tail_));
    earlier_.inputs = std::move(inputs_);
    earlier_.rebinds = std::move(choices_);
    earlier_.apart = std::move(apart_);
    earlier_.statics = std::move(statics_);  // as find_runs(): copied inputs stay
    earlier_.has_runs = !earlier_.statics.is_empty() || !earlier_.copies.is_empty();
    earlier_.has_to_bind = true;
    if (earlier_.findings == nullptr) earlier_.findings = std::move(others_);
    for (std::size_t k = 0; k < rebound_.size(); ++k)
      rest_[k] = earlier_.findings->forget_input(rebound_[k]);
  }

 private:
  // If the pools grew between the two captures, the copies of inputs are among them: words that
  // differ because of that are not addresses of a session.
  void find_moved() {
    for (std::uint32_t i = 0; i < inputs_.size(); ++i) {
      const Range range = range_of(inputs_[i]);
      const std::uintptr_t address = step_.recording.inputs[i].address;
      if (range.address == address) {
        if (is_session(i))
          choices_.push_back({i, false, 0, "it was in one place in both sessions"});
        continue;
      }
      numbers_.push_back(i);
      moved_.push_back({range.address, address, range.bytes});
    }
  }

  bool is_session(std::uint32_t i) const { return is_per_session(step_.call.function(), i); }

  std::string find_obstacle() const {
    const Recording& made = step_.recording;
    if (!earlier_.further.empty() || !made.further.empty()) return kBreakIsOpaque;
    if (!earlier_.bodies.empty() || !made.bodies.empty())
      return "what the bodies of conditional nodes use cannot be seen";
    if (made.draws_numbers()) return "its random numbers have another place in each capture";
    for (std::size_t i = 0; i < made.guards.size(); ++i)
      if (!ask_the_same(earlier_.guards[i], made.guards[i]))
        return str_format("guard '{}' asks another object in each session", made.guards[i].name);
    for (const std::uint32_t i : numbers_) {
      const std::string overlap = is_session(i) ? find_overlap(i) : "";
      if (!overlap.empty()) return overlap;
    }
    return "";
  }

  // Returns the memory of a call with which the memory of a session overlaps, or "".
  std::string find_overlap(std::uint32_t i) const {
    const std::vector<InputRecord>& before = earlier_.inputs;
    const std::vector<InputRecord>& now = step_.recording.inputs;
    for (std::uint32_t j = 0; j < now.size(); ++j) {
      if (may_move(now[j].treatment)) continue;
      const bool is_other = i != j && (range_of(now[i]).overlaps(range_of(now[j])) ||
                                       range_of(before[i]).overlaps(range_of(before[j])));
      const bool is_shared = is_session(j) && range_of(now[i]).overlaps(range_of(before[j]));
      if (!is_other && !is_shared) continue;
      return str_format("{} shares memory with {}{}", step_.call.describe(i),
                        step_.call.describe(j), is_other ? "" : " of the other session");
    }
    return "";
  }

  GraphContents read(const Recording& recording) const {
    GraphContents contents;
    const Code code = api_.graphs()->read_nodes(recording.graph.handle(), &contents.nodes);
    if (!ok(code)) contents.opaque = str_format("its graph cannot be read: {}", name(code));
    std::erase_if(contents.nodes,
                  [&](const NodeContents& node) { return is_root_or_tail(recording, node.node); });
    return contents;
  }

  // Returns the reason why the words that differ are not addresses of sessions, or "". The host
  // memory that the earlier graph copies may be freed with its session, and is not read: its
  // address equals that in the step's graph, or words differ.
  std::string find_words() {
    const DeviceScope current(api_, step_.memory.device().id);
    const GraphContents first = read(earlier_);
    GraphContents second = read(step_.recording);
    read_host_memory(api_, second);
    const std::vector<FoundAddress> found = find_addresses(first, second, moved_);
    std::vector<NodeHandle> nodes;
    for (const NodeContents& node : first.nodes)
      nodes.push_back(node.node);
    NodePatches patches(*api_.graphs(), std::move(nodes));
    std::set<AddressWord> patched;
    for (std::size_t k = 0; k < found.size(); ++k) {
      if (!is_session(numbers_[k])) continue;
      std::string why = found[k].why_not;
      if (why.empty()) why = patches.prepare(found[k].words);
      if (!why.empty()) return str_format("{}: {}", step_.call.describe(numbers_[k]), why);
      patched.insert(found[k].words.begin(), found[k].words.end());
      patches.add_input(found[k].words, moved_[k].first);
      rebound_.push_back(numbers_[k]);
      choices_.push_back({numbers_[k], true, found[k].nodes().size(), ""});
      inputs_[numbers_[k]].rebind(moved_[k].alignment());
    }
    rebinding_ = patches.take();
    if (earlier_.findings == nullptr)
      others_ = std::make_unique<OtherAddresses>(first.nodes, patched);
    const bool are_alike =
        api_.graphs()->are_alike(earlier_.graph.handle(), step_.recording.graph.handle());
    return are_alike ? "" : "attributes or edges of nodes differ between two captures";
  }

  Recording& earlier_;
  const CapturedStep& step_;
  DeviceAPI& api_;
  std::vector<InputRecord> inputs_;  // the new input records of the earlier recording
  std::vector<std::uint32_t> numbers_;
  std::vector<MovedInput> moved_;  // by the same positions
  std::vector<std::uint32_t> rebound_;
  std::vector<RebindChoice> choices_;
  std::unique_ptr<NodeRebinding> rebinding_;
  std::unique_ptr<OtherAddresses> others_;
  std::optional<GatherNode> tail_;
  ApartPairs apart_;
  InputRun statics_;
  std::vector<std::shared_ptr<const void>> rest_;
  std::string why_not_;
};

void note_why(CapturedStep& step, const std::string& why) {
  const Function& function = step.call.function();
  for (std::uint32_t i = 0; i < step.recording.inputs.size(); ++i)
    if (is_per_session(function, i)) step.recording.rebinds.push_back({i, false, 0, why});
}

}  // namespace

bool has_sessions(const Function& function) noexcept {
  for (std::size_t i = 0; i < function.options.inputs.size(); ++i)
    if (is_per_session(function, i)) return true;
  return false;
}

// Compares the newest recording, whose work is likeliest to equal that of the step.
bool serve_by_earlier(Engine& engine, CapturedStep& step, std::string obstacle) {
  Node* earlier = nullptr;
  std::size_t failures = 0;
  for (const auto& node : engine.tree.nodes()) {
    const bool is_candidate =
        node->function->id == step.call.function().id && is_of_other_session(node->recording, step);
    if (!is_candidate) continue;
    earlier = node.get();
    failures += !node->recording.rebinds.empty();
  }
  if (earlier == nullptr) return false;
  if (engine.options.group != nullptr)
    obstacle = "what addresses are aligned to may differ between the ranks of a group";
  if (engine.options.before_first_launch != nullptr)
    obstacle = "ContextOptions::before_first_launch is told the addresses of each recording";
  if (obstacle.empty() && failures >= kMostFailures)
    obstacle = str_format("{} comparisons with other sessions have failed", kMostFailures);
  if (!obstacle.empty()) {
    note_why(step, obstacle);
    return false;
  }
  SessionProof proof(earlier->recording, step);
  if (!proof.why_not().empty()) {
    note_why(step, proof.why_not());
    return false;
  }
  if (!proof.patch()) {
    engine.extensions.after({.kind = CallEvent::kPatchRefused, .function = earlier->function});
    engine.drop(*earlier, "the device has refused to patch it");
    return true;  // the decision may be to evict it
  }
  engine.tree.change([&] { proof.apply(); });
  return true;
}

}  // namespace cgtree
