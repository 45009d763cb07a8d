// A transformer of random weights, built with TensorRT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "integrations/tensorrt/model.h"
#include "interop/device/device.h"

namespace cgtree_tensorrt {

// TensorRT is missing, has another version than the program was compiled for, or refused a call.
class TensorRtError : public cgtree::Error {
 public:
  explicit TensorRtError(std::string_view message,
                         std::source_location where = std::source_location::current())
      : Error(message, where) {}
};

struct NetworkOptions {
  int layers = 4;
  int width = 256;
  int heads = 4;
  int vocabulary = 1024;
  int classes = 64;
  int max_batch = 16;
  int max_length = 256;
  std::uint64_t seed = 1;  // of the weights
};

// Two optimization profiles: for batches up to a quarter of the largest, and for larger ones.
class TensorRtModel : public Model {
 public:
  // `library` is the file name of TensorRT; by default, that of the version that the program was
  // compiled for. Throws TensorRtError; InvalidArgument for options that contradict each other.
  TensorRtModel(const NetworkOptions& options, cgtree::Device device,
                const std::string& library = "");
  ~TensorRtModel() override;

  int classes() const override;
  Shape largest() const override;
  std::size_t scratch_bytes() const override;
  int profile_of(Shape shape) const override;
  // Throws TensorRtError.
  std::unique_ptr<Execution> make_execution(int profile, const Buffers& buffers,
                                            cgtree::StreamRef stream) override;
  std::map<const void*, std::size_t> memory() const override;

  std::string version() const;     // of TensorRT
  std::size_t plan_bytes() const;  // of the serialized network
  double build_seconds() const;
  int auxiliary_streams() const;  // of each execution

 private:
  struct TensorRt;
  std::unique_ptr<TensorRt> tensorrt_;
};

}  // namespace cgtree_tensorrt
