// Counts parameters and bytes.
#include "examples/serve/model_sizes.h"

#include <fmt/format.h>

#include <string>
#include <variant>

#include "base/error.h"
#include "interop/device/device.h"

namespace cgtree::serve {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

std::string gibibytes(std::int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace

std::int64_t count_parameters(const ModelSizes& s) {
  // Per layer: qkv 3 h^2, projection h^2, up and down 4 h^2 each, two norms.
  const std::int64_t layer = 12 * s.hidden * s.hidden + 2 * s.hidden;
  return s.layers * layer + (2 * s.vocabulary + s.context + 1) * s.hidden;
}

MemoryNeeds estimate_memory(const ModelSizes& s, std::int64_t prompt) {
  // One row's floats: x, norm, qkv, attention, MLP; and logits, of which a prompt has one row.
  const std::int64_t prompts = s.slots * prompt * 10 * s.hidden;
  const std::int64_t logits = s.slots * s.vocabulary;
  // Recordings share temporaries, except where sizes do not match: four times the largest.
  return {.weights = count_parameters(s) * kFloat,
          .kv_cache = s.layers * 2 * s.slots * s.context * s.hidden * kFloat,
          .step = 4 * (prompts + logits) * kFloat};
}

void expect_memory(const ModelSizes& sizes, std::int64_t prompt, std::int64_t lanes,
                   Device device) {
  MemoryNeeds needs = estimate_memory(sizes, prompt);
  needs.kv_cache *= lanes;
  needs.step *= lanes;
  const AttributeValue value =
      device_api(device).attribute(device.id, DeviceAttribute::kFreeMemory);
  const std::int64_t* const free = std::get_if<std::int64_t>(&value);
  if (free == nullptr || needs.total() <= *free) return;
  throw OutOfMemory(fmt::format(
      "the model needs {} (weights {}, KV cache {}, each step {}), but {} has {} free: lower "
      "--layers, --hidden, --vocabulary, --context, --prompt or "
      "--max-batch",
      gibibytes(needs.total()), gibibytes(needs.weights), gibibytes(needs.kv_cache),
      gibibytes(needs.step), to_string(device), gibibytes(*free)));
}

}  // namespace cgtree::serve
