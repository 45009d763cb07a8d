// Follows memory, captures and executables, and makes findings of them.
#include "check/ledger.h"

#include <algorithm>
#include <iterator>

#include "base/format.h"
#include "extensions/audit/node_words.h"

namespace cgtree::graph_check {
namespace {

// A remark has at least as many of its kind.
constexpr std::uint64_t kLeastRecaptures = 8;
constexpr std::uint64_t kMostLaunchesOfRecaptured = 4;  // on average
constexpr std::uint64_t kLeastReplaced = 16;
constexpr std::size_t kMostEnded = 4'096;

// Mixes a number into a hash. Source: FNV-1a, with words for bytes.
std::uint64_t mix(std::uint64_t hash, std::uint64_t word) noexcept {
  return (hash ^ word) * 0x100000001b3;
}

std::uint64_t form_of(std::span<const NodeContents> nodes) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const NodeContents& node : nodes) {
    hash = mix(hash, static_cast<std::uint64_t>(node.type));
    hash = mix(hash, reinterpret_cast<std::uintptr_t>(node.function));
    for (const Dim3& dims : {node.dims.grid, node.dims.block})
      hash = mix(mix(mix(hash, dims.x), dims.y), dims.z);
    for (const NodeMemory& memory : node.memory)
      hash = mix(hash, memory.bytes);
  }
  return hash;
}

}  // namespace

std::string_view name(FindingKind kind) noexcept {
  constexpr std::string_view kNames[kFindingKinds] = {
      "freed",    "reused",     "unmapped",   "refused", "legacy",
      "pageable", "allocating", "recaptured", "leaked",  "unlaunched"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::uint64_t Ledger::allocate(std::uintptr_t address, std::size_t bytes, const char* call,
                               MemoryKind kind, const TakeStack& take) {
  if (bytes == 0) return 0;
  // Another thread has freed the memory that was here, and its call has not returned yet.
  for (auto found = allocation_of(address + bytes - 1);
       found != allocations_.end() && found->first + found->second.bytes > address;
       found = allocation_of(address + bytes - 1)) {
    take_away(found, call, take);
  }
  Allocation& made = allocations_[address] = {bytes, next_allocation_++, call, kind, {}};
  note_again(address, made, take);
  return made.number;
}

std::uint64_t Ledger::number_at(std::uintptr_t address) const noexcept {
  const auto found = allocations_.find(address);
  return found == allocations_.end() ? 0 : found->second.number;
}

void Ledger::free(std::uintptr_t address, std::uint64_t number, const char* call,
                  const TakeStack& take) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || found->second.number != number) return;
  if (found->second.kind != MemoryKind::kOfNode) take_away(found, call, take);
}

// An allocation that the driver has told may be a mapping.
void Ledger::unmap(std::uintptr_t address, std::size_t bytes, const char* call,
                   const TakeStack& take) {
  for (auto next = allocations_.lower_bound(address);
       next != allocations_.end() && next->first + next->second.bytes <= address + bytes;) {
    next->second.kind = MemoryKind::kMapping;
    take_away(next++, call, take);
  }
}

// Returns the last allocation that begins at the address or before.
Ledger::Allocations::const_iterator Ledger::allocation_of(std::uintptr_t address) const noexcept {
  const auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return allocations_.end();
  const auto found = std::prev(after);
  return address - found->first < found->second.bytes ? found : allocations_.end();
}

void Ledger::take_away(Allocations::const_iterator allocation, const char* call,
                       const TakeStack& take) {
  const auto memory = allocations_.extract(allocation);
  std::shared_ptr<Gone> gone;
  for (const std::uint32_t number : memory.mapped().users) {
    const auto user = by_number_.find(number);
    if (user == by_number_.end()) continue;
    if (gone == nullptr) {
      std::erase_if(gone_, [](const auto& other) { return other.use_count() == 1; });
      gone_.push_back(gone = std::make_shared<Gone>(memory.key(), memory.mapped(), call, take()));
    }
    Exec& exec = *user->second;
    if (lost(exec, *gone).empty()) continue;
    exec.stale.push_back({gone, kNone, exec.launches});
  }
}

