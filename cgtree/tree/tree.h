// Tree: all that a context knows: functions, keys, recordings, which recording followed which, and
// what was spent.
//
// Recordings are a flat list per key. Each recording also has hints: which recording of each
// function followed it last. A hint makes the next replay cheap to find; fits() decides whether it
// may be replayed. Followed from the start, the hints draw the tree (and the cycles) of the
// program's control flow, which snapshots show. A recording whose next replay is to be verified, or
// that copies its outputs, is held back: only decide() finds it.
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

// Returns the microseconds since the epoch, as events and snapshots say them.
std::int64_t now_us();

// A Node is a recording in the tree.
struct Node {
  std::uint32_t id = 0;      // 0 is the root, which records nothing and stands for "no call yet"
  std::uint32_t parent = 0;  // the node that had run before when it was recorded, as snapshots show
  FunctionState* function = nullptr;
  KeyState* key = nullptr;
  std::uint64_t last_used = 0;  // by the count of the context's replays and recordings
  Recording recording;
  Explanation why;  // why it was recorded

  // Which recording of a function has followed last. A recording that is held back or has guards
  // has a mark in the word that predict() compares, so that it need not ask.
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
  bool is_held_back = false;        // its next replay is no plain one: predict() must skip it
  std::int64_t recorded_at_us = 0;  // since the epoch, as snapshots show

  // Returns the node of `next` that followed last, or null if there is none, or it has other marks.
  template <std::uintptr_t kMarks = 0>
  Node* predict(const FunctionState* next) const noexcept {
    for (const Hint& hint : followed_by) {
      if (hint.function == (Hint::word(next) | kMarks)) return hint.node;
    }
    return nullptr;
  }
  // Returns the node of `next` that followed last, with a mark or without, or null.
  Node* last_of(const FunctionState* next) const noexcept {
    for (const Hint& hint : followed_by) {
      if (hint.is_of(next)) return hint.node;
    }
    return nullptr;
  }
};

// A KeyState is what is known of a function for one signature of inputs.
struct KeyState {
  // After so many recordings in a row that did not pay, the next one for a conflict copies.
  static constexpr unsigned kBeforeCopies = 4;
  // A recording has paid when replays of the key were so many since it was made.
  static constexpr std::uint64_t kPays = 16;

  explicit KeyState(Signature s) : signature(std::move(s)) {}

  Signature signature;
  AxisSizes padded = {};  // the sizes of dynamic axes that the step function sees
  bool warmed_up = false;
  std::vector<Guards> warmed_for;  // what its last warm-ups have asked; other answers need one
  bool was_recorded = false;       // it had recordings, or has
  std::string capture_failure;     // why the last capture was not kept, or ""
  SkipReason capture_reason = SkipReason::kCaptureFailed;  // of it
  Backoff captures{3};                                     // those that fail
  Backoff remakes{kBeforeCopies + 4};  // recordings beside others, and answers, before one has paid
  std::uint64_t last_used = 0;         // by the function's count of warm-ups and recordings
  bool is_too_large = false;  // its graph alone takes more than ContextOptions::max_graph_bytes
  // Which allocations of a call became outputs when it was warmed up; sorted.
  std::vector<std::uint32_t> output_allocations;
  // The workspaces that its warm-up used, and those of its function, that were held when it ended.
  // A library that has replaced one since would make it again in a capture, so that the key is
  // warmed up again. Empty in a group: what ranks do does not depend on their libraries.
  std::vector<std::uint64_t> workspaces;
  std::vector<Node*> nodes;  // its recordings, the oldest first
  // How many recordings release_memory() has dropped that were not made again yet. As many may be
  // made of a function that is frozen, before it or after, or that CompileOptions::while_missing
  // forbids to record.
  std::size_t released = 0;

  std::uint64_t dropped_replays = 0;  // of recordings that are gone
  std::uint64_t replays_before = 0;   // of all recordings, when the last one was made
  // Where static inputs lay in the last calls that waited for `remakes`, as hashes: a call that
  // comes again is recorded, because the recording would have been replayed.
  static constexpr std::size_t kMostWaited = 256;
  std::vector<std::uint64_t> waited;
  std::size_t next_waited = 0;

