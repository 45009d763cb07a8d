// Table: device memory that a recording reads, and that lives as long as the recording.
#pragma once

#include <cstddef>
#include <utility>

#include "cgtree/memory/context_memory.h"

namespace cgtree {

// A Table owns a block of the eager pool, which no footprint covers. Move-only.
class Table {
 public:
  Table() = default;
  // Throws OutOfMemory.
  Table(ContextMemory& memory, std::size_t bytes)
      : memory_(&memory), data_(memory.allocate_table(bytes)) {}
  ~Table() {
    if (data_ != nullptr) memory_->free_table(data_);
  }
  Table(Table&& other) noexcept
      : memory_(other.memory_), data_(std::exchange(other.data_, nullptr)) {}
  Table& operator=(Table&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    return *this;
  }

  void* data() const noexcept { return data_; }

 private:
  ContextMemory* memory_ = nullptr;
  void* data_ = nullptr;
};

}  // namespace cgtree
