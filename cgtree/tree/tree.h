// Tree: the state of a context: functions, keys, recordings, the order in which recordings followed
// each other, and sums of resources.
//
// Each key has a flat list of recordings. Each recording also has hints: which recording of each
// function followed it last. A hint finds the next replay quickly; fits() decides whether it may be
// replayed. Followed from the start, the hints form the tree (with cycles) of the program's control
// flow, which snapshots show. A recording whose next replay must be verified, or that copies its
// outputs, is held back: only decide() finds it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/published.h"
#include "cgtree/record/call.h"
#include "cgtree/record/recording.h"
#include "cgtree/tree/backoff.h"
#include "cgtree/values/explanation.h"
#include "cgtree/values/options.h"
#include "cgtree/values/stats.h"

namespace cgtree {

struct FunctionState;
struct KeyState;

// Returns the microseconds since the epoch, the unit of events and snapshots.
std::int64_t now_us();

// A Node is a recording in the tree.
struct Node {
  std::uint32_t id = 0;      // 0 is the root, which records nothing and stands for "no call yet"
  std::uint32_t parent = 0;  // the node that ran before it was recorded, for snapshots
  FunctionState* function = nullptr;
  KeyState* key = nullptr;
  std::uint64_t last_used = 0;  // in the context's count of replays and recordings
  Recording recording;
  Explanation why;  // the reason that it was recorded

  // A Hint says which recording of a function followed last. For a recording that is held back or
  // has guards, the word that predict() compares contains a mark: predict() needs no other test.
  struct Hint {
    static constexpr std::uintptr_t kHeldBack = 1, kGuards = 2;

    static std::uintptr_t word(const FunctionState* function) noexcept {
      return reinterpret_cast<std::uintptr_t>(function);
    }
    static std::uintptr_t word_of(const Node& node) noexcept {
      return word(node.function) | (node.is_held_back ? kHeldBack : 0) |
             (node.recording.guards.empty() ? 0 : kGuards);
    }
    bool is_of(const FunctionState* other) const noexcept {
      return (function & ~(kHeldBack | kGuards)) == word(other);
    }

    std::uintptr_t function;  // word_of()
    Published<Node*> node;
  };
  std::vector<Hint> followed_by;    // one for each function that has followed
  bool is_held_back = false;        // its next replay is special: predict() must skip it
  std::int64_t recorded_at_us = 0;  // since the epoch, for snapshots

  // Returns the node of `next` that followed last; null if there is none, or if it has other marks.
  template <std::uintptr_t kMarks = 0>
  Node* predict(const FunctionState* next) const noexcept {
    for (const Hint& hint : followed_by) {
      if (hint.function == (Hint::word(next) | kMarks)) return hint.node;
    }
    return nullptr;
  }
  // Returns the node of `next` that followed last, with or without marks, or null.
  Node* last_of(const FunctionState* next) const noexcept {
    for (const Hint& hint : followed_by) {
      if (hint.is_of(next)) return hint.node;
    }
    return nullptr;
  }
};

// A KeyState is the state of a function for one signature of inputs.
struct KeyState {
  // After so many recordings in a row that did not pay, the next one because of a conflict copies.
  static constexpr unsigned kBeforeCopies = 4;
  // A recording has paid after this many replays of its key.
  static constexpr std::uint64_t kPays = 16;

  explicit KeyState(Signature s) : signature(std::move(s)) {}

