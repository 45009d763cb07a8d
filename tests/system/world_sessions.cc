// World: an engine with sessions, whose memory is freed, allocated and used again.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cgtree/steps.h"
#include "extensions/guards/guard.h"
#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"
#include "interop/device/kernel.h"
#include "tests/support/test_kernels.h"
#include "tests/system/world.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

constexpr std::int64_t kMost = 12;  // floats of a session; half of the sessions use half as many
constexpr int kSessions = 5;

void axpy(float factor, const void* x, void* y, std::int64_t count) {
  const StreamRef stream = current_stream();
  check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(count),
                                      arguments_of(factor, x, y, count)),
        "axpy");
}

// Additions to the work cache += factor * tokens + rope + weights.
enum Extra { kOwnGuard = 1, kWorkspace = 2, kOffset = 4, kLeaves = 8 };

// Recordings of an ended session are invalid: their guard throws, and they fit no call.
constexpr int kOver = -1;

int answer_of(int own) {
  if (own == kOver) throw std::runtime_error("a guard of a session that is over");
  return own;
}

struct Session {
  std::int64_t count = 0;
  Tensor cache, rope;
  std::vector<float> model, rope_model;
  std::shared_ptr<int> own;  // the decision that its guard asks for
};

class Sessions {
 public:
  explicit Sessions(WorldContext& with)
      : device_(with.context().device()),
        weights(from_host({kMost}, std::span<const float>(weights_model), device_)),
        steps(with.context(), "sessions",
              {.bindings = {{.name = "tokens", .is_copied = true},
                            {.name = "cache", .is_mutated = true, .is_per_session = true},
                            {.name = "rope", .is_per_session = true},
                            {.name = "weights"}},
               .keeps_allocations = true}) {
    for (Session& session : sessions)
      renew(session, kMost, 0, with);
  }

  // Gives a session other memory, possibly that of an earlier session: views of the arena never
  // overlap. The fourth session keeps its recordings, whose guards ask the object that they
  // captured.
  void renew(Session& session, std::int64_t count, float value, WorldContext& with) {
    const auto number = &session - sessions.data();
    const bool invalidates = number != 3;
    if (session.cache.defined() && invalidates)
      (void)steps.invalidate(session.cache.data(), session.cache.bytes());
    if (number >= 3 && !arena_.defined()) arena_ = empty({8 * kMost}, DType::kFloat32, device_);
    if (session.own != nullptr && invalidates) *std::exchange(session.own, nullptr) = kOver;
    if (session.own == nullptr) session.own = std::make_shared<int>(2);
    session.count = count;
    session.cache = session.rope = {};
    const auto memory = [&](std::int64_t at) {
      if (number < 3) return empty({count}, DType::kFloat32, device_);
      return arena_.slice(0, at, at + count);
    };
    session.cache = memory(4 * kMost * (number - 3) + static_cast<std::int64_t>(with.calls % 4));
    session.rope = memory(4 * kMost * (number - 3) + 2 * kMost);
    set(session, value);
  }
  static void set(Session& session, float value) {
    session.model.assign(static_cast<std::size_t>(session.count), value);
    session.rope_model.assign(session.model.size(), value / 4);
    session.cache.copy_from(std::span<const float>(session.model));
    session.rope.copy_from(std::span<const float>(session.rope_model));
  }

  void work(const Step& step, const Session& session, int extras) {
    const std::int64_t count = session.count;
    const int factor = extras & kOwnGuard
                           ? decide("own", [own = session.own] { return answer_of(*own); })
                           : decide("factor", [shared = factor_] { return *shared; });
    void* to = step.address(1);
    const void* const tokens = extras & kLeaves ? left_behind(step, count) : step.address(0);
    std::optional<Workspace> workspace;
    void* held = nullptr;
    const auto hold = [&](void* data, std::size_t) { held = data; };
    std::optional<LibraryWorkspace<decltype(hold)>> of_library;
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(count);
    const StreamRef stream = current_stream();
    if (extras & kWorkspace) {
      if (extras & kOffset) {
        of_library.emplace(device_, bytes, hold);
        to = held;
      } else {
        to = workspace.emplace(device_, bytes).data();
      }
      check(stream.graphs().memset(stream.handle(), to, 0, bytes), "clear a workspace");
      check(stream.api().copy(stream.handle(), to, step.address(1), bytes), "copy a cache");
    }
    axpy(static_cast<float>(factor), tokens, to, count);
    const std::int64_t first = extras & kOffset ? 3 : 0;  // offsets from the bound addresses
    axpy(1, static_cast<float*>(step.address(2)) + first, static_cast<float*>(to) + first,
         count - first);
    if (first > 0) axpy(1, step.address(2), to, first);
    axpy(1, step.address(3), to, count);
    if (extras & kWorkspace)
      check(stream.api().copy(stream.handle(), step.address(1), to, bytes), "copy it back");
  }
  // Returns a copy of the tokens in memory that the step leaves allocated.
  const void* left_behind(const Step& step, std::int64_t count) {
    const StreamRef stream = current_stream();
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(count);
    check(stream.graphs().allocate_in_order(stream.handle(), bytes, &left), "allocate");
    check(stream.api().copy(stream.handle(), left, step.address(0), bytes), "copy the tokens");
    return left;
  }
  // As the engine must do: see StepsOptions::keeps_allocations.
  void free_left(StreamRef stream) {
    void* const memory = std::exchange(left, nullptr);
    if (memory != nullptr) check(stream.graphs().free_in_order(stream.handle(), memory), "free");
  }
  void work_on(Session& session, const std::vector<float>& tokens, int extras) const {
    const auto factor = static_cast<float>(extras & kOwnGuard ? *session.own : *factor_);
    for (std::size_t i = 0; i < session.model.size(); ++i)
      session.model[i] += factor * tokens[i] + session.rope_model[i] + weights_model[i];
  }
  // Changes the decision of one session, or that of all sessions (null).
  void decide_otherwise(Session* session) {
    int& decision = session == nullptr ? *factor_ : *session->own;
    decision = decision % 3 + 1;
  }

