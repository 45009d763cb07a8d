// Tests that the ranks of a group stay together after any failure of one of them.
//
// Each rank, a thread with a separate device, decodes: a step of a few kernels and an all-reduce,
// whose batch varies. At random steps a rank lacks memory, cannot capture, throws, is slow, or
// exceeds the time limit. The program compares the outcomes of each step on all ranks, and each
// value with its model, and ends with a rank that dies. Exit code 0: no step differed, and none
// hung.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/support/kernels.h"
#include "cgtree/cgtree.h"
#include "extensions/ranks/collectives.h"
#include "extensions/ranks/communicator.h"
#include "extensions/ranks/group.h"
#include "extensions/ranks/nccl_collectives.h"
#include "interop/device/device_api.h"
#include "interop/tensor/copy.h"

namespace cgtree::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

enum class Fault { kNone, kNoMemory, kNoCapture, kThrow, kSlow };
constexpr std::array<const char*, 5> kFaultNames = {"none", "no_memory", "no_capture", "throw",
                                                    "slow"};
constexpr std::int64_t kWidth = 256;  // floats of a row

struct SoakOptions {
  std::string device = "auto";
  int ranks = 2;
  int steps = 10'000;
  unsigned seed = 1;
  int limit_ms = 5'000;  // of votes
  std::string json;
  std::string commit;
};

// State that all ranks share.
struct Soak {
  SoakOptions options;
  Device device;
  std::vector<std::unique_ptr<Collectives>> ends;
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<std::string> told;           // by rank: the outcome of each step, one word each
  std::vector<std::string> death;          // by rank: the result of another rank's death
  std::vector<double> seconds_until_told;  // by rank
  std::atomic<int> wrong_values{0};
  std::array<std::atomic<int>, 5> faults{};  // faults so far, by Fault
};

std::string word_of(const std::optional<CallOutcome>& outcome) {
  if (!outcome || outcome->outcome == Outcome::kThrow) return "threw";
  if (outcome->skip_reason) return std::string(name(*outcome->skip_reason));
  constexpr std::array<const char*, 5> kNames = {"replay", "record", "warm_up", "run", "throw"};
  return kNames[static_cast<std::size_t>(outcome->outcome)];
}

class SoakedRank {
 public:
  SoakedRank(Soak& soak, int rank)
      : soak_(soak),
        rank_(rank),
        random_(soak.options.seed),
        collectives_(std::move(soak.ends[static_cast<std::size_t>(rank)])),
        group_(std::move(soak.groups[static_cast<std::size_t>(rank)])),
        stream_(collectives_->device()) {}

  void run() {
    // Contexts are replaced: each has different limits, and begins without recordings.
    constexpr int kStepsOfContext = 250;
    for (int step = 0; step < soak_.options.steps; step += kStepsOfContext)
      run_context(std::min(kStepsOfContext, soak_.options.steps - step));
    die();
  }

 private:
  unsigned draw(unsigned below) { return static_cast<unsigned>(random_() % below); }

  Tensor tensor(std::int64_t rows) {
    values_.assign(static_cast<std::size_t>(rows * kWidth), 0);
    for (float& value : values_)
      value = static_cast<float>(draw(16));
    std::vector<float> own = values_;
    for (float& value : own)
      value += static_cast<float>(rank_);
    Tensor x = empty({rows, kWidth}, DType::kFloat32, collectives_->device());
    x.copy_from_host(own.data(), x.bytes(), stream_);
    collectives_->synchronize(stream_);  // `own` ends
    return x;
  }

  // y = the sum of all ranks' x.
  CompiledFunction<Tensor(Tensor)> compile_step(Context& context, Communicator& communicator) {
    return compile(context, "decode", [this, &communicator](Tensor x) {
      const StreamRef stream = current_stream();
      Tensor y = empty(x.shape(), DType::kFloat32);
      copy(y, x, stream);
      const Tensor scratch = empty({1}, DType::kFloat32);
      for (int i = 0; i < 2 * (rank_ + 1); ++i)  // graphs of different sizes
        launch_trivial_kernel(stream, scratch.data<float>());
      const bool captures = stream.is_capturing();
      if (fault_ == Fault::kSlow) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      if (captures && fault_ != Fault::kNone && fault_ != Fault::kSlow) {
        ++soak_.faults[static_cast<std::size_t>(fault_)];
        if (fault_ == Fault::kNoMemory) throw OutOfMemory("injected");
        if (fault_ == Fault::kThrow) throw std::runtime_error("injected");
        (void)stream.api().synchronize_stream(stream.handle());
      }
      communicator.all_reduce(y);
      return y;
    });
  }

