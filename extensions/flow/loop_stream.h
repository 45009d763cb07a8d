// LoopStream: rows that a loop on the device hands out while it runs, one row for each round.
//
//   cgtree::LoopStream tokens(device, /*row_bytes=*/4 * rows, /*rows=*/1024);
//   auto step = [&](Tensor batch, Tensor kv_cache) {
//     Tensor next = empty({rows}, DType::kInt32), goes_on = empty({}, DType::kInt32);
//     return loop(64, tokens, [&]() -> LoopRound {
//       launch_decode(current_stream(), batch, kv_cache, next, goes_on);
//       return {goes_on, next};
//     });
//   };
//   ...
//   std::vector<std::int32_t> row(rows);
//   while (auto got = tokens.next(std::as_writable_bytes(std::span(row)), 1s)) {
//     send_to_clients(row);
//     if (client_has_gone) tokens.stop();
//     if (got->is_last) break;
//   }
//
// The device does not wait for the host: if the host is more than `rows` rows behind, rows are
// lost, and next() reports it. Each loop hands out as many rows as it makes rounds, at least one,
// whether the step runs eagerly, is warmed up or replayed, for a caller, precapture() or a
// SizeLearner; a loop whose body throws has no last row. See drop(). A replay that hands out rows
// is not verified, because an eager run beside it would hand them out again.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "interop/device/device.h"
#include "interop/random/generator.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

struct LoopRing;

// The results of the body of a loop that hands out rows.
struct LoopRound {
  Tensor goes_on;  // the flag, as for loop()
  Tensor row;      // contiguous; a multiple of 4 bytes, at most row_bytes
};

// A row that was handed out.
struct LoopRow {
  std::uint64_t loop = 0;  // its number, from 1 on, among all loops with this stream
  std::int32_t round = 0;  // from 0 on
  std::size_t bytes = 0;
  bool is_last = false;  // of its loop
};

// Loops of one LoopStream must not run at the same time. Recordings keep the parts of it that they
// use.
//
// Thread safety: stop() may be called by any thread; next() and drop() by one thread at a time,
// while loops are enqueued and run.
class LoopStream {
 public:
  // Rows of up to `row_bytes`, a multiple of 4, that are kept while the host is up to `rows` rows
  // behind. Throws InvalidArgument for other sizes, and for a device without events; OutOfMemory.
  LoopStream(Device device, std::size_t row_bytes, std::size_t rows);
  ~LoopStream();
  LoopStream(LoopStream&&) noexcept;
  LoopStream& operator=(LoopStream&&) noexcept;

  // Waits for the next row, for `limit` at most, and copies it to the front of `to`. Returns
  // nothing if there is no row by then. Throws InvalidArgument if rows were lost, with their
  // number, and continues with the oldest row that is left; InvalidArgument for a row larger than
  // `to`, which stays; ConcurrentUse while another thread is in it.
  std::optional<LoopRow> next(std::span<std::byte> to, std::chrono::nanoseconds limit);

  // Drops the rows that were handed out and not read, lost ones too, and returns their number.
  // Should be called while no loop runs; stop() then applies to the loop after them.
  std::uint64_t drop() noexcept;

  // Ends the loop of the row that next() would return, with its present round, or with its first
  // round if the loop has not begun. A loop whose body threw has ended: once its rows are read,
  // this ends the loop after it.
  void stop() noexcept;

 private:
  friend Tensor loop(std::int64_t max_rounds, LoopStream& rows,
                     const std::function<LoopRound()>& body,
                     const std::vector<Generator>& generators);
  std::unique_ptr<LoopRing> ring_;
};

// As loop(), and each round hands out its row. Throws InvalidArgument for a row that is on another
// device, not contiguous, or too large; and in the body of a loop with the same LoopStream.
Tensor loop(std::int64_t max_rounds, LoopStream& rows, const std::function<LoopRound()>& body,
            const std::vector<Generator>& generators = {});

}  // namespace cgtree
