// Four graphs, and a choice made by data: graph 1, then graph 2 or graph 3, then graph 4.
//
// A recorded graph cannot hold an `if` on the host. Here it does not have to: each side of the
// choice is a step function with a recording of its own, the choice stays plain C++ between two
// replays, and the tree remembers what has followed what.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cgtree/cgtree.h"
#include "examples/branching/steps.h"
#include "examples/branching/tree_text.h"

namespace cgtree::branching {
namespace {

constexpr int kSteps = 20;

void run(const std::string& device, const std::string& snapshot_file) {
  Context context(parse_device(device));
  const auto one = compile(context, "one", [](Tensor x) { return affine(x, 2, 0); });
  const auto two = compile(context, "two", [](Tensor x) { return affine(x, 1, 10); });
  const auto three = compile(context, "three", [](Tensor x) { return affine(x, 1, -10); });
  const auto four = compile(context, "four", [](Tensor x) { return affine(x, 3, 1); });

  for (int step = 0; step < kSteps; ++step) {
    context.mark_step();  // the outputs of the last step may be overwritten
    const std::vector<float> values(8, step % 4 == 3 ? -1.0f : 1.0f);  // every fourth goes to 3
    const Tensor a = one(from_host<float>({8}, values, context.device()));
    // The host looks at the data; then the fitting graph is replayed, not recorded again.
    const Tensor b = a.to_vector<float>()[0] > 0 ? two(a) : three(a);
    const Tensor c = four(b);
    (void)c.to_vector<float>();  // what a server would send
  }

  // The reader sees: graph 1 with 2 and 3 below it, each with its replays; graph 4 below 2, where
  // it was recorded. Graph 3 puts its output at the same address, so 4 serves both: an arrow leads
  // from 3 to it, and there are four recordings, not five.
  const std::string snapshot = context.snapshot_json();
  fmt::print("{} steps on {}\n\n{}\n{}\n", kSteps, to_string(context.device()), tree_text(snapshot),
             context.stats());
  if (snapshot_file.empty()) return;
  std::ofstream file(snapshot_file);
  file << snapshot << '\n';
  file.close();
  if (!file) throw InvalidArgument(fmt::format("cannot write '{}'", snapshot_file));
}

// `bazel run` starts programs elsewhere and says where the user was.
std::string from_caller(const std::string& path) {
  const char* const folder = std::getenv("BUILD_WORKING_DIRECTORY");
  return folder == nullptr || path.empty() ? path : (std::filesystem::path(folder) / path).string();
}

}  // namespace
}  // namespace cgtree::branching

int main(int argc, char** argv) {
  CLI::App app("Runs graph 1, then graph 2 or 3 by data, then graph 4; prints the tree it grew.");
  std::string device = "auto";
  std::string snapshot;
  app.add_option("--device", device, "auto (a GPU, else the host device), host, cuda or cuda:N");
  app.add_option("--snapshot", snapshot, "also write the tree as JSON, for tools:tree_viewer");
  try {
    app.parse(argc, argv);
    cgtree::branching::run(device, cgtree::branching::from_caller(snapshot));
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const cgtree::Error& error) {
    fmt::print(stderr, "branching: {}\n", error.message());
    return 2;
  }
}