  // A recording is made, and the key has others. Requires: it is not added yet.
  void note_remake() noexcept;
  void note_warmed(Guards asked);
  bool knows_answers() const {
    const auto holds = [](const Guards& asked) { return hold(asked, /*throws=*/false); };
    return warmed_for.empty() || std::ranges::any_of(warmed_for, holds);
  }
  // The functions of guards end. Until a recording asks, all answers are known to a key that had
  // recordings; another one is warmed up again.
  void forget_guards() noexcept;
  // Has the managed inputs copied that lay elsewhere in a recording of the key: they move again.
  void copy_moved_inputs(Call& call) const;
  // A call has run eagerly because `remakes` waits. Without host memory nothing is remembered.
  void note_wait(std::uint64_t place) noexcept;
};

// A Counters is what FunctionStats is made from.
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
  std::atomic<std::uint64_t> nested_calls{0};  // skips, too, but counted by any thread

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

// A Freeze is what FunctionHandle::freeze() has set, in one word. Any thread.
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

// A FunctionTotals is what functions of one name have counted that were dropped since. It is kept
// as long as the context, so that what monitors see never falls.
struct FunctionTotals {
  FunctionStats stats;
  std::map<std::string, SizeSums> axes;  // has an entry for each axis that a function has or had
};

// A FunctionState is a compiled function with what the context has learned of it.
struct FunctionState : Function {
  Counters counters;
  FunctionTotals* totals = nullptr;  // where its counters go when it is dropped
  LastOutcome last_outcome;
  std::string capture_failure;        // what broke the last capture of any key, or ""
  std::string last_failure;           // what the last call that threw has thrown, or ""
  std::uint64_t warned = 0;           // skip reasons already warned of, one bit each
  bool warned_of_nothing = false;     // that its step function launches no work
  bool warned_of_foreign = false;     // that work of an engine uses memory that is not known
  bool warned_of_unsliced = false;    // that an output has a padded size and no dynamic axis
  bool warned_of_padding = false;     // that the caller has chosen no padding
  bool warned_of_copies = false;      // that a recording copies its outputs
  Backoff evictions{4};               // of its recordings, before they have paid
  bool has_guards = false;            // some recording has, or had
  Published<std::size_t> recordings;  // that the tree holds
  bool takes_lent = false;  // the last call that was no usual one had inputs of others' streams
  std::vector<std::size_t> static_changes;  // recordings that moves of each input have cost
  // The precapture()s that run. While one does, missing recordings are made, whatever the options
  // say.
  std::atomic<int> precaptures{0};
  std::atomic<bool> is_removed{false};  // its handle was destroyed; set by any thread
  Freeze frozen;
  std::unordered_map<std::uint64_t, std::vector<std::unique_ptr<KeyState>>> keys;  // by hash

  // The recording that calls with a key have used last, by the hash of the key's text: what a loop
  // whose keys come in no order asks in place of a hint.
  std::unordered_map<std::size_t, Node*> last_of_key;

  std::vector<VerifiedTensor> verified_tensors;

  std::unique_ptr<FunctionState> next_dropped;  // see Tree::drop_removed()

  std::size_t key_count = 0;
  // Keys without recordings are forgotten beyond max_idle_keys(), those used longest ago first: a
  // call with such a signature is warmed up again.
  std::size_t sweep_keys_at = 0;  // the count of keys at which to look for such
  std::uint64_t key_uses = 0;

  // Returns true if the recordings stay whatever limits say.
  bool keeps_recordings() const noexcept { return frozen.get().has_value(); }

  // Returns the key of the call, or null if there is none yet.
  KeyState* find(const Call& call) const;
  // Invalidates pointers to keys without recordings.
  KeyState& find_or_add(const Call& call);
  // Drops the keys for which gone(key). Requires: they have no recordings.
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

// What a context has spent so far of what is limited.
struct Spent {
  Published<std::size_t> graph_bytes;         // of the recordings that the tree holds
  Published<std::size_t> marked_graph_bytes;  // beside: of their graphs with marks
  Published<std::chrono::microseconds> recording_time;
  // By ContextMetrics::record_times and ContextMetrics::record_time.
  std::array<Published<std::uint64_t>, kRecordTimeBounds.size() + 1> record_times;
  Published<std::chrono::microseconds> record_time;
};

// A Stopwatch adds the time it lives, or until it is stopped, to a sum.
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

// A Tree holds functions, keys, recordings and the present path; Attempt decides and acts.
//
// Thread safety: used by the thread that is inside the context, but for request_removal() and for
// monitors, on any thread: stats_of(), stats(), totals() and visit(). Counters are Published. Lists
// and texts that monitors walk (functions, nodes, hints, capture failures) change only under a
// mutex, which monitors hold while they read; a replay that has been predicted, and one between the
// same neighbours as once before, takes no lock.
class Tree {
 public:
  // Throws InvalidArgument for a function without a name or a step function, and for options that
  // contradict each other.
  FunctionState& add_function(std::string name, StepFunction step, CompileOptions options);
  void set_capture_failure(FunctionState& function, std::string what);
  // The call has thrown `what`. Without memory the text of the last failure stays.
  void set_last_failure(FunctionState& function, std::string_view what) noexcept;
  // Returns what the last call that threw has thrown, or "". Any thread.
  std::string last_failure(const FunctionState& function) const {
    const std::lock_guard lock(mutex_);
    return function.last_failure;
  }
  // Marks a function as removed; the next drop_removed() drops it. Any thread; does not allocate.
  static void request_removal(FunctionState& function) noexcept {
    function.is_removed.store(true, std::memory_order_release);
  }
  // Drops the functions that were marked, and their recordings. Returns them as a list: what their
  // step functions have captured ends with it, which may call the context. Does not allocate.
  [[nodiscard]] std::unique_ptr<FunctionState> drop_removed() noexcept;

