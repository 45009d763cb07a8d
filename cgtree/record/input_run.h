// InputRun: many inputs that stay the same, proved to fit at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cgtree/values/input_list.h"
#include "interop/device/stream.h"

namespace cgtree {

struct InputRecord;

// A model has hundreds of weights, the same tensors at each call, and a server fills the same
// inputs again and again. Testing whether one input is unchanged reads tensor, storage and record,
// and takes 2.6 ns. An InputRun keeps the tensors of the longest run of static inputs, or of copied
// inputs, as bytes, once all of them were proved to fit. While the tensors of a call have the same
// bytes, and no storage without a domain has ended or moved since, they fit, at the same addresses.
//
//   the bytes of a tensor are the same    =>  the same view, at the same offset, of a storage at
//                                             the address of the examined storage
//   Storage::changes() is the same        =>  it is that storage, neither ended nor moved
//
// An input that was the context's own memory when it was recorded is in no run: changes() does not
// count the ends of such storages, and an output may become stale. No other input that fits plainly
// is a context's.
//
// Their shapes are held, so that no other shape can have the address of one of them.
//
// Static inputs may be borrowed. Their producers are then known too: a storage keeps its producer
// until the producer's stream ends, which Storage::changes() counts. Read-only inputs are never
// written, because such a call is refused and not replayed.
class InputRun {
 public:
  // Shorter runs are not worth two branches.
  static constexpr std::uint32_t kShortest = 8;

  enum class Of { kStatic, kCopied };  // kCopied: also inputs that are copied back

  InputRun() = default;
  InputRun(const std::vector<InputRecord>& records, Of of);

  // The inputs [begin(), end()).
  std::uint32_t begin() const noexcept { return begin_; }
  std::uint32_t end() const noexcept { return end_; }
  bool is_empty() const noexcept { return begin_ == end_; }
  bool contains(std::uint32_t input) const noexcept { return begin_ <= input && input < end_; }

  // Returns whether these inputs are known to fit. Requires: there are at least end() inputs.
  // kTakesBorrowed: accepts borrowed inputs, too.
  template <bool kTakesBorrowed>
  bool is_known(const InputList& inputs) const noexcept {
    return !known_.empty() && (kTakesBorrowed || !has_borrowed_) &&
           changes_ == Storage::changes() && is_same(inputs);
  }
  // The streams of the libraries that lent the known inputs, each once.
  const std::vector<StreamRef>& producers() const noexcept { return producers_; }
  // Must be called when a replay has used the known inputs.
  void note_use() noexcept { was_used_ = true; }
  // Examines the inputs of a call that is replayed, if the known inputs may be out of date, or if
  // `are_others`: these inputs have come twice, and others are known. In the second case the known
  // inputs must have been used: handles that are made for each call never become known.
  void learn(const std::vector<InputRecord>& records, const InputList& inputs, Device device,
             bool are_others = false) {
    if (is_empty()) return;
    const bool learns_others = are_others && was_used_ && !known_.empty();
    if (changes_ == Storage::changes() && !learns_others) [[likely]] {
      return;
    }
    was_used_ = was_used_ && !learns_others;
    look(records, inputs, device);
  }

 private:
  struct Words {
    std::uint64_t list[4];
  };
  static_assert(sizeof(Words) == sizeof(Tensor));

  bool is_same(const InputList& inputs) const noexcept {
    if (const Tensor* const tensors = inputs.contiguous()) {
      return std::memcmp(static_cast<const void*>(tensors + begin_), known_.data(),
                         known_.size() * sizeof(Words)) == 0;
    }
    for (std::uint32_t i = begin_; i < end_; ++i) {
      const void* const tensor = &inputs[i];
      if (std::memcmp(tensor, &known_[i - begin_], sizeof(Words)) != 0) return false;
    }
    return true;
  }
  void look(const std::vector<InputRecord>& records, const InputList& inputs, Device device);
  bool find_producers(const InputList& inputs);

  Of of_ = Of::kStatic;
  std::uint32_t begin_ = 0;
  std::uint32_t end_ = 0;
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  std::uint64_t changes_ = kNever;  // Storage::changes() when known_ was computed
  std::uint64_t seen_ = kNever;     // at the last examination
  std::vector<Words> known_;        // empty if the inputs did not fit plainly
  std::vector<Shape> shapes_;       // of them
  bool was_used_ = true;            // since other inputs were learned
  bool has_borrowed_ = false;
  static constexpr std::size_t kMostProducers = 4;  // so that a replay allocates nothing
  std::vector<StreamRef> producers_;
};

}  // namespace cgtree
