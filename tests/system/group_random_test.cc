// Random programs on the ranks of a group, with a failure on one rank at a time: all ranks do the
// same in each call and draw the same numbers, no rank hangs, and every value equals that of a
// model.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/cgtree.h"
#include "cgtree/record/graph_bytes.h"
#include "cgtree/values/eager_break.h"
#include "extensions/flow/control_flow.h"
#include "extensions/flow/loop_stream.h"
#include "extensions/ranks/collectives.h"
#include "extensions/ranks/communicator.h"
#include "extensions/ranks/group.h"
#include "extensions/sizes/precapture.h"
#include "extensions/sizes/size_learner.h"
#include "extensions/verify/verify.h"
#include "interop/device/device_api.h"
#include "interop/random/random.h"
#include "tests/support/devices.h"
#include "tests/support/flags.h"
#include "tests/support/inside.h"
#include "tests/support/random_steps.h"
#include "tests/support/rank_threads.h"
#include "tests/support/steps.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

constexpr std::chrono::milliseconds kLimit(60'000);
constexpr int kFunctions = 3;
constexpr int kVariables = 4;

// The fault of a step function in one call, on one rank.
enum class Fault { kNone, kThrow, kNoMemory, kBreakCapture, kMoreNodes, kBreakThrows };

// A rank's side of the program of a seed: all ranks make the same random choices.
class ProgramOfRank {
 public:
  // `collectives`: null for a program without collectives.
  ProgramOfRank(unsigned seed, int rank, int size, Device device, std::shared_ptr<Group> group,
                std::shared_ptr<Collectives> collectives)
      : random_(seed), rank_(rank), size_(size), device_(device) {
    ContextOptions options;
    options.group = std::move(group);
    options.at_limit = static_cast<AtLimit>(draw(2));
    if (draw(3) == 0) options.max_recordings = 2 + draw(6);
    if (draw(3) == 0) options.max_graph_bytes = (1 + draw(6)) * graph_bytes_of_chain(8);
    verifies_ = draw(3) == 0;
    if (verifies_) options.extensions = {verify({.every = 1 + draw(3)})};
    const unsigned poor = draw(size_);
    const std::size_t bytes = std::size_t{8 + draw(24)} << 20;
    const bool has_poor = draw(2) == 0;
    if (has_poor && static_cast<int>(poor) == rank_) options.max_bytes = bytes;
    if (draw(3) == 0) {
      options.before_first_launch = [this](const NewRecording&) {
        if (fault_ == Fault::kThrow && throws_in_hook_) throw std::runtime_error("in the hook");
      };
    }
    context_.emplace(device, std::move(options));
    for (int f = 0; f < kFunctions; ++f) {
      CompileOptions compiled;
      if (f == 1) {
        compiled.inputs = {{.dynamic = {{0, "n"}}}};
        compiled.outputs = {{.dynamic = {{0, "n"}}}};
        compiled.buckets = {{"n", {64, 4096, 1 << 18, 1 << 20}}};
      }
      compiled.inputs.resize(1);
      if (draw(3) == 0) compiled.inputs[0].rebind = Rebind::kAlways;  // not possible in a group
      compiled.at_limit = static_cast<AtLimit>(draw(2));
      if (draw(3) == 0) compiled.max_recordings = 1 + draw(3);
      functions_.push_back(compile(
          *context_, "f" + std::to_string(f), [this, f](Tensor x) { return step(f, std::move(x)); },
          std::move(compiled)));
    }
    drawing_.emplace(compile(*context_, "drawing", [this](Tensor x) {
      const Tensor y = add_noise(x, generator_);
      fail();
      return affine(y, 1, 1);
    }));
    broken_.emplace(compile(*context_, "broken", [this](Tensor x) {
      const Tensor y = affine(x, 2, 0);
      eager_break([this](const StepValues&) {
        if (fault_ == Fault::kBreakThrows) throw std::runtime_error("the break's own");
      });
      fail();
      return affine(y, 1, 1);
    }));
    learned_.emplace(compile(*context_, "learned",
                             [this](Tensor x) {
                               Tensor y = affine(x, 3, 1);
                               fail();
                               return y;
                             },
                             {.inputs = {{.dynamic = {{0, "n"}}}},
                              .axes = {{.name = "n", .policy = AxisPolicy::kLearned}},
                              .outputs = {{.dynamic = {{0, "n"}}}}}));
    learner_.emplace(
        *learned_,
        [this](const CallSizes& sizes) {
          if (draws_inputs_ && fault_ == Fault::kThrow) throw std::runtime_error("no inputs");
          return std::vector<Tensor>{ones(sizes["n"])};
        },
        LearnOptions{.max_sizes = 2});
    // A rank that lacks memory before a collective would keep the others waiting.
    if (collectives != nullptr && !has_poor) {
      communicator_.emplace(*context_, std::move(collectives));
      rows_.emplace(device_, 5 * sizeof(float), 4);
      flowing_.emplace(
          compile(*context_, "flowing", [this](Tensor x) { return flow(std::move(x)); }));
    }
    steps_.emplace(*context_, "steps");
    variables_.resize(kVariables);
    const std::vector<float> zeros(kSide, 0);
    side_ = from_host<float>(Shape({kSide}), zeros, device_);
  }

  // Returns the outcome of each operation, which is the same on all ranks.
  std::string run(int operations) {
    try {
      for (int i = 0; i < operations; ++i)
        operate();
    } catch (const std::exception&) {
      std::printf("rank %d: %s\n", rank_, trace_.c_str());
      throw;
    }
    for (const Variable& variable : variables_)
      check(variable);
    context_->synchronize();
    EXPECT_EQ(side_.to_vector<float>()[0], side_value_);
    variables_.clear();
    cgtree::testing::validate(*context_);
    return trace_;
  }

 private:
  using Function = CompiledFunction<Tensor(Tensor)>;
  static constexpr std::int64_t kSide = 100;
  static constexpr unsigned kPlaces = 6;

  struct Variable {
    Tensor tensor;
    float value = 0;
  };

  unsigned draw(unsigned below) { return static_cast<unsigned>(random_() % below); }

  void fail() const {
    if (fault_ == Fault::kThrow && !throws_in_hook_) throw std::runtime_error("the user's own");
    if (fault_ == Fault::kNoMemory) throw OutOfMemory("the user's own");
    if (fault_ == Fault::kBreakCapture) current_stream().synchronize();
  }

  // y = (f + 2) * x + 1
  Tensor step(int f, Tensor x) {
    const Tensor half = affine(x, static_cast<float>(f + 2), 0);
    fail();
    Tensor y = affine(half, 1, 1);
    if (fault_ == Fault::kMoreNodes) update(y, 1, 0);
    return y;
  }

  // Throws at one of kPlaces in the bodies of flow().
  void fail_in_body(int place) const {
    if (throws_at_ == place && current_stream().is_capturing() == throws_captured_) {
      throw std::runtime_error("in a body");
    }
  }

  // Returns the sum of x over all ranks, that sum over all ranks, and again, plus 1; the last two
  // are handed out as rows. A body is captured twice, and may throw in either capture.
  Tensor flow(Tensor x) {
    const Tensor y = affine(x, 1, 0);
    const Tensor left = affine(y, 0, 2);
    const Tensor goes_on = empty(Shape(), DType::kInt32);
    compare(left, 0, goes_on);
    branch(goes_on, [&] {
      fail_in_body(0);
      communicator_->all_reduce(y);
      fail_in_body(1);
    });
    int round = 0;
    (void)loop(4, *rows_, [&]() -> LoopRound {
      fail_in_body(2 + 2 * round);
      communicator_->all_reduce(y);
      update(left, 1, -1);
      compare(left, 0, goes_on);
      fail_in_body(3 + 2 * round++);
      return {goes_on, y};
    });
    return affine(y, 1, 1);
  }

  // All ranks throw at the same place, or one throws after the last collective or in a capture.
  void call_flowing(float value, bool is_mine, Variable& to) {
    const int place = static_cast<int>(draw(kPlaces));
    const bool all_throw = draw(2) == 0;
    throws_captured_ = draw(2) == 0;
    const bool may_throw = draw(3) > 0 && (all_throw || throws_captured_ || place == kPlaces - 1);
    if (!flowing_) return;
    if (may_throw && (all_throw || is_mine)) throws_at_ = place;
    const std::vector<float> values(5, value + static_cast<float>(rank_));
    float sum = 0;
    for (int rank = 0; rank < size_; ++rank)
      sum += value + static_cast<float>(rank);
    rows_->drop();
    const bool threw = attempt([&] {
      to = {(*flowing_)(from_host<float>(Shape({5}), values, device_)),
            sum * static_cast<float>(size_ * size_) + 1};
      check(to);
      for (const int power : {1, 2}) {
        std::array<float, 5> row{};
        const auto got = rows_->next(std::as_writable_bytes(std::span(row)), {});
        ASSERT_TRUE(got && got->is_last == (power == 2)) << "rank " << rank_;
        ASSERT_EQ(row[4], sum * static_cast<float>(std::pow(size_, power))) << "rank " << rank_;
      }
    });
    throws_at_ = -1;
    context_->synchronize();
    tell(flowing_->last_outcome(), threw);
    ++done().flows;
    if (threw) ++(all_throw ? done().flows_that_all_throw : done().flows_that_one_throws);
  }

  void operate() {
    // Drawn unconditionally, so that all ranks draw the same numbers.
    const unsigned kind = draw(27);
    const unsigned f = draw(kFunctions);
    const unsigned from = draw(kVariables);
    const unsigned to = draw(kVariables);
    const std::int64_t sizes[] = {7, 64, 4096, 100'000, 1 << 19};
    const std::int64_t size = sizes[draw(5)];
    const auto value = static_cast<float>(draw(100));
    const auto fault = draw(4) == 0 ? static_cast<Fault>(1 + draw(4)) : Fault::kNone;
    const bool is_mine = static_cast<int>(draw(static_cast<unsigned>(size_))) == rank_;
    throws_in_hook_ = draw(2) == 0;
    fault_ = is_mine ? fault : Fault::kNone;
    if (kind < 7) {
      call(f, {from_host<float>(Shape({size}), std::vector<float>(size, value), device_), value},
           variables_[to]);
    } else if (kind < 10) {
      if (variables_[from].tensor.defined()) call(f, variables_[from], variables_[to]);
    } else if (kind < 11) {
      context_->mark_step();
      std::ranges::fill(variables_, Variable());
      trace_ += "mark ";
    } else if (kind < 12) {
      variables_[to] = {};
    } else if (kind < 15) {
      engine_step(draw(3));
    } else if (kind > 24) {
      call_flowing(value, is_mine, variables_[to]);
    } else if (kind > 22) {
      idle();
    } else if (kind > 20) {
      call_learned(1 + size % 50, value, variables_[to]);
    } else if (kind > 19) {
      precapture();
    } else if (kind > 17) {
      draw_numbers(size % 7 + 1);
    } else if (kind > 15) {
      const bool breaks = draw(3) == 0;
      if (breaks && is_mine) fault_ = Fault::kBreakThrows;
      call_broken(variables_[to], value, breaks);
    } else if (draw(4) == 0) {
      (void)context_->release_memory();
      trace_ += "released ";
    } else {
      (void)context_->trim();
    }
    fault_ = Fault::kNone;
  }

  void call(unsigned f, Variable x, Variable& to) {
    Function& function = functions_[f];
    const bool threw = attempt([&] {
      Tensor y = function(x.tensor);
      check(x);
      to = {std::move(y), static_cast<float>(f + 2) * x.value + 1};
      check(to);
    });
    tell(function.last_outcome(), threw);
  }

  // Precaptures sizes of a function before or after calls use them.
  void precapture() {
    const PrecaptureOptions options{.sizes = {{"n", {64, 4096}}}, .held_outputs = draw(2)};
    PrecaptureReport report;
    const bool threw = attempt([&] {
      report = cgtree::precapture(functions_[1], options, [&](const CallSizes& sizes) {
        return std::vector<Tensor>{ones(sizes["n"])};
      });
    });
    trace_ += threw ? "precapture threw " : "precapture ";
    for (const Precaptured& entry : report.entries)
      trace_ += std::to_string(static_cast<int>(entry.outcome)) + " ";
    ++done().precaptures;
    if (threw) ++done().precaptures_that_throw;
  }

  Tensor ones(std::int64_t count) {
    const std::vector<float> values(static_cast<std::size_t>(count), 1);
    return from_host<float>(Shape({count}), values, device_);
  }

  void call_learned(std::int64_t size, float value, Variable& to) {
    const std::vector<float> values(static_cast<std::size_t>(size), value);
    const bool threw = attempt([&] {
      to = {(*learned_)(from_host<float>(Shape({size}), values, device_)), 3 * value + 1};
      check(to);
    });
    tell(learned_->last_outcome(), threw);
  }

  // All ranks record the same, although their times differ.
  void idle() {
    LearnerStep step;
    draws_inputs_ = draw(2) == 0;
    const bool threw = attempt([&] { step = learner_->idle(std::chrono::seconds(rank_ + 10)); });
    trace_ += threw ? "idle threw " : "idle " + std::to_string(static_cast<int>(step.kind)) + " ";
    for (const std::int64_t size : learner_->sizes())
      trace_ += std::to_string(size) + " ";
    ++done().idle;
    if (step.kind == LearnerStep::Kind::kRecorded) ++done().learned;
    if (threw) ++done().idle_that_throws;
  }

  // All ranks draw the same numbers, and a call that throws draws none.
  void draw_numbers(std::int64_t count) {
    const std::vector<float> zeros(static_cast<std::size_t>(count), 0);
    const Tensor x = from_host<float>(Shape({count}), zeros, device_);
    const std::uint64_t before = generator_.state().offset;
    std::vector<float> drawn;
    const bool threw = attempt([&] { drawn = (*drawing_)(x).to_vector<float>(); });
    tell(drawing_->last_outcome(), threw);
    for (const float number : drawn)
      trace_ += std::to_string(number) + " ";
    const std::uint64_t after = generator_.state().offset;
    trace_ += "at " + std::to_string(after) + " ";
    ++done().draws;
    if (threw) ++done().draws_that_throw;
    // If the eager run of a verified replay throws on one rank, the replay itself has run on all
    // ranks.
    if (threw && verifies_ && after != before) return;
    EXPECT_EQ(after, before + (threw ? 0 : static_cast<std::uint64_t>(count)))
        << "rank " << rank_ << (threw ? ", where a call has thrown" : "");
  }

  // A break that throws in a replay throws only on its rank; then all ranks drop the outputs of the
  // call.
  void call_broken(Variable& to, float value, bool breaks) {
    const std::vector<float> values(64, value);
    const Tensor x = from_host<float>(Shape({64}), values, device_);
    to = {};
    const bool threw = attempt([&] {
      Variable made{(*broken_)(x), 2 * value + 1};
      check(made);
      if (!breaks) to = std::move(made);
    });
    ++done().breaks;
    if (breaks) {
      ++done().breaks_that_throw;
      trace_ += "broken ";
    } else {
      tell(broken_->last_outcome(), threw);
    }
  }

  // Enqueues side += 1 in a step of an engine.
  void engine_step(unsigned key) {
    const Binding bindings[] = {{side_.data<float>(), side_.bytes()}};
    bool has_run = false;
    const bool threw = attempt([&] {
      for (Step step = steps_->begin(Key{{"k", static_cast<int>(key)}}, bindings);
           step.must_run();) {
        if (fault_ == Fault::kThrow) throw std::runtime_error("the engine's own");
        update(side_, 1, 1);
        if (fault_ == Fault::kBreakCapture && step.is_captured()) {
          const StreamRef stream = context_->stream();
          (void)stream.api().synchronize_stream(stream.handle());
        }
        const bool was_captured = step.is_captured();
        step.end();
        has_run = !was_captured || !step.must_run();
      }
      has_run = true;
    });
    if (!threw) side_value_ += 1;
    if (threw) {  // on ranks without the fault, the warm-up has run
      context_->synchronize();
      side_value_ = 0;
      const std::vector<float> zeros(kSide, 0);
      side_.copy_from<float>(zeros);
    }
    tell(steps_->last_outcome(), threw);
  }

  // Returns true if `body` throws an exception that a fault of any rank may cause.
  template <typename Body>
  bool attempt(const Body& body) {
    try {
      body();
      return false;
    } catch (const GroupError& error) {
      if (error.message().find("must make the same calls") != std::string_view::npos) throw;
    } catch (const OutOfMemory&) {
    } catch (const CaptureError&) {
    } catch (const std::runtime_error& error) {
      if (dynamic_cast<const Error*>(&error) != nullptr) throw;
    }
    return true;
  }

  void tell(const std::optional<CallOutcome>& outcome, bool threw) {
    if (threw || !outcome) {
      trace_ += "threw ";
    } else {
      trace_ += std::to_string(static_cast<int>(outcome->outcome));
      if (outcome->skip_reason) trace_ += std::string(name(*outcome->skip_reason));
      trace_ += ' ';
    }
  }

  void check(const Variable& variable) {
    if (!variable.tensor.defined()) return;
    const std::vector<float> values = variable.tensor.to_vector<float>();
    for (const std::size_t i : {std::size_t{0}, values.size() / 2, values.size() - 1})
      ASSERT_EQ(values[i], variable.value) << "element " << i << " on rank " << rank_;
  }

  // Counts over all programs.
  struct Done {
    std::atomic<int> draws, draws_that_throw, breaks, breaks_that_throw, precaptures,
        precaptures_that_throw, idle, idle_that_throws, learned, flows, flows_that_all_throw,
        flows_that_one_throws;
  };
  static Done& done() {
    static Done counted;
    return counted;
  }
  friend class GroupRandomTest;

  std::mt19937 random_;
  const int rank_;
  const int size_;
  const Device device_;
  Fault fault_ = Fault::kNone;
  bool throws_in_hook_ = false;
  bool verifies_ = false;
  bool draws_inputs_ = false;  // the fault is in a learner's inputs
  int throws_at_ = -1;         // the place in the bodies
  bool throws_captured_ = false;
  std::optional<Context> context_;
  std::vector<Function> functions_;
  std::optional<Function> drawing_;
  std::optional<Function> broken_;  // has a break
  std::optional<Function> learned_;
  std::optional<SizeLearner> learner_;  // destroyed before the function
  std::optional<Communicator> communicator_;
  std::optional<LoopStream> rows_;
  std::optional<Function> flowing_;  // has collectives in bodies
  std::optional<Steps> steps_;
  Generator generator_{7};
  std::vector<Variable> variables_;
  Tensor side_;
  float side_value_ = 0;
  std::string trace_;
};

class GroupRandomTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }

  static auto& done() { return ProgramOfRank::done(); }

  void run_program(unsigned seed) {
    const int size = 2 + static_cast<int>(seed % 3);
    auto groups = make_thread_groups(size, kLimit);
    std::vector<std::unique_ptr<Collectives>> ends(static_cast<std::size_t>(size));
    if (GetParam().device.type == DeviceType::kHost) {
      std::vector<Device> devices;
      for (int rank = 0; rank < size; ++rank)
        devices.push_back(device_of_rank(GetParam().device, rank));
      ends = make_host_collectives(devices, kLimit);
    }
    std::vector<std::string> traces(static_cast<std::size_t>(size));
    run_on_ranks(size, [&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      const std::shared_ptr<Group> group = std::move(groups[i]);
      const Device device = device_of_rank(GetParam().device, rank);
      // A copy on the legacy stream would wait for the collective of another rank.
      const Stream stream(device, StreamKind::kNonBlocking);
      const StreamScope current(stream);
      ProgramOfRank program(seed, rank, size, device, group, std::move(ends[i]));
      traces[i] = program.run(80);
      (void)agree(*group, true);
    });
    for (const std::string& trace : traces)
      ASSERT_EQ(trace, traces[0]) << "seed " << seed;
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
};
CGTREE_ON_ALL_DEVICES(GroupRandomTest);

// CGTREE_SEED=N runs the program of one seed, with CGTREE_PROGRAMS=N of so many seeds from it on.
TEST_P(GroupRandomTest, AllRanksDoTheSameWhateverFailsOnOne) {
  const char* const given = std::getenv("CGTREE_SEED");
  const char* const count = std::getenv("CGTREE_PROGRAMS");
  const unsigned first =
      given != nullptr ? static_cast<unsigned>(std::atoll(given)) : std::random_device()();
  const int programs = count != nullptr ? std::atoi(count) : given != nullptr ? 1 : 25;
  std::printf("seeds from %u on\n", first);
  const auto is_missing = [&] {  // true while one of these has not happened
    const bool has_flows = GetParam().device.type == DeviceType::kHost;
    return done().draws == 0 || done().draws_that_throw == 0 || done().breaks == 0 ||
           done().breaks_that_throw == 0 || done().precaptures == 0 ||
           done().precaptures_that_throw == 0 || done().learned == 0 ||
           (has_flows && done().flows == 0);
  };
  int i = 0;
  for (; (i < programs || (programs >= 25 && is_missing())) && !HasFatalFailure(); ++i)
    run_program(first + static_cast<unsigned>(i));
  std::printf("%d programs\n", i);
}

// Changes one option.
struct Change {
  const char* name;
  std::function<void(CompileOptions&)> make;
};

const std::vector<Change>& changes() {
  static const std::vector<Change> all = {
      {"max_waste", [](auto& o) { o.max_waste = 1.5; }},
      {"outputs", [](auto& o) { o.outputs.clear(); }},
      {"output.tolerance", [](auto& o) { o.outputs[0].tolerance = 0.5; }},
      {"above_largest", [](auto& o) { o.buckets[0].above_largest = AboveLargest::kThrow; }},
      {"padding", [](auto& o) { o.inputs[0].padding = Padding::of(1); }},
      {"padding.kind", [](auto& o) { o.inputs[0].padding = Padding::anything(); }},
      {"input.tolerance", [](auto& o) { o.inputs[0].tolerance = 0.5; }},
      {"alignment", [](auto& o) { o.inputs[0].alignment = 64; }},
      {"bucket", [](auto& o) { o.buckets[0].sizes.back() *= 2; }},
      {"while_missing", [](auto& o) { o.while_missing = WhileMissing::kNextLarger; }},
      {"max_recordings", [](auto& o) { o.max_recordings = 7; }},
      {"on_static_change", [](auto& o) { o.on_static_change = OnStaticChange::kDemote; }},
  };
  return all;
}

TEST_P(GroupRandomTest, AnOptionThatIsAnotherOneOnOneRankIsFound) {
  std::mt19937 random(std::random_device{}());
  for (const Change& change : changes()) {
    const int size = 2 + static_cast<int>(random() % 2);
    const int other = static_cast<int>(random() % static_cast<unsigned>(size));
    auto groups = make_thread_groups(size, std::chrono::milliseconds(20'000));
    run_on_ranks(size, [&](int rank) {
      const std::shared_ptr<Group> group = std::move(groups[static_cast<std::size_t>(rank)]);
      ContextOptions of_context;
      of_context.group = group;
      Context context(device_of_rank(GetParam().device, rank), of_context);
      CompileOptions options;
      options.inputs = {{.dynamic = {{0, "n"}}}};
      options.outputs = {{.dynamic = {{0, "n"}}}};
      options.buckets = {{"n", {4, 8}}};
      if (rank == other) change.make(options);
      const CompiledFunction f = compile(
          context, "f", [](Tensor x) { return affine(x, 2, 1); }, std::move(options));
      const std::vector<float> ones(4, 1);
      const Tensor x = from_host<float>(Shape({4}), ones, device_of_rank(GetParam().device, rank));
      EXPECT_THROW((void)f(x), GroupError) << change.name << ", rank " << rank;
    });
  }
}

}  // namespace
}  // namespace cgtree::testing
