# Compiles .cu files with nvcc, as bazel/cuda/defs.bzl does.
#
# CMake's own language CUDA is not used: every program that links the library, in any folder, would have to enable it.

# cgtree_archs is the list of architectures of kernels: 90-real for machine code, 75-virtual for PTX, 80 for both.
set(cgtree_archs ${CGTREE_CUDA_ARCHS})
set(cgtree_whose "")
if(CGTREE_CUDA_ARCHS STREQUAL "auto")
  # Kernels for all GPUs take most of the minutes of a build, and of the size of the library.
  set(cgtree_archs all)
  find_program(CGTREE_NVIDIA_SMI nvidia-smi)
  mark_as_advanced(CGTREE_NVIDIA_SMI)
  if(CGTREE_NVIDIA_SMI)
    execute_process(COMMAND ${CGTREE_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE found ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0 AND found MATCHES "^[0-9]+\\.[0-9]")
      string(REGEX MATCHALL "[0-9]+\\.[0-9]" found "${found}")
      list(TRANSFORM found REPLACE "\\." "")
      list(REMOVE_DUPLICATES found)
      list(SORT found COMPARE NATURAL)
      set(cgtree_archs ${found})
      set(cgtree_whose ", the GPUs of this machine; for others, set CGTREE_CUDA_ARCHS=all, or the list of them")
    endif()
  endif()
endif()
if(cgtree_archs STREQUAL "all")
  execute_process(COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} --list-gpu-code OUTPUT_VARIABLE known COMMAND_ERROR_IS_FATAL ANY)
  set(real "")
  foreach(arch 75 80 86 89 90 100 120)
    if(known MATCHES "sm_${arch}\n")
      list(APPEND real ${arch})
    endif()
  endforeach()
  # PTX of the first is for GPUs between these, such as 11.0, and PTX of the last for future ones.
  list(GET real 0 first)
  list(GET real -1 last)
  list(TRANSFORM real APPEND -real OUTPUT_VARIABLE cgtree_archs)
  set(cgtree_archs ${first}-virtual ${cgtree_archs} ${last}-virtual)
endif()
set(unknown ${cgtree_archs})
list(FILTER unknown EXCLUDE REGEX "^[0-9]+[af]?(-real|-virtual)?$")
if(unknown OR NOT cgtree_archs)
  message(FATAL_ERROR "CGTREE_CUDA_ARCHS is '${CGTREE_CUDA_ARCHS}', and '${unknown}' of it names no GPU: use auto, all, or "
                      "numbers like 90, 90-real or 75-virtual, in a list with semicolons")
endif()
message(STATUS "cgtree: kernels for ${cgtree_archs}${cgtree_whose}")

# Sets a variable to the objects of .cu files. Several targets use them: another target makes them, so that they are
# made once.
function(cgtree_kernels variable)
  set(flags -std=c++20 -O3 -lineinfo -Xcompiler -fPIC)
  foreach(arch IN LISTS cgtree_archs)
    string(REGEX MATCH "^[0-9]+[af]?" number ${arch})
    if(NOT arch MATCHES "-virtual$")
      list(APPEND flags -gencode=arch=compute_${number},code=sm_${number})
    endif()
    if(NOT arch MATCHES "-real$")
      list(APPEND flags -gencode=arch=compute_${number},code=compute_${number})
    endif()
  endforeach()
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
    list(APPEND objects ${object})
  endforeach()
  add_custom_target(cgtree_kernels DEPENDS ${objects})
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()