  void run_context(int steps) {
    ContextOptions options;
    options.group = group_;
    options.at_limit = static_cast<AtLimit>(draw(2));
    options.max_recordings = 2 + draw(8);
    if (draw(4) == 0) options.max_recording_time = std::chrono::milliseconds(20);
    Context context(collectives_->device(), options);
    Communicator communicator(context, collectives_);
    CompiledFunction decode = compile_step(context, communicator);
    std::string& told = soak_.told[static_cast<std::size_t>(rank_)];
    const StreamScope scope(stream_);
    for (int step = 0; step < steps; ++step) {
      context.mark_step();
      const Tensor x = tensor(1 + draw(12));
      const auto fault = draw(8) == 0 ? static_cast<Fault>(1 + draw(4)) : Fault::kNone;
      const bool is_mine =
          static_cast<int>(draw(static_cast<unsigned>(soak_.options.ranks))) == rank_;
      fault_ = is_mine ? fault : Fault::kNone;
      if (fault_ == Fault::kSlow) ++soak_.faults[static_cast<std::size_t>(fault_)];
      try {
        check(decode(x));
      } catch (const OutOfMemory&) {
      } catch (const GroupError& error) {
        if (error.message().find("injected") == std::string_view::npos) throw;
      }
      fault_ = Fault::kNone;
      told += word_of(decode.last_outcome()) + ' ';
    }
    told += fmt::format("{} evictions, {} kept; ", decode.stats().evictions,
                        decode.stats().kept_recordings);
  }

  void check(const Tensor& y) {
    read_.resize(values_.size());
    y.copy_to_host(read_.data(), y.bytes(), stream_);
    collectives_->synchronize(stream_);
    const int n = soak_.options.ranks;
    const auto shift = static_cast<float>(n * (n - 1) / 2);
    for (std::size_t i = 0; i < read_.size(); ++i) {
      if (read_[i] == static_cast<float>(n) * values_[i] + shift) continue;
      ++soak_.wrong_values;
      return;
    }
  }

  // The last rank dies, and the others learn of it in the next call that is not a replay.
  void die() {
    std::optional<Context> context;
    ContextOptions options;
    options.group = group_;
    context.emplace(collectives_->device(), options);
    if (rank_ == soak_.options.ranks - 1) {
      context.reset();
      options.group.reset();
      group_.reset();
      return;
    }
    CompiledFunction f = compile(*context, "f", [](Tensor x) { return x; });
    const Clock::time_point begin = Clock::now();
    std::string& death = soak_.death[static_cast<std::size_t>(rank_)];
    try {
      (void)f(tensor(1));
      death = "nothing";
    } catch (const GroupError& error) {
      death = error.message();
    }
    soak_.seconds_until_told[static_cast<std::size_t>(rank_)] =
        std::chrono::duration<double>(Clock::now() - begin).count();
  }

  Soak& soak_;
  const int rank_;
  std::mt19937 random_;  // the same numbers on all ranks
  std::shared_ptr<Collectives> collectives_;
  std::shared_ptr<Group> group_;
  Stream stream_;
  Fault fault_ = Fault::kNone;
  std::vector<float> values_;
  std::vector<float> read_;
};

std::map<std::string, int> count_words(const std::string& told) {
  std::map<std::string, int> counts;
  for (std::size_t begin = 0; begin < told.size();) {
    const std::size_t end = told.find(' ', begin);
    const std::string word = told.substr(begin, end - begin);
    if (!word.empty() && word.find_first_of("0123456789,;") == std::string::npos &&
        word != "evictions" && word != "kept") {
      ++counts[word];
    }
    begin = end == std::string::npos ? told.size() : end + 1;
  }
  return counts;
}

