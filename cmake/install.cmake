# What `cmake --install` puts where; how another project finds it: find_package(aicf) or pkg-config.
include(CMakePackageConfigHelpers)

set(AICF_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/aicf)
file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})

# No promise of a stable binary interface before 1.0: a minor version is another library.
set_target_properties(aicf PROPERTIES VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
install(TARGETS aicf EXPORT aicf-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET aicf_cli)
  set_target_properties(aicf_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS aicf_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET aicf_cuda)
  # Beside libaicf.so, where it is looked for. It finds NVRTC and cuBLASLt in the toolkit it was built with.
  set_target_properties(aicf_cuda PROPERTIES INSTALL_RPATH "$ORIGIN;${CUDAToolkit_LIBRARY_DIR}")
  install(TARGETS aicf_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY include/aicf DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/aicf)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT aicf-targets NAMESPACE aicf:: DESTINATION ${AICF_CMAKE_DIR})
configure_package_config_file(cmake/aicf-config.cmake.in ${CMAKE_BINARY_DIR}/aicf-config.cmake
  INSTALL_DESTINATION ${AICF_CMAKE_DIR} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/aicf-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/aicf-config.cmake ${CMAKE_BINARY_DIR}/aicf-config-version.cmake
  DESTINATION ${AICF_CMAKE_DIR})
configure_file(cmake/aicf.pc.in ${CMAKE_BINARY_DIR}/aicf.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/aicf.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
