# Every switch of the build. CUDA is a question of which files are compiled, never of #ifdef.
option(EXODE_TESTS "Build the tests" ON)
option(EXODE_BENCH "Build the micro-benchmarks" ON)
option(EXODE_FUZZ "Build the libFuzzer targets (Clang only)" OFF)
option(EXODE_ASAN "AddressSanitizer and UBSan" OFF)
set(EXODE_CUDA "AUTO" CACHE STRING "ON, OFF, or AUTO: ON when nvcc and a GPU are present")
set_property(CACHE EXODE_CUDA PROPERTY STRINGS ON OFF AUTO)
set(EXODE_CUDA_ARCHS "90" CACHE STRING "CUDA architectures, for example 80;86;89;90;120")
set(EXODE_SHARED_DIR "${CMAKE_SOURCE_DIR}/../shared" CACHE PATH
    "Reference data too large for the repository (templates, bf16 demo weights)")

if(EXODE_CUDA STREQUAL "AUTO")
  find_program(EXODE_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(EXODE_NVCC AND EXISTS /dev/nvidiactl)
    set(EXODE_WITH_CUDA ON)
  else()
    set(EXODE_WITH_CUDA OFF)
  endif()
else()
  set(EXODE_WITH_CUDA ${EXODE_CUDA})
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Every x86 machine that can run a model at all has SSE4.2; it spares the kernels a scalar build.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-march=x86-64-v2>
                      $<$<COMPILE_LANGUAGE:C,CXX>:-maes> $<$<COMPILE_LANGUAGE:C,CXX>:-mpclmul>)
endif()

find_program(EXODE_CCACHE ccache)
if(EXODE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${EXODE_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${EXODE_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${EXODE_CCACHE})
endif()

if(EXODE_WITH_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${EXODE_CUDA_ARCHS})
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc takes C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  # 554: a conversion operator template that its own instantiation cannot use (tensor/tensor.h).
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-diag-suppress=554>)
endif()

# One nvcc can take 4 GB and one link holds the whole program: keep both single on small machines.
set_property(GLOBAL PROPERTY JOB_POOLS cuda=1 link=1)
set(CMAKE_JOB_POOL_LINK link)
