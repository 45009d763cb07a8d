// The cuBLAS functions used, loaded at run time so that a machine without cuBLAS can run the rest.
#pragma once

#include <cublas_v2.h>

namespace cgtree::serve {

// Loads in the constructor; the library stays loaded for the process, as handles of it may.
class CublasLibrary {
 public:
  // Throws InvalidArgument that says where it looked.
  CublasLibrary();

  decltype(&cublasCreate_v2) create;
  decltype(&cublasDestroy_v2) destroy;
  decltype(&cublasSetStream_v2) set_stream;
  decltype(&cublasSetWorkspace_v2) set_workspace;
  decltype(&cublasSetMathMode) set_math_mode;
  decltype(&cublasSgemm_v2) sgemm;
};

}  // namespace cgtree::serve
