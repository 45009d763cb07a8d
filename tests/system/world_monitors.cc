// World: upkeep, and the data that monitors read.
#include "tests/system/world.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "extensions/watch/monitor.h"
#include "tests/support/inside.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {

// Actions of a server between calls.
void World::tend(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  switch (operation.y % 7) {
    case 0:
      static_cast<void>(with.context().trim(/*to_device=*/operation.choice % 2 == 0));
      break;
    case 6: {
      const Variable& x = variables_[static_cast<std::size_t>(operation.x) % kVariables];
      if (!x.tensor.defined()) break;
      static_cast<void>(with.context().invalidate(reinterpret_cast<const void*>(x.tensor.address()),
                                                  x.tensor.bytes()));
      break;
    }
    case 4:
      static_cast<void>(with.context().release_memory());
      break;
    case 5: {
      const WorldContext::Function& chain = with.function(Deed::kChain);
      if (chain.is_frozen()) {
        chain.unfreeze();
      } else {
        chain.freeze();
      }
      break;
    }
    case 1:
      cgtree::testing::validate(with.context());
      break;
    case 2:
      watch(with);
      break;
    default: {
      const Variable x = ready(operation.x);
      const auto& chain = with.function(Deed::kChain);
      const std::optional<CallOutcome> last = chain.last_outcome();
      const Explanation why = chain.explain({&x.tensor, 1});
      const bool has_failed = last && last->outcome == Outcome::kThrow;
      if (why.outcome != Outcome::kReplay && has_failed && why.last_failure.empty())
        throw Difference("explain() does not say what the last call threw");
      if (why.outcome != Outcome::kReplay && advice(why).empty())
        throw Difference("explain() has no advice: " + to_string(why));
    }
  }
}

// Compares metrics and snapshot, read on another thread, with the calls of the program.
void World::watch(WorldContext& with) {
  std::string page, snapshot;
  std::thread([&] {
    page = metrics_text(with.context());
    snapshot = snapshot_json(with.context());
  }).join();
  std::uint64_t calls = 0, nested = 0, replays = 0;
  std::int64_t unexplained = 0;  // warm-ups and recordings without a cause
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    const auto is = [&](std::string_view part) { return line.find(part) != std::string::npos; };
    if (line.front() == '#') continue;
    const std::uint64_t value = std::stoull("0" + line.substr(line.rfind(' ') + 1));
    if (is("cgtree_calls_total{")) calls += value;
    if (is("cgtree_calls_total{") && is("outcome=\"replay\"")) replays += value;
    if (is("cgtree_skips_total{") && is("reason=\"nested_call\"")) nested += value;
    if (is("cgtree_calls_total{") && (is("outcome=\"warm_up\"") || is("outcome=\"record\"")))
      unexplained += static_cast<std::int64_t>(value);
    if (is("cgtree_warm_ups_total{") || is("cgtree_recordings_total{"))
      unexplained -= static_cast<std::int64_t>(value);
  }
  if (calls - nested != with.calls) {
    throw Difference(fmt::format("metrics count {} calls, {} of them nested, where {} were made",
                                 calls, nested, with.calls));
  }
  if (unexplained != 0) {
    throw Difference(fmt::format(
        "metrics have a cause for {} warm-ups and recordings less than there were", unexplained));
  }
  // A snapshot has only the functions that exist.
  std::uint64_t calls_there = 0, replays_there = 0;
  const nlohmann::json functions = nlohmann::json::parse(snapshot)["functions"];
  for (const nlohmann::json& function : functions) {
    calls_there += function["calls"].get<std::uint64_t>();
    replays_there += function["replays"].get<std::uint64_t>();
  }
  if (calls_there != calls - with.ended_calls || replays_there != replays - with.ended_replays) {
    throw Difference(fmt::format(
        "a snapshot has {} calls and {} replays, where there were {} and {}", calls_there,
        replays_there, calls - with.ended_calls, replays - with.ended_replays));
  }
}

// Memory of a recording is undeclared while another thread is inside the context; that thread stays
// until a call waits for it.
void World::inspect(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  WorldOperation what = without_fault(operation);
  what.deed = Deed::kTable;
  what.y = 0;
  settle();
  with.move_table(next_value(), /*declares=*/true);
  for (int i = 0; i < 3; ++i)
    call(what);
  const nlohmann::json snapshot = nlohmann::json::parse(snapshot_json(with.context()));
  if (snapshot["nodes"].empty()) return;
  const auto node = snapshot["nodes"].back()["id"].get<std::uint32_t>();
  const auto& function = with.function(Deed::kTable);
  const auto is_replay = [&] {
    const auto outcome = function.last_outcome();
    return outcome && outcome->outcome == Outcome::kReplay;
  };
  if (!is_replay()) return;
  const std::string path = fmt::format("{}/world_{}.dot", ::testing::TempDir(), ::getpid());
  static_cast<void>(::unlink(path.c_str()));
  if (::mkfifo(path.c_str(), 0600) != 0) throw Difference("no pipe can be made");
  settle();
  constexpr std::chrono::milliseconds kPause(3);
  std::atomic<bool> has_left = false;
  std::thread inspector([&] {
    try {
      with.context().write_dot(node, path);
    } catch (const Error&) {
    }
    has_left = true;
  });
  std::this_thread::sleep_for(kPause);
  with.undeclare_table();
  std::thread reader([&] {
    std::this_thread::sleep_for(kPause);
    const int pipe = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
    char chunk[512];
    while (!has_left || ::read(pipe, chunk, sizeof(chunk)) > 0)
      static_cast<void>(!::read(pipe, chunk, sizeof(chunk)));
    ::close(pipe);
  });
  std::exception_ptr thrown;
  try {
    call(what);
  } catch (...) {
    thrown = std::current_exception();
  }
  inspector.join();
  reader.join();
  static_cast<void>(::unlink(path.c_str()));
  ++totals_.done["memory goes while another thread is inside"];
  if (thrown) std::rethrow_exception(thrown);
  if (is_replay()) throw Difference("a recording is replayed whose memory is declared no more");
}

}  // namespace cgtree::testing