// Returns the words of an executable that lie in memory that is gone. A mapping at the place of one
// that was unmapped gives the range back to its graphs: a program chooses where it maps.
std::vector<const Ledger::Word*> Ledger::lost(const Exec& exec, const Gone& gone) const {
  std::vector<const Word*> words;
  for (const Word& word : exec.words) {
    if (!word.overlaps(gone.address, gone.memory.bytes)) continue;
    const auto now = allocation_of(word.address);
    const bool is_back = gone.memory.kind == MemoryKind::kMapping && now != allocations_.end() &&
                         now->second.kind == MemoryKind::kMapping;
    if (!is_back) words.push_back(&word);
  }
  return words;
}

void Ledger::note_again(std::uintptr_t address, const Allocation& by, const TakeStack& take) {
  for (const auto& gone : gone_) {
    const bool overlaps =
        gone->address < address + by.bytes && address < gone->address + gone->memory.bytes;
    const bool is_back = gone->memory.kind == by.kind && by.kind == MemoryKind::kMapping;
    if (!overlaps || is_back || !gone->again.empty()) continue;
    gone->again = str_format("{} bytes of {} at {:#x}", by.bytes, by.call, address);
    gone->allocated = take();
  }
}

// A body or a part of a graph may be captured to a graph that is there.
void Ledger::begin_capture(StreamKey stream, std::uint64_t thread, StackId stack,
                           GraphHandle into) {
  const auto found = graphs_.find(into);
  const Graph graph = found == graphs_.end() ? Graph() : found->second;
  Capture& capture = captures_[stream] = {thread, into, graph};
  if (capture.graph.captured == StackId::kNone) capture.graph.captured = stack;
}

void Ledger::end_capture(StreamKey stream, GraphHandle graph) {
  const auto found = captures_.find(stream);
  if (found == captures_.end()) return;
  if (graph == kInto) graph = found->second.into;
  if (graph != GraphHandle::kNull) {
    graphs_[graph] = std::move(found->second.graph);
    static_cast<void>(graph_of(graph));  // numbers it
  }
  captures_.erase(found);
}

void Ledger::refuse(StreamKey stream, std::uint64_t thread, std::string call,
                    const TakeStack& take) {
  auto found = captures_.find(stream);
  if (found == captures_.end()) found = capture_of(thread);
  const bool is_only = captures_.size() == 1 && stream != StreamKey();
  if (found == captures_.end() && is_only) found = captures_.begin();
  if (found != captures_.end()) found->second.graph.refused.push_back({std::move(call), take()});
}

void Ledger::use_legacy_stream(std::uint64_t thread, const char* call, const TakeStack& take) {
  if (const auto found = capture_of(thread); found != captures_.end())
    found->second.graph.legacy.push_back({call, take()});
}

Ledger::Captures::iterator Ledger::capture_of(std::uint64_t thread) {
  return std::ranges::find(captures_, thread,
                           [](const auto& entry) { return entry.second.thread; });
}

Ledger::Graph& Ledger::graph_of(GraphHandle handle) {
  Graph& graph = graphs_[handle];
  if (graph.number == 0) graph.number = static_cast<std::uint32_t>(++totals_.graphs);
  return graph;
}

Ledger::Exec* Ledger::find(ExecHandle handle) const noexcept {
  const auto found = execs_.find(handle);
  return found == execs_.end() ? nullptr : found->second.get();
}

void Ledger::instantiate(GraphHandle graph, ExecHandle exec, GraphContents contents, StackId stack,
                         Time now) {
  destroy_exec(exec);
  auto made = std::make_unique<Exec>();
  made->number = static_cast<std::uint32_t>(++totals_.instantiated);
  made->made = stack;
  made->flags = contents.flags;
  made->site = &sites_[stack];
  made->site->stack = stack;
  ++made->site->made;
  Exec& kept = *made;
  by_number_[made->number] = made.get();
  execs_[exec] = std::move(made);
  read(kept, graph_of(graph), std::move(contents), now);
}

