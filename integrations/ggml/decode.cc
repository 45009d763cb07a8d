// Decodes a mix of batches, lengths and drafts on ggml, and prints the costs as JSON.
//
// usage: decode [--device=gpu|cpu] [--NAME=NUMBER]...   (see `numbers` for the names)
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "integrations/ggml/drafter.h"
#include "integrations/ggml/engine.h"
#include "integrations/ggml/sequences.h"
#ifdef DECODE_CUDA
#include "integrations/common/cuda_calls.h"
#endif

namespace decode {
namespace {

constexpr int kWindow = 1000;  // steps between figures that show changes

struct Options {
  std::string device = "gpu";
  ModelSize model;
  ScheduleOptions schedule;
  int steps = 10000;
  int seed = 1;
  int batch = 0;  // always this many sequences; 0 for a mix
  // Layers of the model that drafts for one sequence; 0: drafts are tokens that followed the last
  // time.
  int draft_layers = 0;
  int draft_width = 512;
};

Options parse(int count, char** arguments) {
  Options options;
  const std::map<std::string, int*> numbers = {{"steps", &options.steps},
                                               {"seed", &options.seed},
                                               {"batch", &options.batch},
                                               {"max_draft", &options.schedule.max_draft},
                                               {"batch_hold", &options.schedule.batch_hold},
                                               {"draft_hold", &options.schedule.draft_hold},
                                               {"draft_layers", &options.draft_layers},
                                               {"draft_width", &options.draft_width},
                                               {"layers", &options.model.layers},
                                               {"width", &options.model.width},
                                               {"heads", &options.model.heads},
                                               {"kv_heads", &options.model.kv_heads},
                                               {"ffn", &options.model.ffn},
                                               {"vocabulary", &options.model.vocabulary},
                                               {"context", &options.model.context}};
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const std::size_t equals = std::min(argument.find('='), argument.size());
    const std::string value = argument.substr(std::min(equals + 1, argument.size()));
    const auto number = numbers.find(argument.substr(std::min<std::size_t>(2, equals), equals - 2));
    if (argument == "--device=gpu" || argument == "--device=cpu") {
      options.device = value;
    } else if (argument.rfind("--", 0) == 0 && number != numbers.end() && !value.empty()) {
      *number->second = std::stoi(value);
    } else {
      throw std::invalid_argument("unknown argument " + argument);
    }
  }
  options.schedule.seed = static_cast<std::uint64_t>(options.seed);
  options.model.has_successors = options.draft_layers > 0;
  if (options.draft_layers > 0) options.batch = 1;
  if (options.batch > 0) options.schedule.batches = {options.batch};
  options.model.sequences =
      *std::max_element(options.schedule.batches.begin(), options.schedule.batches.end());
  return options;
}

// Prints {"median": ..., "mean": ..., "p99": ...} of numbers in any order.
void print_spread(const char* name, std::vector<double> numbers, const char* end) {
  std::sort(numbers.begin(), numbers.end());
  const double sum = std::accumulate(numbers.begin(), numbers.end(), 0.0);
  const auto at = [&](std::size_t part) { return numbers[(numbers.size() - 1) * part / 100]; };
  std::printf("  \"%s\": {\"median\": %.2f, \"mean\": %.2f, \"p99\": %.2f}%s\n", name, at(50),
              sum / static_cast<double>(numbers.size()), at(99), end);
}

// A model whose width is a multiple of 64.
ModelSize draft_size(const Options& options) {
  ModelSize size = options.model;
  size.layers = options.draft_layers;
  size.width = options.draft_width;
  size.heads = options.draft_width / 64;
  size.kv_heads = std::max(1, size.heads / 4);
  size.ffn = 4 * options.draft_width;
  return size;
}

// Counts lines of ggml's log about its own graphs, which it captures after equal calls (a warm-up),
// and gives up when a call differs (a reset).
std::atomic<int> warm_ups{0}, resets{0};

void count_or_log(ggml_log_level level, const char* text, void*) {
  if (std::strstr(text, "CUDA graph warmup complete") != nullptr) ++warm_ups;
  if (std::strstr(text, "CUDA graph warmup reset") != nullptr) ++resets;
  if (level != GGML_LOG_LEVEL_DEBUG) std::fputs(text, stderr);
}

// Counts from the first step on.
struct Window {
  std::size_t used_bytes = 0;
  int warm_ups = 0, resets = 0;
  std::int64_t captures = -1, instantiations = -1, updates = -1, launches = -1;  // -1: unknown
};

Window look(const Engine& engine) {
  Window window;
  window.used_bytes = engine.used_bytes();
  window.warm_ups = warm_ups;
  window.resets = resets;
#ifdef DECODE_CUDA
  const cgtree_ggml::CudaCalls calls = cgtree_ggml::cuda_calls();
  window.captures = calls.captures;
  window.instantiations = calls.instantiations;
  window.updates = calls.updates;
  window.launches = calls.launches;
#endif
  return window;
}

struct Result {
  std::vector<StepTimes> times;
  std::vector<Window> windows;  // before the first step, after every kWindow, and the last
  std::int64_t tokens = 0, drafted = 0, accepted = 0;
  std::uint64_t hash = 14695981039346656037U;  // of the tokens, and when they came
  double seconds = 0;
};

Result run(const Options& options, Engine& engine) {
  Schedule schedule(options.schedule);
  std::vector<Sequence> sequences;
  for (int i = 0; i < options.model.sequences; ++i)
    sequences.emplace_back(options.model, static_cast<std::uint64_t>(options.seed + i));
  std::optional<Drafter> drafter;
  if (options.draft_layers > 0)
    drafter.emplace(options.device, draft_size(options), options.schedule.seed + 1);
  Result result;
  result.windows.push_back(look(engine));
  Stopwatch stopwatch;
  Batch batch;
  for (int i = 1; i <= options.steps; ++i) {
    schedule.advance();
    // A drafting model drafts at least one token, so that its cache lacks few.
    const int draft = drafter ? std::max(1, schedule.draft()) : schedule.draft();
    StepTimes drafting;
    batch = {};
    for (int s = 0; s < schedule.batch(); ++s) {
      Sequence& sequence = sequences[static_cast<std::size_t>(s)];
      sequence.make_room(draft);
      const auto& proposed = drafter ? sequence.propose(drafter->draft(sequence, draft, &drafting))
                                     : sequence.propose(draft);
      batch.tokens.insert(batch.tokens.end(), proposed.begin(), proposed.end());
      batch.lengths.push_back(sequence.length());
    }
    const std::int32_t* next = engine.compute(batch, &result.times.emplace_back()).data();
    result.times.back() += drafting;
    for (int s = 0; s < schedule.batch(); ++s, next += 1 + draft) {
      const int accepted = sequences[static_cast<std::size_t>(s)].accept(next);
      result.tokens += accepted;
      result.drafted += draft;
      result.accepted += accepted - 1;
      for (int token = 0; token < accepted; ++token)
        result.hash = (result.hash ^ static_cast<std::uint32_t>(next[token])) * 1099511628211U;
    }
    if (i % kWindow == 0) result.windows.push_back(look(engine));
  }
  if (options.steps % kWindow != 0) result.windows.push_back(look(engine));
  result.seconds = stopwatch.lap() / 1e6;
  return result;
}

void print(const Options& options, const Engine& engine, const Result& result) {
  std::printf(
      "{\n  \"device\": \"%s\", \"steps\": %d, \"seed\": %d, \"graph_nodes\": %d, \"splits\": "
      "%d,\n",
      options.device.c_str(), options.steps, options.seed, engine.nodes(), engine.splits());
  std::printf(
      "  \"tokens\": %lld, \"drafted\": %lld, \"accepted\": %lld, \"tokens_hash\": \"%016llx\",\n",
      static_cast<long long>(result.tokens), static_cast<long long>(result.drafted),
      static_cast<long long>(result.accepted), static_cast<unsigned long long>(result.hash));
  std::printf("  \"seconds\": %.3f, \"tokens_per_second\": %.1f, \"submit_us_per_token\": %.2f,\n",
              result.seconds, static_cast<double>(result.tokens) / result.seconds,
              std::accumulate(result.times.begin(), result.times.end(), 0.0,
                              [](double sum, const StepTimes& step) { return sum + step.submit; }) /
                  static_cast<double>(result.tokens));
  const auto spread = [&](const char* name, auto part) {
    std::vector<double> numbers;
    for (const StepTimes& step : result.times)
      numbers.push_back(part(step));
    print_spread(name, std::move(numbers), ",");
  };
  spread("build_us", [](const StepTimes& step) { return step.build; });
  spread("inputs_us", [](const StepTimes& step) { return step.inputs; });
  spread("submit_us", [](const StepTimes& step) { return step.submit; });
  spread("wait_us", [](const StepTimes& step) { return step.wait; });
  spread("step_us",
         [](const StepTimes& step) { return step.build + step.inputs + step.submit + step.wait; });
  std::printf("  \"windows\": [");
  for (std::size_t i = 0; i < result.windows.size(); ++i) {
    const Window& window = result.windows[i];
    std::printf(
        "%s\n    {\"step\": %zu, \"used_bytes\": %zu, \"captures\": %lld, "
        "\"instantiations\": %lld, \"updates\": %lld, \"launches\": %lld, \"warm_ups\": %d, "
        "\"resets\": %d}",
        i == 0 ? "" : ",", std::min<std::size_t>(i * kWindow, result.times.size()),
        window.used_bytes, static_cast<long long>(window.captures),
        static_cast<long long>(window.instantiations), static_cast<long long>(window.updates),
        static_cast<long long>(window.launches), window.warm_ups, window.resets);
  }
  std::printf("\n  ]\n}\n");
}

}  // namespace
}  // namespace decode

int main(int count, char** arguments) {
  try {
    ggml_log_set(decode::count_or_log, nullptr);
    const decode::Options options = decode::parse(count, arguments);
    decode::Engine engine(options.device, options.model, 1 + options.schedule.max_draft,
                          options.schedule.seed);
    decode::print(options, engine, decode::run(options, engine));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "decode: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
