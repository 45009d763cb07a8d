# The extension of the Python package and the types of its options. pyproject.toml makes a wheel of them, of the
# package's files in Python, and of the C ABI.
set(CGTREE_PYTHON_FOLDER . CACHE STRING "Where the extension is installed, below the prefix")
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

file(GLOB extension CONFIGURE_DEPENDS python/extension/*.cc)
add_library(cgtree_python MODULE ${extension})
cgtree_library(cgtree_python)
cgtree_exports(cgtree_python ${PROJECT_SOURCE_DIR}/python/extension/exports.lds)
target_link_libraries(cgtree_python PRIVATE Python::Module)
# Function tables of Python's API are casts from functions of other types.
target_compile_options(cgtree_python PRIVATE -Wno-cast-function-type)
# One file for Python 3.11 and later, in the limited API. Its sources are compiled one by one.
set_target_properties(cgtree_python PROPERTIES
  PREFIX "" OUTPUT_NAME _cgtree SUFFIX .abi3.so CXX_VISIBILITY_PRESET hidden UNITY_BUILD OFF)

# Names, defaults and docstrings of entries.
set(signatures ${CMAKE_CURRENT_BINARY_DIR}/python/signatures.inc)
add_custom_command(
  OUTPUT ${signatures}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/python
  COMMAND ${Python_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/python/signatures.py
    ${PROJECT_SOURCE_DIR}/python/cgtree/_cgtree.pyi ${signatures}
  DEPENDS python/signatures.py python/cgtree/_cgtree.pyi
  VERBATIM)
target_sources(cgtree_python PRIVATE ${signatures})
target_include_directories(cgtree_python PRIVATE ${CMAKE_CURRENT_BINARY_DIR})

set(stubs ${CMAKE_CURRENT_BINARY_DIR}/_options.pyi)
add_custom_command(
  OUTPUT ${stubs}
  COMMAND ${Python_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/python/stubs.py ${PROJECT_SOURCE_DIR}/extensions/watch/option_table.h ${stubs}
  DEPENDS python/stubs.py extensions/watch/option_table.h
  VERBATIM)
target_sources(cgtree_python PRIVATE ${stubs})

install(TARGETS cgtree_python LIBRARY DESTINATION ${CGTREE_PYTHON_FOLDER} COMPONENT python)
install(FILES ${stubs} DESTINATION ${CGTREE_PYTHON_FOLDER} COMPONENT python)