void Ledger::update(ExecHandle exec, GraphHandle graph, GraphContents contents, StackId stack,
                    Time now) {
  Exec* const found = find(exec);
  if (found == nullptr) return;
  ++totals_.updates;
  found->made = stack;
  read(*found, graph_of(graph), std::move(contents), now);
}

void Ledger::read(Exec& exec, const Graph& graph, GraphContents contents, Time now) {
  exec.graph = graph.number;
  exec.captured = graph.captured;
  exec.bytes = contents.bytes;
  exec.made_at = now;
  exec.nodes.clear();
  exec.words.clear();
  exec.stale.clear();
  for (const auto& [address, bytes] : contents.older)
    if (allocation_of(address) == allocations_.end())
      allocations_[address] = {bytes, next_allocation_++, "memory", MemoryKind::kPlain, {}};
  std::vector<std::uintptr_t> unfreed;
  for (const NodeContents& node : contents.nodes) {
    if (!node.is_decoded) ++totals_.unread_nodes;
    if (node.type == NodeType::kAllocation && !node.memory.empty()) {
      allocate(node.memory[0].address, node.memory[0].bytes, "a node", MemoryKind::kOfNode,
               [&] { return exec.made; });
      unfreed.push_back(node.memory[0].address);
    }
    if (node.type == NodeType::kFree && !node.memory.empty()) {
      const auto same = std::ranges::find(unfreed, node.memory[0].address);
      if (same != unfreed.end()) unfreed.erase(same);
    }
    exec.nodes.push_back(
        {node.node, node.type, node.kernel, !node.memory.empty() && node.memory[0].is_written});
    const auto number = static_cast<std::uint32_t>(exec.nodes.size() - 1);
    if (node.type == NodeType::kKernel) read_kernel(exec, number, node);
    if (node.type == NodeType::kMemcpy || node.type == NodeType::kMemset)
      read_memory(exec, number, node, contents);
  }
  totals_.nodes += contents.nodes.size();
  exec.unfreed = unfreed.size();
  std::ranges::sort(exec.words, {}, &Word::address);
  exec.form = nullptr;
  if (graph.captured != StackId::kNone) {
    exec.form = &forms_[{graph.captured, form_of(contents.nodes)}];
    if (exec.form->made++ == 0) exec.form->first = now;
    exec.form->last = now;
    exec.form->graph = graph.number;
  }
  tell_events(graph, exec);
}

void Ledger::read_kernel(Exec& exec, std::uint32_t node, const NodeContents& contents) {
  std::vector<std::pair<Word, Allocations::const_iterator>> found;
  for_each_word(contents, [&](std::uint32_t i, std::uint32_t at, std::uintptr_t address) {
    const auto memory = allocation_of(address);
    if (memory == allocations_.end()) return;
    const auto offset = static_cast<std::uint16_t>(at - contents.parameters()[i].offset);
    found.push_back({{address, 1, node, static_cast<std::uint16_t>(i), offset}, memory});
  });
  // Code passes the end of a range as the address behind it, where another allocation may begin.
  for (const auto& [word, memory] : found) {
    const auto ends_here = [begin = memory->first](const auto& other) {
      return other.second->first + other.second->second.bytes == begin;
    };
    if (word.address != memory->first || std::ranges::none_of(found, ends_here))
      refer(exec, word, memory->second);
  }
}

void Ledger::read_memory(Exec& exec, std::uint32_t node, const NodeContents& contents,
                         const GraphContents& all) {
  for (std::size_t i = 0; i < contents.memory.size(); ++i) {
    const auto& [address, bytes, is_written] = contents.memory[i];
    const Word word{address, bytes, node, static_cast<std::uint16_t>(i), 0};
    if (const auto memory = allocation_of(address); memory != allocations_.end()) {
      refer(exec, word, memory->second);
    } else if (all.pageable.contains(address)) {
      Finding finding = finding_of(exec, FindingKind::kPageable);
      describe(exec, word, finding);
      finding.memory = str_format("{} bytes of pageable host memory", bytes);
      add(std::move(finding));
    }
  }
}

