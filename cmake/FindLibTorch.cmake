# Finds LibTorch inside the `torch` Python wheel by include folders and libraries alone: no nvcc, no CUDA toolkit,
# whichever build of the wheel is there. The wheel's own CMake package refuses to configure a CUDA wheel without a toolkit.
#
# Input:   LIBTORCH_ROOT, the folder that holds include/ and lib/ (default: asked of PYTHON, then of .venv/bin/python)
# Output:  the target LibTorch::LibTorch, LIBTORCH_ROOT, LIBTORCH_LIBRARY_DIR, LIBTORCH_WITH_CUDA, LIBTORCH_WITH_GLOO

if(NOT LIBTORCH_ROOT)
  foreach(python "${EVENKEEL_PYTHON}" "${CMAKE_SOURCE_DIR}/.venv/bin/python" python3)
    if(NOT python)
      continue()
    endif()
    execute_process(
      COMMAND "${python}" -c
              "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0 AND EXISTS "${root}/include/ATen/core/Tensor.h")
      set(LIBTORCH_ROOT "${root}" CACHE PATH "folder of the torch wheel that holds include/ and lib/")
      break()
    endif()
  endforeach()
endif()

set(LIBTORCH_LIBRARY_DIR "${LIBTORCH_ROOT}/lib")
find_library(LIBTORCH_TORCH_LIBRARY torch PATHS "${LIBTORCH_LIBRARY_DIR}" NO_DEFAULT_PATH)
find_library(LIBTORCH_CPU_LIBRARY torch_cpu PATHS "${LIBTORCH_LIBRARY_DIR}" NO_DEFAULT_PATH)
find_library(LIBTORCH_C10_LIBRARY c10 PATHS "${LIBTORCH_LIBRARY_DIR}" NO_DEFAULT_PATH)
find_library(LIBTORCH_CUDA_LIBRARY torch_cuda PATHS "${LIBTORCH_LIBRARY_DIR}" NO_DEFAULT_PATH)
find_library(LIBTORCH_C10_CUDA_LIBRARY c10_cuda PATHS "${LIBTORCH_LIBRARY_DIR}" NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LibTorch REQUIRED_VARS LIBTORCH_ROOT LIBTORCH_TORCH_LIBRARY LIBTORCH_CPU_LIBRARY LIBTORCH_C10_LIBRARY
  REASON_FAILURE_MESSAGE "run `make build`, or pass -DLIBTORCH_ROOT=<site-packages>/torch")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  if(LIBTORCH_CUDA_LIBRARY)
    set(LIBTORCH_WITH_CUDA ON)
  else()
    set(LIBTORCH_WITH_CUDA OFF)
  endif()
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    "${LIBTORCH_ROOT}/include" "${LIBTORCH_ROOT}/include/torch/csrc/api/include")
  # LibTorch's libraries export parts of a C++ library of their own, std::filesystem among them, of which those of
  # 2.11+cu130 call functions that are not there: the system's comes first, so that its names are its own.
  # torch_cuda registers its kernels by static initialisers, so it must stay linked although no symbol is used.
  target_link_libraries(LibTorch::LibTorch INTERFACE
    stdc++ "${LIBTORCH_TORCH_LIBRARY}" "${LIBTORCH_CPU_LIBRARY}" "${LIBTORCH_C10_LIBRARY}"
    "$<$<BOOL:${LIBTORCH_WITH_CUDA}>:-Wl,--no-as-needed,${LIBTORCH_CUDA_LIBRARY},${LIBTORCH_C10_CUDA_LIBRARY},--as-needed>")
  # The OpenMP runtime the wheel brings: our at::parallel_for regions (compiled with -fopenmp, see CMakeLists.txt) must
  # share LibTorch's threads, not start their own.
  file(GLOB LIBTORCH_OPENMP_LIBRARY "${LIBTORCH_LIBRARY_DIR}/libgomp*.so*")
  if(LIBTORCH_OPENMP_LIBRARY)
    target_link_libraries(LibTorch::LibTorch INTERFACE ${LIBTORCH_OPENMP_LIBRARY})
  else()
    target_link_libraries(LibTorch::LibTorch INTERFACE gomp)
  endif()
endif()

# Whether the wheel says that it has Gloo, and its library has what cluster/gloo.cpp calls: a program that names one function
# of it links.
if(EVENKEEL_GLOO AND NOT DEFINED LIBTORCH_WITH_GLOO)
  set(targets "${LIBTORCH_ROOT}/share/cmake/Caffe2/Caffe2Targets.cmake")
  set(says_so "")
  if(EXISTS "${targets}")
    file(STRINGS "${targets}" says_so REGEX USE_C10D_GLOO)
  endif()
  unset(links_gloo CACHE)
  if(says_so)
    file(WRITE "${CMAKE_BINARY_DIR}/gloo_probe.cpp" "#include <memory>
namespace gloo::transport { class Device; }
namespace c10d { struct ProcessGroupGloo { static std::shared_ptr<::gloo::transport::Device> createDefaultDevice(bool); }; }
int main() { return c10d::ProcessGroupGloo::createDefaultDevice(false) ? 0 : 1; }
")
    try_compile(links_gloo "${CMAKE_BINARY_DIR}/gloo_probe" SOURCES "${CMAKE_BINARY_DIR}/gloo_probe.cpp"
      LINK_LIBRARIES LibTorch::LibTorch CXX_STANDARD 20)
  endif()
  set(LIBTORCH_WITH_GLOO "$CACHE{links_gloo}" CACHE BOOL "LibTorch has Gloo" FORCE)
  if(NOT LIBTORCH_WITH_GLOO)
    message(STATUS "LibTorch has no Gloo: runs are of one rank")
  endif()
endif()
