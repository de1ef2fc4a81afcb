#include "nn/cuda_kernels/nvrtc.h"

#include <ATen/Context.h>
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "nn/cuda_kernels/library.h"
#include "nn/cuda_kernels/sources.h"

namespace evenkeel::nn::cuda {
namespace {

constexpr std::array kNames{"libnvrtc.so.13", "libnvrtc.so.12"};
constexpr const char *kBuiltins = "libnvrtc-builtins.so", *kVariable = "EVENKEEL_NVRTC";
constexpr std::string_view kRemedy =
    "; install the Python package nvidia-cuda-nvrtc beside torch, or name the folder of the library in EVENKEEL_NVRTC";
constexpr int kBadOption = 5, kNoBuiltins = 7;  // nvrtcResult

struct Header {
  const char* name;
  std::string text;
};

const std::vector<Header>& headers() {
  static const std::vector<Header> all{
      {"arguments.h", std::string(sources::arguments_h())}, {"common.cuh", std::string(sources::common_cuh())},
      {"norm.cu", std::string(sources::norm_cu())},         {"routing.cu", std::string(sources::routing_cu())},
      {"rows.cu", std::string(sources::rows_cu())},         {"swiglu.cu", std::string(sources::swiglu_cu())}};
  return all;
}

/// Returns the folders of pip's packages in which NVRTC may lie, beside the LibTorch of this process.
std::vector<fs::path> folders_beside_libtorch() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&at::globalContext), &info) == 0 || info.dli_fname == nullptr) return {};
  const auto library_folder = fs::path(info.dli_fname).parent_path(), packages = library_folder / "../..";
  return {library_folder, packages / "nvidia/cu13/lib", packages / "nvidia/cuda_nvrtc/lib"};
}

Library open_in(const fs::path& folder) {
  for (const char* name : kNames)
    if (is_file(folder / name))
      if (const auto library = Library::open((folder / name).string()); library.is_set()) return library;
  return {};
}

Library find_library() {
  if (const char* folder = std::getenv(kVariable); folder != nullptr) return open_in(folder);
  for (const char* name : kNames)
    if (const auto library = Library::open(name); library.is_set()) return library;
  for (const auto& folder : folders_beside_libtorch())
    if (const auto library = open_in(folder); library.is_set()) return library;
  return {};
}

/// Loads the library of built-in functions beside `file`. The compiler does not look there itself.
void open_builtins(const fs::path& file) {
  for (const auto& entry : entries_of(file.parent_path()))
    if (entry.filename().string().starts_with(kBuiltins)) Library::open(entry.string());
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

struct Nvrtc::Functions {
  using Program = void*;

  explicit Functions(const Library& library)
      : version(library.function<int(int*, int*)>("nvrtcVersion")),
        create(library.function<int(Program*, const char*, const char*, int, const char* const*, const char* const*)>(
            "nvrtcCreateProgram")),
        compile(library.function<int(Program, int, const char* const*)>("nvrtcCompileProgram")),
        destroy(library.function<int(Program*)>("nvrtcDestroyProgram")),
        log_size(library.function<int(Program, size_t*)>("nvrtcGetProgramLogSize")),
        log(library.function<int(Program, char*)>("nvrtcGetProgramLog")),
        cubin_size(library.function<int(Program, size_t*)>("nvrtcGetCUBINSize")),
        cubin(library.function<int(Program, char*)>("nvrtcGetCUBIN")),
        error(library.function<const char*(int)>("nvrtcGetErrorString")) {}

  int (*version)(int*, int*);
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  int (*compile)(Program, int, const char* const*);
  int (*destroy)(Program*);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*cubin_size)(Program, size_t*);
  int (*cubin)(Program, char*);
  const char* (*error)(int);

  /// Returns text or bytes of a program.
  std::string read(Program program, int (*size_of)(Program, size_t*), int (*bytes_of)(Program, char*)) const {
    size_t size = 0;
    check(size_of(program, &size), "a size");
    std::string bytes(size, '\0');
    check(bytes_of(program, bytes.data()), "a result");
    return bytes;
  }
  void check(int result, std::string_view what) const {
    EK_CHECK(result == 0, kInternal, "NVRTC gives no ", what, ": ", error(result));
  }
};

Nvrtc::Nvrtc() {
  const auto library = find_library();
  const char* folder = std::getenv(kVariable);
  EK_CHECK(library.is_set(), kConfig, "there is no ", kNames.front(), folder != nullptr ? " in " : "",
           folder != nullptr ? folder : "", kRemedy);
  file_ = library.file("nvrtcVersion").string();
  open_builtins(file_);
  functions_ = std::make_shared<const Functions>(library);
  int major = 0, minor = 0;
  functions_->check(functions_->version(&major, &minor), "version");
  version_ = concat(major, ".", minor);
}

std::string Nvrtc::compile(const std::string& architecture) const {
  std::vector<const char*> names, texts;
  for (const auto& header : headers()) names.push_back(header.name), texts.push_back(header.text.c_str());
  const std::string main(sources::all_cu()), option = "--gpu-architecture=" + architecture;
  const std::array options{option.c_str(), "--std=c++17"};
  Functions::Program program = nullptr;
  functions_->check(
      functions_->create(&program, main.c_str(), "all.cu", static_cast<int>(names.size()), texts.data(), names.data()),
      "program");
  const int result = functions_->compile(program, static_cast<int>(options.size()), options.data());
  const auto log = functions_->read(program, functions_->log_size, functions_->log);
  std::string cubin;
  if (result == 0) cubin = functions_->read(program, functions_->cubin_size, functions_->cubin);
  functions_->destroy(&program);
  EK_CHECK(result != kNoBuiltins, kConfig, file_, " finds no ", kBuiltins, " of its version beside it", kRemedy);
  EK_CHECK(result != kBadOption, kConfig, "NVRTC ", version_, " (", file_, ") does not know GPUs of ", architecture,
           kRemedy);
  EK_CHECK(result == 0, kInternal, "NVRTC ", version_, " cannot compile the kernels for ", architecture, ": ",
           first_line(log));
  return cubin;
}

const std::string& sources_digest() {
  static const std::string digest = [] {
    std::string all(sources::all_cu());
    for (const auto& header : headers()) all += header.text;
    return sha256(all);
  }();
  return digest;
}

}  // namespace evenkeel::nn::cuda