// An allocation keeps the number of each executable once, and is cleared of those that are gone
// before its list would grow.
void Ledger::refer(Exec& exec, const Word& word, const Allocation& memory) {
  if (memory.kind == MemoryKind::kOfNode) return;
  exec.words.push_back(word);
  std::vector<std::uint32_t>& users = memory.users;
  if (!users.empty() && users.back() == exec.number) return;
  if (users.size() == users.capacity())
    std::erase_if(users, [&](std::uint32_t user) { return !by_number_.contains(user); });
  if (std::ranges::find(users, exec.number) == users.end()) users.push_back(exec.number);
}

std::set<std::uintptr_t> Ledger::unknown_words(std::span<const NodeContents> nodes) const {
  std::set<std::uintptr_t> unknown;
  const auto note = [&](std::uintptr_t address) {
    if (allocation_of(address) == allocations_.end()) unknown.insert(address);
  };
  for (const NodeContents& node : nodes) {
    if (node.type == NodeType::kKernel)
      for_each_word(node, [&](auto, auto, std::uintptr_t address) { note(address); });
    if (node.type == NodeType::kMemcpy || node.type == NodeType::kMemset)
      for (const NodeMemory& memory : node.memory)
        note(memory.address);
  }
  return unknown;
}

void Ledger::forget_node(ExecHandle handle, NodeHandle node) {
  Exec* const exec = find(handle);
  if (exec == nullptr) return;
  // Unknown nodes are those of child graphs, and of the graph before an update.
  const auto known = std::ranges::find(exec->nodes, node, &Node::handle);
  const bool is_all = known == exec->nodes.end() || known->type == NodeType::kChildGraph;
  const auto forgotten = std::erase_if(exec->words, [&](const Word& word) {
    return is_all || exec->nodes[word.node].handle == node;
  });
  if (forgotten > 0) ++totals_.forgotten_nodes;
}

void Ledger::destroy_exec(ExecHandle handle) {
  const auto found = execs_.find(handle);
  if (found == execs_.end()) return;
  const Exec& exec = *found->second;
  if (is_unlaunched(exec)) ++exec.site->destroyed_unlaunched;
  by_number_.erase(exec.number);
  if (expects_blocks_) ended_.push_back(std::move(found->second));
  if (ended_.size() > kMostEnded) ended_.pop_front();
  execs_.erase(found);
}

void Ledger::launch(ExecHandle handle, Time now) {
  Exec* const exec = find(handle);
  if (exec == nullptr) return;
  exec->launched_at = now;
  exec->made_before = exec->site->made;
  ++exec->launches;
  if (exec->form != nullptr) ++exec->form->launches;
  ++totals_.launches;
  if (!exec->stale.empty()) [[unlikely]]
    tell_stale(*exec);
}

void Ledger::refuse_launch(ExecHandle handle, std::string call, const TakeStack& take) {
  const Exec* const exec = find(handle);
  if (exec == nullptr || exec->unfreed == 0 || exec->launches < 2 ||
      (exec->flags & kAutoFreeOnLaunch) != 0) {
    return;
  }
  Finding finding = finding_of(*exec, FindingKind::kAllocating);
  finding.call = std::move(call);
  finding.called = take();
  finding.memory = str_format("{} allocation nodes whose memory no node frees", exec->unfreed);
  add(std::move(finding));
}

Finding Ledger::finding_of(const Exec& exec, FindingKind kind) const {
  return {.kind = kind,
          .graph = exec.graph,
          .executable = exec.number,
          .captured = exec.captured,
          .instantiated = exec.made};
}

void Ledger::describe(const Exec& exec, const Word& word, Finding& finding) const {
  const Node& node = exec.nodes[word.node];
  finding.node = word.node;
  finding.address = word.address;
  finding.node_text = node.type == NodeType::kKernel   ? "kernel"
                      : node.type == NodeType::kMemcpy ? "copy"
                                                       : "memset";
  if (node.kernel != nullptr)
    finding.node_text += str_format(" '{}'", demangled(node.kernel->name));
  if (node.type == NodeType::kKernel) {
    finding.place = str_format("parameter {}", word.parameter);
    if (word.offset > 0) finding.place += str_format(" (byte {})", word.offset);
  } else {
    const bool is_written = (word.parameter == 0) == node.writes_first;
    finding.place = is_written ? "the destination" : "the source";
  }
}

