// Finds the longest run of inputs that are treated alike, and keeps the tensors that were proved.
#include "cgtree/record/input_run.h"

#include <algorithm>

#include "cgtree/record/recording.h"
#include "interop/tensor/stream_synchronization.h"

namespace cgtree {

InputRun::InputRun(const std::vector<InputRecord>& records, Of of) : of_(of) {
  const auto is_one = [of](const InputRecord& record) {
    if (record.plain_domain != nullptr) return false;  // the ends of its storages are not counted
    return of == Of::kCopied ? is_copied(record.treatment) : record.treatment == Treatment::kStatic;
  };
  const auto size = static_cast<std::uint32_t>(records.size());
  for (std::uint32_t begin = 0, i = 0; i <= size; ++i) {
    if (i < size && is_one(records[i])) continue;
    if (i - begin > end_ - begin_) {
      begin_ = begin;
      end_ = i;
    }
    begin = i + 1;
  }
  if (end_ - begin_ < kShortest) begin_ = end_ = 0;
  known_.reserve(end_ - begin_);  // so that a replay allocates nothing
  shapes_.reserve(end_ - begin_);
  if (begin_ != end_ && of == Of::kStatic) producers_.reserve(kMostProducers);
}

// Returns false if there are too many producers, or if a copied input has one.
bool InputRun::find_producers(const InputList& inputs) {
  has_borrowed_ = false;
  producers_.clear();
  for (std::uint32_t i = begin_; i < end_; ++i) {
    if (inputs[i].storage()->state() != Storage::State::kBorrowed) continue;
    if (of_ == Of::kCopied) return false;
    has_borrowed_ = true;
    const StreamRef producer = producer_of(inputs[i]);
    if (!producer || std::ranges::find(producers_, producer) != producers_.end()) continue;
    if (producers_.size() == kMostProducers) return false;
    producers_.push_back(producer);
  }
  return true;
}

// If storages end at each call, examining the inputs at each call would be in vain: they are
// examined when two calls in a row find the same count.
void InputRun::look(const std::vector<InputRecord>& records, const InputList& inputs,
                    Device device) {
  const std::uint64_t now = Storage::changes();  // before the inputs are examined
  if (now != seen_) {
    seen_ = now;
    return;
  }
  changes_ = now;
  known_.clear();
  if (first_not_plain<true>(records, inputs, begin_, end_, device) != end_) return;
  if (!find_producers(inputs)) return;
  known_.resize(end_ - begin_);
  shapes_.clear();
  for (std::uint32_t i = begin_; i < end_; ++i) {
    shapes_.push_back(inputs[i].shape());
    const void* const tensor = &inputs[i];
    std::memcpy(&known_[i - begin_], tensor, sizeof(Words));
  }
}

}  // namespace cgtree
