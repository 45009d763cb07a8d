// Signature: dtypes, shapes and strides of a call's inputs and buffers as the step function sees
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cgtree/input_list.h"

namespace cgtree {

// A Signature is what the calls of one key share: one warm-up and its recordings serve them all.
class Signature {
 public:
  explicit Signature(InputList inputs);

  bool matches(InputList inputs) const noexcept;
  // Returns "float32 {4, 8}, int32 {4}".
  std::string to_string() const;

  static std::uint64_t hash(InputList inputs) noexcept;

 private:
  struct Entry {
    Shape shape;
    DType dtype;
    bool is_defined;  // false: the caller gave no buffer for this output
  };
  std::vector<Entry> entries_;
  std::size_t buffers_;
};

}  // namespace cgtree
