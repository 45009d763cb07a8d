// Runs a small server on the host device: buckets, evictions, a workspace, foreign memory, events.
#include "tests/tools/tree_viewer/serving.h"

#include <cmath>
#include <cstdint>
#include <deque>
#include <fstream>
#include <random>
#include <vector>

#include "base/error.h"
#include "cgtree/cgtree.h"
#include "extensions/watch/monitor.h"
#include "extensions/watch/watch.h"
#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"
#include "tests/support/steps.h"
#include "tests/support/test_kernels.h"

namespace cgtree::testing {
namespace {

constexpr std::int64_t kWidth = 64;

Tensor filled(std::int64_t rows) {
  const auto count = static_cast<std::size_t>(rows * kWidth);
  return from_host<float>({rows, kWidth}, std::vector<float>(count, 1.0f), Device::host());
}

// Device memory that is not declared to the context.
class Table {
 public:
  Table() { check(device_api(Device::host()).alloc_data_space(0, kBytes, &data_), "allocate"); }
  ~Table() { (void)device_api(Device::host()).free_data_space(0, data_); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  // Enqueues y += table, with the table's address in the kernel's arguments.
  void add_to(const Tensor& y) const {
    const StreamRef stream = current_stream();
    check(stream.graphs().launch_kernel(
              stream.handle(), axpy_kernel(), dims_for(kWidth),
              arguments_of(1.0f, static_cast<const void*>(data_), y.data(), kWidth)),
          "launch axpy");
  }

 private:
  static constexpr std::size_t kBytes = 1 << 16;
  void* data_ = nullptr;
};

void write(const Context& context, const std::string& path) {
  std::ofstream(path) << snapshot_json(context) << '\n';
}

}  // namespace

void serve(const std::string& folder) {
  ContextOptions options;
  options.max_recordings = 16;
  options.at_limit = AtLimit::kEvict;
  options.extensions = {
      watch({.event_file = folder + "/events.jsonl", .event_file_has_replays = true})};
  Context context(Device::host(), options);
  const Table table;
  Tensor workspace;

  const auto prefill = compile(
      context, "prefill",
      [](Tensor x, Tensor w) { return affine(add(affine(x, 2, 1), affine(x, 1, 0)), w.dim(0), 0); },
      {.inputs = {{.name = "tokens", .dynamic = {{0, "length"}}}, {.is_static = true}},
       .buckets = {{"length", {128, 512, 2048, 4096}}},
       .outputs = {{.dynamic = {{0, "length"}}}}});
  const auto decode =
      compile(context, "decode",
              [&](Tensor x, Tensor w) {
                if (!workspace.storage()) workspace = affine(w, 1, 0);
                return add(affine(x, 1, static_cast<float>(w.dim(0))), x);
              },
              {.inputs = {{.name = "tokens", .dynamic = {{0, "batch"}}}, {.is_static = true}},
               .axes = {{.name = "batch", .policy = AxisPolicy::kPowersOfTwo, .largest = 256}},
               .outputs = {{.dynamic = {{0, "batch"}}}}});
  const auto sample = compile(context, "sample",
                              [&](Tensor logits) {
                                Tensor chosen = affine(logits, 1, 0);
                                table.add_to(chosen);
                                return chosen;
                              },
                              {.inputs = {{.name = "logits", .rebind = Rebind::kAlways}}});
  const auto rerank = compile(context, "rerank", [](Tensor x) {
    current_stream().synchronize();
    return affine(x, 1, 1);
  });

  const Tensor weights[] = {filled(512), filled(512)};
  std::mt19937 random(11);
  const auto draw = [&](double below) {
    return static_cast<double>(random() % 1000) / 1000 * below;
  };
  std::deque<Tensor> held;
  for (int step = 0; step < 240; ++step) {
    context.mark_step();
    const Tensor& weight = weights[step > 150];
    if (step % 6 == 0) {
      Tensor cache = prefill(filled(16 + static_cast<std::int64_t>(std::exp(draw(8.4)))), weight);
      context.keep(cache);
      held.push_back(std::move(cache));
      if (held.size() > 3) held.pop_front();
    }
    const auto batch = 1 + static_cast<std::int64_t>(draw(40) + draw(25));
    (void)decode(filled(batch), weight);
    (void)sample(filled(8 << random() % 3));
    if (step % 50 == 49) (void)rerank(filled(4));
    if (step == 190) write(context, folder + "/earlier.json");
  }
  write(context, folder + "/later.json");
}

}  // namespace cgtree::testing
