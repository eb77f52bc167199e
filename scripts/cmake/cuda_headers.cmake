# Where cuda.h is: CISTERN_CUDA_INCLUDE as given, else the toolkit's, else what scripts/cuda-headers fetched, Ubuntu's
# package or a PyPI wheel (nvidia-cuda-runtime). Empty after this without any: whatever needs the headers is then left
# out, and one line says so. CISTERN_CUDA_INCLUDE_13: the same, but empty where they are not those of CUDA 13, on which
# the substitute runtime is made.
if(NOT CISTERN_CUDA_INCLUDE)
  file(GLOB cuda_places /usr/local/cuda/include "${PROJECT_SOURCE_DIR}/build/cuda/include"
       /usr/local/cuda-*/targets/*/include /usr/lib/cuda/include /usr/local/lib/python3*/dist-packages/nvidia/*/include
       /usr/lib/python3/dist-packages/nvidia/*/include
       $ENV{HOME}/.local/lib/python3*/site-packages/nvidia/*/include)
  find_path(CISTERN_CUDA_INCLUDE NAMES cuda.h cudaTypedefs.h
            HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES include PATHS ${cuda_places} NO_CMAKE_FIND_ROOT_PATH
            DOC "The folder of cuda.h")
endif()
if(NOT EXISTS "${CISTERN_CUDA_INCLUDE}/cuda.h")
  unset(CISTERN_CUDA_INCLUDE CACHE)  # looked for again the next time: they may be there by then
  get_property(cuda_headers_said GLOBAL PROPERTY CISTERN_CUDA_HEADERS_SAID)
  if(NOT cuda_headers_said)
    message(STATUS "No CUDA headers: the CUDA tests are left out (CISTERN_CUDA_INCLUDE names their folder)")
    set_property(GLOBAL PROPERTY CISTERN_CUDA_HEADERS_SAID ON)
  endif()
endif()

set(CISTERN_CUDA_INCLUDE_13 "")
if(CISTERN_CUDA_INCLUDE)
  file(STRINGS "${CISTERN_CUDA_INCLUDE}/cuda_runtime_api.h" cudart_version REGEX "#define CUDART_VERSION ")
  if(cudart_version MATCHES "CUDART_VERSION +13")
    set(CISTERN_CUDA_INCLUDE_13 "${CISTERN_CUDA_INCLUDE}")
  endif()
endif()
