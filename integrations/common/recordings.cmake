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
  add_library(cgtree_ggml STATIC ${root}/integrations/common/cuda_graphs.cc ${root}/integrations/common/cuda_stream.cc)
  set_target_properties(cgtree_ggml PROPERTIES POSITION_INDEPENDENT_CODE ON EXCLUDE_FROM_ALL ON)
  target_include_directories(cgtree_ggml PUBLIC ${root})
  target_link_libraries(cgtree_ggml PRIVATE cgtree::cgtree CUDA::cudart)
endfunction()

# `folder` has the folders include and src of ggml.
function(cgtree_ggml_join target folder)
  target_include_directories(cgtree_ggml PRIVATE ${folder}/include ${folder}/src)
  target_compile_definitions(${target} PRIVATE GGML_CUDA_CGTREE)
  target_link_libraries(${target} PRIVATE cgtree_ggml)
  if(target STREQUAL "ggml-cuda")  # the older layout has a table of its own
    target_sources(${target} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/copies.cu)
  endif()
endfunction()

# Compiles kernels of files that match one of `ARGN` without optimising them: those that are not
# launched.
function(cgtree_ggml_unused_kernels target folder)
  list(TRANSFORM ARGN PREPEND ${folder}/src/ggml-cuda/)
  file(GLOB unused ${ARGN})
  set_source_files_properties(${unused} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS --Ofast-compile=max)
endfunction()

# Leaves the files out that match one of the patterns in `ARGN`. A program that calls what is in one
# ends there, with the name of the function.
function(cgtree_ggml_leave_out target)
  get_target_property(sources ${target} SOURCES)
  foreach(pattern IN LISTS ARGN)
    list(FILTER sources EXCLUDE REGEX ${pattern})
  endforeach()
  set_property(TARGET ${target} PROPERTY SOURCES ${sources})
endfunction()
