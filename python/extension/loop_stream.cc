// The Python type cgtree.LoopStream.
#include "extensions/flow/loop_stream.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "python/extension/control_flow.h"
#include "python/extension/module.h"
#include "python/extension/object.h"

namespace cgtree::python {
namespace {

using std::chrono::microseconds;

// The time for which a wait does not look at signals.
constexpr microseconds kSlice = std::chrono::milliseconds(100);

RowsHolder make(Device device, std::size_t row_bytes, std::size_t rows) {
  return {without_gil([&] { return std::make_unique<LoopStream>(device, row_bytes, rows); }),
          row_bytes};
}

Reference row_of(const LoopRow& row, const std::byte* data) {
  return pack(checked(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(data),
                                                static_cast<Py_ssize_t>(row.bytes))),
              row.loop, row.round, row.is_last);
}

Reference next(const RowsHolder& holder, std::optional<microseconds> timeout) {
  const microseconds limit = timeout.value_or(microseconds::max());
  const auto data = std::make_unique_for_overwrite<std::byte[]>(holder.row_bytes);
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    const microseconds left = limit - std::chrono::floor<microseconds>(waited);
    const std::optional<LoopRow> row = without_gil([&] {
      return holder.rows->next({data.get(), holder.row_bytes}, std::min(left, kSlice));
    });
    if (row) return row_of(*row, data.get());
    if (left <= kSlice) return Reference::borrow(Py_None);
    check_status(PyErr_CheckSignals());
  }
}

}  // namespace

void add_loop_stream_type(PyObject* module) {
  add_type<RowsHolder>(
      module, {.name = "cgtree.LoopStream",
               .methods = {bind<&next>("next"),
                           bind<[](const RowsHolder& holder) { holder.rows->stop(); }>("stop")},
               .maker = constructor<&make>()});
}

}  // namespace cgtree::python