  std::span<const std::unique_ptr<FunctionState>> functions() const noexcept { return functions_; }
  std::span<const std::unique_ptr<Node>> nodes() const noexcept { return nodes_; }
  const Node* find(std::uint32_t id) const noexcept;
  // Returns the id that the next recording gets.
  std::uint32_t next_id() const noexcept { return next_node_; }

  // The node that ran last, or the root.
  Node& current() noexcept { return *current_; }
  const Node& current() const noexcept { return *current_; }
  bool is_at_root() const noexcept { return current_ == &root_; }
  // Notes that `node` has followed the current one. Takes the mutex and allocates only the first
  // time that the function of `node` follows; without memory for it the hint is not made.
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
  // Notes which recording a call with a key has used last; without memory for it nothing.
  static void note_last_of_key(Node& node) noexcept;
  // From now on predict() and predict_by_key() do not find the node, and decide() finds it where
  // they would have, until it is released. Take the mutex.
  void hold_back(Node& node) noexcept { mark_hints(node, true); }
  void release(Node& node) noexcept { mark_hints(node, false); }

  // Returns a node for add(), which has room for it: all that can fail is done here. If it throws,
  // the recording is where it was.
  std::unique_ptr<Node> make_node(FunctionState& function, KeyState& key, Recording& recording,
                                  Explanation why, const ContextMemory& memory);
  // Adds a recording that follows the current node, and goes to it. Requires: make_node() has made
  // it, and no other node was added since.
  Node& add(std::unique_ptr<Node> made) noexcept;
  void drop(Node& node) noexcept;
  // Calls change() while no monitor reads, to change what is constant once recorded.
  template <typename Change>
  void change(Change&& change) {
    const std::lock_guard lock(mutex_);
    change();
  }

  // Returns the least recently used node for which counts(node), or null; never one of a frozen
  // function. A pure function of the tree: no two nodes were used at the same time.
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
  // Notes what a verified replay of the function has compared.
  void note_compared(FunctionState& function, std::vector<VerifiedTensor> compared);
  // The sum over all functions there are and were, and what the recordings take.
  ContextStats stats() const;
  // Returns what the functions of each name have counted, those that were dropped included.
  std::map<std::string, FunctionTotals, std::less<>> totals() const;
  // Calls visit(function) for each function, then visit(node) for each recording, the oldest
  // first. The mutex is held during one visit at a time: recordings may come and go meanwhile.
  template <typename VisitFunction, typename VisitNode>
  void visit(VisitFunction&& visit_function, VisitNode&& visit_node) const;
  std::uint32_t current_id() const {
    const std::lock_guard lock(mutex_);
    return current_->id;
  }
  // Returns a hash of which recordings there are, and in which order they were last used: of what
  // was called, as far as it has a say in what will be done.
  std::uint64_t digest() const noexcept;
  // Aborts if an invariant does not hold. Requires: learn_conflicts() has returned.
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
  Published<std::uint64_t> dropped_patches_;  // of recordings that were dropped
};

template <typename VisitFunction, typename VisitNode>
void Tree::visit(VisitFunction&& visit_function, VisitNode&& visit_node) const {
  const auto each = [&](const auto& list, auto& visit_one) {
    for (std::uint32_t next = 0;; std::this_thread::yield()) {  // lets a writer have its turn
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
