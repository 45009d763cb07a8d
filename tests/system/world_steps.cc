// World: an engine's work in Steps, with breaks that change the engine's structs and make calls,
// and steps that are held, left, and ended at forbidden places.
#include "tests/system/world.h"

#include <fmt/format.h>

#include <array>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "base/error.h"
#include "cgtree/steps.h"
#include "cgtree/values/eager_break.h"
#include "interop/device/graph_api.h"
#include "interop/device/kernel.h"
#include "tests/support/steps.h"
#include "tests/support/test_kernels.h"
#include "tests/system/step_context.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

constexpr std::int64_t kCount = 6;
constexpr std::size_t kBytes = kCount * sizeof(float);
constexpr int kPlaces = 2;  // for each binding

struct Lengths {
  std::array<float, kCount> values;
};

void axpy(float factor, const void* x, void* y) {
  const StreamRef stream = current_stream();
  check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(kCount),
                                      arguments_of(factor, x, y, kCount)),
        "axpy");
}

// A tensor of the engine, and its expected values.
struct Place {
  Tensor tensor;
  std::vector<float> model;

  void set(float value) {
    model.assign(kCount, value);
    tensor.copy_from(std::span<const float>(model));
  }
};

// The work of a step: with breaks, with a break at its end, and without breaks, so that it can be
// verified.
enum class Kind { kBreaks, kEndsInBreak, kPlain };
constexpr int kKinds = 3;

// Bindings: a step block, a copied binding, a mutated one, and one that is copied and mutated. With
// b in the block, the work is
//   io = in;  break: io *= 1 + b;  cm += b;  break: io += b * cm;  io += cm
// where kEndsInBreak has the last part inside the break, and kPlain leaves the breaks out.
class Engine {
 public:
  explicit Engine(WorldContext& with)
      : steps_(with.context(), "engine",
               {.bindings = {{.name = "lengths", .host_bytes = sizeof(Lengths)},
                             {.name = "in", .is_copied = true},
                             {.name = "io", .is_mutated = true},
                             {.name = "cm", .is_copied = true, .is_mutated = true}}}) {
    for (auto* const places : {&in, &io, &cm}) {
      for (Place& place : *places) {
        place.tensor = empty({kCount}, DType::kFloat32, with.context().device());
        place.set(static_cast<float>(&place - places->data()));
      }
    }
  }

  Steps& steps() { return steps_; }

  void work(const Step& step, Kind kind) {
    void* const in_at = step.address(1);
    void* const io_at = step.address(2);
    void* const cm_at = step.address(3);
    axpy(-1, io_at, io_at);
    axpy(1, in_at, io_at);
    if (kind == Kind::kPlain) {
      axpy(1, step.address(0), cm_at);
      return axpy(1, cm_at, io_at);
    }
    eager_break([this, io_at](const StepValues& values) {
      if (during) during(0);
      axpy(values.get<Lengths>(0).values[0], io_at, io_at);
    });
    axpy(1, step.address(0), cm_at);
    const bool is_last = kind == Kind::kEndsInBreak;
    eager_break([this, io_at, cm_at, is_last](const StepValues& values) {
      if (during) during(1);
      axpy(values.get<Lengths>(0).values[0], cm_at, io_at);
      if (is_last) axpy(1, cm_at, io_at);
    });
    if (!is_last) axpy(1, cm_at, io_at);
  }

  static void work_on(const Place& in, Place& io, Place& cm, float b, Kind kind) {
    const float in_breaks = kind == Kind::kPlain ? 0 : b;
    for (std::size_t i = 0; i < kCount; ++i) {
      cm.model[i] += b;
      io.model[i] = in.model[i] * (1 + in_breaks) + in_breaks * cm.model[i] + cm.model[i];
    }
  }

  std::array<Place, kPlaces> in, io, cm;
  Lengths lengths = {};
  // An action at the start of break `i`.
  std::function<void(int i)> during;
  // A function with recordings, which a break destroys.
  std::optional<WorldContext::Function> doomed;

 private:
  Steps steps_;
};

enum class Does { kNothing, kAddsToBlock, kThrows, kEnds, kBegins, kCalls, kExplains, kDestroys };
constexpr int kDoes = 8;
constexpr std::string_view kDoesNames[kDoes] = {"does nothing",  "adds to the block",  "throws",
                                                "ends the step", "begins another",     "calls",
                                                "explains",      "destroys a function"};
// Actions of the engine around its work: it holds the step after its end, leaves it, throws in it,
// begins it in a scope, or ends a scope while the step is open.
enum class Around { kNothing, kHolds, kLeaves, kThrows, kScope, kCrosses };
constexpr Around kArounds[] = {Around::kNothing, Around::kHolds,  Around::kHolds, Around::kHolds,
                               Around::kLeaves,  Around::kThrows, Around::kScope, Around::kCrosses};

}  // namespace

