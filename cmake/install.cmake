# Installs libraries, headers, the CMake package with a component for each target, pkg-config files and the licence.
# All of it may be moved afterwards. Headers are below one folder, which is the one to include from.
include(CMakePackageConfigHelpers)

set(headers ${CMAKE_INSTALL_INCLUDEDIR}/cgtree)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/cgtree)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME cgtree)
install(TARGETS cgtree EXPORT cgtree FILE_SET HEADERS DESTINATION ${headers})
install(PROGRAMS python/cgtree/_report.py DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME cgtree_report)
install(EXPORT cgtree NAMESPACE cgtree:: DESTINATION ${package} FILE cgtree-cgtree.cmake)
if(CGTREE_EXTENSIONS)
  set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME c)
  install(TARGETS cgtree_c EXPORT c FILE_SET HEADERS DESTINATION ${headers})
  install(EXPORT c NAMESPACE cgtree:: DESTINATION ${package} FILE cgtree-c.cmake)
endif()

set(cgtree_needs_cudart OFF)
if(cgtree_cuda AND NOT BUILD_SHARED_LIBS)
  set(cgtree_needs_cudart ON)
endif()
configure_package_config_file(cmake/cgtreeConfig.cmake.in cgtreeConfig.cmake INSTALL_DESTINATION ${package}
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 every minor version may change what a program sees.
write_basic_package_version_file(cgtreeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cgtreeConfig.cmake ${PROJECT_BINARY_DIR}/cgtreeConfigVersion.cmake
  DESTINATION ${package})

# Libraries that programs link beside the static one; the shared one has them inside.
set(libraries "-pthread")
if(cgtree_needs_cudart)
  string(PREPEND libraries "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt -ldl ")
endif()
file(RELATIVE_PATH up ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" up "${up}")
foreach(name cgtree cgtree_cpp)
  if(name STREQUAL "cgtree" AND NOT CGTREE_EXTENSIONS)
    continue()
  endif()
  configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
  set(component c)
  if(name STREQUAL "cgtree_cpp")
    set(component cgtree)
  endif()
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT ${component})
endforeach()
install(FILES LICENSE THIRD_PARTY_LICENSES.md DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/cgtree)
