# Compiles .cu files with nvcc, as bazel/cuda/defs.bzl does.
#
# CMake's own language CUDA is not used: every program that links the library, in whatever folder, would have to
# enable it.

# Adds the objects of .cu files to a target.
function(cgtree_kernels target)
  set(flags -std=c++20 -O3 -lineinfo -Xcompiler -fPIC)
  foreach(arch IN LISTS CGTREE_CUDA_ARCHS)
    list(APPEND flags -gencode=arch=compute_${arch},code=sm_${arch})
  endforeach()
  list(GET CGTREE_CUDA_ARCHS -1 last)
  list(APPEND flags -gencode=arch=compute_${last},code=compute_${last})
  foreach(source IN LISTS ARGN)
    get_filename_component(name ${source} NAME)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} -ccbin ${CMAKE_CXX_COMPILER} ${flags} -I${PROJECT_SOURCE_DIR}
              -MD -MF ${object}.d -x cu -c ${PROJECT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${PROJECT_SOURCE_DIR}/${source}
      DEPFILE ${object}.d
      COMMENT "Compiling ${source} with nvcc"
      VERBATIM)
    target_sources(${target} PRIVATE ${object})
  endforeach()
endfunction()
