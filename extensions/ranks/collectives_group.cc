// Votes by an all-reduce on a stream of the group's own.
#include "extensions/ranks/collectives_group.h"

#include "base/error.h"
#include "extensions/ranks/block_group.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/outside_of_steps.h"

namespace cgtree {
namespace {

class CollectivesGroup final : public BlockGroup {
 public:
  explicit CollectivesGroup(std::shared_ptr<Collectives> collectives)
      : collectives_(std::move(collectives)),
        stream_(collectives_->device()),
        words_(make_words(collectives_->device())) {}

  int rank() const noexcept override { return collectives_->rank(); }
  int size() const noexcept override { return collectives_->size(); }

 protected:
  void exchange(Block& block) override {
    // The caller may be capturing on another stream.
    const RelaxedCapture relaxed(stream_.ref().api().graphs());
    words_.copy_from_host(block.data(), sizeof(block), stream_);
    collectives_->all_reduce(stream_, words_, words_, Reduction::kMinimum);
    collectives_->synchronize(stream_);
    words_.copy_to_host(block.data(), sizeof(block), stream_);
  }

 private:
  static Tensor make_words(Device device) {
    const OutsideOfSteps outside;
    return empty({static_cast<std::int64_t>(kBlockWords)}, DType::kUInt64, device);
  }

  const std::shared_ptr<Collectives> collectives_;
  const Stream stream_;
  const Tensor words_;
};

}  // namespace

std::unique_ptr<Group> make_collectives_group(std::shared_ptr<Collectives> collectives) {
  if (collectives == nullptr) throw InvalidArgument("a group over collectives needs some");
  return std::make_unique<CollectivesGroup>(std::move(collectives));
}

}  // namespace cgtree
