// Measures examples/serve: serves a trace eagerly and through cgtree, with policies for varying
// sizes, once or for a long time.
//
// Exit status: 0; 1 if the modes disagree about a token or the memory of a soak grows; 2 for
// errors.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <variant>

#include "base/error.h"
#include "benchmarks/serve/options.h"
#include "benchmarks/serve/report.h"
#include "benchmarks/serve/run.h"

namespace {

constexpr int kFailed = 1;
constexpr int kCannotServe = 2;

int serve(const cgtree::serve::Options& options) {
  if (options.soak_seconds > 0) {
    const auto report = cgtree::serve::run_soak(options);
    fmt::print("{}", to_table(report));
    return report.failure ? kFailed : 0;
  }
  const auto report = cgtree::serve::run(options);
  fmt::print("{}", to_table(report));
  return report.differing() != nullptr ? kFailed : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto parsed = cgtree::serve::parse_options(argc, argv);
    if (const auto* exit = std::get_if<cgtree::serve::EarlyExit>(&parsed)) {
      if (exit->code == 0) {
        fmt::print("{}", exit->text);
      } else {
        fmt::print(stderr, "serve: {}\n", exit->text);
      }
      return exit->code;
    }
    return serve(std::get<cgtree::serve::Options>(parsed));
  } catch (const cgtree::Error& error) {
    fmt::print(stderr, "serve: {}\n", error.message());
  } catch (const std::exception& error) {
    fmt::print(stderr, "serve: {}\n", error.what());
  }
  return kCannotServe;
}
