// Makes the input of the viewer's tests, by running small programs on the host device:
//   snapshots small|large|hostile|empty > FILE
//   snapshots serving FOLDER      writes two snapshots and an event file
//   snapshots buckets SEED > FILE
#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cgtree/cgtree.h"
#include "extensions/watch/monitor.h"
#include "tests/support/steps.h"
#include "tests/tools/tree_viewer/serving.h"
#include "tests/tools/tree_viewer/suggested_lists.h"

namespace cgtree::testing {
namespace {

using Function = CompiledFunction<Tensor(Tensor, Tensor)>;

Tensor filled(std::int64_t count) {
  return from_host<float>({count}, std::vector<float>(static_cast<std::size_t>(count), 1.0f),
                          Device::host());
}

Function compile_step(Context& context, const std::string& name) {
  return compile(context, name,
                 [](Tensor x, Tensor weights) { return affine(add(x, weights), 2, 1); },
                 {.inputs = {{}, {.is_static = true}}});
}

// A fork (node 1 has two children), a sibling because of a static input that moved (node 4), a
// sibling because of a held output (node 5), a failed capture, and one output that is still held.
std::string small() {
  Context context(Device::host());
  const Function encode = compile_step(context, "encode");
  const Function decode = compile_step(context, "Decode");
  const auto sync = compile(context, "sync", [](Tensor x) {
    current_stream().synchronize();
    return affine(x, 1, 1);
  });
  const Tensor weights[] = {filled(64), filled(64)};
  Tensor last;
  for (int step = 0; step < 12; ++step) {
    context.mark_step();
    const Tensor hidden = encode(filled(64), weights[0]);
    last = decode(hidden, weights[step >= 4 && step % 2 == 0]);
    if (step == 11) last = encode(last, weights[0]);
  }
  (void)sync(last);
  (void)sync(last);
  return snapshot_json(context);
}

// 12 functions, and paths that branch repeatedly: 60 recordings.
std::string large() {
  Context context(Device::host());
  const char* const names[] = {"embed",     "attention",   "project",   "gate",
                               "expert_up", "expert_down", "normalise", "route",
                               "logits",    "sample",      "verify",    "cache_update"};
  std::vector<Function> functions;
  for (const char* name : names)
    functions.push_back(compile_step(context, name));
  const Tensor weights[] = {filled(256), filled(256), filled(256)};
  std::uint32_t random = 7;
  const auto draw = [&](std::uint32_t below) {
    random = random * 1664525 + 1013904223;
    return (random >> 16) % below;
  };
  const auto recordings = [&] { return context.stats().recordings; };
  while (recordings() < 60) {
    context.mark_step();
    Tensor x = functions[0](filled(256), weights[0]);
    for (std::size_t i = 1; i < functions.size() && recordings() < 60; ++i) {
      if (draw(4) == 0) continue;
      x = functions[i](x, weights[draw(8) == 0 ? 1 + draw(2) : 0]);
    }
  }
  return snapshot_json(context);
}

// Names that would break out of HTML, of a script, of an attribute and of DOT, and very long names.
std::string hostile() {
  Context context(Device::host());
  const std::string names[] = {"</title><script>document.title='broken'</script>",
                               "\"><img src=x onerror=\"document.title='broken'\">",
                               "back\\slash \\N \"quoted\" &lt;\nsecond line",
                               "a_template_instantiation<" + std::string(600, 'x') + ">",
                               "a name of many words " + std::string(400, '.')};
  std::vector<Function> functions;
  for (const std::string& name : names)
    functions.push_back(compile_step(context, name));
  const Tensor weights = filled(4);
  for (int step = 0; step < 3; ++step) {
    context.mark_step();
    Tensor x = filled(4);
    for (const Function& function : functions)
      x = function(x, weights);
  }
  return snapshot_json(context);
}

std::string nothing() {
  return snapshot_json(Context(Device::host()));
}

}  // namespace
}  // namespace cgtree::testing

int main(int argc, char** argv) {
  using namespace cgtree::testing;
  const std::map<std::string, std::function<std::string()>> programs = {
      {"small", small}, {"large", large}, {"hostile", hostile}, {"empty", nothing}};
  const std::string name = argc > 1 ? argv[1] : "";
  if (argc == 3 && name == "serving") {
    serve(argv[2]);
    return 0;
  }
  if (argc == 3 && name == "buckets") {
    fmt::print("{}\n", suggested_lists(static_cast<unsigned>(std::stoul(argv[2]))));
    return 0;
  }
  const auto program = programs.find(argc == 2 ? name : "");
  if (program == programs.end()) return 2;
  fmt::print("{}\n", program->second());
  return 0;
}
