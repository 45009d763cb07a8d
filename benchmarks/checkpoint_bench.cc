// Tests whether contexts survive a suspended GPU: cuCheckpointProcessCheckpoint() and Restore().
//
// For each kind of context a separate process records, replays, enqueues replays without waiting
// for their end, and reports that it is ready. This process has the driver lock it, move its device
// memory to the host, move it back and unlock it, and measures both. Then the other process
// compares, bit for bit: held outputs, the replays that were in flight, new replays of the same
// inputs, and of new ones; and counts new recordings, which must be zero. Prints JSON; exits with 1
// if anything differs. Needs a GPU and a driver of 12.8 or later.
//
//   checkpoint_bench [--json=FILE]
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "cgtree/cgtree.h"
#include "extensions/scopes/scope.h"
#include "extensions/watch/monitor.h"
#include "extensions/watch/watch.h"
#include "interop/device/device_api.h"
#include "tests/support/steps.h"

namespace cgtree::benchmarks {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;
using Floats = std::vector<float>;

constexpr std::int64_t kCount = 1 << 20;  // floats of an input
constexpr std::size_t kInputs = 4;
constexpr int kInFlight = 200;
constexpr const char* kReady = "ready\n";

ContextOptions options_of(const std::string& kind) {
  ContextOptions options{.name = kind};
  if (kind == "grows in place") options.pools_grow_in_place = true;
  if (kind == "timed and watched") options.extensions = {watch({.time_every_nth_replay = 2})};
  return options;
}

// A Serving is the state of the suspended process: a function with a copied input, a static input
// and an input that is copied back, and the earlier results of replays.
class Serving {
 public:
  explicit Serving(const std::string& kind)
      : context_(Device::best(), options_of(kind)),
        step_(compile(context_, "step",
                      [](Tensor x, Tensor weights, Tensor state) {
                        const Scope scope("layer");
                        const Tensor y = testing::add(testing::affine(x, 2, 1), weights);
                        testing::update(state, 1, 1);
                        return testing::add(y, state);
                      },
                      {.inputs = {{}, {.is_static = true}, {.is_mutated = true}}})) {
    if (kind == "timed and watched") {
      watch_progress(context_, std::make_shared<ProgressWatch>(ProgressOptions{
                                   .every_nth_replay = 2, .time_limit = {}, .times_scopes = true}));
    }
    weights_ = tensor(random());
    state_ = tensor(random());
    for (std::size_t i = 0; i < kInputs; ++i)
      inputs_.push_back(tensor(random()));
    for (int call = 0; call < 4; ++call)
      (void)replay(inputs_[0]);
    for (const Tensor& input : inputs_)
      before_.push_back(replay(input));
    held_ = step_(inputs_[1], weights_, tensor(before_state_));
    (void)step_(inputs_[2], weights_, tensor(before_state_));  // while an output is held
    context_.synchronize();
  }

  // Enqueues replays, each of which adds to the result of the one before.
  void begin() {
    stats_ = context_.stats();
    for (int call = 0; call < kInFlight; ++call)
      (void)step_(inputs_[0], weights_, state_);
  }

  // Returns the differences from before.
  Json compare() {
    context_.synchronize();
    Json found;
    Floats in_flight = before_state_;
    for (float& value : in_flight)
      for (int call = 0; call < kInFlight; ++call)
        value = value * 1 + 1;
    found["in_flight_differ"] = values(state_) != in_flight;
    found["held_differ"] = values(held_) != before_[1];
    int differing = 0;
    for (std::size_t i = 0; i < kInputs; ++i)
      differing += replay(inputs_[i]) != before_[i];
    found["replays_that_differ"] = differing;
    const ContextStats now = context_.stats();
    found["replays"] = now.replays - stats_.replays;
    found["recorded_anew"] = now.recordings - stats_.recordings;
    found["failures"] = now.failures - stats_.failures;
    const Tensor shorter = from_host({3}, std::span<const float>(Floats{1, 2, 3}), device());
    const Tensor zero = from_host({3}, std::span<const float>(Floats{0, 0, 0}), device());
    const Tensor one = from_host({3}, std::span<const float>(Floats{0, 0, 0}), device());
    bool new_size_differs = false;
    for (int call = 0; call < 3; ++call) {  // warms up, records and replays
      one.copy_from(std::span<const float>(Floats{0, 0, 0}));
      new_size_differs |= values(step_(shorter, zero, one)) != Floats{4, 6, 8};
    }
    found["new_size_differs"] = new_size_differs;
    const bool is_same = !found["in_flight_differ"].get<bool>() &&
                         !found["held_differ"].get<bool>() && differing == 0 &&
                         found["recorded_anew"] == 0 && found["failures"] == 0 && !new_size_differs;
    found["is_same"] = is_same;
    return found;
  }

 private:
  Device device() const { return context_.device(); }
  Floats random() {
    Floats made(kCount);
    for (float& value : made)
      value = static_cast<float>(random_() % 1024);
    return made;
  }
  Tensor tensor(const Floats& from) const {
    return from_host({static_cast<std::int64_t>(from.size())}, std::span(from), device());
  }
  Floats values(const Tensor& of) const {
    context_.synchronize();
    Floats read(static_cast<std::size_t>(of.dim(0)));
    of.copy_to_host(read.data(), read.size() * sizeof(float));
    return read;
  }
  // Replays from the same state each time.
  Floats replay(const Tensor& input) {
    if (before_state_.empty()) before_state_ = values(state_);
    return values(step_(input, weights_, tensor(before_state_)));
  }

