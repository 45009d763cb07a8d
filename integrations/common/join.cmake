# Joins cgtree to a program that is built with its own CMakeLists.txt, and that apply.py has given the
# lines: -DCMAKE_PROJECT_NAME_INCLUDE=FILE, NAME being what the program calls its project.
#
#   CGTREE_GGML_TARGET   the target with the CUDA backend
#   CGTREE_GGML_FOLDER   the folder of ggml in the program
#   CGTREE_LEFT_OUT      patterns of files with kernels that are not launched (cgtree_ggml_leave_out)
include_guard(GLOBAL)
cmake_policy(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/recordings.cmake)
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
# Deferred until the program has made its targets.
if(GGML_CUDA)
  cgtree_ggml_recordings(${root})
  cmake_language(DEFER CALL cgtree_ggml_join ${CGTREE_GGML_TARGET} ${CGTREE_GGML_FOLDER})
  # Counts the calls that a program makes of the CUDA runtime: LD_PRELOAD.
  add_library(cuda_calls SHARED ${root}/integrations/common/cuda_calls.cc)
  target_include_directories(cuda_calls PRIVATE ${root})
  target_link_libraries(cuda_calls PRIVATE CUDA::cudart ${CMAKE_DL_LIBS})
endif()
if(CGTREE_LEFT_OUT)
  cmake_language(DEFER CALL cgtree_ggml_leave_out ${CGTREE_GGML_TARGET} ${CGTREE_LEFT_OUT})
  add_link_options(-Wl,--allow-shlib-undefined -Wl,-z,lazy)
endif()
