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
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

using std::chrono::microseconds;

PyTypeObject* g_type = nullptr;

// The time for which a wait does not look at signals.
constexpr microseconds kSlice = std::chrono::milliseconds(100);

// A RowsHolder lets Python run while its memory is released, which may wait for the device.
struct RowsHolder {
  RowsHolder(std::unique_ptr<LoopStream> made, std::size_t bytes) noexcept
      : rows(std::move(made)), row_bytes(bytes) {}
  RowsHolder(RowsHolder&&) = default;
  ~RowsHolder() {
    if (rows == nullptr || !interpreter_is_alive()) return;
    const GilRelease released;
    rows.reset();
  }

  std::unique_ptr<LoopStream> rows;
  std::size_t row_bytes;
};

// LoopStream(device, row_bytes, rows)
PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  return guarded([&] {
    const auto [place, bytes, count] =
        read_arguments<3>(arguments, keywords, {"LoopStream", {"device", "row_bytes", "rows"}, 3});
    const Device device = to_device(place);
    const std::size_t row_bytes = to_size(bytes, "row_bytes"), rows = to_size(count, "rows");
    auto made = without_gil([&] { return std::make_unique<LoopStream>(device, row_bytes, rows); });
    return make_object<RowsHolder>(type, RowsHolder(std::move(made), row_bytes)).release();
  });
}

Reference row_of(const LoopRow& row, const std::byte* data) {
  const Reference bytes = checked(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(data),
                                                            static_cast<Py_ssize_t>(row.bytes)));
  return checked(Py_BuildValue("(OKiO)", bytes.get(), static_cast<unsigned long long>(row.loop),
                               static_cast<int>(row.round), row.is_last ? Py_True : Py_False));
}

Reference next(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const auto [timeout] = read_arguments<1>(arguments, keywords, {"next", {"timeout"}});
  const microseconds limit =
      timeout == nullptr ? microseconds::max() : to_microseconds(timeout, "timeout");
  const RowsHolder& holder = value_of<RowsHolder>(self);
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

void stop(PyObject* self) {
  value_of<RowsHolder>(self).rows->stop();
}

constexpr const char* kDoc =
    "LoopStream(device, row_bytes, rows)\n\n"
    "Rows that a loop on the device hands out while it runs, one for each round: for\n"
    "loop(max_rounds, body, rows=...). Rows have up to `row_bytes` bytes, a multiple of 4, and "
    "are\n"
    "kept while the host is up to `rows` rows behind; then rows are lost, because the device does\n"
    "not wait. Loops of one LoopStream must not run at the same time. Raises InvalidArgument for\n"
    "other sizes, OutOfMemory.\n\n"
    ">>> rows = cgtree.LoopStream(\"host\", row_bytes=4, rows=16)\n"
    ">>> flag = cgtree.empty((), \"int32\", \"host\")\n"
    ">>> flag.copy_from(cgtree.scalar(1, \"int32\"))\n"
    ">>> with cgtree.Stream(\"host\"):\n"
    "...     rounds = cgtree.loop(2, lambda: (flag, flag), rows=rows)\n"
    ">>> rows.next(timeout=1)\n"
    "(b'\\x01\\x00\\x00\\x00', 1, 0, False)\n"
    ">>> row, loop, round, is_last = rows.next(timeout=1)\n"
    ">>> round, is_last\n"
    "(1, True)\n";

}  // namespace

LoopStream& loop_stream_of(PyObject* object) {
  if (Py_TYPE(object) == g_type) return *value_of<RowsHolder>(object).rows;
  PyErr_SetString(PyExc_TypeError, "loop(rows=...): expected a cgtree.LoopStream");
  throw PythonError();
}

void add_loop_stream_type(PyObject* module) {
  static PyMethodDef methods[] = {
      method<next>(
          "next",
          "next(timeout=None) -> (row, loop, round, is_last) or None\n\nWaits for the next row, "
          "for `timeout` seconds at most; returns None if there is none by then. `row`: its bytes; "
          "`loop`: its number, from 1 on, of those that have run with this LoopStream; `round`: "
          "from 0 on. Other threads run meanwhile, and Ctrl-C is heard. Raises InvalidArgument if "
          "rows were lost, with their number; the next call goes on with the oldest one that is "
          "left. Raises ConcurrentUse while another thread waits."),
      method<stop>("stop",
                   "stop(): the loop of the row that next() would return ends with the round that "
                   "it is in, or, if it has not begun, with its first one. A loop whose body has "
                   "raised has ended: once its rows are read, that is the loop behind it. Any "
                   "thread."),
      {nullptr, nullptr, 0, nullptr}};
  g_type = add_object_type<RowsHolder>(
      module, {.name = "cgtree.LoopStream", .doc = kDoc, .methods = methods, .make = make});
}

}  // namespace cgtree::python
