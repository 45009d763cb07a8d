// Options: the command line, checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "benchmarks/serve/policy.h"
#include "examples/serve/config.h"
#include "examples/serve/scheduler.h"

namespace cgtree::serve {

enum class Mode { kEager, kCgtree, kBoth };

// The budgets of --policy=all.
inline constexpr std::int64_t kBudgets[] = {4, 8, 16};

struct Options {
  std::optional<std::string> trace;      // null: a seeded trace; relative to the caller's folder
  std::optional<std::int64_t> requests;  // null: 40 seeded requests, or all of the file
  std::string device = "auto";
  Mode mode = Mode::kBoth;
  std::optional<Policy> policy = Policy::kSuggested;  // null: all, with each of kBudgets
  std::int64_t budget = 16;                  // recordings that each function keeps; 0: no limit
  std::int64_t switch_nodes = 0;             // limit of differing nodes for shared graphs
  std::vector<std::int64_t> batches;         // for Policy::kListed, ascending
  std::optional<std::int64_t> suggest_from;  // requests that are counted; null: all
  std::int64_t soak_seconds = 0;             // 0: serve the trace once
  ModelConfig model;
  std::int64_t layers = 0;     // instead of the model's; 0: the model's
  std::int64_t ranks = 1;      // devices that share the model
  std::int64_t max_batch = 8;  // requests decoded together
  std::int64_t context = 256;  // tokens of a request, rounded up to whole blocks of the cache
  std::int64_t prompt = 32;    // tokens fed before generating, at most
  std::int64_t step_ms = 20;
  std::int64_t seed = 1;    // not negative
  std::int64_t verify = 0;  // each n-th replay is verified; 0: none
  std::optional<std::string> json;
  std::string commit;   // for the JSON: the built commit
  std::string command;  // for the JSON: the command line

  SchedulerOptions scheduler() const;
  SizeLimits limits() const;
};

// The program ends at once: with 0 and the help, or with 2 and an error message.
struct EarlyExit {
  int code = 0;
  std::string text;
};

std::variant<Options, EarlyExit> parse_options(int argc, const char* const* argv);

// Returns `path` relative to the caller's folder. Under `bazel run` the process starts in another
// folder, and $BUILD_WORKING_DIRECTORY holds the caller's.
std::string from_caller(const std::string& path);

}  // namespace cgtree::serve
