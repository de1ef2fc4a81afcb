#include "nn/cuda_kernels/cubin_cache.h"

#include <array>
#include <optional>
#include <string_view>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/log.h"

namespace evenkeel::nn::cuda {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;

/// The line that begins a file.
std::string heading(const CubinKey& key, std::string_view bytes) {
  return concat("evenkeel kernels ", key.text(), " ", sha256(bytes), "\n");
}

std::optional<std::string> stored(const fs::path& file, const CubinKey& key) {
  try {
    if (!is_file(file)) return std::nullopt;
    const auto all = read_file(file, kMostBytes);
    const auto begin = all.find('\n');
    if (begin == all.npos) return std::nullopt;
    auto bytes = all.substr(begin + 1);
    return heading(key, bytes) == all.substr(0, begin + 1) ? std::optional(std::move(bytes)) : std::nullopt;
  } catch (const Error&) {  // a file that cannot be read is compiled again
    return std::nullopt;
  }
}

void store(const fs::path& file, const CubinKey& key, std::string_view bytes) {
  try {
    make_folders(file.parent_path());
    const auto first = heading(key, bytes);
    write_file_atomic(file, std::array<std::string_view, 2>{first, bytes});
  } catch (const Error& error) {
    log::warning("[kernels] compiled kernels are not kept: ", error.what());
  }
}

}  // namespace

std::string cached_cubin(const fs::path& folder, const CubinKey& key, const std::function<std::string()>& compile) {
  if (folder.empty()) return compile();
  const auto file = folder / concat("kernels-", sha256(key.text()).substr(0, 32), ".cubin");
  if (auto found = stored(file, key)) return *std::move(found);
  auto bytes = compile();
  store(file, key, bytes);
  return bytes;
}

}  // namespace evenkeel::nn::cuda
