// LimitedSource: a source for one user of several: the pools of one context, within a budget of it.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "allocator/segments/budget.h"
#include "allocator/segments/segment_source.h"
#include "allocator/segments/segment_users.h"

namespace cgtree {

// Passes on to upstream what the budget allows. Where it does not, the pools attached here are
// asked for what they do not need first.
//
// Threads: any.
class LimitedSource final : public SegmentSource {
 public:
  // Both must outlive it.
  LimitedSource(SegmentSource& upstream, Budget& budget) : upstream_(upstream), budget_(budget) {}

  // Throw OutOfMemory that names the level of the budget which refused, and what upstream throws.
  void* allocate(std::size_t bytes, StreamId stream) override;
  bool grow(void* segment, std::size_t bytes, std::size_t grown, StreamId stream) override;
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override;
  std::size_t shrink(void* segment, std::size_t bytes, std::size_t least,
                     StreamId stream) noexcept override;
  // Frees memory that the pools hold, and returns about how many bytes; `needed` would do. Asked
  // when the pools had nothing to give, without a lock held, on the thread that asks for memory.
  using Pressure = std::function<std::size_t(std::size_t needed)>;
  // Null: nobody. Not while memory is asked for.
  void set_pressure(Pressure pressure) { pressure_ = std::move(pressure); }

  void attach(SegmentUser& user) override;
  void detach(SegmentUser& user) noexcept override;

 private:
  void reserve(std::size_t bytes);

  SegmentSource& upstream_;
  Budget& budget_;
  SegmentUsers users_;
  Pressure pressure_;
};

}  // namespace cgtree
