// Graphs with the members that recordings of ggml's graphs read.
#pragma once

#include <cstddef>
#include <cstdint>

enum { GGML_MAX_DIMS = 4, GGML_MAX_SRC = 4 };
enum ggml_type { GGML_TYPE_F32, GGML_TYPE_F16 };
enum ggml_op {
  GGML_OP_NONE,
  GGML_OP_ADD,
  GGML_OP_CPY,
  GGML_OP_RESHAPE,
  GGML_OP_VIEW,
  GGML_OP_PERMUTE,
  GGML_OP_TRANSPOSE
};

struct ggml_tensor {
  ggml_type type = GGML_TYPE_F32;
  std::int64_t ne[GGML_MAX_DIMS] = {1, 1, 1, 1};
  std::size_t nb[GGML_MAX_DIMS] = {4, 4, 4, 4};
  ggml_op op = GGML_OP_NONE;
  std::int32_t op_params[16] = {};
  std::int32_t flags = 0;
  ggml_tensor* src[GGML_MAX_SRC] = {};
  void* data = nullptr;
  bool is_contiguous = true;
};

struct ggml_cgraph {
  int n_nodes = 0;
  ggml_tensor** nodes = nullptr;
  std::uint64_t uid = 0;
};

inline bool ggml_is_contiguous(const ggml_tensor* tensor) {
  return tensor->is_contiguous;
}