  Signature signature;
  AxisSizes padded = {};  // the sizes of dynamic axes that the step function sees
  bool warmed_up = false;
  std::vector<Guards> warmed_for;  // the guards of its last warm-ups; other answers need a warm-up
  bool was_recorded = false;       // true if it has or had recordings
  std::string capture_failure;     // the reason that the last capture was not kept, or ""
  SkipReason capture_reason = SkipReason::kCaptureFailed;  // of that capture
  Backoff captures{3};                                     // captures that fail
  Backoff remakes{kBeforeCopies + 4};  // recordings beside others, or for new answers
  std::uint64_t last_used = 0;         // in the function's count of warm-ups and recordings
  bool is_too_large = false;           // its graph alone exceeds ContextOptions::max_graph_bytes
  // The allocations of a call that became outputs in its warm-up; sorted.
  std::vector<std::uint32_t> output_allocations;
  // The workspaces that its warm-up used or its function made, if held when the warm-up ended. A
  // library that has since replaced a workspace would allocate it again in a capture, so the key is
  // warmed up again. Empty in a group: ranks do not depend on their libraries.
  std::vector<std::uint64_t> workspaces;
  std::vector<Node*> nodes;  // its recordings, the oldest first
  // The number of recordings that release_memory() dropped and that were not made again yet. As
  // many may be made of a function that is frozen, before or after, or for which
  // CompileOptions::while_missing forbids recordings.
  std::size_t released = 0;

  std::uint64_t dropped_replays = 0;  // of dropped recordings
  std::uint64_t replays_before = 0;   // of all recordings, when the last one was made
  // The addresses of static inputs in the last calls that waited for `remakes`, as hashes: a call
  // that occurs again is recorded, because a recording would have been replayed.
  static constexpr std::size_t kMostWaited = 256;
  std::vector<std::uint64_t> waited;
  std::size_t next_waited = 0;

  // Notes a new recording of a key that has others. Requires: it is not added yet.
  void note_remake() noexcept;
  void note_warmed(Guards asked);
  bool knows_answers() const {
    const auto holds = [](const Guards& asked) { return hold(asked, /*throws=*/false); };
    return warmed_for.empty() || std::ranges::any_of(warmed_for, holds);
  }
  // Destroys the functions of guards. Until a recording asks guards again, a key that had
  // recordings accepts all answers; another key is warmed up again.
  void forget_guards() noexcept;
  // Makes the call copy managed inputs that lay elsewhere in a recording of the key: they move.
  void copy_moved_inputs(Call& call) const;
  // Notes that a call ran eagerly because `remakes` waits. Does nothing if host memory is short.
  void note_wait(std::uint64_t place) noexcept;
};

// A Counters holds the counts behind FunctionStats.
struct Counters {
  Published<std::uint64_t> warm_ups;
  Published<std::uint64_t> recordings;
  Published<std::uint64_t> replays;
  Published<std::uint64_t> failures;
  Published<std::uint64_t> evictions;
  Published<std::uint64_t> verified;
  Published<std::uint64_t> differed;
  std::array<Published<std::uint64_t>, kUnverifiedReasonCount> unverified;
  std::array<Published<std::uint64_t>, kSkipReasonCount> skips;
  std::atomic<std::uint64_t> nested_calls{0};  // also skips, but counted by any thread

  Published<std::uint64_t>& skips_for(SkipReason reason) noexcept {
    return skips[static_cast<std::size_t>(reason)];
  }
};

// A LastOutcome is a CallOutcome in one word, so that a call writes it with one store.
// Thread safety: the thread that makes a call writes it, any thread reads it.
class LastOutcome {
 public:
  void set(Outcome outcome) noexcept { word_ = kMade + static_cast<int>(outcome); }
  void set_skipped(SkipReason reason) noexcept { word_ = kSkipped + static_cast<int>(reason); }
  // Returns nothing before the first call.
  std::optional<CallOutcome> get() const noexcept {
    const int word = word_;
    if (word == 0) return std::nullopt;
    if (word < kSkipped) return CallOutcome{static_cast<Outcome>(word - kMade), {}};
    return CallOutcome{Outcome::kRunEagerly, static_cast<SkipReason>(word - kSkipped)};
  }

 private:
  static constexpr int kMade = 1;
  static constexpr int kSkipped = 256;

