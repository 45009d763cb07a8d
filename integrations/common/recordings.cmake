# Joins cgtree to ggml: a target of ggml that has its CUDA backend links the library cgtree_ggml.

# A library of its own, because it is in C++20, and ggml's kernels are not.
function(cgtree_ggml_recordings root)
  # One runtime for ggml and cgtree, whose calls cuda_calls.cc counts.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  set(CGTREE_CUDA ON)
  set(CGTREE_CUDA_ARCHS ${CMAKE_CUDA_ARCHITECTURES} CACHE STRING "")
  set(BUILD_SHARED_LIBS OFF)
  add_subdirectory(${root} cgtree EXCLUDE_FROM_ALL)
  find_package(CUDAToolkit REQUIRED GLOBAL)
  add_library(cgtree_ggml STATIC ${root}/integrations/common/cuda_graphs.cc)
  set_target_properties(cgtree_ggml PROPERTIES POSITION_INDEPENDENT_CODE ON EXCLUDE_FROM_ALL ON)
  target_include_directories(cgtree_ggml PUBLIC ${root})
  target_link_libraries(cgtree_ggml PRIVATE cgtree::cgtree CUDA::cudart)
endfunction()

# `folder` has the folders include and src of ggml.
function(cgtree_ggml_join target folder)
  target_include_directories(cgtree_ggml PRIVATE ${folder}/include ${folder}/src)
  target_compile_definitions(${target} PRIVATE GGML_CUDA_CGTREE)
  target_link_libraries(${target} PRIVATE cgtree_ggml)
endfunction()

# Compiles kernels that are not launched without optimising them: those whose files match a pattern
# of `ARGN`, and no pattern of the list CGTREE_FAST_KERNELS.
function(cgtree_ggml_unused_kernels target folder)
  list(TRANSFORM ARGN PREPEND ${folder}/src/ggml-cuda/)
  file(GLOB unused ${ARGN})
  foreach(pattern IN LISTS CGTREE_FAST_KERNELS)
    list(FILTER unused EXCLUDE REGEX ${pattern})
  endforeach()
  set_source_files_properties(${unused} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS --Ofast-compile=max)
endfunction()