void World::engine(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  Engine& engine = with.family<Engine>();
  const auto does = static_cast<Does>(operation.choice % kDoes);
  const auto around = kArounds[operation.choice / kDoes % std::size(kArounds)];
  const int when = operation.x % 2;
  Place& in = engine.in[operation.y % kPlaces];
  Place& io = engine.io[operation.y / 2 % kPlaces];
  Place& cm = engine.cm[operation.y / 4 % kPlaces];
  const float number = operation.x % 4 < 2 ? 1 : 3;
  settle();
  for (Place* const place : {&in, &io, &cm})
    place->set(next_value());
  engine.lengths.values.fill(number);
  const Binding bindings[] = {{&engine.lengths, sizeof(Lengths)},
                              {in.tensor.data(), kBytes},
                              {io.tensor.data(), kBytes},
                              {cm.tensor.data(), kBytes}};
  // Replays of steps with breaks are not verified.
  const bool is_plain = program_.has(Feature::kVerifying) && operation.to % 4 != 0;
  const auto kind = is_plain ? Kind::kPlain : static_cast<Kind>(operation.to % kKinds);
  const Key key{{"k", static_cast<int>(kind)}};
  std::optional<std::string> wrong;
  const auto refuses = [&](const char* what, const auto& body) {
    if (!is_refused(body)) wrong = fmt::format("{} inside a break is accepted", what);
  };
  const Variable other = fresh_of(kRow);
  if (does == Does::kDestroys && !engine.doomed) {
    engine.doomed.emplace(with.make("doomed", [](std::span<const Tensor> inputs) {
      return std::vector<Tensor>{affine(inputs[0], 1, 1)};
    }));
    std::vector<Tensor> outputs;
    for (int i = 0; i < 3; ++i)
      (void)run_call(without_fault(operation), *engine.doomed, {&other.tensor, 1}, {}, false,
                     outputs);
    settle();
  }
  std::optional<StreamScope> scope;
  std::optional<Step> step;
  engine.during = [&](int i) {
    if (i != when) return;
    ++totals_.done[fmt::format("a break of a step {}", kDoesNames[static_cast<int>(does)])];
    switch (does) {
      case Does::kNothing:
        break;
      case Does::kAddsToBlock:
        for (float& value : engine.lengths.values)
          value += 2;
        break;
      case Does::kThrows:
        throw InjectedFault();
      case Does::kEnds:
        if (step) refuses("end()", [&] { step->end(); });
        break;
      case Does::kBegins:
        refuses("begin()", [&] { (void)engine.steps().begin(key, bindings); });
        break;
      case Does::kCalls:
        (void)is_refused([&] { (void)with.function(Deed::kChain)({&other.tensor, 1}); });
        break;
      case Does::kDestroys: {
        const FunctionStats stats = engine.doomed ? engine.doomed->stats() : FunctionStats();
        with.ended_calls += stats.calls;
        with.ended_replays += stats.replays;
        engine.doomed.reset();
        break;
      }
      case Does::kExplains: {
        Lengths lengths = {};
        const Binding others[] = {{&lengths, sizeof(Lengths)},
                                  {engine.in[1].tensor.data(), kBytes},
                                  {engine.io[1].tensor.data(), kBytes},
                                  {engine.cm[1].tensor.data(), kBytes}};
        const std::size_t count = operation.x % 4 == 3 ? 1 : std::size(others);
        refuses("explain()", [&] {
          (void)engine.steps().explain(Key{{"k", 9}}, std::span(others).first(count));
        });
        break;
      }
    }
  };
  const std::uint64_t verified = engine.steps().stats().verified;
  bool has_thrown = false;
  bool has_left = false;
  const StreamRef caller = caller_of(operation);
  if (caller) caller.wait_for(with.context().stream());
  ++with.calls;
  ++totals_.calls;
  try {
    if (caller && (around == Around::kCrosses || around == Around::kScope)) scope.emplace(caller);
    const bool passes = caller && !scope;
    step.emplace(engine.steps().begin(key, bindings, passes ? caller : StreamRef()));
    if (around == Around::kCrosses) scope.reset();
    while (step->must_run()) {
      if (around == Around::kLeaves) {
        step.reset();
        has_left = true;
        break;
      }
      if (around == Around::kThrows) throw InjectedFault();
      engine.work(*step, kind);
      step->end();
    }
    if (!has_left && around == Around::kHolds) {  // the ended step still exists
      ++totals_.done["a step is held after its end"];
      ++with.calls;
      ++totals_.calls;
      (void)with.function(Deed::kChain)({&other.tensor, 1});
      (void)step->outcome();
    }
  } catch (const InjectedFault&) {
    has_thrown = true;
  } catch (const InvalidArgument&) {
    if (around != Around::kCrosses) throw;
    has_thrown = true;
  } catch (const OutOfMemory&) {
    if (!program_.has(Feature::kBudgets)) throw;
    has_thrown = true;
  }
  step.reset();
  scope.reset();
  engine.during = nullptr;
  const bool leaves_stream = static_cast<bool>(current_stream_or_none());
  if (leaves_stream) static_cast<void>(new StreamScope(StreamRef()));  // for the next program
  settle();
  if (wrong) throw Difference(*wrong);
  // A function that was destroyed inside is removed at the next entry, as by explain().
  if (does == Does::kDestroys) {
    (void)with.function(Deed::kChain).explain({&other.tensor, 1});
  }
  if (leaves_stream) throw Difference("a step leaves a current stream behind");
  if (has_thrown) ++totals_.refused;
  if (has_thrown || has_left) return;  // the progress of the work is unknown
  if (engine.steps().stats().verified > verified) {
    ++totals_.done["a step of an engine is verified"];
  }
  Engine::work_on(in, io, cm, number, kind);
  for (const auto& [place, name] :
       {std::pair{&in, "in"}, std::pair{&io, "io"}, std::pair{&cm, "cm"}}) {
    const std::vector<float> values = place->tensor.to_vector<float>();
    if (values == place->model) continue;
    throw Difference(
        fmt::format("a step leaves {} in '{}', not {}", values[0], name, place->model[0]));
  }
}

}  // namespace cgtree::testing
