// Reads and writes safetensors files: eight bytes with the length of a JSON header, the header, and
// the bytes of all tensors. Source: the format's description in Hugging Face's repository.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "interop/tensor/dtype.h"

namespace cgtree::serve {

struct StoredTensor {
  DType dtype = DType::kFloat32;  // float32, bfloat16 or float16
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  std::string file;  // for messages
};

// A Checkpoint is the tensors of a model's folder: those of model.safetensors, or of all files that
// model.safetensors.index.json names. The files are mapped, not read.
class Checkpoint {
 public:
  // Throws InvalidArgument, with the path and both sides, for a file that is missing, shorter than
  // its header says, or not in this format.
  explicit Checkpoint(const std::filesystem::path& folder);

  bool has(const std::string& name) const { return tensors_.count(name) > 0; }
  // Throws InvalidArgument, with both sides, if there is no such tensor or it has another shape.
  const StoredTensor& find(const std::string& name, std::span<const std::int64_t> shape) const;

 private:
  void add_file(const std::filesystem::path& path);

  std::filesystem::path folder_;
  std::vector<std::shared_ptr<const void>> mappings_;
  std::map<std::string, StoredTensor> tensors_;
};

// Writes one file of tensors of one type; `read` gives the bytes of tensor i, one after the other.
// Throws InvalidArgument if the file cannot be written.
struct NamedShape {
  std::string name;
  std::vector<std::int64_t> shape;
};
void write_safetensors(const std::filesystem::path& path, DType dtype,
                       std::span<const NamedShape> tensors,
                       const std::function<std::vector<std::byte>(std::size_t i)>& read);

}  // namespace cgtree::serve