std::string text_of(Device device, DeviceAttribute attribute) {
  const AttributeValue value = device_api(device).attribute(device.id, attribute);
  const auto* const text = std::get_if<std::string>(&value);
  return text == nullptr ? "none" : *text;
}

// Returns the exit code.
int run(const SoakOptions& options, const std::string& command) {
  Soak soak{.options = options, .device = parse_device(options.device)};
  const auto size = static_cast<std::size_t>(options.ranks);
  if (soak.device.type == DeviceType::kCuda) {
    std::vector<Device> devices;
    for (int rank = 0; rank < options.ranks; ++rank)
      devices.push_back(Device::cuda(rank));
    soak.ends = make_nccl_collectives(devices);
  } else {
    soak.ends = make_host_collectives(options.ranks);
  }
  soak.groups = make_thread_groups(options.ranks, std::chrono::milliseconds(options.limit_ms));
  soak.told.resize(size);
  soak.death.resize(size);
  soak.seconds_until_told.resize(size);
  std::vector<std::string> errors(size);
  {
    std::vector<std::unique_ptr<SoakedRank>> ranks;
    for (int rank = 0; rank < options.ranks; ++rank)
      ranks.push_back(std::make_unique<SoakedRank>(soak, rank));
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          ranks[rank]->run();
        } catch (const std::exception& error) {
          errors[rank] = error.what();
        }
      });
    }
  }
  Json rows = Json::array();
  bool is_well = soak.wrong_values == 0;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const bool agrees = soak.told[rank] == soak.told[0] && errors[rank].empty();
    const bool is_told = rank + 1 == size || soak.death[rank].find("has left") != std::string::npos;
    is_well = is_well && agrees && is_told;
    rows.push_back({{"rank", rank},
                    {"says_what_rank_0_says", agrees},
                    {"error", errors[rank]},
                    {"steps", count_words(soak.told[rank])},
                    {"when_the_last_rank_has_left", soak.death[rank]},
                    {"seconds_until_told", soak.seconds_until_told[rank]}});
    fmt::print("rank {}: {}{}; {}\n", rank, agrees ? "as rank 0" : "OTHER THAN RANK 0",
               errors[rank].empty() ? "" : ": " + errors[rank], soak.death[rank]);
  }
  Json faults;
  for (std::size_t i = 1; i < kFaultNames.size(); ++i)
    faults[kFaultNames[i]] = soak.faults[i].load();
  fmt::print("{} steps, faults {}, wrong values {}\n", options.steps, faults.dump(),
             soak.wrong_values.load());
  if (!options.json.empty()) {
    const Json all = {{"context",
                       {{"commit", options.commit},
                        {"command", command},
                        {"device", to_string(soak.device)},
                        {"device_name", text_of(soak.device, DeviceAttribute::kName)},
                        {"driver", text_of(soak.device, DeviceAttribute::kDriverRelease)}}},
                      {"ranks", options.ranks},
                      {"steps", options.steps},
                      {"seed", options.seed},
                      {"faults", faults},
                      {"wrong_values", soak.wrong_values.load()},
                      {"rows", rows}};
    std::ofstream file(options.json);
    file << all.dump(1) << '\n';
    if (!file.flush()) throw InvalidArgument("cannot write " + options.json);
  }
  return is_well ? 0 : 1;
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  using namespace cgtree::benchmarks;
  CLI::App app("Do the ranks of a group stay together whatever fails on one of them?");
  SoakOptions options;
  app.add_option("--device", options.device, "auto, host or cuda: ranks are on its devices from 0");
  app.add_option("--ranks", options.ranks, "threads with a device each (2)")
      ->check(CLI::Range(2, 8));
  app.add_option("--steps", options.steps, "of each rank (10000)")->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "of inputs and faults (1)");
  app.add_option("--limit-ms", options.limit_ms, "of a vote (5000)")->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "also write the results to this file");
  app.add_option("--commit", options.commit, "of the source; noted in the results");
  CLI11_PARSE(app, argc, argv);
  try {
    std::string command = "ranks_soak";
    for (int i = 1; i < argc; ++i)
      command += std::string(" ") + argv[i];
    return run(options, command);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 2;
  }
}
