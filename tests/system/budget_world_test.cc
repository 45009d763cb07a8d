// Random programs in budgets of every size. Libraries keep and replace workspaces, and may use
// addresses that they asked for once; outputs are held for the whole program; runs throw; calls are
// in a NoGraph; and another thread waits for the device during recordings.
//
// Each call equals plain arithmetic. A call whose capture lacks memory runs eagerly; if it throws,
// the eager run itself lacked memory. The next call works. Calls make at most three times as many
// calls of the device as without graphs.
//
// CGTREE_SEED: the seed of the first program. CGTREE_PROGRAMS: the number of programs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cgtree/cgtree.h"
#include "cgtree/values/graph_scope.h"
#include "interop/device/device_api.h"
#include "interop/exchange/from_memory.h"
#include "interop/tensor/empty.h"
#include "simulator/host_device.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/host_slot.h"
#include "tests/support/inside.h"
#include "tests/support/steps.h"

namespace cgtree::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kSegment = 2 * kMiB;
constexpr std::int64_t kUsed = 8;  // compared elements; the first dimension is a size
constexpr int kCalls = 400;
constexpr int kFirstCounted = 200;
constexpr int kSizes = 4;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

class CallCounter : public CallHook {
 public:
  Code around(const DeviceCall&, Forward forward) override {
    ++calls;
    return forward();
  }
  std::atomic<long> calls = 0;
};

// The random parameters of a program.
struct Nature {
  std::size_t budget = 0;
  AtLimit at_limit = AtLimit::kRunEagerly;
  bool has_one_workspace = false;  // for all sizes, replaced for each
  bool outputs_are_kept = false;
  int in_a_row = 1;        // calls of the same size in a row
  int disturbs_every = 0;  // one capture in so many; 0: none
  int hoards_every = 0;    // one run in so many; 0: none
  std::int64_t large = 0;  // elements of tensors that the step makes
  int temporaries = 0;
  bool marks_steps = false;
  bool knows_addresses = false;  // of workspaces, since they were made
  int throws_every = 0;          // one call in so many throws unless captured; 0: none
  int no_graph_every = 0;        // one call in so many; 0: none

  static Nature drawn(std::mt19937& random) {
    const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
    constexpr AtLimit kLimits[] = {AtLimit::kRunEagerly, AtLimit::kEvict, AtLimit::kThrow};
    Nature nature;
    nature.large = std::int64_t{1} << (12 + below(9));  // 16 KiB to 4 MiB
    nature.temporaries = 1 + below(3);
    // A budget around the need of a step; a fifth of the programs have plenty of memory.
    const std::size_t takes = static_cast<std::size_t>(nature.large) * sizeof(float) *
                              static_cast<std::size_t>(nature.temporaries + 6);
    const std::size_t segments = 2 * takes / kSegment + 12;
    nature.budget = below(5) == 0 ? 1024 * kMiB : random() % segments * kSegment;
    nature.at_limit = kLimits[below(3)];
    nature.has_one_workspace = below(2) == 0;
    nature.outputs_are_kept = below(4) == 0;
    nature.in_a_row = 1 + below(4);
    nature.disturbs_every = below(3) == 0 ? 1 + below(4) : 0;
    nature.hoards_every = below(6) == 0 ? 1 + below(5) : 0;
    nature.marks_steps = below(2) == 0;
    nature.knows_addresses = below(3) == 0;
    nature.throws_every = below(4) == 0 ? 2 + below(20) : 0;
    nature.no_graph_every = below(2) == 0 ? 1 + below(7) : 0;
    return nature;
  }
  std::string to_string() const {
    return fmt::format(
        "budget {} MiB, at_limit {}, {} workspace, outputs kept {}, {} in a row, disturbed every "
        "{}, "
        "hoards every {}, {} temporaries of {} elements, marks {}, knows addresses {}, throws "
        "every {}, no graph every {}",
        budget / kMiB, static_cast<int>(at_limit), has_one_workspace ? "one" : "a size's",
        outputs_are_kept, in_a_row, disturbs_every, hoards_every, temporaries, large, marks_steps,
        knows_addresses, throws_every, no_graph_every);
  }
};

// The exception of a step.
struct Thrown {};

// A server with one context and a function whose step asks a library for a workspace of its size,
// filled with 1.
class Server {
 public:
  Server(Device device, const Nature& nature, bool is_enabled)
      : device_(device),
        nature_(nature),
        context_(device, {.max_bytes = nature.budget, .at_limit = nature.at_limit}),
        f_(compile(context_, "f", [this](Tensor x) { return run(x); }, {.enabled = is_enabled})) {}

