/// \file  Provides what both PEFT layouts share: tensor names, the adapter_config.json of plain LoRA, and the content
/// of a folder before it is written. Private to lora/peft*.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/json.h"
#include "lora/adapter.h"
#include "lora/peft_config.h"
#include "lora/peft_info.h"

namespace evenkeel::lora::peft {

inline constexpr std::string_view kPrefix = "base_model.model.";
inline constexpr std::string_view kA = ".lora_A.weight";
inline constexpr std::string_view kB = ".lora_B.weight";

/// Returns the part of a name after the last dot.
std::string_view last_name(std::string_view name);

/// Checks that every site has the rank and scaling of `info` and no core. \throws kInternal.
void require_one_scaling(const AdapterState& adapters, const PeftInfo& info);

/// Returns all keys of plain LoRA except those that name the adapted modules; the caller adds those.
OrderedJson adapter_config(const PeftInfo& info);

/// Removes a tensor from `left` and returns it as float32. \throws kCheckpoint when it is missing or has another shape.
at::Tensor take_factor(TensorMap& left, const std::string& name, at::IntArrayRef sizes, const std::string& file);

/// Removes the experts of the fused layout from `left` and splits each parameter into its linears. If B is
/// block-diagonal, each linear gets its own rank. Otherwise each linear gets all of A and its rows of B, which is exact
/// too. A linear with only zeros in B is then left out, unless B is zero for all linears.
AdapterState take_fused(TensorMap& left, const Sites& sites, const AdapterConfig& config, const std::string& file);

/// Returns the factors of a site: zeros for a site that gets zeros.
using SiteReader = std::function<LoraFactors(const std::string& site)>;

/// A pair of factors of a file, which is made when it is written.
struct FilePair {
  std::vector<int64_t> a, b;            ///< sizes of lora_A and lora_B
  std::function<LoraFactors()> make{};  ///< makes a pair of these sizes
};

/// The content of a folder.
struct FolderContent {
  std::map<std::string, FilePair> pairs{};  ///< by module name
  OrderedJson config{};
};

/// Returns the content of a folder with factors of `written` in the layout per expert.
/// \param read  borrowed by the content
FolderContent per_expert_content(const std::set<std::string>& written, const Sites& sites, const PeftInfo& info,
                                 const SiteReader& read);
/// Returns the content of a folder in the fused layout. \param read  borrowed by the content
FolderContent fused_content(const std::set<std::string>& written, const Sites& sites, const PeftInfo& info,
                            const SiteReader& read);

/// Writes the two files of an adapter into a folder, which is created if missing. Makes one pair at a time. The tensors
/// are written first, so a folder with a config is complete. \throws kNumeric naming a tensor that is not finite in
/// float32; kIo.
void write_folder(const std::filesystem::path& folder, const FolderContent& content);

}  // namespace evenkeel::lora::peft
