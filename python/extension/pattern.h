// An ArgumentPattern compares the arguments of a call with those of an earlier one, in one walk.
#pragma once

#include <vector>

#include "python/extension/errors.h"

namespace cgtree::python {

// Made from a shape of cgtree/_torch_tree.py. Requires: the GIL.
class ArgumentPattern {
 public:
  // `types` has the type of each tensor in the order of the leaves. Returns false for shapes with
  // containers of other kinds than list, tuple and dict, which Python has to flatten.
  bool read(PyObject* shape, PyObject* types);

  // For the collector.
  int traverse(visitproc visit, void* arg) const { return traverse(root_, visit, arg); }

  // Returns whether the value differs from that shape in its tensors alone, and appends these, as
  // owned references, until something differs. Throws PythonError.
  bool matches(PyObject* value, std::vector<PyObject*>& leaves) const;

 private:
  enum class Kind { kTensor, kSame, kEqual, kFloat, kTuple, kList, kDict };
  struct Node {
    Kind kind;
    PyTypeObject* type;  // of the value
    Reference value;     // kSame, kEqual: what it is
    double number = 0;
    std::vector<Reference> names;  // kDict
    std::vector<Node> children;
  };

  static bool read(PyObject* shape, PyObject* types, Py_ssize_t& leaf, Node& node);
  static int traverse(const Node& node, visitproc visit, void* arg);
  static bool matches(const Node& node, PyObject* value, std::vector<PyObject*>& leaves);
  static bool children_match(const Node& node, PyObject* value, std::vector<PyObject*>& leaves);

  Node root_{};
};

}  // namespace cgtree::python
