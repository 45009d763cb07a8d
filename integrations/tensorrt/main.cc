// Serves requests of mixed sizes with TensorRT in three modes, and prints the costs.
//
// Start reading at worker.cc. Exit status: 0 if all modes gave the same scores, 1 if they did not,
// 2 for errors.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/error.h"
#include "integrations/tensorrt/tensorrt_model.h"
#include "integrations/tensorrt/worker.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"

namespace cgtree_tensorrt {
namespace {

constexpr const char* kUsage =
    R"(usage: tensorrt_server [--NAME=VALUE]...

Builds a transformer of random weights with TensorRT, and serves the same requests, of random sizes,
in three modes: bare (enqueueV3 for each), graphs (a graph for each size, captured once and kept) and
cgtree (enqueueV3 between begin() and end()). Prints for each mode requests per second and what the
host needs to enqueue a request: for the first pass over all requests, which captures, and for the
best of the later ones. Exits with 0 if all modes gave the same scores, with 1 if they did not, and
with 2 for errors.

  --modes=bare,graphs,cgtree   the first is what the others are compared with
  --threads=1          workers, each with its own stream and execution contexts
  --requests=2000      of one pass
  --passes=3           at least 2
  --seed=1             of the sizes, the tokens and the weights
  --max_batch=16 --max_length=256 --length_step=8   sizes: lengths are multiples of the step
  --layers=4 --width=256 --heads=4 --vocabulary=1024 --classes=64   the network
  --max_recordings=1024 of each worker, on cgtree
  --verify_every=0     compares every n-th replay of each recording on cgtree with an eager run
  --library=FILE       TensorRT, by default that of the version that the program was compiled for
  --json=FILE          writes the result
)";

struct Options {
  std::vector<Mode> modes = {Mode::kBare, Mode::kGraphs, Mode::kCgtree};
  int threads = 1, requests = 2000, passes = 3, seed = 1, length_step = 8;
  int max_recordings = 1024, verify_every = 0;
  NetworkOptions network;
  std::string library, json;
};

std::vector<Mode> parse_modes(const std::string& text) {
  std::vector<Mode> modes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    const std::size_t before = modes.size();
    for (const Mode mode : {Mode::kBare, Mode::kGraphs, Mode::kCgtree})
      if (name == to_string(mode)) modes.push_back(mode);
    if (modes.size() == before)
      throw cgtree::InvalidArgument("there is no mode '" + name +
                                    "': there are bare, graphs and cgtree");
    begin = end + 1;
  }
  return modes;
}

Options parse(int count, char** arguments) {
  Options options;
  const std::map<std::string, int*> numbers = {{"threads", &options.threads},
                                               {"requests", &options.requests},
                                               {"passes", &options.passes},
                                               {"seed", &options.seed},
                                               {"length_step", &options.length_step},
                                               {"max_recordings", &options.max_recordings},
                                               {"verify_every", &options.verify_every},
                                               {"max_batch", &options.network.max_batch},
                                               {"max_length", &options.network.max_length},
                                               {"layers", &options.network.layers},
                                               {"width", &options.network.width},
                                               {"heads", &options.network.heads},
                                               {"vocabulary", &options.network.vocabulary},
                                               {"classes", &options.network.classes}};
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const std::size_t equals = std::min(argument.find('='), argument.size());
    const std::string name = argument.rfind("--", 0) == 0 ? argument.substr(2, equals - 2) : "";
    const std::string value = argument.substr(std::min(equals + 1, argument.size()));
    if (const auto number = numbers.find(name); number != numbers.end()) {
      char* end = nullptr;
      const long parsed = std::strtol(value.c_str(), &end, 10);
      if (value.empty() || *end != '\0' || parsed < 0 || parsed > 1 << 30)
        throw cgtree::InvalidArgument("--" + name + " needs a number, and has '" + value + "'");
      *number->second = static_cast<int>(parsed);
    } else if (name == "modes") {
      options.modes = parse_modes(value);
    } else if (name == "library") {
      options.library = value;
    } else if (name == "json") {
      options.json = value;
    } else {
      throw cgtree::InvalidArgument("unknown argument '" + argument + "'; --help lists them");
    }
  }
  for (const char* name : {"threads", "requests", "length_step", "layers", "width", "heads",
                           "vocabulary", "classes", "max_length", "max_recordings"})
    if (*numbers.at(name) < 1)
      throw cgtree::InvalidArgument("--" + std::string(name) + " must be at least 1");
  if (options.passes < 2) throw cgtree::InvalidArgument("--passes must be at least 2");
  options.network.seed = static_cast<std::uint64_t>(options.seed);
  return options;
}