  Published<int> word_;
};

// A Freeze is the setting of FunctionHandle::freeze(), in one word. Any thread.
class Freeze {
 public:
  void set(std::optional<WhenFrozen> when) noexcept {
    word_.store(when ? static_cast<int>(*when) + 1 : 0, std::memory_order_relaxed);
  }
  std::optional<WhenFrozen> get() const noexcept {
    const int word = word_.load(std::memory_order_relaxed);
    return word == 0 ? std::nullopt : std::optional(static_cast<WhenFrozen>(word - 1));
  }

 private:
  std::atomic<int> word_{0};
};

// A FunctionTotals is the sum of the counts of dropped functions of one name. It is kept as long as
// the context, so that counters never fall for monitors.
struct FunctionTotals {
  FunctionStats stats;
  std::map<std::string, SizeSums> axes;  // has an entry for each axis that a function has or had
};

// A FunctionState is a compiled function with the state that the context keeps for it.
struct FunctionState : Function {
  Counters counters;
  FunctionTotals* totals = nullptr;  // receives its counters when it is dropped
  LastOutcome last_outcome;
  std::string capture_failure;        // the error of the last failed capture of any key, or ""
  std::string last_failure;           // the error of the last call that threw, or ""
  std::uint64_t warned = 0;           // skip reasons already warned about, one bit each
  bool warned_of_nothing = false;     // warned that its step function launches no work
  bool warned_of_foreign = false;     // warned that work of an engine uses unknown memory
  bool warned_of_unsliced = false;    // warned that an output has a padded size and no dynamic axis
  bool warned_of_padding = false;     // warned that the caller chose no padding
  bool warned_of_copies = false;      // warned that a recording copies its outputs
  Backoff evictions{4};               // of its recordings, before they paid
  bool has_guards = false;            // true if a recording has, or had, guards
  Published<std::size_t> recordings;  // the number in the tree
  bool takes_lent = false;  // true if the last call off the fast path had inputs of other streams
  std::vector<std::size_t> static_changes;  // the recordings that moves of each input cost
  // The number of precapture() calls that are running. While one runs, missing recordings are made,
  // whatever options say.
  std::atomic<int> precaptures{0};
  std::atomic<bool> is_removed{false};  // true once its handle was destroyed; set by any thread
  Freeze frozen;
  std::unordered_map<std::uint64_t, std::vector<std::unique_ptr<KeyState>>> keys;  // by hash

  // The recording that calls with a key used last, by the hash of the key's text: a loop whose keys
  // come in no fixed order uses it instead of a hint.
  std::unordered_map<std::size_t, Node*> last_of_key;

  std::vector<VerifiedTensor> verified_tensors;

  std::unique_ptr<FunctionState> next_dropped;  // see Tree::drop_removed()

  std::size_t key_count = 0;
  // Keys without recordings are forgotten beyond max_idle_keys(), least recently used first: a call
  // with such a signature is warmed up again.
  std::size_t sweep_keys_at = 0;  // the count of keys at which to look for these
  std::uint64_t key_uses = 0;

  // Returns whether the recordings stay even beyond limits.
  bool keeps_recordings() const noexcept { return frozen.get().has_value(); }

  // Returns the key of the call, or null if it does not exist yet.
  KeyState* find(const Call& call) const;
  // Invalidates pointers to keys without recordings.
  KeyState& find_or_add(const Call& call);
  // Drops the keys for which gone(key) is true. Requires: they have no recordings.
  template <typename Gone>
  void drop_keys(Gone gone) noexcept {
    for (auto& [hash, bucket] : keys)
      key_count -= std::erase_if(bucket, [&](const auto& key) { return gone(*key); });
    std::erase_if(keys, [](const auto& bucket) { return bucket.second.empty(); });
  }

