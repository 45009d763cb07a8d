// Cost for an engine of a separate KV cache for each session. Sessions of a Llama model alternate
// in steps of one token: eagerly, with a recording for each session, with one executable graph for
// alike recordings, and with one recording for all sessions.
//
// The engine owns all memory: each session's row and cache, and one arena for the allocations of a
// step. Every step is a switch, because the session before was another one, unless there is a
// single session.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/serve/options.h"
#include "benchmarks/serve/report.h"
#include "cgtree/cgtree.h"
#include "examples/serve/model.h"
#include "examples/serve/numbers.h"
#include "interop/device/device.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/outside_of_steps.h"

namespace cgtree::serve {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int kCheckedTurns = 6;  // of all sessions; their tokens are compared

struct SessionOptions {
  std::string device = "auto";
  std::string model = "1b";
  std::vector<int> sessions = {1, 4, 16, 64, 256};
  std::int64_t context = 1024;  // positions in a cache already
  int steps = 512;              // of each measurement, at least a turn of all sessions
  std::string json;
  std::string commit;
};

enum class Mode { kEager, kRecordingEach, kSharedExec, kPerSession };

constexpr std::pair<Mode, const char*> kModes[] = {{Mode::kEager, "eager"},
                                                   {Mode::kRecordingEach, "recording each"},
                                                   {Mode::kSharedExec, "shared exec"},
                                                   {Mode::kPerSession, "per session"}};

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// An Arena is the scratch memory of an engine: the i-th allocation of each step is the same memory.
class Arena final : public StorageAllocator {
 public:
  explicit Arena(Device device) : device_(device) {}

  void start_step() noexcept { next_ = blocks_.begin(); }

  // StorageAllocator.
  StorageRef allocate(std::size_t bytes) override {
    if (next_ != blocks_.end()) return *next_++;
    const OutsideOfSteps outside;
    const Shape shape{static_cast<std::int64_t>(bytes)};
    blocks_.push_back(empty(shape, DType::kUInt8, device_).storage());
    return blocks_.back();
  }
  Device device() const noexcept override { return device_; }

 private:
  const Device device_;
  std::list<StorageRef> blocks_;
  std::list<StorageRef>::iterator next_ = blocks_.end();
};

struct Session {
  Tensor row;    // token, position, blocks of the cache
  Tensor cache;  // keys and values
};

class Bench {
 public:
  Bench(const SessionOptions& options, Device device)
      : options_(options),
        model_(named_config(options.model), Shard(),
               random_weights(named_config(options.model), Shard(), 1, device),
               options.context / kBlockSize * kBlockSize + kBlockSize),
        stream_(device, StreamKind::kNonBlocking),
        arena_(device) {
    enqueue(make_session(0));  // the arena has all memory of a step from here on
    stream_.synchronize();
  }

  // The tokens of all sessions and turns go to `*tokens`.
  Json measure(int count, Mode mode, std::vector<std::int32_t>* tokens) {
    sessions_.clear();
    for (int i = 0; i < count; ++i)
      sessions_.push_back(make_session(i));
    Context context(model_.device());
    const bool is_per_session = mode == Mode::kPerSession;
    Steps steps(
        context, "decode",
        {.bindings = {{.name = "row", .is_mutated = true, .is_per_session = is_per_session},
                      {.name = "cache", .is_mutated = true, .is_per_session = is_per_session}},
         .enabled = mode != Mode::kEager,
         .max_switch_nodes = mode == Mode::kSharedExec ? 10'000U : 0U,
         .max_recordings = 1024});
    for (int turn = 0; turn < kCheckedTurns; ++turn) {
      for (const Session& session : sessions_)
        step(steps, session);
      stream_.synchronize();
      for (const Session& session : sessions_)
        tokens->push_back(session.row.slice(1, 0, 1).to_vector<std::int32_t>()[0]);
    }
    if (mode != Mode::kEager) warm_up(steps);
    const FunctionStats before = steps.stats();
    Json row = time(steps, count);
    const FunctionStats stats = steps.stats();
    row["replayed"] = static_cast<double>(stats.replays - before.replays) /
                      static_cast<double>(stats.calls - before.calls);
    row["recordings"] = stats.kept_recordings;
    row["captured"] = stats.recordings;
    row["graph_bytes"] = context.stats().graph_bytes;
    row["stats"] = to_string(stats);
    return row;
  }

 private:
  // Session `i`, whose tokens and cache differ from those of the others.
  Session make_session(int i) const {
    const std::int64_t blocks = model_.context() / kBlockSize;
    std::vector<std::int32_t> row = {i + 1, static_cast<std::int32_t>(options_.context)};
    for (std::int64_t block = 0; block < blocks; ++block)
      row.push_back(static_cast<std::int32_t>(block));
    const Tensor cache = model_.make_kv_cache(blocks);
    const std::int64_t columns = cache.elements() / cache.dim(0);
    fill_uniform(stream_, cache.reshape({cache.dim(0), columns}),
                 {.seed = static_cast<std::uint64_t>(i) + 2, .columns = columns}, 0, 1);
    return {from_host<std::int32_t>({1, 2 + blocks}, row, model_.device()), cache};
  }

