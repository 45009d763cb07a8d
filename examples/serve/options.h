// Options of the server: what the command line says, checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "examples/serve/model_sizes.h"
#include "examples/serve/policy.h"
#include "examples/serve/scheduler.h"

namespace cgtree::serve {

enum class Mode { kEager, kCgtree, kBoth };

// The budgets of --policy=all.
inline constexpr std::int64_t kBudgets[] = {4, 8, 16};

struct Options {
  std::optional<std::string> trace;      // none: a seeded trace; relative to the caller's folder
  std::optional<std::int64_t> requests;  // none: 40 seeded ones, or all of the file's
  std::string device = "auto";
  Mode mode = Mode::kBoth;
  std::optional<Policy> policy = Policy::kSuggested;  // none: all of them, with each of kBudgets
  std::int64_t budget = 16;       // recordings that each function keeps at most; 0: no limit
  std::int64_t soak_seconds = 0;  // 0: serve the trace once
  ModelSizes sizes;
  std::int64_t prompt = 32;  // tokens fed before generating, at most
  std::int64_t step_ms = 20;
  std::int64_t seed = 1;  // not negative
  std::optional<std::string> json;
  std::string commit;   // for the JSON: what was built
  std::string command;  // for the JSON: the command line

  SchedulerOptions scheduler() const;
  SizeLimits limits() const;
};

// Why the program ends before it began: 0 and the help, or 2 and what is wrong.
struct EarlyExit {
  int code = 0;
  std::string text;
};

std::variant<Options, EarlyExit> parse_options(int argc, const char* const* argv);

// `path` as the caller meant it: under `bazel run` the process starts elsewhere, and
// $BUILD_WORKING_DIRECTORY holds the caller's folder.
std::string from_caller(const std::string& path);

}  // namespace cgtree::serve