void Ledger::tell_stale(Exec& exec) {
  for (Stale& stale : exec.stale) {
    const Gone& gone = *stale.gone;
    if (stale.finding == kNone) {
      const std::vector<const Word*> words = lost(exec, gone);
      if (words.empty()) continue;  // patched since
      const bool is_mapping = gone.memory.kind == MemoryKind::kMapping;
      Finding finding = finding_of(exec, is_mapping ? FindingKind::kUnmapped : FindingKind::kFreed);
      finding.words = words.size();
      const Word* const first = *std::ranges::min_element(words, {}, &Word::node);
      describe(exec, *first, finding);
      finding.memory = str_format("byte {} of {} bytes of {}", first->address - gone.address,
                                  gone.memory.bytes, gone.memory.call);
      finding.call = gone.call;
      finding.called = gone.called;
      stale.finding = add(std::move(finding));
    }
    Finding& told = findings_[stale.finding];
    told.launches = std::max(told.launches, exec.launches - stale.from);
    if (!gone.again.empty() && told.again.empty()) {
      told.kind = FindingKind::kReused;
      told.again = gone.again;
      told.allocated = gone.allocated;
    }
  }
}

void Ledger::tell_events(const Graph& graph, const Exec& exec) {
  const auto tell = [&](FindingKind kind, const std::vector<Event>& events) {
    for (const Event& event : events) {
      Finding finding = finding_of(exec, kind);
      finding.call = event.call;
      finding.called = event.called;
      add(std::move(finding));
    }
  };
  tell(FindingKind::kRefused, graph.refused);
  tell(FindingKind::kLegacy, graph.legacy);
}

// A finding that differs from an earlier one in the graph alone is counted there.
std::size_t Ledger::add(Finding finding) {
  const auto [same, is_new] = told_.try_emplace({finding.kind, finding.captured, finding.called,
                                                 finding.node_text + finding.call, finding.place},
                                                findings_.size());
  if (is_new) {
    findings_.push_back(std::move(finding));
  } else {
    ++findings_[same->second].count;
  }
  return same->second;
}

namespace {

// One word of an executable that is alive, while the events of blocks are read.
struct BlockWord {
  enum class State : std::uint8_t { kUnknown, kNewer, kFreed, kReused };

  std::uintptr_t address;
  std::uint32_t executable;  // by its place in a list
  std::uint32_t word;        // by its place in the executable
  State state = State::kUnknown;
  const BlockEvent* freed = nullptr;
  const BlockEvent* again = nullptr;
};

std::span<BlockWord> words_in(std::vector<BlockWord>& words, std::uintptr_t address,
                              std::size_t bytes) {
  const auto begin = std::ranges::lower_bound(words, address, {}, &BlockWord::address);
  const auto end = std::ranges::lower_bound(words, address + bytes, {}, &BlockWord::address);
  return {begin, end};
}

}  // namespace

