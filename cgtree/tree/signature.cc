// Compares and hashes the inputs of a call.
#include "cgtree/tree/signature.h"

#include <fmt/format.h>

namespace cgtree {

Signature::Signature(InputList inputs) {
  entries_.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    entries_.push_back({inputs.shape(i), inputs[i].dtype()});
  }
}

bool Signature::matches(InputList inputs) const noexcept {
  if (inputs.size() != entries_.size()) return false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype() != entries_[i].dtype || inputs.shape(i) != entries_[i].shape) {
      return false;
    }
  }
  return true;
}

std::string Signature::to_string() const {
  std::string text;
  for (const Entry& entry : entries_) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name(entry.dtype),
                        cgtree::to_string(entry.shape));
  }
  return text;
}

std::uint64_t Signature::hash(InputList inputs) noexcept {
  std::uint64_t hash = inputs.size();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::uint64_t word =
        inputs.shape(i).hash() + static_cast<std::uint64_t>(inputs[i].dtype());
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace cgtree
