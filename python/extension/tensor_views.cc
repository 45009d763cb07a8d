// Views of a tensor.

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "interop/exchange/foreign_array.h"
#include "python/extension/stream.h"
#include "python/extension/tensor.h"

namespace cgtree::python {
namespace {

// A View takes the axes of a tensor one by one.
struct View {
  std::int64_t offset = 0;  // elements
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;

  Tensor of(const Tensor& tensor) const {
    return Tensor(tensor.storage(),
                  tensor.byte_offset() + static_cast<std::size_t>(offset) * size_of(tensor.dtype()),
                  Shape(dims, strides), tensor.dtype());
  }
  void keep_axis(const Tensor& tensor, int axis) {
    dims.push_back(tensor.shape().dim(axis));
    strides.push_back(tensor.shape().stride(axis));
  }
};

void take_index(const Tensor& tensor, int axis, PyObject* index, View& view) {
  const std::int64_t size = tensor.shape().dim(axis);
  const std::int64_t given = to_int64(index, "an index");
  if (given < -size || given >= size) {
    PyErr_Format(PyExc_IndexError, "index %lld is out of range for axis %d of size %lld",
                 static_cast<long long>(given), axis, static_cast<long long>(size));
    throw PythonError();
  }
  view.offset += (given < 0 ? given + size : given) * tensor.shape().stride(axis);
}

void take_slice(const Tensor& tensor, int axis, PyObject* slice, View& view) {
  Py_ssize_t begin = 0;
  Py_ssize_t end = 0;
  Py_ssize_t step = 0;
  check_status(PySlice_Unpack(slice, &begin, &end, &step));
  if (step < 0) {
    throw InvalidArgument(str_format(
        "axis {} has step {}: negative steps are not supported; make a copy in that order first",
        axis, step));
  }
  const Py_ssize_t count =
      PySlice_AdjustIndices(static_cast<Py_ssize_t>(tensor.shape().dim(axis)), &begin, &end, step);
  if (count > 0) view.offset += begin * tensor.shape().stride(axis);
  view.dims.push_back(count);
  view.strides.push_back(tensor.shape().stride(axis) * (count > 1 ? step : 1));
}

Tensor subscript(const Tensor& tensor, PyObject* key) {
  const Reference keys =
      PyTuple_Check(key) ? Reference::borrow(key) : checked(PyTuple_Pack(1, key));
  const Py_ssize_t count = PyTuple_Size(keys.get());
  const auto is_special = [&](Py_ssize_t i) {
    PyObject* const item = PyTuple_GetItem(keys.get(), i);
    return item == Py_None || item == Py_Ellipsis;
  };
  int named = 0;
  for (Py_ssize_t i = 0; i < count; ++i)
    named += is_special(i) ? 0 : 1;
  if (named > tensor.rank()) {
    PyErr_Format(PyExc_IndexError, "%d indices for a tensor of %d dimensions", named,
                 tensor.rank());
    throw PythonError();
  }
  View view;
  int axis = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = PyTuple_GetItem(keys.get(), i);
    if (item == Py_None) {
      view.dims.push_back(1);
      view.strides.push_back(0);
    } else if (item == Py_Ellipsis) {
      for (int skipped = tensor.rank() - named; skipped > 0; --skipped)
        view.keep_axis(tensor, axis++);
    } else if (PySlice_Check(item)) {
      take_slice(tensor, axis++, item, view);
    } else {
      take_index(tensor, axis++, item, view);
    }
  }
  while (axis < tensor.rank())
    view.keep_axis(tensor, axis++);
  return view.of(tensor);
}

// Reads sizes from one tuple or from the arguments.
std::vector<std::int64_t> sizes_of(Rest given) {
  std::vector<std::int64_t> sizes;
  if (given.size() == 1) return to_integers(given[0], "a size");
  for (PyObject* const size : given)
    sizes.push_back(to_int64(size, "a size"));
  return sizes;
}

std::vector<std::int64_t> with_inferred(const Tensor& tensor, std::vector<std::int64_t> dims) {
  const auto unknown = std::find(dims.begin(), dims.end(), -1);
  if (unknown == dims.end()) return dims;
  std::int64_t others = 1;
  bool fits = true;
  for (const std::int64_t dim : dims)
    fits = fits && !__builtin_mul_overflow(others, dim == -1 ? 1 : dim, &others);
  if (fits && others > 0) *unknown = tensor.elements() / others;
  return dims;
}

Tensor reshape(const Tensor& tensor, Rest sizes) {
  return tensor.reshape(Shape(with_inferred(tensor, sizes_of(sizes))));
}

}  // namespace

PyObject* tensor_getitem(PyObject* self, PyObject* key) {
  return guarded([&] { return make_tensor(subscript(tensor_of(self), key)).release(); });
}

std::vector<Method> tensor_view_methods() {
  return {bind<&reshape>("reshape"), bind<[](const Tensor& tensor, PyObject* stream) {
            return on_stream(tensor, expect_own_stream(stream));
          }>("on_stream")};
}

}  // namespace cgtree::python
