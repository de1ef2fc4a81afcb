#include <algorithm>
#include <array>

#include "base/plain/files.h"
#include "data/tasks.h"

namespace evenkeel::data {
namespace {

/// sha256 of files as published, or as rebuilt where no copy was available.
struct KnownFile {
  std::string_view sha256;
  FileState state;
};

constexpr std::array kKnownFiles = {
    KnownFile{"86d00e372905193c968c5ebbc47024a0b166b7138b4c5c7571500157010b0eef", FileState::kExact},
    KnownFile{"4a89ce368ae01a71d268d9851686738b2a0a1d84271116bab49a1dd2b48ecad7", FileState::kExact},
    KnownFile{"3f32a84716ca6d57d38728bf80cc8117aecd17445c2cf29a68b571b810eb82dc", FileState::kExact},
    KnownFile{"89df2397cbca81dc31adcc6f7f5b635821aa0565aafde46725b2b4bd39b4dfa9", FileState::kExact},
    KnownFile{"3ea7e99795e63a01f2f5e9ddbc4dca964d9ebb22f04201e64d1ac043be51ab61", FileState::kExact},
    KnownFile{"8479930f7b8a26052c78250280b5465a4016ca7fc806af440d0f37e243f3099e", FileState::kExact},
    KnownFile{"3860d11b9b42e590b6b4bbc1643214d373ed0b0d4ac62fcc7bdceb8e044ad141", FileState::kExact},
    KnownFile{"71543f41127451945379d106ffedaef502f1c8770dff6d2f543aca85e3080b1d", FileState::kExact},
    KnownFile{"6946f5209e7114c65c6d04f8f644c5a061af20d730b1cfe158fff3dc44076fb9", FileState::kExact},
    KnownFile{"c46a4ab82d385869a6a6b09573a0d6e1abcece8e68b71b4dbf7102f48b0b3954", FileState::kExact},
    KnownFile{"f50fa0f3b243f7f7d2e768e3fd4a96b16af3ea189a1a679d1222727c05a1976d", FileState::kRebuilt},
    KnownFile{"7fc976de02124dff443ba2c3b0de5e12f3c33d1e823e700ceb0a42bbdab197c3", FileState::kRebuilt},
};

}  // namespace

FileState file_state(const std::filesystem::path& file) {
  const auto digest = sha256_file(file);
  const auto known = std::find_if(kKnownFiles.begin(), kKnownFiles.end(),
                                  [&](const KnownFile& entry) { return entry.sha256 == digest; });
  return known == kKnownFiles.end() ? FileState::kUnknown : known->state;
}

}  // namespace evenkeel::data
