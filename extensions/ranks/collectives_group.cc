// Votes by an all-reduce on a stream of the group.
#include "base/error.h"
#include "extensions/ranks/block_group.h"
#include "extensions/ranks/collectives.h"
#include "interop/device/device_api.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/outside_of_steps.h"

namespace cgtree {
namespace {

using Block = BlockGroup::Block;

Tensor make_words(Device device) {
  const OutsideOfSteps outside;
  return empty({static_cast<std::int64_t>(BlockGroup::kBlockWords)}, DType::kUInt64, device);
}

struct Votes {
  explicit Votes(std::shared_ptr<Collectives> own) : collectives(std::move(own)) {}
  void exchange(Block& block) const {
    // The caller may be capturing on another stream.
    const RelaxedCapture relaxed(stream.ref().api().graphs());
    words.copy_from_host(block.data(), sizeof(block), stream);
    collectives->all_reduce(stream, words, words, Reduction::kMinimum);
    collectives->synchronize(stream);
    words.copy_to_host(block.data(), sizeof(block), stream);
  }

  const std::shared_ptr<Collectives> collectives;
  const Stream stream{collectives->device()};
  const Tensor words = make_words(collectives->device());
};

}  // namespace

std::unique_ptr<Group> make_collectives_group(std::shared_ptr<Collectives> collectives) {
  if (collectives == nullptr) throw InvalidArgument("a group over collectives needs some");
  const int rank = collectives->rank();
  const int size = collectives->size();
  const auto votes = std::make_shared<Votes>(std::move(collectives));
  return std::make_unique<BlockGroup>(rank, size,
                                      [votes](Block& block) { votes->exchange(block); });
}

}  // namespace cgtree
