# Installed are the command; the object to preload, in a folder of its own, where no linker takes it for the library;
# and the library, static and shared, with its headers, for find_package(cistern) and pkg-config.
if(CISTERN_SANITIZE)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/cistern")
install(TARGETS cistern cistern_shared EXPORT cistern
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(CISTERN_SHIM)
  install(TARGETS cistern_shim LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/cistern")
endif()
if(TARGET cistern_command)
  install(TARGETS cistern_command RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/shim/include/cistern" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/shim/doc/" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        PATTERN "*.1" EXCLUDE PATTERN "changes" EXCLUDE)
install(FILES "${PROJECT_SOURCE_DIR}/shim/doc/cistern.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
install(FILES "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/THIRD-PARTY"
        DESTINATION "${CMAKE_INSTALL_DOCDIR}")

install(EXPORT cistern NAMESPACE cistern:: FILE cisternConfig.cmake DESTINATION "${package_folder}")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/cisternConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/cisternConfigVersion.cmake" DESTINATION "${package_folder}")

# cistern.pc links the shared library, cistern-static.pc the archive. Relative to themselves: the folder may be moved.
file(RELATIVE_PATH to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
foreach(library shared static)
  set(package cistern)
  set(libraries "-lcistern-shared")
  if(library STREQUAL "static")
    set(package cistern-static)
    set(libraries "-lcistern-static -ldl -lm")
  endif()
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${package}.pc" @ONLY CONTENT
[[prefix=${pcfiledir}/@to_prefix@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: @package@
Description: Allocator library for GPU programs (@library@)
Version: @PROJECT_VERSION@
Libs: -L${libdir} @libraries@
Cflags: -I${includedir}
]])
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/${package}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()