  void enqueue(const Session& session) {
    arena_.start_step();
    const AllocatorScope memory(arena_);
    const StreamScope scope(stream_);
    const Tensor logits = model_.decode(session.row, session.cache, nullptr);
    const Tensor next = model_.choose_tokens(logits, 0, Generator(), nullptr);
    copy_elements(stream_, session.row.slice(1, 0, 1), next.reshape({1, 1}));
  }

  void step(Steps& steps, const Session& session) {
    const Binding bindings[] = {
        {reinterpret_cast<const void*>(session.row.address()), session.row.bytes()},
        {reinterpret_cast<const void*>(session.cache.address()), session.cache.bytes()}};
    for (Step one = steps.begin({}, bindings, stream_); one.must_run(); one.end())
      enqueue(session);
  }

  // Alternates sessions until a round has only replays, or no more recordings are made.
  void warm_up(Steps& steps) {
    constexpr int kMostTurns = 40;
    for (int turn = 0; turn < kMostTurns; ++turn) {
      const std::uint64_t replays = steps.stats().replays;
      for (const Session& session : sessions_)
        step(steps, session);
      if (steps.stats().replays == replays + sessions_.size()) break;
    }
    stream_.synchronize();
  }

  // Adds the host time of a step with few others queued, and the time of a step in a turn of all
  // sessions.
  Json time(Steps& steps, int count) {
    constexpr int kQueued = 16;  // steps, few enough that no launch waits for the device
    std::vector<double> host, whole;
    for (int done = 0; done < options_.steps; done += count) {
      const auto begin = Clock::now();
      for (const Session& session : sessions_)
        step(steps, session);
      stream_.synchronize();
      whole.push_back(microseconds(Clock::now() - begin) / count);
    }
    for (int done = 0; done < options_.steps; done += kQueued) {
      const auto begin = Clock::now();
      for (int i = done; i < done + kQueued; ++i)
        step(steps, sessions_[static_cast<std::size_t>(i % count)]);
      host.push_back(microseconds(Clock::now() - begin) / kQueued);
      stream_.synchronize();
    }
    Json row = {{"sessions", count}};
    const auto add = [&](const char* name, std::vector<double> values) {
      std::sort(values.begin(), values.end());
      row[fmt::format("{}_us", name)] = values[values.size() / 2];
      row[fmt::format("{}_min_us", name)] = values.front();
      row[fmt::format("{}_p90_us", name)] = values[values.size() * 9 / 10];
    };
    add("step", std::move(whole));
    add("host", std::move(host));
    return row;
  }

  SessionOptions options_;
  Model model_;
  const Stream stream_;
  Arena arena_;
  std::vector<Session> sessions_;
};

int run(const SessionOptions& options, const std::string& command) {
  const Device device = parse_device(options.device);
  const DeviceFacts facts = device_facts(device);
  Json json = {{"context",
                {{"device", to_string(device)},
                 {"gpu", facts.name},
                 {"driver", facts.driver},
                 {"command", command},
                 {"commit", options.commit},
                 {"model", options.model},
                 {"context", options.context}}},
               {"rows", Json::array()}};
  Bench bench(options, device);
  bool is_right = true;
  fmt::print("sessions  mode               step us    host us  recordings  graphs MiB  tokens\n");
  for (const int count : options.sessions) {
    std::vector<std::int32_t> expected;
    for (const auto& [mode, name] : kModes) {
      std::vector<std::int32_t> tokens;
      Json row = bench.measure(count, mode, &tokens);
      if (mode == Mode::kEager) expected = tokens;
      row["mode"] = name;
      row["tokens"] = tokens.size();
      row["tokens_equal"] = tokens == expected;
      is_right = is_right && tokens == expected;
      fmt::print("{:>8}  {:<16}{:>10.1f} {:>10.1f} {:>11} {:>11.1f}  {}\n", count, name,
                 row["step_us"].get<double>(), row["host_us"].get<double>(),
                 row["recordings"].get<int>(), row["graph_bytes"].get<double>() / (1 << 20),
                 tokens == expected ? "equal" : "WRONG");
      json["rows"].push_back(std::move(row));
      // After each row, because a run may be interrupted.
      if (!options.json.empty()) write_whole(from_caller(options.json), json.dump(2) + "\n");
    }
  }
  return is_right ? 0 : 1;
}

}  // namespace
}  // namespace cgtree::serve

int main(int argc, char** argv) {
  cgtree::serve::SessionOptions options;
  CLI::App app("How much does an engine pay for a KV cache for each session?");
  app.option_defaults()->always_capture_default();
  app.add_option("--device", options.device, "auto, host, cuda or cuda:N");
  app.add_option("--model", options.model)->check(CLI::IsMember({"tiny", "1b", "8b"}));
  app.add_option("--sessions", options.sessions, "that take turns")->check(CLI::Range(1, 4096));
  app.add_option("--context", options.context, "positions in a KV cache already")
      ->check(CLI::Range(1, 131'071));
  app.add_option("--steps", options.steps, "of each measurement")->check(CLI::Range(1, 1'000'000));
  app.add_option("--json", options.json, "file to write the results to");
  app.add_option("--commit", options.commit, "named in the results");
  CLI11_PARSE(app, argc, argv);
  try {
    return cgtree::serve::run(options, fmt::format("{}", fmt::join(argv, argv + argc, " ")));
  } catch (const std::exception& error) {
    fmt::print(stderr, "sessions_bench: {}\n", error.what());
    return 1;
  }
}