// A block that was allocated after the executable was made is not the one whose address it has.
void Ledger::add_blocks(std::string_view source, std::span<const BlockEvent> events,
                        std::span<const BlockRange> kept) {
  std::vector<const Exec*> execs;
  std::vector<BlockWord> words;
  for (const auto& [handle, exec] : execs_)
    execs.push_back(exec.get());
  for (const auto& exec : ended_)
    execs.push_back(exec.get());
  for (std::uint32_t i = 0; i < execs.size(); ++i)
    for (std::uint32_t word = 0; word < execs[i]->words.size(); ++word)
      words.push_back({execs[i]->words[word].address, i, word});
  std::ranges::sort(words, {}, &BlockWord::address);
  for (const BlockRange& range : kept)
    for (BlockWord& word : words_in(words, range.address, range.bytes))
      word.state = BlockWord::State::kNewer;
  for (const BlockEvent& event : events) {
    for (BlockWord& word : words_in(words, event.address, event.bytes)) {
      const Exec& exec = *execs[word.executable];
      if (event.time <= exec.made_at || event.time >= exec.launched_at) continue;
      if (word.state == BlockWord::State::kUnknown) {
        word.state = event.is_free ? BlockWord::State::kFreed : BlockWord::State::kNewer;
        word.freed = &event;
      } else if (word.state == BlockWord::State::kFreed && !event.is_free) {
        word.state = BlockWord::State::kReused;
        word.again = &event;
      }
    }
  }
  for (const BlockWord& word : words) {
    if (word.state != BlockWord::State::kFreed && word.state != BlockWord::State::kReused) continue;
    const Exec& exec = *execs[word.executable];
    if (!told_blocks_.emplace(exec.number, word.word).second) continue;
    const bool is_reused = word.state == BlockWord::State::kReused;
    Finding finding = finding_of(exec, is_reused ? FindingKind::kReused : FindingKind::kFreed);
    describe(exec, exec.words[word.word], finding);
    finding.words = 1;
    finding.memory = str_format("byte {} of a block of {} bytes of {}",
                                word.address - word.freed->address, word.freed->bytes, source);
    finding.call =
        str_format("{}{}{}", source, word.freed->where.empty() ? "" : " at ", word.freed->where);
    if (is_reused) {
      finding.again = str_format("a block of {} bytes{}{}", word.again->bytes,
                                 word.again->where.empty() ? "" : " at ", word.again->where);
    }
    add(std::move(finding));
  }
}

std::vector<Finding> Ledger::remarks() const {
  std::vector<Finding> found;
  for (const auto& [key, form] : forms_) {
    const bool is_seldom_launched = form.launches <= kMostLaunchesOfRecaptured * form.made;
    if (form.made < kLeastRecaptures || !is_seldom_launched) continue;
    Finding finding{.kind = FindingKind::kRecaptured, .graph = form.graph, .captured = key.first};
    finding.count = form.made;
    finding.launches = form.launches;
    const auto time = std::max<Time>(form.last - form.first, 1);
    finding.per_second = static_cast<double>(form.made - 1) * 1e6 / static_cast<double>(time);
    found.push_back(std::move(finding));
  }
  std::map<std::pair<StackId, FindingKind>, Finding> remarks;  // each names one of its graphs
  const auto count = [&](StackId stack, const Finding& finding, std::uint64_t more) {
    const auto [remark, is_new] = remarks.try_emplace({stack, finding.kind}, finding);
    remark->second.count += is_new ? more - 1 : more;
    if (!is_new) remark->second.bytes += finding.bytes;
  };
  for (const auto& [handle, exec] : execs_) {
    Finding finding = finding_of(*exec, FindingKind::kUnlaunched);
    finding.bytes = exec->bytes;
    if (is_unlaunched(*exec)) count(exec->site->stack, finding, 1);
    finding.kind = FindingKind::kLeaked;
    if (exec->launches > 0 && exec->site->made - exec->made_before >= kLeastReplaced)
      count(exec->site->stack, finding, 1);
  }
  for (const auto& [stack, site] : sites_) {
    const Finding finding{.kind = FindingKind::kUnlaunched, .instantiated = stack};
    if (site.destroyed_unlaunched > 0) count(stack, finding, site.destroyed_unlaunched);
  }
  for (const auto& [key, remark] : remarks)
    if (remark.kind != FindingKind::kLeaked || remark.count >= kLeastReplaced)
      found.push_back(remark);
  return found;
}

LedgerTotals Ledger::totals() const {
  LedgerTotals totals = totals_;
  totals.alive = execs_.size();
  for (const auto& [handle, exec] : execs_) {
    totals.bytes_alive += exec->bytes;
    totals.dangling += std::ranges::any_of(exec->stale, [&](const Stale& stale) {
      return stale.finding == kNone && !lost(*exec, *stale.gone).empty();
    });
  }
  return totals;
}

}  // namespace cgtree::graph_check
