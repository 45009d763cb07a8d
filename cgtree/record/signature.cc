// Compares and hashes the inputs of calls.
#include "cgtree/record/signature.h"

#include <fmt/format.h>

namespace cgtree {

Signature::Signature(InputList inputs) : buffers_(inputs.buffers()) {
  entries_.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    entries_.push_back({inputs.shape(i), inputs[i].dtype(), inputs[i].defined()});
  }
}

bool Signature::matches(InputList inputs) const noexcept {
  if (inputs.size() != entries_.size() || inputs.buffers() != buffers_) return false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Entry& entry = entries_[i];
    if (inputs[i].dtype() != entry.dtype || inputs.shape(i) != entry.shape ||
        inputs[i].defined() != entry.is_defined) {
      return false;
    }
  }
  return true;
}

std::string Signature::to_string() const {
  std::string text;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const bool is_buffer = i >= entries_.size() - buffers_;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", is_buffer ? "into " : "");
    text += entry.is_defined
                ? fmt::format("{} {}", name(entry.dtype), cgtree::to_string(entry.shape))
                : "nothing";
  }
  return text;
}

std::uint64_t Signature::hash(InputList inputs) noexcept {
  std::uint64_t hash = inputs.size() ^ inputs.buffers() << 32;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::uint64_t word =
        inputs.shape(i).hash() + static_cast<std::uint64_t>(inputs[i].dtype());
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace cgtree
