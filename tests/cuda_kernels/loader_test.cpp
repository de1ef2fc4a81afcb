// Tests what stands between the sources of the CUDA kernels and a GPU: names, compiler, cache.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/testing.h"
#include "nn/cuda_kernels/cubin_cache.h"
#include "nn/cuda_kernels/kernels.h"
#include "nn/cuda_kernels/library.h"
#include "nn/cuda_kernels/nvrtc.h"

namespace evenkeel::nn::cuda {
namespace {

constexpr const char* kElf =
    "\x7f"
    "ELF";

/// Returns what an error says, or nothing if `f` throws none.
template <typename F>
std::string complaint(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// Returns the compiler, or says that it is not installed.
std::optional<Nvrtc> compiler() {
  try {
    return Nvrtc();
  } catch (const Error& error) {
    std::cout << error.what() << '\n';
    return std::nullopt;
  }
}

TEST(KernelNames, AreReadAndWritten) {
  EXPECT_EQ(KernelSet::read("none", "k").text(), "none");
  EXPECT_EQ(KernelSet::read("all", "k").text(), "swiglu,norm,rows,routing");
  const auto two = KernelSet::read("rows,swiglu", "k");
  EXPECT_TRUE(two.has(Kernel::kRows) && two.has(Kernel::kSwiglu) && !two.has(Kernel::kNorm));
  EXPECT_EQ(two.text(), "swiglu,rows");
  EXPECT_EQ(KernelSet::read(KernelSet::all().text(), "k"), KernelSet::all());
}

TEST(KernelNames, AreRefusedWhereTheyAreUnknown) {
  for (const auto* text : {"", "swiglu,", ",", "Swiglu", "rows,rows", "all,rows", "swiglu norm", "none,"})
    EXPECT_NE(complaint([&] { KernelSet::read(text, "model.cuda_kernels"); }).find("model.cuda_kernels"),
              std::string::npos)
        << text;
}

TEST(KernelCompiler, CompilesForEveryArchitecture) {
  const auto found = compiler();
  if (!found) GTEST_SKIP();
  for (const auto* architecture : {"sm_80", "sm_90", "sm_100", "sm_120"})
    EXPECT_TRUE(found->compile(architecture).starts_with(kElf)) << architecture;
}

TEST(KernelCompiler, SaysThatItDoesNotKnowAGpu) {
  const auto found = compiler();
  if (!found) GTEST_SKIP();
  for (const auto* architecture : {"sm_10", "sm_999"}) {
    const auto text = complaint([&] { found->compile(architecture); });
    EXPECT_NE(text.find(architecture), std::string::npos) << text;
    EXPECT_NE(text.find("nvidia-cuda-nvrtc"), std::string::npos) << text;
  }
}

TEST(KernelCompiler, SaysWhatToInstallWhereThereIsNone) {
  const evenkeel::testing::TemporaryFolder folder;
  ::setenv("EVENKEEL_NVRTC", folder.path().c_str(), 1);
  const auto text = complaint([] { Nvrtc(); });
  write_file_atomic(folder.path() / "libnvrtc.so.13", "no library");
  const auto damaged = complaint([] { Nvrtc(); });
  ::unsetenv("EVENKEEL_NVRTC");
  for (const auto& each : {text, damaged})
    for (const auto* part : {"libnvrtc.so.13", "nvidia-cuda-nvrtc", "EVENKEEL_NVRTC"})
      EXPECT_NE(each.find(part), std::string::npos) << each;
}

/// Compiles with a copy of the compiler that stands alone, and prints what it says.
void compile_without_builtins(const fs::path& library) {
  const evenkeel::testing::TemporaryFolder folder;
  fs::create_symlink(library, folder.path() / library.filename());
  ::setenv("EVENKEEL_NVRTC", folder.path().c_str(), 1);
  std::cerr << complaint([] { Nvrtc().compile("sm_90"); }) << std::endl;
  std::_Exit(0);
}

/// Runs in two processes: the first finds the compiler, the second must not have loaded it before.
TEST(KernelCompiler, SaysThatItsBuiltinsAreMissing) {
  constexpr const char* kFile = "EVENKEEL_TEST_NVRTC_FILE";
  if (::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD))
    GTEST_SKIP() << "a CUDA build of LibTorch has loaded the compiler with its builtins";
  if (std::getenv(kFile) == nullptr) {
    const auto found = compiler();
    if (!found) GTEST_SKIP();
    ::setenv(kFile, found->file().c_str(), 1);
  }
  const std::string file = std::getenv(kFile);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(compile_without_builtins(file), ::testing::ExitedWithCode(0),
              "finds no libnvrtc-builtins.so.*nvidia-cuda-nvrtc");
  ::unsetenv(kFile);
}

CubinKey key_of(const std::string& architecture) { return {sources_digest(), architecture, "13.0"}; }

TEST(CompiledKernels, AreKeptByKey) {
  const evenkeel::testing::TemporaryFolder folder;
  int compiled = 0;
  const auto get = [&](const CubinKey& key, const std::string& bytes) {
    return cached_cubin(folder.path() / "new", key, [&] { return ++compiled, bytes; });
  };
  const std::string first("a\0\nb", 4);
  EXPECT_EQ(get(key_of("sm_90"), first), first);
  EXPECT_EQ(get(key_of("sm_90"), "other"), first);
  EXPECT_EQ(get(key_of("sm_80"), "other"), "other");
  EXPECT_EQ(get({sources_digest(), "sm_90", "12.9"}, "older"), "older");
  EXPECT_EQ(get({"changed", "sm_90", "13.0"}, "changed"), "changed");
  EXPECT_EQ(compiled, 4);
}

TEST(CompiledKernels, AreMadeAgainWhereTheFileIsDamagedOrForeign) {
  const evenkeel::testing::TemporaryFolder folder;
  const auto get = [&](const std::string& bytes) {
    return cached_cubin(folder.path(), key_of("sm_90"), [&] { return bytes; });
  };
  get("right");
  const auto file = entries_of(folder.path()).at(0);
  const auto whole = read_file(file);
  const auto other = cached_cubin(folder.path(), key_of("sm_80"), [] { return std::string("foreign"); });
  std::string foreign;
  for (const auto& entry : entries_of(folder.path()))
    if (entry != file) foreign = read_file(entry);
  for (const auto& bytes : {std::string(), whole.substr(0, whole.size() - 1), whole + "x", std::string("x") + whole,
                            std::string("no heading"), foreign}) {
    write_file_atomic(file, bytes);
    EXPECT_EQ(get("again"), "again");
    EXPECT_EQ(get("not compiled"), "again");
  }
}

TEST(CompiledKernels, AreUsedWhereTheyCannotBeKept) {
  const evenkeel::testing::TemporaryFolder folder;
  write_file_atomic(folder.path() / "file", "");
  for (const auto& place : {fs::path(), folder.path() / "file", folder.path() / "file" / "below"})
    EXPECT_EQ(cached_cubin(place, key_of("sm_90"), [] { return std::string("bytes"); }), "bytes");
}

TEST(KernelSwitch, LeavesTheProcessorToOperators) {
  EXPECT_NE(why_no_kernels(c10::kCPU), "");
  use_kernels(c10::kCPU, KernelSet::all());
  EXPECT_EQ(device_for(Kernel::kSwiglu, at::zeros({2, 3})), nullptr);
}

}  // namespace
}  // namespace evenkeel::nn::cuda