 private:
  std::size_t max_idle_keys() const noexcept;
  void sweep_keys();
};

// The resources with limits that a context has spent.
struct Spent {
  Published<std::size_t> graph_bytes;         // of the recordings in the tree
  Published<std::size_t> marked_graph_bytes;  // beside these: of their variants with marks
  Published<std::chrono::microseconds> recording_time;
  // For ContextMetrics::record_times and ContextMetrics::record_time.
  std::array<Published<std::uint64_t>, kRecordTimeBounds.size() + 1> record_times;
  Published<std::chrono::microseconds> record_time;
};

// A Stopwatch adds its lifetime, or the time until it is stopped, to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(Published<std::chrono::microseconds>& sum) noexcept : sum_(&sum) {}
  ~Stopwatch() { stop(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  void stop() noexcept {
    if (sum_ != nullptr) *sum_ += elapsed();
    sum_ = nullptr;
  }
  std::chrono::microseconds elapsed() const noexcept {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  Published<std::chrono::microseconds>* sum_;
  const Clock::time_point begin_ = Clock::now();
};

// A Tree holds functions, keys, recordings and the current node; Attempt decides and acts.
//
// Thread safety: used by the thread that is inside the context, except request_removal() and the
// functions for monitors, stats_of(), stats(), totals() and visit(), which any thread may call.
// Counters are Published. Lists and texts that monitors walk (functions, nodes, hints, capture
// failures) change only under a mutex, which monitors hold while they read. A predicted replay
// takes no lock, nor does a replay of a node that has followed the current node before.
class Tree {
 public:
  // Throws InvalidArgument for a function without a name or step function, and for contradictory
  // options.
  FunctionState& add_function(std::string name, StepFunction step, CompileOptions options);
  void set_capture_failure(FunctionState& function, std::string what);
  // Notes that the call threw `what`. If memory is short, the previous text stays.
  void set_last_failure(FunctionState& function, std::string_view what) noexcept;
  // Returns the error of the last call that threw, or "". Any thread.
  std::string last_failure(const FunctionState& function) const {
    const std::lock_guard lock(mutex_);
    return function.last_failure;
  }
  // Marks a function as removed; the next drop_removed() drops it. Any thread; does not allocate.
  static void request_removal(FunctionState& function) noexcept {
    function.is_removed.store(true, std::memory_order_release);
  }
  // Drops the functions that were marked, and their recordings. Returns them as a list; destroying
  // it destroys their step functions, whose captures may call the context. Does not allocate.
  [[nodiscard]] std::unique_ptr<FunctionState> drop_removed() noexcept;

  std::span<const std::unique_ptr<FunctionState>> functions() const noexcept { return functions_; }
  std::span<const std::unique_ptr<Node>> nodes() const noexcept { return nodes_; }
  const Node* find(std::uint32_t id) const noexcept;
  // Returns the id that the next recording gets.
  std::uint32_t next_id() const noexcept { return next_node_; }

  // Returns the node that ran last, or the root.
  Node& current() noexcept { return *current_; }
  const Node& current() const noexcept { return *current_; }
  bool is_at_root() const noexcept { return current_ == &root_; }
  // Notes that `node` has followed the current one. Takes the mutex and allocates only the first
  // time that the function of `node` follows; if memory is short, the hint is not made.
  void follow(Node& node) noexcept {
    if (current_->predict(node.function) != &node) [[unlikely]] {
      set_hint(*current_, node);
    }
  }
  void go_to(Node& node) noexcept {
    node.last_used = ++last_used_;
    current_ = &node;
  }
  void go_to_root() noexcept { current_ = &root_; }
  // Notes the recording that a call with a key used last; if memory is short, does nothing.
  static void note_last_of_key(Node& node) noexcept;
  // Hides the node from predict() and predict_by_key() until it is released; decide() finds it at
  // the same places. Both functions take the mutex.
  void hold_back(Node& node) noexcept { mark_hints(node, true); }
  void release(Node& node) noexcept { mark_hints(node, false); }

  // Returns a node for add(), which has room for it: every step that can fail is done here. If it
  // throws, the recording is unchanged.
  std::unique_ptr<Node> make_node(FunctionState& function, KeyState& key, Recording& recording,
                                  Explanation why, const ContextMemory& memory);
  // Adds a recording that follows the current node, and goes to it. Requires: make_node() has made
  // it, and no other node was added since.
  Node& add(std::unique_ptr<Node> made) noexcept;
  void drop(Node& node) noexcept;
  // Calls change() while no monitor reads, to change members that are otherwise constant.
  template <typename Change>
  void change(Change&& change) {
    const std::lock_guard lock(mutex_);
    change();
  }

  // Returns the least recently used node for which counts(node) is true, or null; never a node of a
  // frozen function. A pure function of the tree: no two nodes were used at the same time.
  template <typename Counts>
  Node* least_recently_used(Counts counts) const noexcept {
    Node* found = nullptr;
    for (const auto& node : nodes_) {
      if (node->function->keeps_recordings() || !counts(*node)) continue;
      if (found == nullptr || node->last_used < found->last_used) found = node.get();
    }
    return found;
  }

  // Makes every recording know the slots that it conflicts with.
  void learn_conflicts(ContextMemory& memory) {
    if (!memory.changed_slots().empty()) [[unlikely]] {
      learn_new_conflicts(memory);
    }
  }

  FunctionStats stats_of(const FunctionState& function) const;
  // Notes the tensors that a verified replay of the function compared.
  void note_compared(FunctionState& function, std::vector<VerifiedTensor> compared);
  // Returns the sums over all functions, dropped ones included, and the resources of the
  // recordings.
  ContextStats stats() const;
  // Returns the counts of the functions of each name, dropped functions included.
  std::map<std::string, FunctionTotals, std::less<>> totals() const;
  // Calls visit(function) for each function, then visit(node) for each recording, the oldest first.
  // The mutex is held during one visit at a time: recordings may come and go between visits.
  template <typename VisitFunction, typename VisitNode>
  void visit(VisitFunction&& visit_function, VisitNode&& visit_node) const;
  std::uint32_t current_id() const {
    const std::lock_guard lock(mutex_);
    return current_->id;
  }
  // Hash of the recordings and their LRU order: all the history that later decisions depend on.
  std::uint64_t digest() const noexcept;
  // Aborts if an invariant is broken. Requires: learn_conflicts() has returned.
  void validate(const ContextMemory& memory) const;

  Spent spent;

 private:
  void set_hint(Node& before, Node& node) noexcept;
  void drop_hints(const Node& to) noexcept;
  void mark_hints(Node& to, bool is_held_back) noexcept;
  void learn_new_conflicts(ContextMemory& memory);

  mutable Mutex<LockRank::kTree> mutex_;
  std::vector<std::unique_ptr<FunctionState>> functions_;  // ids ascend
  std::vector<std::unique_ptr<Node>> nodes_;               // ids ascend
  Node root_;
  Published<Node*> current_ = &root_;
  std::uint64_t last_used_ = 0;  // of all nodes
  std::uint32_t next_function_ = 1;
  std::uint32_t next_node_ = 1;
  // By name. Names beyond kMaxNames share the entry "". Guarded by mutex_.
  static constexpr std::size_t kMaxNames = 1024;
  std::map<std::string, FunctionTotals, std::less<>> totals_;
  Published<std::uint64_t> dropped_patches_;  // of dropped recordings
};

template <typename VisitFunction, typename VisitNode>
void Tree::visit(VisitFunction&& visit_function, VisitNode&& visit_node) const {
  const auto each = [&](const auto& list, auto& visit_one) {
    for (std::uint32_t next = 0;; std::this_thread::yield()) {  // gives a writer its turn
      const std::lock_guard lock(mutex_);
      const auto found =
          std::lower_bound(list.begin(), list.end(), next,
                           [](const auto& one, std::uint32_t id) { return one->id < id; });
      if (found == list.end()) return;
      visit_one(**found);
      next = (*found)->id + 1;
    }
  };
  each(functions_, visit_function);
  each(nodes_, visit_node);
}

}  // namespace cgtree