  Context& context() { return context_; }
  FunctionStats stats() const { return f_.stats(); }
  void set_throws(bool throws) { throws_ = throws; }
  bool has_captured() const { return has_captured_; }  // in the last run of the last call

  // Makes a call, and returns true if its result is right.
  bool call(std::int64_t size, float value) {
    has_captured_ = false;
    std::vector<float> x(static_cast<std::size_t>(kUsed + size), value);
    const Tensor y = f_(from_host<float>({kUsed + size}, x, device_));
    if (nature_.outputs_are_kept) kept_.emplace_back(y, 2 * value + 1);
    return holds(y, 2 * value + 1);
  }
  // Returns true if the held outputs have their values, except those that mark_step() has ended.
  bool kept_are_whole() const {
    return std::ranges::all_of(kept_, [](const auto& kept) {
      return kept.first.storage()->state() == Storage::State::kStale ||
             holds(kept.first, kept.second);
    });
  }
  void forget() { kept_.clear(); }
  void mark_step() { context_.mark_step(); }
  // Returns true if the tensors kept by steps have their values. Tensors of a lost capture are
  // stale and refuse their use.
  bool hoard_is_whole() const {
    return std::ranges::all_of(hoard_, [&](const Tensor& one) {
      if (one.storage()->state() == Storage::State::kStale) return true;
      return holds(one, 3);
    });
  }

 private:
  static bool holds(const Tensor& tensor, float value) {
    return tensor.slice(0, 0, kUsed).to_vector<float>() == std::vector<float>(kUsed, value);
  }
  Tensor large() const { return empty({nature_.large}, DType::kFloat32); }
  static void fill(const Tensor& to, const Tensor& from) {
    const StreamRef stream = current_stream();
    const std::size_t bytes = kUsed * sizeof(float);
    check(stream.api().copy(stream.handle(), to.data(), from.data(), bytes), "copy");
  }
  // Returns the values in the workspace.
  Tensor contents(const Tensor& x) {
    const Tensor kept = workspace(x);
    if (!nature_.knows_addresses) return kept.slice(0, 0, kUsed);
    const StreamRef stream = current_stream();
    Tensor made = empty({kUsed}, DType::kFloat32);
    check(stream.api().copy(stream.handle(), made.data(), addresses_.at(kept.dim(0)), made.bytes()),
          "copy");
    return made;
  }
  Tensor workspace(const Tensor& x) {
    const std::int64_t size = x.dim(0) - kUsed;
    const auto found = workspaces_.find(size);
    if (found != workspaces_.end()) return found->second;
    if (nature_.has_one_workspace) workspaces_.clear();
    Tensor made = empty({(size + 1) * nature_.large}, DType::kFloat32);
    fill(made, affine(x.slice(0, 0, kUsed), 0, 1));
    addresses_[made.dim(0)] = made.data();
    return workspaces_[size] = made;
  }
  Tensor run(const Tensor& x) {
    ++runs_;
    has_captured_ = current_stream().is_capturing();
    Tensor last = affine(x, 2, 0);
    for (int i = 0; i < nature_.temporaries; ++i) {
      Tensor next = large();
      fill(next, last);
      last = next;
    }
    Tensor y = large();
    fill(y, add(last.slice(0, 0, kUsed), contents(x)));
    if (throws_ && !has_captured_) throw Thrown();
    if (nature_.hoards_every > 0 && runs_ % nature_.hoards_every == 0) {
      if (hoard_.size() == 3) hoard_.pop_front();
      hoard_.push_back(affine(x.slice(0, 0, kUsed), 0, 3));
    }
    if (nature_.disturbs_every > 0 && current_stream().is_capturing() &&
        ++captures_ % nature_.disturbs_every == 0) {
      std::thread([&] { (void)device_api(device_).synchronize_device(device_.id); }).join();
    }
    return y;
  }

  const Device device_;
  const Nature nature_;
  Context context_;
  std::map<std::int64_t, Tensor> workspaces_;
  std::map<std::int64_t, void*> addresses_;  // by size
  std::deque<Tensor> hoard_;
  std::vector<std::pair<Tensor, float>> kept_;
  int runs_ = 0;
  int captures_ = 0;
  bool has_captured_ = false;
  bool throws_ = false;
  CompiledFunction<Tensor(Tensor)> f_;
};

class BudgetWorldTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([](LogLevel, const std::string&) {});
  }
  void TearDown() override {
    HostSlot::instance().put(host_device_api());
    set_log_sink(nullptr);
  }

  struct Totals {
    int refused = 0;
    int thrown = 0;
    int programs_that_replay = 0;
    int programs_that_are_short = 0;
    double dearest = 0;
  };

  // Returns a description of the failure, or "".
  std::string run(std::uint64_t seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const Nature nature = Nature::drawn(random);
    const auto host = make_host_device({.seed = seed});
    CallCounter counter;
    ForwardingDevice device(*host, counter);
    HostSlot::instance().put(device);
    const Device place = HostSlot::instance().device();
    Server server(place, nature, true);
    Server twin(place, nature, false);
    long cost = 0;
    long cost_of_twin = 0;
    int refused = 0;
    int thrown = 0;
    for (int i = 0; i < kCalls; ++i) {
      const std::int64_t size = i / nature.in_a_row % kSizes;
      const float value = static_cast<float>(random() % 1000);
      const auto wrong = [&](const std::string& what) {
        return fmt::format("{}, call {}: {}", nature.to_string(), i, what);
      };
      if (nature.marks_steps) {
        server.mark_step();
        twin.mark_step();
      }
      const auto is_turn = [&](int every) {
        return every > 0 && random() % static_cast<unsigned>(every) == 0;
      };
      const bool throws = is_turn(nature.throws_every);
      server.set_throws(throws);
      twin.set_throws(throws);
      std::optional<NoGraph> none;
      if (is_turn(nature.no_graph_every)) none.emplace();
      const long before = counter.calls;
      try {
        if (!server.call(size, value)) return wrong("a result is wrong");
      } catch (const OutOfMemory& error) {
        ++refused;
        // A run without a capture is not repeated, because it has had its effects: it may throw.
        const bool is_of_capture = server.has_captured() && nature.at_limit != AtLimit::kThrow;
        if (is_of_capture && runs_eagerly(server, size, value)) {
          return wrong(fmt::format("threw, and runs without a graph: {}", error.what()));
        }
      } catch (const Thrown&) {
        ++thrown;
      } catch (const std::exception& error) {
        return wrong(error.what());
      }
      if (i >= kFirstCounted) cost += counter.calls - before;
      if (server.context().stream().is_capturing()) return wrong("a capture is left open");
      if (i % 16 == 0) cgtree::testing::validate(server.context());
      if (!server.kept_are_whole()) return wrong("an output that is kept has changed");
      const long before_twin = counter.calls;
      try {
        if (!twin.call(size, value)) return wrong("a result of the twin is wrong");
      } catch (const OutOfMemory&) {
      } catch (const Thrown&) {
      }
      if (i >= kFirstCounted) cost_of_twin += counter.calls - before_twin;
      if (!server.hoard_is_whole()) return wrong("a tensor that a step keeps is not filled");
      if (i % 100 == 99) {
        server.forget();
        twin.forget();
      }
    }
    totals_.refused += refused;
    totals_.thrown += thrown;
    totals_.programs_that_replay += server.stats().replays > 0;
    totals_.programs_that_are_short += server.stats().skipped(SkipReason::kPoolLimit) > 0;
    if (refused + thrown > 0) return "";  // a call that throws has no limit
    const double ratio = static_cast<double>(cost) / static_cast<double>(cost_of_twin);
    totals_.dearest = std::max(totals_.dearest, ratio);
    if (ratio > 3) {
      return fmt::format("{}: {:.1f} times as many calls of the device as without graphs; {}",
                         nature.to_string(), ratio, to_string(server.stats()));
    }
    return "";
  }

  static bool runs_eagerly(Server& server, std::int64_t size, float value) {
    const NoGraph none;
    try {
      (void)server.call(size, value);
      return true;
    } catch (const OutOfMemory&) {
      return false;
    }
  }

  Totals totals_;
};

TEST_F(BudgetWorldTest, NoCallThrowsThatRunsWithoutAGraph) {
  const std::uint64_t first = from_environment("CGTREE_SEED", std::random_device()() / 1000 * 1000);
  const std::uint64_t programs = from_environment("CGTREE_PROGRAMS", 40);
  fmt::print("seed {}\n", first);
  for (std::uint64_t seed = first; seed < first + programs && !HasFailure(); ++seed) {
    const std::string what = run(seed);
    EXPECT_EQ(what, "") << "CGTREE_SEED=" << seed << " CGTREE_PROGRAMS=1";
  }
  fmt::print(
      "refused {}, thrown {}, programs that replay {}, that are short of memory {}, dearest "
      "{:.2f}\n",
      totals_.refused, totals_.thrown, totals_.programs_that_replay,
      totals_.programs_that_are_short, totals_.dearest);
}

}  // namespace
}  // namespace cgtree::testing
