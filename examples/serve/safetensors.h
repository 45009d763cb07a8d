// Reads safetensors files: eight bytes with the length of a JSON header, the header, and the bytes
// of all tensors. Source: the format's description in Hugging Face's repository.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "interop/tensor/dtype.h"

namespace cgtree::serve {

struct StoredTensor {
  DType dtype = DType::kFloat32;  // float32, bfloat16 or float16
  std::vector<std::int64_t> shape;
  std::filesystem::path file;
  std::size_t begin = 0, end = 0;  // its bytes in the file
};

// Returns the tensors of a model's folder by their names: those of model.safetensors, or of all
// files that model.safetensors.index.json names. Throws InvalidArgument, with the path and both
// sides, for a file that is missing, shorter than its header says, or not in this format.
std::map<std::string, StoredTensor> read_checkpoint(const std::filesystem::path& folder);

// Returns the bytes of a tensor. Throws InvalidArgument if they cannot be read.
std::vector<std::byte> read(const StoredTensor& tensor);

}  // namespace cgtree::serve
