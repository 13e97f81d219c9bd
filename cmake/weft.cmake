# Build helpers: one library per source folder, one test program per subject, header-only
# dependencies from the system or from a folder carried along, CUDA when there is a compiler for it.

set(WEFT_HEADERS "" CACHE PATH "extra folder with header-only libraries")

# Finds a header-only library and wraps it as an interface target of the given name.
function(weft_find_header_library name header package)
  find_path(${name}_INCLUDE_DIR ${header} HINTS ${WEFT_HEADERS})
  if(NOT ${name}_INCLUDE_DIR)
    message(FATAL_ERROR "${header} not found: install ${package}, or put it under a folder named by -DWEFT_HEADERS")
  endif()
  add_library(${name} INTERFACE)
  target_include_directories(${name} SYSTEM INTERFACE ${${name}_INCLUDE_DIR})
endfunction()

# The standard headers that most files include, parsed once: a third of the compile time otherwise.
# Every file still includes what it uses, so that it compiles without this.
set(WEFT_PRECOMPILED <algorithm> <cmath> <functional> <map> <memory> <optional> <set> <span> <string> <unordered_map>
    <unordered_set> <vector>)

# weft_library(base SOURCES a.cpp b.cpp DEPS other): the library weft_base.
function(weft_library folder)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_library(weft_${folder} STATIC ${arg_SOURCES})
  target_include_directories(weft_${folder} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(weft_${folder} PUBLIC ${arg_DEPS})
  weft_precompile(weft_${folder})
endfunction()

# Shares one set of precompiled headers among all libraries. Files with their own flags are left
# out: a compiler accepts such a set only with the flags that made it.
function(weft_precompile target)
  if(target STREQUAL weft_base)
    target_precompile_headers(weft_base PRIVATE ${WEFT_PRECOMPILED})
  else()
    target_precompile_headers(${target} REUSE_FROM weft_base)
  endif()
endfunction()

# weft_test(base_test LABEL unit SOURCES ... DEPS ...): a GoogleTest program, one ctest per program.
function(weft_test name)
  cmake_parse_arguments(arg "" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE WEFT_TESTS_DIR="${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gtest_main Threads::Threads)
  target_precompile_headers(${name} REUSE_FROM test_headers)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
endfunction()

# Sets WEFT_HAS_CUDA and enables the language when asked for and possible. A macro, as a language
# must be enabled at file scope.
macro(weft_enable_cuda)
  set(WEFT_HAS_CUDA OFF)
  if(NOT WEFT_CUDA MATCHES "^(on|off|auto)$")
    message(FATAL_ERROR "WEFT_CUDA is \"${WEFT_CUDA}\", expected on, off or auto")
  endif()
  if(NOT WEFT_CUDA STREQUAL "off")
    find_program(WEFT_NVCC nvcc HINTS /usr/local/cuda/bin)
    find_path(cudnn_INCLUDE_DIR cudnn.h HINTS ${WEFT_HEADERS})
    find_path(nccl_INCLUDE_DIR nccl.h HINTS ${WEFT_HEADERS})
    set(weft_cuda_missing "")
    if(NOT WEFT_NVCC)
      list(APPEND weft_cuda_missing "nvcc (CUDA toolkit 13)")
    endif()
    if(NOT cudnn_INCLUDE_DIR)
      list(APPEND weft_cuda_missing "cudnn.h (cuDNN 9)")
    endif()
    if(NOT nccl_INCLUDE_DIR)
      list(APPEND weft_cuda_missing "nccl.h (NCCL 2)")
    endif()
    list(JOIN weft_cuda_missing ", " weft_cuda_missing)
    if(NOT weft_cuda_missing)
      set(WEFT_HAS_CUDA ON)
    elseif(WEFT_CUDA STREQUAL "on")
      message(FATAL_ERROR "WEFT_CUDA=on, not found: ${weft_cuda_missing}; install what is missing, put a header "
                          "under a folder named by -DWEFT_HEADERS, or use -DWEFT_CUDA=off")
    elseif(WEFT_NVCC)  # Whoever has nvcc may expect a build that uses it.
      message(WARNING "building without the CUDA backend, not found: ${weft_cuda_missing}")
    else()
      message(STATUS "building without the CUDA backend, not found: ${weft_cuda_missing}")
    endif()
  endif()
  if(WEFT_HAS_CUDA)
    set(CMAKE_CUDA_COMPILER ${WEFT_NVCC} CACHE FILEPATH "CUDA compiler")
    set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "GPU architectures")
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    find_package(CUDAToolkit REQUIRED)
    add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Werror,-ffp-contract=off>")
  endif()
endmacro()