  mutable Context context_;
  CompiledFunction<Tensor(Tensor, Tensor, Tensor)> step_;
  std::mt19937 random_{std::random_device()()};
  Tensor weights_;
  Tensor state_;
  Floats before_state_;
  std::vector<Tensor> inputs_;
  std::vector<Floats> before_;
  Tensor held_;
  ContextStats stats_;
};

// The suspended process: standard input tells it to continue.
int serve(const std::string& kind) {
  Serving serving(kind);
  serving.begin();
  std::cout << kReady << std::flush;
  std::string line;
  if (!std::getline(std::cin, line)) return 1;
  std::cout << serving.compare().dump() << "\n" << std::flush;
  return 0;
}

// The driver has the functions, but suspends no process on this system.
class NotSupported : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

// The functions of the driver, each of which takes a process and optional options.
class Checkpoints {
 public:
  // Throws InvalidArgument if there is no driver, or it lacks the functions.
  Checkpoints() : driver_(dlopen("libcuda.so.1", RTLD_NOW)) {
    const auto init = reinterpret_cast<int (*)(unsigned)>(find("cuInit"));
    if (const int code = init(0); code != 0) refuse("cuInit", code);
  }

  // Returns the milliseconds of the call. Throws NotSupported, and InvalidArgument with the code.
  double call(const char* name, pid_t process) {
    const auto function = reinterpret_cast<int (*)(int, void*)>(find(name));
    const auto begin = Clock::now();
    const int code = function(process, nullptr);
    if (code != 0) refuse(name, code);
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

 private:
  [[noreturn]] static void refuse(const char* name, int code) {
    const std::string text = fmt::format("{} has returned {}", name, code);
    if (code == static_cast<int>(Code::kNotSupported)) throw NotSupported(text);
    throw InvalidArgument(text);
  }
  void* find(const char* name) {
    void* const found = driver_ == nullptr ? nullptr : dlsym(driver_, name);
    if (found != nullptr) return found;
    throw InvalidArgument(fmt::format("no driver that has {}: it needs CUDA 12.8", name));
  }

  void* const driver_;
};

// A Child is another process of this program, with pipes to it and from it.
class Child {
 public:
  explicit Child(const std::string& kind) {
    std::array<int, 2> to, from;
    if (::pipe(to.data()) != 0 || ::pipe(from.data()) != 0) throw InvalidArgument("no pipes");
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(to[0], STDIN_FILENO);
      ::dup2(from[1], STDOUT_FILENO);
      for (const int end : {to[0], to[1], from[0], from[1]})
        ::close(end);
      ::execl("/proc/self/exe", "checkpoint_bench", "--serve", kind.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(to[0]);
    ::close(from[1]);
    to_ = ::fdopen(to[1], "w");
    from_ = ::fdopen(from[0], "r");
  }
  ~Child() {
    std::fclose(to_);
    std::fclose(from_);
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t process() const { return process_; }
  void go_on() {
    std::fputs("go on\n", to_);
    std::fflush(to_);
  }
  // Throws InvalidArgument if the process has ended.
  std::string read_line() {
    std::array<char, 4096> line;
    if (std::fgets(line.data(), line.size(), from_) == nullptr)
      throw InvalidArgument("the process that was to be suspended has ended");
    return line.data();
  }

 private:
  pid_t process_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

double free_mib() {
  const Device device = Device::best();
  const AttributeValue value =
      device_api(device).attribute(device.id, DeviceAttribute::kFreeMemory);
  const auto* const bytes = std::get_if<std::int64_t>(&value);
  return bytes == nullptr ? 0 : static_cast<double>(*bytes) / (1 << 20);
}

Json suspend(Checkpoints& checkpoints, const std::string& kind) {
  Json row{{"kind", kind}};
  try {
    const double before = free_mib();
    Child child(kind);
    while (child.read_line() != kReady) {
    }
    row["used_mib"] = before - free_mib();
    row["lock_ms"] = checkpoints.call("cuCheckpointProcessLock", child.process());
    row["checkpoint_ms"] = checkpoints.call("cuCheckpointProcessCheckpoint", child.process());
    row["used_mib_while_suspended"] = before - free_mib();
    row["restore_ms"] = checkpoints.call("cuCheckpointProcessRestore", child.process());
    row["unlock_ms"] = checkpoints.call("cuCheckpointProcessUnlock", child.process());
    row["used_mib_after"] = before - free_mib();
    child.go_on();
    row.update(Json::parse(child.read_line()));
  } catch (const NotSupported&) {
    throw;
  } catch (const std::exception& error) {
    row["error"] = error.what();
    row["is_same"] = false;
  }
  return row;
}

int run(const std::string& file) {
  Json all{{"device", to_string(Device::best())}, {"rows", Json::array()}};
  bool are_same = true;
  if (Device::best().type != DeviceType::kCuda) {
    all["left_out"] = "there is no GPU: the host device has no memory that a driver could suspend";
  } else {
    try {
      Checkpoints checkpoints;
      for (const char* kind : {"plain", "grows in place", "timed and watched"}) {
        all["rows"].push_back(suspend(checkpoints, kind));
        are_same = are_same && all["rows"].back()["is_same"].get<bool>();
      }
    } catch (const InvalidArgument& error) {
      all["left_out"] = error.what();
    }
  }
  const std::string text = all.dump(1) + "\n";
  if (!file.empty()) std::ofstream(file) << text;
  std::cout << text;
  return are_same ? 0 : 1;
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  constexpr std::string_view kJson = "--json=";
  if (arguments.size() == 2 && arguments[0] == "--serve") {
    return cgtree::benchmarks::serve(arguments[1]);
  }
  if (arguments.empty()) return cgtree::benchmarks::run("");
  if (arguments.size() == 1 && arguments[0].starts_with(kJson)) {
    return cgtree::benchmarks::run(arguments[0].substr(kJson.size()));
  }
  std::cerr << "usage: checkpoint_bench [--json=FILE]\n";
  return 2;
}
