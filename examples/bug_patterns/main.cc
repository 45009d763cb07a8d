// Six bugs of captured steps, rebuilt from reports in public trackers: the effect of each as a bare
// graph and through cgtree, and its first sign before a wrong result.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <string>

#include "base/error.h"
#include "examples/bug_patterns/patterns.h"
#include "examples/bug_patterns/trial.h"
#include "extensions/audit/audit_options.h"
#include "extensions/verify/verify.h"

namespace cgtree::bug_patterns {
namespace {

std::string outcome_of(const Trial& trial) {
  const std::string steps = fmt::format("{} right, {} wrong", trial.right, trial.wrong);
  return trial.refusal.empty() ? steps : fmt::format("{}, refused: {}", steps, trial.refusal);
}

void run(const std::string& device_text) {
  const Device device = parse_device(device_text);
  const ContextOptions throws = {
      .extensions = {audit({.on_foreign_pointer = OnForeignPointer::kThrow})}};
  for (const PatternInfo& pattern : patterns()) {
    fmt::print("{} ({})\n", pattern.name, fmt::join(pattern.reports, ", "));
    fmt::print("  a bare graph: {}\n", outcome_of(try_bare_graph(pattern, device)));
    const Trial recorded = try_context(pattern, device, {});
    fmt::print("  recorded: {}\n", outcome_of(recorded));
    for (const std::string& pointer : recorded.foreign)
      fmt::print("    the snapshot says: {}\n", pointer);
    fmt::print("  foreign pointers refused: {}\n",
               outcome_of(try_context(pattern, device, throws)));
    fmt::print("  verified: {}\n",
               outcome_of(try_context(pattern, device, {.extensions = {verify({.every = 1})}})));
    fmt::print("  repaired, with {}: {}\n\n", pattern.repair,
               outcome_of(try_repaired(pattern, device, throws)));
  }
}

}  // namespace
}  // namespace cgtree::bug_patterns

int main(int argc, char** argv) {
  CLI::App app("Runs six bugs of captured steps; prints what each does, and what tells of it.");
  std::string device = "auto";
  app.add_option("--device", device, "auto (a GPU, else the host device), host, cuda or cuda:N");
  try {
    app.parse(argc, argv);
    cgtree::bug_patterns::run(device);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const cgtree::Error& error) {
    fmt::print(stderr, "bug_patterns: {}\n", error.message());
    return 2;
  }
}