// Small batches are frequent, and lengths are around a quarter of the largest.
std::vector<Request> make_requests(const Options& options) {
  std::mt19937_64 random(static_cast<std::uint64_t>(options.seed));
  std::geometric_distribution<int> batch(std::min(1.0, 4.0 / options.network.max_batch));
  std::lognormal_distribution<double> length(std::log(options.network.max_length / 4.0), 0.7);
  std::uniform_int_distribution<std::int32_t> token(0, options.network.vocabulary - 1);
  std::vector<Request> requests(static_cast<std::size_t>(options.requests));
  for (Request& request : requests) {
    const double steps = std::ceil(length(random) / options.length_step);
    request.shape = {std::min(1 + batch(random), options.network.max_batch),
                     static_cast<int>(std::min<double>(steps * options.length_step,
                                                       options.network.max_length))};
    request.tokens.resize(static_cast<std::size_t>(request.shape.batch) *
                          static_cast<std::size_t>(request.shape.length));
    std::generate(request.tokens.begin(), request.tokens.end(), [&] { return token(random); });
  }
  return requests;
}

struct Spread {
  double median = 0, mean = 0, p99 = 0;
};

Spread spread(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const auto at = [&](std::size_t part) { return numbers[(numbers.size() - 1) * part / 100]; };
  return {
      at(50),
      std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size()),
      at(99)};
}

struct Pass {
  double requests_per_second = 0;
  Spread host_us;
};

struct Result {
  Mode mode = Mode::kBare;
  Pass first, best;  // the best of the later passes
  Counts counts;
  std::int64_t device_bytes = 0;     // device memory, from before the workers to after all passes
  std::size_t tensorrt_bytes = 0;    // the part of it that execution contexts have themselves
  std::size_t different_scores = 0;  // numbers that differ from the first mode's, of all passes
};

// All scores of all requests.
class Scores {
 public:
  Scores(const std::vector<Request>& requests, int classes) {
    std::size_t end = 0;
    for (const Request& request : requests) {
      begins_.push_back(end);
      end += static_cast<std::size_t>(request.shape.batch) * static_cast<std::size_t>(classes);
    }
    begins_.push_back(end);
    numbers_.resize(end);
    poison();
  }

  void poison() { std::memset(numbers_.data(), 0xff, numbers_.size() * sizeof(float)); }
  std::span<float> of(std::size_t request) {
    return std::span(numbers_).subspan(begins_[request], begins_[request + 1] - begins_[request]);
  }
  std::size_t differences(const Scores& other) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < numbers_.size(); ++i)
      count += std::memcmp(&numbers_[i], &other.numbers_[i], sizeof(float)) != 0;
    return count;
  }
  // Counts NaNs; the poison is one.
  std::size_t not_numbers() const {
    return static_cast<std::size_t>(
        std::count_if(numbers_.begin(), numbers_.end(), [](float x) { return std::isnan(x); }));
  }

 private:
  std::vector<std::size_t> begins_;
  std::vector<float> numbers_;
};

