// InputRecord: what a recording demands of one input.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cgtree/input_list.h"

namespace cgtree {

// A Treatment is how an input is brought to a recording.
enum class Treatment : std::uint8_t {
  kStatic,      // the caller promised the address
  kManaged,     // it is an output of an earlier call, at the recorded address
  kCopied,      // it may lie anywhere on the device; the root node copies it
  kCopiedBack,  // the same, and the tail node copies it back: the function writes into it
  kValue,       // a scalar in host memory, passed as a kernel argument of the root node
  kBuffer,      // it may lie anywhere on the device; the tail node copies an output to it
  kNoBuffer,    // the caller gave no buffer for this output
};

// Returns "static", "copied_back", ...: the name in JSON.
std::string_view name(Treatment treatment) noexcept;

inline bool is_copied(Treatment treatment) noexcept {
  return treatment == Treatment::kCopied || treatment == Treatment::kCopiedBack;
}

// Returns whether the tensor may be at another address at each call.
inline bool may_move(Treatment treatment) noexcept {
  return is_copied(treatment) || treatment == Treatment::kBuffer;
}

// An InputRecord describes one input, or buffer, of a recorded call.
//
// A call may have hundreds of inputs, and to prove that they fit is most of what it costs then. So
// the common case is one branch per input, taken on the `or` of all differences: address_mask and
// plain_dtype say, as words to compare, what an input must be to fit plainly. One that does not fit
// plainly may fit all the same: fits_input() decides.
struct InputRecord {
  InputRecord(const Shape& input_shape, DType input_dtype, Treatment input_treatment,
              std::uintptr_t input_address)
      : shape(input_shape),
        address(input_address),
        address_mask(input_treatment == Treatment::kStatic ? ~std::uintptr_t{0} : 0),
        plain_dtype(input_treatment == Treatment::kStatic || may_move(input_treatment)
                        ? static_cast<std::uint64_t>(input_dtype)
                        : kNeverPlain),
        dtype(input_dtype),
        treatment(input_treatment) {}

  Shape shape;
  // Static and managed inputs: where the input must be. Copied ones: where the copy is.
  std::uintptr_t address;
  std::uintptr_t address_mask;  // all ones if the address must be this one, else 0
  std::uint64_t plain_dtype;    // the dtype, or kNeverPlain
  DType dtype;
  Treatment treatment;

 private:
  static constexpr std::uint64_t kNeverPlain = ~std::uint64_t{0};  // equals no dtype
};

namespace detail {

// Returns 0 if the input fits plainly.
inline std::uint64_t difference(const InputRecord& record, const Tensor& input, Device device) {
  const Storage* const storage = input.storage().get();
  if (storage == nullptr) [[unlikely]] {
    return 1;
  }
  return ((input.address() ^ record.address) & record.address_mask) |
         input.shape().difference(record.shape) |
         (static_cast<std::uint64_t>(input.dtype()) ^ record.plain_dtype) |
         (static_cast<std::uint64_t>(storage->state()) ^
          static_cast<std::uint64_t>(Storage::State::kLive)) |
         (std::bit_cast<std::uint64_t>(storage->device()) ^ std::bit_cast<std::uint64_t>(device));
}

}  // namespace detail

// Returns the first input from `begin` on that does not fit plainly, or the number of inputs.
// Requires: records has an entry for each input.
inline std::uint32_t first_not_plain(const std::vector<InputRecord>& records, InputList inputs,
                                     std::uint32_t begin, Device device) noexcept {
  const auto size = static_cast<std::uint32_t>(inputs.size());
  const InputRecord* const record = records.data();
  if (const Tensor* const tensors = inputs.contiguous()) {
    while (begin < size && detail::difference(record[begin], tensors[begin], device) == 0)
      ++begin;
  } else {
    while (begin < size && detail::difference(record[begin], inputs[begin], device) == 0)
      ++begin;
  }
  return begin;
}

}  // namespace cgtree