 private:
  const Device device_;
  const std::shared_ptr<int> factor_ = std::make_shared<int>(1);
  Tensor arena_;

 public:
  const std::vector<float> weights_model = std::vector<float>(kMost, 2);
  const Tensor weights;
  Steps steps;
  std::array<Session, kSessions> sessions;
  const Session* last = nullptr;  // the last session that replayed
  void* left = nullptr;           // allocated by the last run
};

}  // namespace

void World::session(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  Sessions& engine = with.family<Sessions>();
  std::mt19937 random(operation.choice + 256u * operation.x + 2048u * operation.y);
  const int extras = operation.to % 8 + (random() % 4 == 0 ? kLeaves : 0);
  settle();
  for (Session& session : engine.sessions) {
    if (random() % 8 == 0) engine.renew(session, random() % 4 == 0 ? kMost / 2 : kMost, 1, with);
    Sessions::set(session, static_cast<float>(static_cast<int>(next_value()) % 64));
  }
  std::vector<std::pair<Tensor, std::vector<float>>> tokens;
  const int calls = 1 + static_cast<int>(random() % 6);
  for (int i = 0; i < calls; ++i) {
    tokens.emplace_back(Tensor(), std::vector<float>(kMost, static_cast<float>(i + 1)));
    tokens[i].first = from_host({kMost}, std::span<const float>(tokens[i].second), device_);
  }
  StreamRef before;
  for (const auto& [given, model] : tokens) {  // only the caller waits between the calls
    Session& session = engine.sessions[random() % kSessions];
    if (random() % 6 == 0) engine.decide_otherwise(random() % 2 == 0 ? &session : nullptr);
    const auto part = [&](const Tensor& tensor) -> Binding {
      return {tensor.data(), sizeof(float) * static_cast<std::size_t>(session.count)};
    };
    const Binding bindings[] = {part(given),
                                part(session.cache),
                                part(session.rope),
                                {engine.weights.data(), engine.weights.bytes()}};
    const StreamRef caller = random() % 2 == 0 ? caller_of(operation) : StreamRef();
    const StreamRef on = caller ? caller : with.context().stream();
    if (before && before != on) on.wait_for(before);
    before = on;
    ++with.calls;
    ++totals_.calls;
    try {
      const Key key{{"extras", extras}};
      Step step = engine.steps.begin(key, bindings, caller);
      if (!step.must_run() && engine.last != &session)
        ++totals_.done["a recording is replayed for another session"];
      while (step.must_run()) {
        const bool is_captured = step.is_captured();
        engine.work(step, session, extras);
        step.end();
        if (is_captured && step.must_run()) engine.left = nullptr;  // the capture failed
        if (!is_captured) engine.free_left(with.context().stream());
      }
      if (engine.left != nullptr && step.outcome() == Outcome::kRunEagerly) {
        engine.free_left(with.context().stream());
        ++totals_.done["a graph that is launched once leaves memory"];
      }
      if (engine.left != nullptr) ++totals_.done["a recording leaves memory"];
      engine.left = nullptr;
      if (step.replayed()) engine.last = &session;
    } catch (const OutOfMemory&) {
      engine.left = nullptr;
      if (!program_.has(Feature::kBudgets)) throw;
      ++totals_.refused;
      settle();
      return;
    }
    engine.work_on(session, model, extras);
  }
  settle();
  for (const Session& session : engine.sessions) {
    const std::vector<float> values = session.cache.to_vector<float>();
    if (values == session.model) continue;
    throw Difference(fmt::format("the cache of session {} has {}, not {}",
                                 &session - engine.sessions.data(), values[0], session.model[0]));
  }
}

}  // namespace cgtree::testing