// Each worker serves every n-th request on a separate thread.
Pass run_pass(std::vector<std::unique_ptr<Worker>>& workers, const std::vector<Request>& requests,
              Scores& scores, bool is_first) {
  std::vector<double> times(requests.size());
  std::vector<std::exception_ptr> errors(workers.size());
  std::vector<std::thread> threads;
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t thread = 0; thread < workers.size(); ++thread) {
    threads.emplace_back([&, thread] {
      try {
        for (std::size_t i = thread; i < requests.size(); i += workers.size())
          times[i] = workers[thread]->serve(requests[i], scores.of(i), is_first);
      } catch (...) {
        errors[thread] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return {static_cast<double>(requests.size()) / elapsed.count(), spread(std::move(times))};
}

std::int64_t free_bytes(cgtree::Device device) {
  const cgtree::AttributeValue value =
      cgtree::device_api(device).attribute(device.id, cgtree::DeviceAttribute::kFreeMemory);
  const auto* const bytes = std::get_if<std::int64_t>(&value);
  return bytes == nullptr ? 0 : *bytes;
}

std::size_t bytes_of(const TensorRtModel& model) {
  std::size_t sum = 0;
  for (const auto& [address, bytes] : model.memory())
    sum += bytes;
  return sum;
}

// `expected` is the result of the first mode, which writes it.
Result run(const Options& options, TensorRtModel& model, cgtree::Device device, Mode mode,
           const std::vector<Request>& requests, std::unique_ptr<Scores>& expected) {
  Result result;
  result.mode = mode;
  const std::int64_t free_before = free_bytes(device);
  const std::size_t tensorrt_before = bytes_of(model);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < options.threads; ++i)
    workers.push_back(
        std::make_unique<Worker>(model, device, mode,
                                 WorkerOptions{static_cast<std::size_t>(options.max_recordings),
                                               static_cast<std::uint64_t>(options.verify_every)}));
  for (int pass = 0; pass < options.passes; ++pass) {
    Scores scores(requests, options.network.classes);
    const Pass times = run_pass(workers, requests, scores, pass == 0);
    if (pass == 0)
      result.first = times;
    else if (times.requests_per_second > result.best.requests_per_second)
      result.best = times;
    if (expected == nullptr) {
      if (scores.not_numbers() != 0)
        throw cgtree::Error(std::to_string(scores.not_numbers()) +
                            " scores of the first mode are no numbers");
      expected = std::make_unique<Scores>(std::move(scores));
    } else {
      result.different_scores += scores.differences(*expected);
    }
  }
  result.device_bytes = free_before - free_bytes(device);
  result.tensorrt_bytes = bytes_of(model) - tensorrt_before;
  for (const std::unique_ptr<Worker>& worker : workers) {
    const Counts counts = worker->counts();
    result.counts.recordings += counts.recordings;
    result.counts.replays += counts.replays;
    result.counts.evictions += counts.evictions;
    result.counts.kept += counts.kept;
    result.counts.executions += counts.executions;
  }
  return result;
}

void write_pass(std::FILE* file, const char* name, const Pass& pass) {
  std::fprintf(file,
               "     \"%s\": {\"requests_per_second\": %.1f, \"host_us\": {\"median\": %.2f, "
               "\"mean\": %.2f, \"p99\": %.2f}},\n",
               name, pass.requests_per_second, pass.host_us.median, pass.host_us.mean,
               pass.host_us.p99);
}

std::string text_of(cgtree::Device device, cgtree::DeviceAttribute attribute) {
  const cgtree::AttributeValue value = cgtree::device_api(device).attribute(device.id, attribute);
  const auto* const text = std::get_if<std::string>(&value);
  return text == nullptr ? "" : *text;
}

void write_json(const Options& options, const TensorRtModel& model, cgtree::Device device,
                std::size_t shapes, const std::vector<Result>& results) {
  std::FILE* const file = std::fopen(options.json.c_str(), "w");
  if (file == nullptr) throw cgtree::InvalidArgument("cannot write " + options.json);
  std::fprintf(
      file,
      "{\n \"device\": \"%s\", \"driver\": \"%s\", \"tensorrt\": \"%s\",\n"
      " \"threads\": %d, \"requests\": %d, \"shapes\": %zu, \"passes\": %d, \"seed\": %d,\n"
      " \"layers\": %d, \"width\": %d, \"max_batch\": %d, \"max_length\": %d, "
      "\"max_recordings\": %d, \"verify_every\": %d,\n"
      " \"build_seconds\": %.2f, \"plan_bytes\": %zu, \"auxiliary_streams\": %d,\n"
      " \"modes\": [",
      text_of(device, cgtree::DeviceAttribute::kName).c_str(),
      text_of(device, cgtree::DeviceAttribute::kDriverRelease).c_str(), model.version().c_str(),
      options.threads, options.requests, shapes, options.passes, options.seed,
      options.network.layers, options.network.width, options.network.max_batch,
      options.network.max_length, options.max_recordings, options.verify_every,
      model.build_seconds(), model.plan_bytes(), model.auxiliary_streams());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Result& result = results[i];
    std::fprintf(file, "%s\n    {\"mode\": \"%s\",\n", i == 0 ? "" : ",",
                 std::string(to_string(result.mode)).c_str());
    write_pass(file, "first_pass", result.first);
    write_pass(file, "best_pass", result.best);
    const Counts& counts = result.counts;
    std::fprintf(
        file,
        "     \"recordings\": %zu, \"replays\": %zu, \"evictions\": %zu, \"kept\": %zu, "
        "\"executions\": %zu,\n"
        "     \"device_bytes\": %lld, \"tensorrt_bytes\": %zu, \"different_scores\": %zu}",
        static_cast<std::size_t>(counts.recordings), static_cast<std::size_t>(counts.replays),
        static_cast<std::size_t>(counts.evictions), static_cast<std::size_t>(counts.kept),
        static_cast<std::size_t>(counts.executions), static_cast<long long>(result.device_bytes),
        result.tensorrt_bytes, result.different_scores);
  }
  std::fprintf(file, "\n ]\n}\n");
  if (std::fclose(file) != 0) throw cgtree::InvalidArgument("cannot write " + options.json);
}

int serve(const Options& options) {
  const cgtree::Device device = cgtree::Device::cuda();
  cgtree::DeviceAPI* const api = cgtree::find_device_api(cgtree::DeviceType::kCuda);
  if (api == nullptr)
    throw cgtree::InvalidArgument("TensorRT needs a GPU, and cgtree was built without CUDA");
  if (!api->has_device(device.id))
    throw cgtree::InvalidArgument("TensorRT needs a GPU: " + api->why_absent(device.id));
  TensorRtModel model(options.network, device, options.library);
  const std::vector<Request> requests = make_requests(options);
  std::map<Shape, int> shapes;
  for (const Request& request : requests)
    ++shapes[request.shape];
  std::printf("TensorRT %s, %d threads, %d requests of %zu shapes, seed %d\n",
              model.version().c_str(), options.threads, options.requests, shapes.size(),
              options.seed);
  std::unique_ptr<Scores> expected;
  std::vector<Result> results;
  std::size_t different = 0;
  for (const Mode mode : options.modes) {
    const Result& result =
        results.emplace_back(run(options, model, device, mode, requests, expected));
    different += result.different_scores;
    std::printf(
        "%7s: %.0f requests/s, host %.2f us per request (first pass: %.0f, %.2f); %zu "
        "recordings, %lld MiB; %zu scores differ\n",
        std::string(to_string(mode)).c_str(), result.best.requests_per_second,
        result.best.host_us.mean, result.first.requests_per_second, result.first.host_us.mean,
        static_cast<std::size_t>(result.counts.recordings),
        static_cast<long long>(result.device_bytes >> 20), result.different_scores);
    std::fflush(stdout);
  }
  if (!options.json.empty()) write_json(options, model, device, shapes.size(), results);
  return different == 0 ? 0 : 1;
}

}  // namespace
}  // namespace cgtree_tensorrt

int main(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    if (std::string(arguments[i]) == "--help") {
      std::fputs(cgtree_tensorrt::kUsage, stdout);
      return 0;
    }
  }
  try {
    return cgtree_tensorrt::serve(cgtree_tensorrt::parse(count, arguments));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tensorrt_server: %s\n", error.what());
    return 2;
  }
}
