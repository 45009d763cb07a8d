// NVRTC's functions, loaded at run time so that a machine without NVRTC can run the rest.
#pragma once

#include <nvrtc.h>

namespace cgtree::cuda {

struct NvrtcLibrary {
  // Throws InvalidArgument that says where it looked. What is loaded stays loaded.
  NvrtcLibrary();

  decltype(&nvrtcVersion) version;
  decltype(&nvrtcGetErrorString) error_string;
  decltype(&nvrtcCreateProgram) create;
  decltype(&nvrtcDestroyProgram) destroy;
  decltype(&nvrtcAddNameExpression) add_name;
  decltype(&nvrtcCompileProgram) compile;
  decltype(&nvrtcGetLoweredName) lowered_name;
  decltype(&nvrtcGetProgramLogSize) log_size;
  decltype(&nvrtcGetProgramLog) log;
  decltype(&nvrtcGetCUBINSize) cubin_size;
  decltype(&nvrtcGetCUBIN) cubin;
  decltype(&nvrtcGetPTXSize) ptx_size;
  decltype(&nvrtcGetPTX) ptx;
};

}  // namespace cgtree::cuda
